//go:build linux

// Package vfiouser implements the device's side of the vfio-user protocol, with which a
// virtual machine monitor uses a PCI device in another process. The client maps its memory
// for the device, reads and writes the device's regions, and passes it eventfds for
// interrupts.
package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Indexes of the regions and interrupts of a PCI device.
const (
	RegionBAR0   = 0
	RegionBAR2   = 2
	RegionBAR4   = 4
	RegionConfig = 7
	regionCount  = 9

	irqMSIX  = 2
	irqCount = 5
)

// Device is the served device. Serve calls its methods, which must return at once, because
// the client waits.
type Device interface {
	// Size returns the size of a region, 0 if it doesn't exist.
	Size(region uint32) uint64
	Read(region uint32, offset uint64, data []byte)
	Write(region uint32, offset uint64, data []byte)
	// Reset resets the device.
	Reset()
}

// A Mapper is a Device with regions that are memory, which the client maps instead of
// calling Read and Write.
type Mapper interface {
	// File returns the file that is the region's memory, nil for other regions.
	File(region uint32) *os.File
}

// Server serves one device to one client after the other.
type Server struct {
	Device     Device
	Memory     *Memory
	Interrupts *Interrupts
	// Do runs f on the goroutine that uses Memory, and waits for it.
	Do func(f func())
}

// NewServer returns a server for a device with this many MSI-X vectors. The device uses
// memory only within do.
func NewServer(d Device, vectors int, do func(f func())) *Server {
	s := &Server{Device: d, Memory: &Memory{}, Interrupts: &Interrupts{fds: make([]int, vectors)}, Do: do}
	for i := range s.Interrupts.fds {
		s.Interrupts.fds[i] = -1
	}
	return s
}

// Serve serves a client until it disconnects.
func (s *Server) Serve(c *net.UnixConn) error {
	defer func() {
		c.Close()
		s.Interrupts.set(0, len(s.Interrupts.fds), nil)
		s.Do(s.Memory.clear)
		s.Device.Reset()
	}()
	for {
		m, err := receive(c)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		body, file, failure := s.handle(m)
		m.closeFDs()
		if err := reply(c, m, body, file, failure); err != nil {
			return err
		}
	}
}

// handle returns the reply's body, and a file to pass along with it.
func (s *Server) handle(m *message) (body []byte, file *os.File, failure error) {
	switch m.command {
	case cmdVersion:
		body, failure = version(m)
	case cmdDMAMap:
		failure = s.dmaMap(m)
	case cmdDMAUnmap:
		body, failure = s.dmaUnmap(m)
	case cmdGetInfo:
		const canReset, isPCI = 1, 2
		body = words(16, canReset|isPCI, regionCount, irqCount)
	case cmdGetRegionInfo:
		body, file, failure = s.regionInfo(m)
	case cmdGetIRQInfo:
		body, failure = s.irqInfo(m)
	case cmdSetIRQs:
		failure = s.setIRQs(m)
	case cmdRegionRead:
		body, failure = s.regionRead(m)
	case cmdRegionWrite:
		body, failure = s.regionWrite(m)
	case cmdReset:
		s.Device.Reset()
	default:
		failure = unix.ENOTSUP
	}
	return body, file, failure
}

func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func version(m *message) ([]byte, error) {
	if len(m.body) < 4 || binary.LittleEndian.Uint16(m.body) != 0 {
		return nil, unix.EINVAL
	}
	answer := fmt.Sprintf(`{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d}}`, maxFDs, maxTransfer)
	return append([]byte{0, 0, 0, 0}, answer+"\x00"...), nil
}

func (s *Server) dmaMap(m *message) error {
	if len(m.body) < 32 {
		return unix.EINVAL
	}
	const writable = 2
	fd := -1
	if len(m.fds) > 0 {
		fd = m.fds[0]
	}
	var err error
	s.Do(func() {
		err = s.Memory.add(m.long(16), m.long(24), fd, m.long(8), m.word(4)&writable != 0)
	})
	return err
}

func (s *Server) dmaUnmap(m *message) ([]byte, error) {
	if len(m.body) < 24 {
		return nil, unix.EINVAL
	}
	const all = 2
	var err error
	s.Do(func() {
		if m.word(4)&all != 0 {
			s.Memory.clear()
		} else {
			err = s.Memory.remove(m.long(8), m.long(16))
		}
	})
	return m.body[:24], err
}

func (s *Server) regionInfo(m *message) ([]byte, *os.File, error) {
	index := m.word(8)
	if len(m.body) < 32 || index >= regionCount {
		return nil, nil, unix.EINVAL
	}
	const readWrite, mappable = 3, 4
	size := s.Device.Size(index)
	var flags uint32
	if size > 0 {
		flags = readWrite
	}
	var file *os.File
	if d, ok := s.Device.(Mapper); ok {
		file = d.File(index)
	}
	if file != nil {
		flags |= mappable
	}
	return words(32, flags, index, 0, uint32(size), uint32(size>>32), 0, 0), file, nil
}

func (s *Server) irqInfo(m *message) ([]byte, error) {
	index := m.word(8)
	if len(m.body) < 16 || index >= irqCount {
		return nil, unix.EINVAL
	}
	const eventfd, noResize = 1, 8
	if index != irqMSIX {
		return words(16, eventfd, index, 0), nil
	}
	return words(16, eventfd|noResize, index, uint32(len(s.Interrupts.fds))), nil
}

func (s *Server) setIRQs(m *message) error {
	const dataNone, dataEventFD, trigger = 1, 4, 32
	flags, index, start, count := m.word(4), m.word(8), m.word(12), m.word(16)
	vectors := uint32(len(s.Interrupts.fds))
	if len(m.body) < 20 || index >= irqCount {
		return unix.EINVAL
	}
	if index != irqMSIX || flags&trigger == 0 {
		return nil // this device has none
	}
	if start > vectors || count > vectors-start {
		return unix.EINVAL
	}
	switch {
	case flags&dataEventFD != 0:
		fds := m.fds
		m.fds = nil
		s.Interrupts.set(int(start), int(count), fds)
		for _, fd := range fds[min(len(fds), int(count)):] {
			unix.Close(fd)
		}
	case flags&dataNone != 0 && count == 0:
		s.Interrupts.set(0, int(vectors), nil)
	case flags&dataNone != 0:
		for i := range count {
			s.Interrupts.Raise(int(start + i))
		}
	}
	return nil
}

// access checks a read or write against the region.
func (s *Server) access(m *message) (region uint32, offset uint64, count int, err error) {
	offset, region, count = m.long(0), m.word(8), int(m.word(12))
	size := s.Device.Size(region)
	if len(m.body) < 16 || count > maxTransfer || offset > size || uint64(count) > size-offset {
		err = unix.EINVAL
	}
	return
}

func (s *Server) regionRead(m *message) ([]byte, error) {
	region, offset, count, err := s.access(m)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 16+count)
	copy(body, m.body[:16])
	s.Device.Read(region, offset, body[16:])
	return body, nil
}

func (s *Server) regionWrite(m *message) ([]byte, error) {
	region, offset, count, err := s.access(m)
	if err != nil {
		return nil, err
	}
	if len(m.body) < 16+count {
		return nil, unix.EINVAL
	}
	s.Device.Write(region, offset, m.body[16:16+count])
	return m.body[:16], nil
}
