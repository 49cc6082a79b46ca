package main

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

func init() { subjects["dmabuf"] = dmabuf }

// dmabuf writes to a dma-buf. Usually a dma-buf is memory of a GPU. Here the driver udmabuf
// makes it of a memfd. It prints
//
//	the dma-buf has "written by the device"
func dmabuf(e *env) {
	n := os.Getpagesize()
	fd := must(unix.MemfdCreate("example", unix.MFD_ALLOW_SEALING))
	check(unix.Ftruncate(fd, int64(n)))
	must(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))
	memory := must(unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))

	mr := must(e.pd.RegDmabufMR(verbs.DmabufOptions{FD: udmabuf(fd, uint64(n)), Length: uint64(n),
		Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))
	qp, _ := e.pair(verbs.QPOptions{Type: verbs.RC}, verbs.AccessRemoteWrite)
	out := e.alloc(64, 0)
	length := copy(out.Bytes(), "written by the device")
	check(e.send(qp, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{out.SGE(0, length)}, Remote: mr.Remote()}))
	fmt.Printf("the dma-buf has %q\n", memory[:length])
}

// udmabuf returns a dma-buf of the first n bytes of a memfd.
func udmabuf(memfd int, n uint64) int {
	const create = 0x40187542 // UDMABUF_CREATE, of linux/udmabuf.h
	arg := struct {           // struct udmabuf_create
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(memfd), size: n}
	driver := must(os.OpenFile("/dev/udmabuf", os.O_RDWR, 0))
	defer driver.Close()
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, driver.Fd(), create, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		check(os.NewSyscallError("UDMABUF_CREATE", errno))
	}
	return int(fd)
}
