package rdmanl

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A socket is a netlink socket.
type socket struct{ f *os.File }

// open opens a socket for RDMA.
func open() (*socket, error) { return openFamily(unix.NETLINK_RDMA) }

// watchNetdevs opens a socket that gets a message when a network interface changes.
func watchNetdevs() (*socket, error) {
	s, err := openFamily(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := s.join(unix.RTNLGRP_LINK); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func openFamily(family int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, err
	}
	s := &socket{os.NewFile(uintptr(fd), "netlink")}
	// With these options, an error has the kernel's explanation, and only the header of the request.
	// Kernels before 4.12 don't have them.
	for _, option := range []int{unix.NETLINK_CAP_ACK, unix.NETLINK_EXT_ACK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1); err != nil && err != unix.ENOPROTOOPT {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func (s *socket) close() error { return s.f.Close() }

// join makes the socket receive the kernel's messages to a group. The socket needs an
// address: without it, the socket has the kernel's address, and the kernel doesn't send to
// itself.
func (s *socket) join(group int) error {
	c, err := s.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.Bind(int(fd), &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (group - 1)})
	}); err != nil {
		return err
	}
	return failed
}

func (s *socket) send(m []byte) error {
	c, err := s.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		for {
			if failed = unix.Sendto(int(fd), m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); failed != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// receive waits for messages of the kernel. It drops messages of other processes.
func (s *socket) receive(ctx context.Context, buffer []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.f.SetReadDeadline(time.Unix(1, 0))
		close(late)
	})
	defer func() {
		if !stop() {
			<-late
			s.f.SetReadDeadline(time.Time{})
		}
	}()
	c, err := s.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		var n, flags int
		var from unix.Sockaddr
		var failed error
		err := c.Read(func(fd uintptr) bool {
			n, _, flags, from, failed = unix.Recvmsg(int(fd), buffer, nil, 0)
			return failed != unix.EAGAIN
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		case failed == unix.EINTR:
			continue
		case failed != nil:
			return nil, failed
		}
		sender, ok := from.(*unix.SockaddrNetlink)
		switch {
		case !ok || sender.Pid != 0:
			continue
		case flags&unix.MSG_TRUNC != 0:
			return nil, malformed("more than %d bytes at once", len(buffer))
		}
		return buffer[:n], nil
	}
}
