// Package syscalltest lets tests hold system calls in the kernel, with a seccomp filter,
// and answer them in place of the kernel. It works on calls for any file.
//
// Test checks that Go's scheduler knows about a system call. While a goroutine is
// in a call that the scheduler doesn't know about, it keeps its processor, and the
// garbage collector waits for it.
package syscalltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Filter selects the calls to hold: calls with this number (unix.SYS_*) and Value as the
// lower half of the argument Arg.
type Filter struct {
	Number uintptr
	Arg    int
	Value  uint32
}

// Errno is the error of held calls.
const Errno = unix.EHWPOISON

const (
	variable = "GOVERBS_HELD" // marks the process whose calls are held
	calls    = 16
	others   = 64
	patience = 5 * time.Minute
)

// Test makes a call from 16 goroutines and holds it in the kernel, on 1, 2 and 16
// processors. The test fails unless other goroutines and the garbage collector still run
// meanwhile. call must return an error that wraps Errno.
//
// Test runs the test again in separate processes. They hang if the scheduler doesn't know
// about the call.
func Test(t *testing.T, f Filter, call func() error) {
	t.Helper()
	if os.Getenv(variable) != "" {
		hold(t, f, call)
		return
	}
	pattern := patternOf(t)
	for _, processors := range []int{1, 2, calls} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) { runApart(t, pattern, processors) })
	}
}

// Answer runs call and answers the system calls held meanwhile, with an error, or with
// success and 0. Then it runs check. It runs the test again in a separate process, and
// calls the functions there. With Read and Write, answer can access the memory that the
// system calls' arguments point to.
func Answer(t *testing.T, f Filter, answer func(args [6]uint64) unix.Errno, call, check func()) {
	t.Helper()
	if os.Getenv(variable) == "" {
		runApart(t, patternOf(t), calls)
		return
	}
	listener, err := install(f)
	if err != nil {
		t.Fatalf("seccomp: %v", err)
	}
	var answered sync.Mutex // shows the race detector an order that the kernel enforces
	go func() {
		for {
			n, err := receive(listener)
			if err == nil {
				answered.Lock()
				errno := answer(n.args)
				answered.Unlock()
				err = reply(listener, n.id, errno)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	call()
	answered.Lock()
	defer answered.Unlock()
	check()
}

// Read returns n bytes of this process's memory, as the kernel reads them.
func Read(addr uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := unix.ProcessVMReadv(os.Getpid(), local(b), []unix.RemoteIovec{{Base: uintptr(addr), Len: n}}, 0)
	if err == nil && got < n {
		err = unix.EFAULT
	}
	return b, err
}

// Write writes bytes to this process's memory, as the kernel writes them.
func Write(addr uint64, b []byte) error {
	done, err := unix.ProcessVMWritev(os.Getpid(), local(b), []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err == nil && done < len(b) {
		err = unix.EFAULT
	}
	return err
}

// SkipUnderEmulator skips a test that needs Read, under an emulator of one program, such as qemu-user:
// there the kernel knows no addresses of the program.
func SkipUnderEmulator(t *testing.T) {
	t.Helper()
	if _, err := Read(uint64(uintptr(unsafe.Pointer(new(byte)))), 1); err == unix.ENOSYS {
		t.Skip("emulators of one program don't copy its memory")
	}
}

func local(b []byte) []unix.Iovec {
	v := []unix.Iovec{{Base: unsafe.SliceData(b)}}
	v[0].SetLen(len(b))
	return v
}

// patternOf returns the -test.run pattern that selects the test.
func patternOf(t *testing.T) string {
	return "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
}

// runApart runs a test in a separate process.
func runApart(t *testing.T, pattern string, processors int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run="+pattern)
	cmd.Env = append(os.Environ(), variable+"=1", fmt.Sprint("GOMAXPROCS=", processors))
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		t.Errorf("the process stood still while calls were held\n%s", out)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	}
}

// hold is Test in the separate process.
func hold(t *testing.T, f Filter, call func() error) {
	listener, err := install(f)
	if err != nil {
		t.Fatalf("seccomp: %v", err)
	}
	errs := make(chan error, calls)
	for range calls {
		go func() { errs <- call() }()
	}
	crowd := NewCrowd(others)
	defer crowd.Close()
	var ids [calls]uint64
	for i := range ids {
		n, err := receive(listener)
		if err != nil {
			t.Fatalf("call %d of %d: %v", i+1, calls, err)
		}
		ids[i] = n.id
	}
	// All calls are held.
	for range 3 {
		crowd.Round()
	}
	if n := len(errs); n > 0 {
		t.Errorf("%d calls were not held", n)
	}
	for _, id := range ids {
		if err := reply(listener, id, Errno); err != nil {
			t.Error(err)
		}
	}
	for range calls {
		if err := <-errs; !errors.Is(err, Errno) {
			t.Errorf("a call that was held returned %v", err)
		}
	}
}

// Why the unsafe code below is correct: each pointer points to a local variable, and is
// converted to a uintptr in the call's argument list. That keeps the variable alive.

// install installs the filter for the whole process, and returns the descriptor
// that reports held calls.
func install(f Filter) (listener uintptr, err error) {
	load := func(offset int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
	}
	unless := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	ret := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
	}
	// Offsets in struct seccomp_data, on little-endian machines.
	prog := []unix.SockFilter{
		load(0), unless(uint32(f.Number), 3),
		load(16 + 8*f.Arg), unless(f.Value, 1),
		ret(unix.SECCOMP_RET_USER_NOTIF),
		ret(unix.SECCOMP_RET_ALLOW),
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	// Go sends itself many signals. The signals must not restart a reported call.
	const flags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH |
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return 0, errno
	}
	return listener, nil
}

// A notification is struct seccomp_notif, <linux/seccomp.h>.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// receive waits until a call is held.
func receive(listener uintptr) (notification, error) {
	for {
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR, unix.ENOENT: // ENOENT: the call was restarted
		default:
			return n, os.NewSyscallError("SECCOMP_IOCTL_NOTIF_RECV", errno)
		}
	}
}

// reply ends a held call.
func reply(listener uintptr, id uint64, errno unix.Errno) error {
	r := struct {
		id    uint64
		val   int64
		errno int32
		flags uint32
	}{id: id, errno: -int32(errno)}
	_, _, failed := unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	if failed != 0 {
		return os.NewSyscallError("SECCOMP_IOCTL_NOTIF_SEND", failed)
	}
	return nil
}
