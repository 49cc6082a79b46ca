package rdmacm

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// From the kernel's include/uapi/rdma/rdma_netlink.h.
const (
	nldevGet      = 5<<10 | 1 // RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET
	nldevDevIndex = 1         // RDMA_NLDEV_ATTR_DEV_INDEX
	nldevDevName  = 2         // RDMA_NLDEV_ATTR_DEV_NAME
	nlaTypeMask   = 0x3fff    // NLA_TYPE_MASK
)

// deviceName returns the name of the device with an index. Only netlink reports
// that.
func deviceName(index uint32) (string, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	if err != nil {
		return "", os.NewSyscallError("NETLINK_RDMA socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, nameRequest(index), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return "", os.NewSyscallError("NETLINK_RDMA send", err)
	}
	b := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return "", os.NewSyscallError("NETLINK_RDMA receive", err)
		}
		return nameAnswer(b[:n])
	}
}

func nameRequest(index uint32) []byte {
	m := binary.NativeEndian.AppendUint32(nil, unix.NLMSG_HDRLEN+8)
	m = binary.NativeEndian.AppendUint16(m, nldevGet)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST)
	m = binary.NativeEndian.AppendUint32(m, 1) // sequence
	m = binary.NativeEndian.AppendUint32(m, 0) // from this process
	m = binary.NativeEndian.AppendUint16(m, 8)
	m = binary.NativeEndian.AppendUint16(m, nldevDevIndex)
	return binary.NativeEndian.AppendUint32(m, index)
}

// nameAnswer parses the kernel's answer: one message, with a device's attributes
// or an error.
func nameAnswer(b []byte) (string, error) {
	const header = unix.NLMSG_HDRLEN
	if len(b) < header {
		return "", fmt.Errorf("a response of %d bytes is too short", len(b))
	}
	length, kind := int64(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
	if length < header || length > int64(len(b)) {
		return "", fmt.Errorf("a response of %d bytes gives %d as its length", len(b), length)
	}
	b = b[header:length]
	switch {
	case kind == unix.NLMSG_ERROR && len(b) >= 4:
		return "", unix.Errno(-int32(binary.NativeEndian.Uint32(b)))
	case kind != nldevGet:
		return "", fmt.Errorf("a response of the unexpected type %#x", kind)
	}
	for len(b) >= 4 {
		n, attr := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if n < 4 || n > len(b) {
			return "", fmt.Errorf("an attribute of %d bytes in the remaining %d", n, len(b))
		}
		if attr&nlaTypeMask == nldevDevName {
			return unix.ByteSliceToString(b[4:n]), nil
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return "", fmt.Errorf("a response without a device name")
}
