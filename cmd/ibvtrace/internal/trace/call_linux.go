//go:build amd64 || arm64

package trace

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/recorder"
	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A kind says what a call is.
type kind uint8

const (
	kindControl kind = iota // a verb by way of the kernel
	kindData                // one that posts or polls
	kindCM                  // of the connection manager
	kindEvent               // an event that was read
	kindMap
	kindOpen
	kindClose
	kindExit
	kindNote
)

// A call is something that a thread did.
type call struct {
	kind  kind
	name  string
	start time.Time
	pid   int
	tid   int
	comm  string
	fd    int
	file  *file  // nil: fd is not RDMA's
	path  string // then what it is

	args    []ioctl.NamedValue
	results []ioctl.NamedValue
	made    []objectKey
	ended   []objectKey
	raw     []event.RawAttr
	verb    *ioctl.Call // of a control verb that could be read
	problem error       // why arguments are missing
	why     string

	resumed  time.Time // when the kernel began with it
	returned bool      // else the fields below say nothing
	duration time.Duration
	timed    bool // duration is known
	ret      int64
	errno    unix.Errno

	silent bool         // not to be shown
	said   *event.Event // what is to be shown, nil: to be made then
	finish func(*tracer, *thread, *call)

	// Of data verbs:
	trapArgs [6]uint64
	chain    []uint64 // where the work requests are
	ud       bool     // on a QP whose work requests have an address handle
}

// newCall begins a call that a thread makes now.
func (t *tracer) newCall(th *thread, k kind, name string) *call {
	th.proc.comm = th.name()
	return &call{
		kind: k, name: name, start: t.now,
		pid: th.proc.pid, tid: th.tid, comm: th.proc.comm, fd: -1,
	}
}

// enter looks at a system call that a thread is about to make. It returns nil if
// how that ends does not matter.
func (t *tracer) enter(th *thread, info *syscallInfo) *call {
	nr, wide := lookupSyscall(info.arch, info.nr)
	if !wide {
		for i := range info.args {
			info.args[i] &= 1<<32 - 1
		}
	}
	fd := int(int32(info.args[0]))
	var c *call
	switch nr {
	case sysIoctl:
		if uint32(info.args[1]) == uapi.RDMA_VERBS_IOCTL && info.args[5]>>32 != recorder.Mark {
			c = t.enterIoctl(th, fd, info.args[2])
		}
	case sysOpen:
		c = t.enterOpen(th, info.args[0], info.args[1])
	case sysOpenat:
		c = t.enterOpen(th, info.args[1], info.args[2])
	case sysOpenat2:
		var how [8]byte // struct open_how begins with the flags
		if readMemory(th.tid, info.args[2], how[:]) == nil {
			c = t.enterOpen(th, info.args[1], binary.NativeEndian.Uint64(how[:]))
		}
	case sysClose:
		c = t.enterClose(th, fd)
	case sysCloseRange:
		c = t.enterCloseRange(th, info.args[0], info.args[1], info.args[2])
	case sysDup:
		c = t.enterDup(th, fd, -1)
	case sysDup2, sysDup3:
		c = t.enterDup(th, fd, int(int32(info.args[1])))
	case sysFcntl:
		if cmd := uint32(info.args[1]); cmd == unix.F_DUPFD || cmd == unix.F_DUPFD_CLOEXEC {
			c = t.enterDup(th, fd, -1)
		}
	case sysMmap:
		if info.args[4]>>32 != recorder.Mark {
			c = t.enterMmap(th, info.args)
		}
	case sysMmap2:
		info.args[5] *= 4096
		c = t.enterMmap(th, info.args)
	case sysOldMmap:
		var b [24]byte // struct mmap_arg_struct: the arguments
		if readMemory(th.tid, info.args[0], b[:]) == nil {
			for i := range info.args {
				info.args[i] = uint64(binary.NativeEndian.Uint32(b[4*i:]))
			}
			c = t.enterMmap(th, info.args)
		}
	case sysRead:
		c = t.enterRead(th, fd, info.args[1], info.args[2])
	case sysReadv:
		if addr, n, ok := firstBuffer(th.tid, info.args[1], info.args[2], wide); ok {
			c = t.enterRead(th, fd, addr, n)
		}
	case sysWrite:
		c = t.enterWrite(th, fd, info.args[1], info.args[2])
	case sysWritev:
		if addr, n, ok := firstBuffer(th.tid, info.args[1], info.args[2], wide); ok {
			c = t.enterWrite(th, fd, addr, n)
		}
	case sysPrctl:
		if info.args[0] == unix.PR_SET_NAME {
			th.comm = "" // until it is needed again
		}
		if info.args[0] == unix.PR_SET_SECCOMP {
			c = t.enterSeccomp(th, info.args[1] == unix.SECCOMP_MODE_STRICT, false, info.args[2], wide)
		}
	case sysSeccomp:
		switch uint32(info.args[0]) {
		case unix.SECCOMP_SET_MODE_STRICT:
			if uint32(info.args[1]) == 0 { // else it is asked whether the kernel knows it
				c = t.enterSeccomp(th, true, false, 0, wide)
			}
		case unix.SECCOMP_SET_MODE_FILTER:
			all := info.args[1]&unix.SECCOMP_FILTER_FLAG_TSYNC != 0
			c = t.enterSeccomp(th, false, all, info.args[2], wide)
		}
	case sysClone:
		c = t.enterClone(th, info)
	case sysClone3:
		c = t.enterClone3(th, info.args[0])
	case sysGetpid:
		if info.args[5]>>32 == tracing.Magic {
			t.trap(th, info)
		}
	}
	return c
}

// exit completes the call that a thread is in.
func (t *tracer) exit(th *thread, result int64) {
	c := th.call
	th.call = nil
	t.complete(th, c, result)
}

// complete completes a call that has returned now and prints it.
func (t *tracer) complete(th *thread, c *call, result int64) {
	c.duration, c.timed = t.now.Sub(c.resumed), true
	c.returned = true
	c.ret = result
	if c.ret < 0 && c.ret > -4096 {
		c.errno = unix.Errno(-c.ret)
		c.ret = -1
	}
	if c.finish != nil {
		c.finish(t, th, c)
	}
	if !c.silent {
		t.emit(c)
	}
}

// firstBuffer returns the first of the buffers that readv and writev are given. For
// files of RDMA they are a sequence of reads and writes, and nobody does more
// than one so.
func firstBuffer(tid int, iov, count uint64, wide bool) (addr, n uint64, ok bool) {
	if count == 0 {
		return 0, 0, false
	}
	var b [16]byte
	if !wide {
		if readMemory(tid, iov, b[:8]) != nil {
			return 0, 0, false
		}
		return uint64(binary.NativeEndian.Uint32(b[:])), uint64(binary.NativeEndian.Uint32(b[4:])), true
	}
	if readMemory(tid, iov, b[:]) != nil {
		return 0, 0, false
	}
	return binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:]), true
}

// Values that no schema describes.

func number(name string, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeUint, Size: 8}, Num: v}}
}

func hexNumber(name string, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeUint, Size: 8, Hex: true}, Num: v}}
}

func pointer(name string, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypePtr, Size: 8}, Num: v}}
}

func descriptor(name string, fd int) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeFD, Size: 4}, Num: uint64(fd)}}
}

func text(name, s string) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeString}, Bytes: []byte(s)}}
}

func enum(name string, e *uapi.Enum, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeEnum, Size: 4, Enum: e}, Num: v}}
}

func flags(name string, e *uapi.Enum, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeFlags, Size: 4, Enum: e}, Num: v}}
}

func handle(name string, class uint16, v uint64) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeHandle, Size: 4, Object: class}, Num: v}}
}

func group(name string, fields ...ioctl.NamedValue) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeStruct}, Fields: fields}}
}

func list(name string, elems ...ioctl.Value) ioctl.NamedValue {
	return ioctl.NamedValue{Name: name, Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeArray}, Elems: elems}}
}
