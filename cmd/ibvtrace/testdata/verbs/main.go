// Verbs is a program to trace. It issues verbs ioctls on /dev/null, which rejects all of
// them. For each it prints the line that ibvtrace should print, without the time and the
// duration.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

var null *os.File

// The main goroutine keeps the first thread, so that other goroutines never run on it.
func init() { runtime.LockOSThread() }

func main() {
	var err error
	if null, err = os.OpenFile("/dev/null", os.O_RDWR, 0); err != nil {
		panic(err)
	}
	switch os.Args[1] {
	case "all":
		callAll()
	case "threads":
		onThreads(8, callAll)
	case "children":
		// Children of threads, with threads of their own.
		onThreads(3, func() {
			callAll()
			cmd := exec.Command("/proc/self/exe", "threads")
			cmd.Stdout = os.Stdout
			if err := cmd.Run(); err != nil {
				panic(err)
			}
			callAll()
		})
	case "untraced":
		// A child with CLONE_UNTRACED inherits the filters.
		cmd := exec.Command("/proc/self/exe", "all")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_UNTRACED}
		if err := cmd.Run(); err != nil {
			panic(err)
		}
	case "exec":
		// Not the first thread: its id is lost in the exec.
		onThreads(2, callAll)
		onThreads(1, func() {
			if unix.Gettid() == os.Getpid() {
				panic("on the first thread")
			}
			callAll()
			panic(syscall.Exec("/proc/self/exe", []string{"verbs", "all"}, os.Environ()))
		})
	case "become":
		// The exec closes the device. What follows is another program.
		panic(syscall.Exec(os.Args[2], os.Args[2:], os.Environ()))
	case "signals":
		// Signals arrive while the threads are in ptrace stops.
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGUSR1)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-signals:
				default:
					unix.Kill(os.Getpid(), unix.SIGUSR1)
				}
			}
		}()
		onThreads(4, func() {
			for range 20 {
				callAll()
			}
		})
		close(stop)
	default:
		panic(os.Args[1])
	}
}

// onThreads runs f on n threads at once, other ones than the first.
func onThreads(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			runtime.LockOSThread()
			f()
		})
	}
	wg.Wait()
}

type message struct {
	hdr   uapi.IbUverbsIoctlHdr
	attrs [8]uapi.IbUverbsAttr
}

// callAll calls verbs with every kind of argument, on one thread, whose ID each line has.
func callAll() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	call(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY, "ibv_dealloc_pd(pd=7)",
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, Data: 7})

	call(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE,
		"ibv_create_cq(cqe=64, comp_channel=5, comp_vector=2)",
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_CQ_HANDLE},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_CQ_CQE, Len: 4, Data: 64},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, Len: 8, Data: 0x1122334455667788},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, Data: 5},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, Len: 4, Data: 2})

	caps := &uapi.IbUverbsQpCap{MaxSendWr: 16, MaxRecvWr: 32, MaxSendSge: 1, MaxRecvSge: 2, MaxInlineData: 64}
	call(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE,
		"ibv_create_qp(pd=3, send_cq=5, recv_cq=6, cap={max_send_wr=16, max_recv_wr=32, max_send_sge=1, max_recv_sge=2, max_inline_data=64}, type=RC)",
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_HANDLE},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, Data: 3},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, Data: 5},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, Data: 6},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_CAP, Len: uint16(unsafe.Sizeof(*caps)), Data: address(unsafe.Pointer(caps))},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_TYPE, Len: 8, Data: uint64(uapi.IB_UVERBS_QPT_RC)})
	runtime.KeepAlive(caps)

	// A write command within the ioctl. The mask selects two attributes.
	modify := &uapi.IbUverbsModifyQp{QpHandle: 9, AttrMask: 1<<0 | 1<<4, QpState: 1, PkeyIndex: 4, Timeout: 99}
	call(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE,
		"ibv_modify_qp(qp=9, qp_state=INIT, pkey_index=4)",
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_WRITE_CMD, Len: 8, Data: uint64(uapi.IB_USER_VERBS_CMD_MODIFY_QP)},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_IN, Len: uint16(unsafe.Sizeof(*modify)), Data: address(unsafe.Pointer(modify))})
	runtime.KeepAlive(modify)

	// Unknown IDs, and an invalid pointer.
	call(0x3333, 2, "ibv_object_0x3333_method_0x2(attr_0x9=0xadde, attr_0x4=0x11, attr_0x5=?0x10)",
		uapi.IbUverbsAttr{AttrId: 9, Len: 2, Data: 0xdead},
		uapi.IbUverbsAttr{AttrId: 4, Data: 0x11},
		uapi.IbUverbsAttr{AttrId: 5, Len: 100, Data: 0x10})

	ioctl(nil)
	expect("rdma_verbs_ioctl(ioctl: header at 0x0: bad address)")
}

func call(object, method uint16, line string, attrs ...uapi.IbUverbsAttr) {
	m := new(message)
	m.hdr = uapi.IbUverbsIoctlHdr{
		Length:   uint16(uapi.IbUverbsIoctlHdrAttrsOffset + len(attrs)*int(unsafe.Sizeof(attrs[0]))),
		ObjectId: object,
		MethodId: method,
		NumAttrs: uint16(len(attrs)),
		DriverId: uint32(uapi.RDMA_DRIVER_RXE),
	}
	copy(m.attrs[:], attrs)
	ioctl(unsafe.Pointer(m))
	expect(line)
}

func ioctl(arg unsafe.Pointer) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, null.Fd(), uapi.RDMA_VERBS_IOCTL, uintptr(arg)); errno != unix.ENOTTY {
		panic(fmt.Sprintf("ioctl on /dev/null: %v", errno))
	}
}

// address returns v's address. v is on the heap, where objects do not move.
func address(v unsafe.Pointer) uint64 { return uint64(uintptr(v)) }

func expect(line string) {
	who := fmt.Sprint(os.Getpid())
	if tid := unix.Gettid(); tid != os.Getpid() {
		who += fmt.Sprintf("/%d", tid)
	}
	name, err := os.ReadFile("/proc/thread-self/comm")
	if err != nil {
		panic(err)
	}
	// One write, so that other threads' lines do not mix with it.
	fmt.Printf("[%s %s] %d</dev/null>: %s = -1 ENOTTY (Inappropriate ioctl for device)\n",
		who, strings.TrimSpace(string(name)), null.Fd(), line)
}
