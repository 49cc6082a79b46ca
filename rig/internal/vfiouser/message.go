//go:build linux

package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Commands of the protocol.
const (
	cmdVersion       = 1
	cmdDMAMap        = 2
	cmdDMAUnmap      = 3
	cmdGetInfo       = 4
	cmdGetRegionInfo = 5
	cmdGetIRQInfo    = 7
	cmdSetIRQs       = 8
	cmdRegionRead    = 9
	cmdRegionWrite   = 10
	cmdReset         = 13
)

const (
	headerSize = 16

	flagReply   = 1
	flagNoReply = 1 << 4
	flagError   = 1 << 5

	maxTransfer = 1 << 20
	maxFDs      = 8
)

type message struct {
	id, command uint16
	flags       uint32
	body        []byte
	fds         []int
}

func (m *message) closeFDs() {
	for _, fd := range m.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	m.fds = nil
}

// word returns the little-endian word at offset off of the body, 0 beyond its end.
func (m *message) word(off int) uint32 {
	if off+4 > len(m.body) {
		return 0
	}
	return binary.LittleEndian.Uint32(m.body[off:])
}

func (m *message) long(off int) uint64 {
	return uint64(m.word(off)) | uint64(m.word(off+4))<<32
}

// receive reads one message. Its file descriptors arrive with its first byte.
func receive(c *net.UnixConn) (*message, error) {
	header := make([]byte, headerSize)
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	n, oobn, _, _, err := c.ReadMsgUnix(header, oob)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	m := &message{}
	parts, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range parts {
		if fds, err := unix.ParseUnixRights(&parts[i]); err == nil {
			m.fds = append(m.fds, fds...)
		}
	}
	if _, err := io.ReadFull(c, header[n:]); err != nil {
		m.closeFDs()
		return nil, err
	}
	m.id = binary.LittleEndian.Uint16(header)
	m.command = binary.LittleEndian.Uint16(header[2:])
	size := binary.LittleEndian.Uint32(header[4:])
	m.flags = binary.LittleEndian.Uint32(header[8:])
	if size < headerSize || size > headerSize+maxTransfer+64 {
		m.closeFDs()
		return nil, fmt.Errorf("vfio-user: a message of %d bytes", size)
	}
	m.body = make([]byte, size-headerSize)
	if _, err := io.ReadFull(c, m.body); err != nil {
		m.closeFDs()
		return nil, err
	}
	return m, nil
}

// reply replies to m with body and a file, if there is one, or with an error.
func reply(c *net.UnixConn, m *message, body []byte, file *os.File, failure error) error {
	if m.flags&flagNoReply != 0 {
		return nil
	}
	out := make([]byte, headerSize, headerSize+len(body))
	flags := uint32(flagReply)
	if failure != nil {
		flags |= flagError
		body = nil
		errno := unix.EINVAL
		errors.As(failure, &errno)
		binary.LittleEndian.PutUint32(out[12:], uint32(errno))
	}
	binary.LittleEndian.PutUint16(out, m.id)
	binary.LittleEndian.PutUint16(out[2:], m.command)
	binary.LittleEndian.PutUint32(out[4:], uint32(headerSize+len(body)))
	binary.LittleEndian.PutUint32(out[8:], flags)
	out = append(out, body...)
	if file == nil || failure != nil {
		_, err := c.Write(out)
		return err
	}
	_, _, err := c.WriteMsgUnix(out, unix.UnixRights(int(file.Fd())), nil)
	runtime.KeepAlive(file)
	return err
}
