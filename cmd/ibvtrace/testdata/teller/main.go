// Teller is a program to attach to. It tells of posts and polls as programs on this
// project's library do (package verbs, tracing.go), without a device: it says what it
// is, waits until it is asked to tell, tells, and waits until it is let go.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var tracing = struct {
	magic [16]byte
	on    uint32
	_     uint32
	empty uint64
}{magic: [16]byte{'g', 'o', 'v', 'e', 'r', 'b', 's', ' ', 't', 'r', 'a', 'c', 'i', 'n', 'g', 1}}

const (
	postRecv = 2
	poll     = 4
	arm      = 6

	failed = 1 << 32
	full   = 1 << 33
)

func tell(what, handle, number, kind uint32, list []byte, count, result uint64) {
	var at unsafe.Pointer
	if len(list) > 0 {
		at = unsafe.Pointer(&list[0])
	}
	const noFile = 0xffffffff
	unix.RawSyscall6(unix.SYS_GETPID, noFile|uintptr(what)<<32, uintptr(handle)|uintptr(number)<<32,
		uintptr(at), uintptr(count)|uintptr(kind)<<32, uintptr(result), 0x7665_5262<<32|0xfffe)
	runtime.KeepAlive(list)
}

// completion is a struct ibv_wc of a receive that succeeded.
func completion(id uint64, length, qpn uint32) []byte {
	b := make([]byte, 48)
	binary.NativeEndian.PutUint64(b, id)
	binary.NativeEndian.PutUint32(b[12:], 1<<7) // IBV_WC_RECV
	binary.NativeEndian.PutUint32(b[20:], length)
	binary.NativeEndian.PutUint32(b[28:], qpn)
	return b
}

func main() {
	fmt.Println(os.Getpid())
	for atomic.LoadUint32(&tracing.on) == 0 {
		time.Sleep(time.Millisecond)
	}
	atomic.AddUint64(&tracing.empty, 5)
	tell(arm, 9, 0, 1, nil, 0, 0)
	tell(poll, 9, 0, 0, append(completion(7, 64, 17), completion(8, 32, 17)...), 4, 2)
	tell(poll, 9, 0, 0, completion(9, 16, 17), 4, 1)
	atomic.AddUint64(&tracing.empty, 3)
	tell(poll, 9, 0, 0, nil, 4, failed)
	tell(arm, 9, 0, 0, nil, 0, failed)
	tell(postRecv, 3, 17, 2, make([]byte, 3*32), 3, 1|failed|full)
	tell(99, 3, 17, 2, nil, 0, 0) // a later library's
	atomic.AddUint64(&tracing.empty, 2)
	fmt.Println("told")
	for atomic.LoadUint32(&tracing.on) != 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("let go")
}
