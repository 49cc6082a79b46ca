// Hostile is a program to trace. It passes arguments to the kernel, and so to the tracer, that
// no library passes: wrong lengths and pointers, and memory that ends or changes, at
// random. It opens and uses the files that it is given. The kernel's results do not matter.
// It ends after the given number of calls, or earlier if it gets SIGTERM.
//
//	hostile SEED CALLS FILE...
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

const page = 4096

// arena is memory of a few pages, with an inaccessible page behind it.
type arena struct {
	b    []byte
	base uint64
}

func newArena(pages int) arena {
	b, err := unix.Mmap(-1, 0, (pages+1)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	if err := unix.Mprotect(b[pages*page:], unix.PROT_NONE); err != nil {
		panic(err)
	}
	return arena{b[:pages*page], uint64(uintptr(unsafe.Pointer(&b[0])))}
}

// end returns the address n bytes before the arena's end, and the bytes.
func (a arena) end(n int) (uint64, []byte) {
	return a.base + uint64(len(a.b)-n), a.b[len(a.b)-n:]
}

func ioctl(fd int, arg uint64) {
	unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uapi.RDMA_VERBS_IOCTL, uintptr(arg))
}

func write(fd int, addr uint64, n int) {
	unix.Syscall(unix.SYS_WRITE, uintptr(fd), uintptr(addr), uintptr(n))
}

func header(b []byte, length, object, method, attrs int, driver uint32) {
	binary.NativeEndian.PutUint16(b, uint16(length))
	binary.NativeEndian.PutUint16(b[2:], uint16(object))
	binary.NativeEndian.PutUint16(b[4:], uint16(method))
	binary.NativeEndian.PutUint16(b[6:], uint16(attrs))
	binary.NativeEndian.PutUint32(b[16:], driver)
}

// edges passes arguments that end where accessible memory ends.
func edges(fd int, a arena) {
	for _, n := range []int{0, 1, 8, 23, 24, 25, 40, 24 + 16*8} {
		addr, b := a.end(n)
		if n >= 24 {
			// More attributes than fit into the memory, then as many as fit.
			header(b, 24+16*200, 4, 0, 200, 12)
			ioctl(fd, addr)
			header(b, 24+16*((n-24)/16), 4, 0, (n-24)/16, 12)
			for at := 24; at+16 <= n; at += 16 {
				binary.NativeEndian.PutUint16(b[at:], uint16(at/16))
				binary.NativeEndian.PutUint16(b[at+2:], 0xffff)
				binary.NativeEndian.PutUint64(b[at+8:], addr)
			}
		}
		ioctl(fd, addr)
		write(fd, addr, n)
		write(fd, addr, 1<<20)
	}
	for _, addr := range []uint64{0, 1, ^uint64(0), ^uint64(0) - 7, 1 << 63, 0x7ffffffff000, a.base + uint64(len(a.b))} {
		ioctl(fd, addr)
		write(fd, addr, 64)
	}
	unix.Syscall(unix.SYS_WRITEV, uintptr(fd), 1, 1<<30)
	unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(a.base), 1)
	unix.Syscall6(unix.SYS_MMAP, 0, 1<<40, 3, unix.MAP_SHARED, uintptr(fd), 1<<62)
	// Arguments that resemble those of the tracer's own code.
	unix.Syscall6(unix.SYS_GETPID, 1, 2, 3, 4, 5, 0x7665526200000001)
	unix.Syscall6(unix.SYS_GETPID, 1, 2, 3, 4, 5, 0x76655262ffffffff)
}

// random calls with nearly valid random arguments.
func random(r *rand.Rand, fd int, a arena) {
	n := 24 + 16*r.IntN(12)
	addr, b := a.end(n + r.IntN(64))
	for i := range b {
		b[i] = byte(r.Uint32() & r.Uint32() & r.Uint32())
	}
	attrs := (n - 24) / 16
	if r.IntN(2) == 0 {
		object, method := r.IntN(22), r.IntN(8)
		if r.IntN(8) == 0 {
			object |= 0x1000
		}
		if r.IntN(8) == 0 {
			method |= 0x1000
		}
		header(b, n, object, method, attrs, []uint32{12, 1, 0, 19}[r.IntN(4)])
		for i := range attrs {
			p := b[24+16*i:]
			id := r.IntN(16)
			if r.IntN(6) == 0 {
				id = 0x1000 + r.IntN(4)
			}
			binary.NativeEndian.PutUint16(p, uint16(id))
			binary.NativeEndian.PutUint16(p[2:], uint16([]int{0, 4, 8, 16, 64, 300, 0xffff}[r.IntN(7)]))
			if r.IntN(3) > 0 {
				binary.NativeEndian.PutUint64(p[8:], a.base+uint64(r.IntN(len(a.b))))
			}
		}
		ioctl(fd, addr)
		return
	}
	command := uint32(r.IntN(60))
	if r.IntN(3) == 0 {
		command |= 0x80000000
	}
	binary.NativeEndian.PutUint32(b, command)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(b)/4))
	if r.IntN(4) > 0 {
		binary.NativeEndian.PutUint64(b[8:], a.base+uint64(r.IntN(len(a.b))))
	}
	write(fd, addr, len(b))
	if r.IntN(16) == 0 {
		unix.SetNonblock(fd, true)
	}
}

func main() {
	if len(os.Args) < 4 {
		return // started by another hostile
	}
	seed, _ := strconv.ParseUint(os.Args[1], 10, 64)
	calls, _ := strconv.Atoi(os.Args[2])
	var fds []int
	for _, name := range os.Args[3:] {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			panic(err)
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		edges(fd, newArena(1))
	}

	// Threads use shared memory, while its contents and its protection change.
	shared := newArena(2)
	stop := make(chan struct{})
	var others, wg sync.WaitGroup
	others.Go(func() {
		r := rand.New(rand.NewPCG(seed, 99))
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Only this goroutine writes there, and not while the page is inaccessible.
			_, b := shared.end(1 + r.IntN(400))
			b[0] = byte(r.Uint32())
			if r.IntN(50) == 0 {
				unix.Mprotect(shared.b[page:2*page], unix.PROT_NONE)
				unix.Mprotect(shared.b[page:2*page], unix.PROT_READ|unix.PROT_WRITE)
			}
			runtime.Gosched()
		}
	})
	ctx, stopNotify := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stopNotify()
	for i := range 3 {
		wg.Go(func() {
			runtime.LockOSThread() // and let the thread die at the end
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			own := newArena(2)
			for n := 0; n < calls && ctx.Err() == nil; n++ {
				random(r, fds[r.IntN(len(fds))], own)
				if r.IntN(200) == 0 {
					if err := exec.Command("/proc/self/exe").Run(); err != nil {
						panic(err)
					}
				}
				if r.IntN(20) == 0 {
					edgeOf := []uint64{shared.base + 2*page - 24, shared.base + page - 8, shared.base}[r.IntN(3)]
					ioctl(fds[r.IntN(len(fds))], edgeOf)
				}
				if fd := fds[r.IntN(len(fds))]; r.IntN(50) == 0 {
					if n, err := unix.Dup(fd); err == nil {
						ioctl(n, own.base)
						unix.Close(n)
					}
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	others.Wait()
	fmt.Println("survived")
}
