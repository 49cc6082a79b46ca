package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/verbs"
)

// node checks that the device's node can be opened, and that goverbs can drive the device.
func (e *exam) node(d *device) {
	if d.uverbs == "" {
		return
	}
	if !e.openable(d, "/dev/infiniband/"+d.uverbs, "/sys/class/infiniband_verbs/"+d.uverbs+"/dev") {
		return
	}
	a, err := e.host.Query(d.name)
	if err == nil {
		d.answer = &a
		return
	}
	abiFile := "/sys/class/infiniband_verbs/" + d.uverbs + "/abi_version"
	abi, _ := strconv.Atoi(e.host.read(abiFile))
	p := d.provider()
	switch {
	case errors.Is(err, syscall.EAGAIN) && e.found(rdmaCgroup, d):
	case errors.Is(err, verbs.ErrNotSupported) && e.host.kernelBefore(5, 10):
		f := e.addTo(d, kernelOld, "the kernel is too old for goverbs, which needs Linux 5.10")
		f.evidence("/proc/sys/kernel/osrelease", e.report.Kernel)
		f.Advice = "Boot a newer kernel."
	case errors.Is(err, verbs.ErrNotSupported) && p != nil && (abi < p.MinABI || abi > p.MaxABI):
		f := e.addTo(d, abiVersion, "the driver's ABI version is %d, goverbs knows %d to %d", abi, p.MinABI, p.MaxABI)
		f.evidence(abiFile, strconv.Itoa(abi))
		f.Advice = "Use a version of goverbs, or of the driver, that fits."
	case errors.Is(err, verbs.ErrNotSupported) && p == nil:
		k := noProvider
		if e.otherProvider(d) {
			k = noProviderHere
		}
		f := e.addTo(d, k, "goverbs has no provider for the driver %s", d.driverName())
		f.evidence("/dev/infiniband/"+d.uverbs, err.Error())
		f.Advice = "Programs on libibverbs can use the device. A Go program needs a provider from another module."
	default:
		f := e.addTo(d, openFailed, "the device can't be opened")
		f.evidence("/dev/infiniband/"+d.uverbs, err.Error())
		f.Advice = "The kernel's log may say more: dmesg | grep " + d.name
	}
}

// provider returns goverbs' provider for the device's driver, or nil.
func (d *device) provider() *provider.Provider {
	for _, p := range provider.Registered() {
		if p.Name == strings.TrimSuffix(d.driver, "_core") {
			return p
		}
	}
	return nil
}

func (d *device) driverName() string {
	if d.driver == "" {
		return "of " + d.name
	}
	return d.driver
}

// otherProvider reports whether another device has a provider.
func (e *exam) otherProvider(than *device) bool {
	for _, d := range e.devices {
		if d != than && d.provider() != nil {
			return true
		}
	}
	return false
}

// otherNode reports whether another device has a node.
func (e *exam) otherNode(than *device) bool {
	for _, d := range e.devices {
		if d != than && d.uverbs != "" && e.host.Node("/dev/infiniband/"+d.uverbs).Missing == nil {
			return true
		}
	}
	return false
}

// openable checks that a device node exists, has the right number and can be opened. The file
// numbers in /sys has the number.
func (e *exam) openable(d *device, path, numbers string) bool {
	add := func(k *Kind, what string, args ...any) *Finding {
		if d != nil {
			return e.addTo(d, k, what, args...)
		}
		return e.add(k, what, args...)
	}
	n := e.host.Node(path)
	want := e.host.read(numbers)
	major, minor, _ := strings.Cut(want, ":")
	container := e.host.container()
	switch {
	case errors.Is(n.Missing, fs.ErrPermission):
		if e.folderClosed {
			break
		}
		e.folderClosed = true
		f := e.add(nodePermission, "no permission for /dev/infiniband")
		f.evidence("/dev/infiniband", n.Missing.Error())
		f.mend("chmod 755 /dev/infiniband")
	case n.Missing != nil:
		k := nodeMissing
		if container != "" && (d == nil || e.otherNode(d)) && e.opts.Device == "" {
			k = nodeNotPassed
		}
		f := add(k, "the device node %s is missing", path)
		f.evidence(path, "does not exist").evidence(numbers, want)
		if container != "" {
			f.mend("%s run --device %s …", e.host.runner(), path)
			f.Advice = "Run the container with the node."
			if container == "kubernetes" {
				f.Advice = "The pod needs a device plugin for RDMA, or a volume with the node and the right to use it."
			}
		} else {
			f.mend("mkdir -p /dev/infiniband && mknod -m 666 %s c %s %s", path, major, minor)
			f.Advice = "udev normally makes it: udevadm trigger --subsystem-match=infiniband_verbs --subsystem-match=misc."
		}
	case n.Dev != want:
		is := n.Dev
		if is == "" {
			is = "no device"
		}
		f := add(nodeStale, "the device node %s isn't this device's", path)
		f.evidence(path, is).evidence(numbers, want)
		f.mend("rm %s && mknod -m 666 %[1]s c %s %s", path, major, minor)
		if container != "" {
			f.Advice = "Or start the container again: the node is that of an earlier device."
		}
	case errors.Is(n.Open, syscall.EACCES):
		f := add(nodePermission, "no permission to open %s", path)
		f.evidence(path, fmt.Sprintf("%s %s", n.Mode, n.Owner)).evidence("open", n.Open.Error())
		f.mend("chmod 666 %s", path)
		f.Advice = "For good, a udev rule sets the mode: rdma-core's does."
	case errors.Is(n.Open, syscall.EPERM):
		f := add(deviceCgroup, "the device cgroup doesn't allow %s", path)
		f.evidence(path, fmt.Sprintf("%s %s", n.Mode, n.Owner)).evidence("open", n.Open.Error())
		f.mend("%s run --device %s …", e.host.runner(), path)
		f.Advice = "A node that is only mounted into a container can't be opened."
	case errors.Is(n.Open, syscall.EPROTONOSUPPORT), n.Open == nil:
		return true
	default:
		f := add(openFailed, "%s can't be opened", path)
		f.evidence("open", n.Open.Error())
		f.Advice = "The kernel's log may say more: dmesg | tail"
	}
	return false
}
