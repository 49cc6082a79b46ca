// Package objects lists the RDMA objects in the kernel through NETLINK_RDMA, as rdma(8) does.
package objects

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	nlHdrSize = 16 // struct nlmsghdr
	// The kernel sizes a dump's messages by the reader's buffer, up to 32 KiB.
	bufferSize = 64 << 10
	maxTries   = 5
)

var errChanged = errors.New("the objects changed while they were listed")

// List returns all objects of all devices, in the kernel's order.
func List() ([]Object, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	if err != nil {
		return nil, fmt.Errorf("NETLINK_RDMA: %w; is the ib_core module loaded?", os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	devices, err := dump(fd, rdmaNldevCmdGet, nil)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var out []Object
	for _, d := range devices {
		index, ok := deviceIndex(d)
		if !ok {
			continue
		}
		for _, c := range classes {
			messages, err := dump(fd, c.cmd, index)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
				continue // an older kernel
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", c.name, err)
			}
			for _, m := range messages {
				objects, err := parseTable(m, c)
				if err != nil {
					return nil, fmt.Errorf("list %s: %w", c.name, err)
				}
				out = append(out, objects...)
			}
		}
	}
	for i := range out {
		if out[i].PID != 0 && out[i].Comm == "" {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", out[i].PID))
			if err != nil {
				comm = []byte("?") // the process has ended
			}
			out[i].Comm = strings.TrimSuffix(string(comm), "\n")
		}
	}
	return out, nil
}

// deviceIndex returns the request's attribute that names a device.
func deviceIndex(device []byte) ([]byte, bool) {
	for a, err := range attrs(device) {
		if err == nil && a.kind == attrDevIndex && len(a.data) == 4 {
			request := binary.NativeEndian.AppendUint16(nil, 8)
			request = binary.NativeEndian.AppendUint16(request, attrDevIndex)
			return append(request, a.data...), true
		}
	}
	return nil, false
}

// dump returns the payloads of a command's responses. It starts again if objects change in
// between.
func dump(fd int, cmd uint16, request []byte) ([][]byte, error) {
	for range maxTries {
		out, err := dumpOnce(fd, cmd, request)
		if err != errChanged {
			return out, err
		}
	}
	return nil, errChanged
}

var sequence uint32

func dumpOnce(fd int, cmd uint16, request []byte) ([][]byte, error) {
	sequence++
	m := binary.NativeEndian.AppendUint32(nil, uint32(nlHdrSize+len(request)))
	m = binary.NativeEndian.AppendUint16(m, rdmaNlNldev<<10|cmd)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_DUMP)
	m = binary.NativeEndian.AppendUint32(m, sequence)
	m = binary.NativeEndian.AppendUint32(m, 0) // from this process
	m = append(m, request...)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("send", err)
	}
	var out [][]byte
	changed := false
	buf := make([]byte, bufferSize)
	for {
		n, _, flags, _, err := unix.Recvmsg(fd, buf, nil, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, os.NewSyscallError("receive", err)
		case flags&unix.MSG_TRUNC != 0:
			return nil, errShort
		}
		for b := buf[:n]; len(b) > 0; {
			if len(b) < nlHdrSize {
				return nil, errShort
			}
			size := int(binary.NativeEndian.Uint32(b))
			kind, flag := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
			if size < nlHdrSize || size > len(b) {
				return nil, errShort
			}
			body := b[nlHdrSize:size]
			mine := binary.NativeEndian.Uint32(b[8:]) == sequence
			b = b[min((size+3)&^3, len(b)):]
			if !mine {
				continue // from an earlier dump
			}
			changed = changed || flag&unix.NLM_F_DUMP_INTR != 0
			switch kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if len(body) >= 4 {
					if errno := int32(binary.NativeEndian.Uint32(body)); errno < 0 {
						return nil, unix.Errno(-errno)
					}
				}
				if changed {
					return nil, errChanged
				}
				return out, nil
			default:
				out = append(out, slices.Clone(body))
			}
		}
	}
}
