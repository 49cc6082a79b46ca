//go:build amd64 || arm64

package calls

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/ptrace"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
)

// A messageLayout is the layout of struct msghdr, struct mmsghdr and struct cmsghdr.
type messageLayout struct {
	bytes      int // of struct msghdr
	next       int // from one struct mmsghdr to the next
	control    int // the offset of msg_control, which msg_controllen follows
	word       int // the size of both, and of cmsg_len
	controlHdr int // the size of struct cmsghdr, which ends with cmsg_level and cmsg_type
}

var (
	wideMessage   = messageLayout{bytes: 56, next: 64, control: 32, word: 8, controlHdr: 16}
	narrowMessage = messageLayout{bytes: 28, next: 32, control: 16, word: 4, controlHdr: 12}
)

const (
	maxMessages = 1024 // UIO_MAXIOV, the kernel's limit
	maxControl  = 4096 // more than a message of SCM_MAX_FD, 253, descriptors has
)

// EnterReceive handles a recvmsg or a recvmmsg, by which descriptors of RDMA files may arrive.
// The headers of n messages are at addr.
func (t *Decoder) EnterReceive(th *tracee.Thread, name string, socket int, addr, n uint64, wide bool) *tracee.Call {
	l := &narrowMessage
	if wide {
		l = &wideMessage
	}
	room := false
	for _, c := range l.controls(th.TID, addr, n) {
		room = room || c.n >= uint64(l.controlHdr)
	}
	if !room {
		return nil
	}
	c := t.NewCall(th, tracee.KindOpen, name)
	c.Silent = true // the descriptors that arrive are shown instead
	c.Args = []ioctl.NamedValue{tracee.Descriptor("socket", socket)}
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno != 0 {
			return
		}
		got := uint64(1)
		if name == "recvmmsg" {
			got = uint64(c.Ret)
		}
		for _, control := range l.controls(th.TID, addr, min(n, got)) {
			for _, fd := range l.rights(th.TID, control) {
				t.arrived(th, c, fd)
			}
		}
	}
	return c
}

// EnterGetfd handles a pidfd_getfd, which copies a descriptor from another process.
func (t *Decoder) EnterGetfd(th *tracee.Thread, pidfd, from int) *tracee.Call {
	c := t.NewCall(th, tracee.KindOpen, "pidfd_getfd")
	c.Silent = true
	c.Args = []ioctl.NamedValue{tracee.Descriptor("pidfd", pidfd), tracee.Descriptor("targetfd", from)}
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno == 0 {
			t.arrived(th, c, int(c.Ret))
		}
	}
	return c
}

// arrived handles a descriptor received from another process. The call that received it is
// shown if the descriptor is that of an RDMA file.
func (t *Decoder) arrived(th *tracee.Thread, c *tracee.Call, fd int) {
	th.Proc.SetFD(fd, nil)
	f := t.File(th, fd)
	if f == nil {
		return
	}
	t.stops.Watch(th, fd, f)
	shown := *c
	shown.Silent, shown.FD, shown.File, shown.Ret = false, fd, f, int64(fd)
	shown.Results = []ioctl.NamedValue{tracee.Descriptor("fd", fd)}
	t.Emit(&shown)
}

// A control is a message's ancillary data.
type control struct{ addr, n uint64 }

// controls returns the ancillary data of the messages whose headers are at addr.
func (l *messageLayout) controls(tid int, addr, n uint64) []control {
	n = min(n, maxMessages)
	if n == 0 {
		return nil
	}
	b := make([]byte, int(n-1)*l.next+l.bytes)
	if ptrace.ReadMemory(tid, addr, b) != nil {
		return nil
	}
	var out []control
	for i := range int(n) {
		hdr := b[i*l.next+l.control:]
		out = append(out, control{l.get(hdr), l.get(hdr[l.word:])})
	}
	return out
}

// get returns a pointer or a size.
func (l *messageLayout) get(b []byte) uint64 {
	if l.word == 4 {
		return U32(b)
	}
	return U64(b)
}

// rights returns the descriptors in a message's ancillary data.
func (l *messageLayout) rights(tid int, c control) []int {
	b := make([]byte, min(c.n, maxControl))
	if ptrace.ReadMemory(tid, c.addr, b) != nil {
		return nil
	}
	var fds []int
	for len(b) >= l.controlHdr {
		n := l.get(b)
		if n < uint64(l.controlHdr) || n > uint64(len(b)) {
			break
		}
		level, kind := U32(b[l.controlHdr-8:]), U32(b[l.controlHdr-4:])
		if level == unix.SOL_SOCKET && kind == unix.SCM_RIGHTS {
			for data := b[l.controlHdr:n]; len(data) >= 4; data = data[4:] {
				fds = append(fds, int(int32(binary.NativeEndian.Uint32(data))))
			}
		}
		word := uint64(l.word)
		b = b[min((n+word-1)&^(word-1), uint64(len(b))):]
	}
	return fds
}
