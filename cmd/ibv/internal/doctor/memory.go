package doctor

import "strings"

// gpus checks that the card can read a GPU's memory. NVIDIA's driver offers it in two
// ways: the module nvidia_peermem, and dma-buf, which its open modules have on Linux 5.12
// and later.
func (e *exam) gpus() {
	h := e.host
	const version = "/proc/driver/nvidia/version"
	text := h.read(version)
	if text == "" || h.loaded("nvidia_peermem") || strings.Contains(text, "Open Kernel Module") && !h.kernelBefore(5, 12) {
		return
	}
	f := e.add(gpuMemory, "RDMA devices can't access the memory of the NVIDIA GPUs")
	line, _, _ := strings.Cut(text, "\n")
	f.evidence(version, line).evidence("/sys/module/nvidia_peermem", "does not exist")
	f.mend("modprobe nvidia-peermem")
}

// hugePages checks that reserved huge pages are left.
func (e *exam) hugePages() {
	h := e.host
	total, free := h.field("/proc/meminfo", "HugePages_Total"), h.field("/proc/meminfo", "HugePages_Free")
	if total != "" && total != "0" && free == "0" {
		f := e.add(hugePagesUsed, "all %s reserved huge pages are in use", total)
		f.evidence("/proc/meminfo", "HugePages_Free 0")
		f.mend("sysctl vm.nr_hugepages=$((%s * 2))", total)
	}
}
