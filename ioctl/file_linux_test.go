package ioctl

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// devNull returns an rxe device that refuses everything.
func devNull(t *testing.T) *File {
	t.Helper()
	f, err := Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	f.driver = uint32(uapi.RDMA_DRIVER_RXE)
	return f
}

// mapping returns the kernel's description of the mapping that begins at b: its line in
// /proc/self/smaps, and its flags.
func mapping(t *testing.T, b []byte) (line, flags string) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin := strings.TrimPrefix(fmt.Sprintf("%p-", b), "0x")
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text := lines.Text()
		switch rest, ok := strings.CutPrefix(text, "VmFlags:"); {
		case strings.HasPrefix(text, begin):
			line = text
		case ok && line != "":
			return line, rest + " "
		}
	}
	t.Fatalf("nothing is mapped at %p", b)
	return "", ""
}

func TestMappings(t *testing.T) {
	page := os.Getpagesize()
	fd, err := unix.MemfdCreate("goverbs-pages", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFile(fd)
	defer f.Close()
	content := make([]byte, 3*page)
	content[0], content[page], content[2*page] = 1, 2, 3
	if _, err := unix.Write(fd, content); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		open   func(offset uint64, size int) ([]byte, error)
		access string
	}{
		{"Mmap", f.Mmap, " rw-s "},
		{"MmapReadOnly", f.MmapReadOnly, " r--s "},
	} {
		b, err := x.open(uint64(page), 2*page)
		if err != nil {
			t.Fatal(x.name, err)
		}
		line, _ := mapping(t, b)
		if len(b) != 2*page || b[0] != 2 || b[page] != 3 || !strings.Contains(line, x.access) {
			t.Errorf("%s: %d bytes, that begin with %d, mapped as %s", x.name, len(b), b[0], line)
		}
		if err := Munmap(b); err != nil {
			t.Error(err)
		}
		var refused *MapError
		if b, err := x.open(1, page); !errors.As(err, &refused) || refused.Err != unix.EINVAL || b != nil {
			t.Errorf("%s from within a page: %v", x.name, err)
		}
	}
	b, err := MapMemory(page)
	if err != nil {
		t.Fatal(err)
	}
	// The mapping is private, and not inherited by a child of fork ("dc").
	if line, flags := mapping(t, b); !strings.Contains(flags, " dc ") || !strings.Contains(line, " rw-p ") {
		t.Errorf("memory is mapped as %s, %s", line, flags)
	}
	if err := Munmap(b); err != nil {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	f := devNull(t)
	flags, err := unix.FcntlInt(uintptr(f.FD()), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a program that is run keeps the device open: %#x, %v", flags, err)
	}
	access, err := unix.FcntlInt(uintptr(f.FD()), unix.F_GETFL, 0)
	if err != nil || access&unix.O_ACCMODE != unix.O_RDWR {
		t.Errorf("opened with %#x, %v", access, err)
	}
	if _, err := Open("/nonexistent/device"); err != unix.ENOENT {
		t.Errorf("no device: %v", err)
	}
	if err := f.Doorbell([]byte("bell"), true); err != nil {
		t.Error(err)
	}
	if err := NewFile(-1).Doorbell([]byte("bell"), true); err != unix.EBADF {
		t.Errorf("no device's doorbell: %v", err)
	}
	if err := NewFile(-1).Doorbell([]byte("bell"), false); err != unix.EBADF {
		t.Errorf("no device's doorbell: %v", err)
	}
}

// Probe succeeds only for a device of the driver.
func TestProbeElsewhere(t *testing.T) {
	f := devNull(t)
	if found, err := f.Probe(uapi.RDMA_DRIVER_MLX5); found || err != unix.ENOTTY || f.driver != uint32(uapi.RDMA_DRIVER_RXE) {
		t.Errorf("found %v on /dev/null, %v, driver %d", found, err, f.driver)
	}
}
