package brief

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func memory(t *testing.T) (fd int) {
	t.Helper()
	fd, err := unix.MemfdCreate("brief", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestWriteAndMap(t *testing.T) {
	fd := memory(t)
	const page = 1 << 16 // of any architecture
	if err := unix.Ftruncate(fd, 2*page); err != nil {
		t.Fatal(err)
	}
	if err := Write(fd, []byte("begin")); err != nil {
		t.Fatal(err)
	}
	first, err := Mmap(fd, 0, page, unix.PROT_READ)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Mmap(fd, page, page, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(first[:5]); got != "begin" || len(first) != page || len(second) != page {
		t.Errorf("%d bytes begin with %q, and %d behind", len(first), got, len(second))
	}
	copy(second, "more")
	var b [4]byte
	if n, err := unix.Pread(fd, b[:], page); n != 4 || string(b[:]) != "more" {
		t.Errorf("the mapping is not of the file: %q, %v", b[:n], err)
	}
	for _, mapped := range [][]byte{first, second} {
		if err := Munmap(mapped); err != nil {
			t.Error(err)
		}
	}
}

func TestErrors(t *testing.T) {
	fd := memory(t)
	if err := Write(-1, []byte("x")); err != unix.EBADF {
		t.Errorf("write to nothing: %v", err)
	}
	if b, err := Mmap(fd, 1, 4096, unix.PROT_READ); err != unix.EINVAL || b != nil {
		t.Errorf("mmap at no page's beginning: %v", err)
	}
	var arg uint64
	if errno := Ioctl(fd, 0xdead, unsafe.Pointer(&arg)); errno != unix.ENOTTY {
		t.Errorf("a request that is none: %v", errno)
	}
	if err := Munmap(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&arg), 1)), 1)); err != unix.EINVAL {
		t.Errorf("munmap of part of a page: %v", err)
	}
}
