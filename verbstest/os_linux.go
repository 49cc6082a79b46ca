package verbstest

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pipe makes a pipe for events. The library reads from the descriptor.
func pipe() (fd int, w *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, nil, err
	}
	return ends[0], os.NewFile(uintptr(ends[1]), "events"), nil
}

// newFlag makes a file that is readable after raise until lower.
func newFlag() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "rdma_cm"), nil
}

// raise makes the file readable. It fails when the library has closed the file.
func raise(f *os.File) { f.Write(binary.NativeEndian.AppendUint64(nil, 1)) }
func lower(fd uintptr) { unix.Read(int(fd), make([]byte, 8)) }

// populate maps the pages of memory, as pinning it does. It reports false if they can't be read or,
// with write, written to.
func populate(b []byte, write bool) bool {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	return madvise(b, advice) == 0 || !populates()
}

// populates reports whether the kernel can populate memory, as Linux can since 5.14. If not, any
// memory can be registered.
var populates = sync.OnceValue(func() bool { return madvise(make([]byte, 1), unix.MADV_POPULATE_READ) == 0 })

// madvise gives advice about the pages of b. Unlike with unix.Madvise, b needn't begin at a page.
func madvise(b []byte, advice int) syscall.Errno {
	page := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	start := begin &^ (page - 1)
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, start, (begin+uintptr(len(b))-start+page-1)&^(page-1), uintptr(advice))
	return errno
}
