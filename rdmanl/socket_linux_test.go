package rdmanl

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A lateContext has ended, but its first Err returns nil.
type lateContext struct {
	context.Context
	asked bool
}

func (c *lateContext) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return c.Context.Err()
}

// TestReceiveGoesOn: a receive whose context ends doesn't affect the next receive.
func TestReceiveGoesOn(t *testing.T) {
	// The kernel answers on this socket without an RDMA device.
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	s := &socket{os.NewFile(uintptr(fd), "NETLINK_ROUTE")}
	defer s.close()
	why := errors.New("enough")
	for range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := s.receive(&lateContext{Context: ctx}, make([]byte, bufferSize)); err != why {
			t.Errorf("a receive whose context ends: %v", err)
		}
		// All links: a header and a struct rtgenmsg, of no family.
		r := binary.NativeEndian.AppendUint32(nil, unix.NLMSG_HDRLEN+4)
		r = binary.NativeEndian.AppendUint16(r, unix.RTM_GETLINK)
		r = binary.NativeEndian.AppendUint16(r, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		if err := s.send(append(r, make([]byte, 12)...)); err != nil {
			t.Fatal(err)
		}
		for done := false; !done; {
			b, err := s.receive(t.Context(), make([]byte, bufferSize))
			if err != nil || len(b) == 0 {
				t.Fatalf("the next one: %d bytes, %v", len(b), err)
			}
			for len(b) >= unix.NLMSG_HDRLEN && !done {
				done = binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_DONE
				b = b[min(len(b), int(binary.NativeEndian.Uint32(b)+3)&^3):]
			}
		}
	}
}
