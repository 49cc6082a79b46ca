package verbs_test

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

// The device writes to a dma-buf. Usually a dma-buf is a GPU's memory. Here the driver udmabuf
// makes one of a memfd.
func ExamplePD_RegDmabufMR() {
	l := open("")
	defer l.dev.Close()
	n := os.Getpagesize()
	fd, memory := dmabuf(n)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	mr := must(l.pd.RegDmabufMR(verbs.DmabufOptions{FD: fd, Length: uint64(n), Access: access}))

	qp, _ := l.connected(nil, access)
	out := l.alloc(64, 0)
	length := copy(out.Bytes(), "by the device")
	must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{out.SGE(0, length)}, Remote: mr.Remote()}))
	l.wait()
	fmt.Printf("%q\n", memory[:length])
}

// dmabuf makes a dma-buf of n bytes, and maps them.
func dmabuf(n int) (fd int, memory []byte) {
	memfd := must(unix.MemfdCreate("example", unix.MFD_ALLOW_SEALING))
	check(unix.Ftruncate(memfd, int64(n)))
	must(unix.FcntlInt(uintptr(memfd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))
	memory = must(unix.Mmap(memfd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	const create = 0x40187542 // UDMABUF_CREATE, of linux/udmabuf.h
	arg := struct {           // struct udmabuf_create
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(memfd), size: uint64(n)}
	driver := must(os.OpenFile("/dev/udmabuf", os.O_RDWR, 0))
	defer driver.Close()
	number, _, errno := unix.Syscall(unix.SYS_IOCTL, driver.Fd(), create, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		check(os.NewSyscallError("UDMABUF_CREATE", errno))
	}
	return int(number), memory
}
