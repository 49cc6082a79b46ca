package xfer

import (
	"bytes"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/xfer"
)

var _ = rdmatest.Test(TestTransportDmabuf, rdmatest.OnMLX5)

// dmabuf makes a dma-buf of n bytes, and maps them. Usually a dma-buf is a GPU's memory: here the driver
// udmabuf makes one of a memfd.
func dmabuf(t *testing.T, n int) (fd int, memory []byte) {
	t.Helper()
	memfd := rdmatest.Must(unix.MemfdCreate("xfer", unix.MFD_ALLOW_SEALING))(t)
	defer unix.Close(memfd)
	rdmatest.Check(t, unix.Ftruncate(memfd, int64(n)))
	rdmatest.Must(unix.FcntlInt(uintptr(memfd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(t)
	memory = rdmatest.Must(unix.Mmap(memfd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { unix.Munmap(memory) })
	const create = 0x40187542 // UDMABUF_CREATE, of linux/udmabuf.h
	arg := struct {           // struct udmabuf_create
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(memfd), size: uint64(n)}
	driver := rdmatest.Must(os.OpenFile("/dev/udmabuf", os.O_RDWR, 0))(t)
	defer driver.Close()
	// The kernel reads arg during the call only.
	number, _, errno := unix.Syscall(unix.SYS_IOCTL, driver.Fd(), create, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		t.Fatal(os.NewSyscallError("UDMABUF_CREATE", errno))
	}
	return int(number), memory
}

// A dma-buf is read and written like other memory, and the program needs its descriptor no more.
func TestTransportDmabuf(t *testing.T) {
	release := rdmatest.Must(os.ReadFile("/proc/sys/kernel/osrelease"))(t)
	if bytes.HasPrefix(release, []byte("6.1.")) {
		return // Debian's 6.1 has no udmabuf
	}
	rdmatest.CheckLeaks(t)
	w := ways()[0]
	a, b := w.open(t, 0), w.open(t, 1)
	page := os.Getpagesize()
	fd, bytesOf := dmabuf(t, 4*page)
	theirs := rdmatest.Must(b.RegisterDmabuf(fd, uint64(page), 3*page, false))(t)
	rdmatest.Check(t, unix.Close(fd))
	if theirs.Bytes() != nil || theirs.Len() != 3*page || theirs.Slice(1, 2).Bytes() != nil {
		t.Error("a dma-buf has bytes")
	}
	g := rdmatest.Must(theirs.Slice(100, 2*page).Grant(xfer.GrantOptions{Access: xfer.Read | xfer.Write}))(t)
	mine := alloc(t, a, 2*page, 5)
	p := dial(t, a, b)
	rdmatest.Check(t, p.Write(patient(t), g.Remote(), mine.All()))
	want := make([]byte, 4*page)
	copy(want[page+100:], mine.Bytes())
	if !bytes.Equal(bytesOf, want) {
		t.Error("the dma-buf has wrong bytes")
	}
	clear(mine.Bytes())
	rdmatest.Check(t, p.Read(patient(t), mine.Slice(0, page), g.Remote().Slice(page, page)))
	if !bytes.Equal(mine.Bytes()[:page], want[2*page+100:][:page]) {
		t.Error("wrong bytes were read")
	}
	// The other way round, a dma-buf is the local side.
	back := b.Peers()[0]
	rdmatest.Check(t, back.Read(patient(t), theirs.Slice(0, page), rdmatest.Must(mine.Slice(0, page).Grant(xfer.GrantOptions{Access: xfer.Read}))(t).Remote()))
	if !bytes.Equal(bytesOf[page:2*page], mine.Bytes()[:page]) {
		t.Error("the dma-buf has wrong bytes after a read into it")
	}
}
