//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/rig/efa/internal/device"
	"github.com/goverbs/goverbs/rig/efa/internal/wire"
	"github.com/goverbs/goverbs/rig/internal/pci"
	"github.com/goverbs/goverbs/rig/internal/vfiouser"
)

// A machine is one adapter, attached to a bus and to the wire of its room.
type machine struct {
	room   *room
	config *pci.Config
	server *vfiouser.Server
	device *device.Device
	llq    *os.File // the memory of BAR 2, which the guest maps
}

func function(id uint16) pci.Function {
	const amazon, ethernet = 0x1d0f, 0x020000
	return pci.Function{
		Vendor: amazon, Device: id, Class: ethernet,
		BARs:    map[int]uint64{0: device.RegistersSize, 2: device.LLQSize, 4: device.DoorbellsSize},
		Vectors: device.Vectors, MSIXTable: device.MSIXTable, MSIXPending: device.MSIXPending,
	}
}

// plug creates an adapter.
func (r *room) plug(number int, c device.Config) (*machine, error) {
	fd, err := unix.MemfdCreate("llq", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	m := &machine{room: r, config: pci.New(function(c.Profile.Device)), llq: os.NewFile(uintptr(fd), "llq")}
	if err := m.llq.Truncate(device.LLQSize); err != nil {
		return nil, err
	}
	if c.LLQ, err = unix.Mmap(fd, 0, device.LLQSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mmap of the send queues: %w", err)
	}
	m.server = vfiouser.NewServer(m, device.Vectors, r.call)
	c.GID = gid(number)
	c.Wire = r.wire
	c.Memory = m.server.Memory
	c.Interrupt = m.server.Interrupts.Raise
	m.device = device.New(c)
	r.machines = append(r.machines, m)
	return m, nil
}

// gid returns the address of an adapter: link-local, made of a MAC address, as EFA's are.
func gid(number int) (g wire.GID) {
	copy(g[:], []byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x04, 0xef, 0xa0, 0xff, 0xfe})
	binary.BigEndian.PutUint16(g[14:], uint16(number+1))
	return g
}

// serve connects the adapter to the clients of the socket, one after the other.
func (m *machine) serve(l *net.UnixListener) error {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		if err := m.server.Serve(c); err != nil {
			return err
		}
	}
}

// Size implements vfiouser.Device, as do the following.
func (m *machine) Size(region uint32) uint64 {
	switch region {
	case vfiouser.RegionBAR0:
		return device.RegistersSize
	case vfiouser.RegionBAR2:
		return device.LLQSize
	case vfiouser.RegionBAR4:
		return device.DoorbellsSize
	case vfiouser.RegionConfig:
		return pci.Size
	}
	return 0
}

func (m *machine) Read(region uint32, offset uint64, data []byte) {
	switch region {
	case vfiouser.RegionBAR0:
		m.room.call(func() { m.device.ReadRegisters(offset, data) })
	case vfiouser.RegionConfig:
		m.config.Read(offset, data)
	}
}

// Write returns when a register is written, because the driver may wait for the effect for a
// short time only. Doorbells take effect later.
func (m *machine) Write(region uint32, offset uint64, data []byte) {
	switch region {
	case vfiouser.RegionBAR0:
		m.room.call(func() { m.device.WriteRegisters(offset, data) })
	case vfiouser.RegionBAR4:
		data = slices.Clone(data)
		m.room.post(func() { m.device.WriteDoorbells(offset, data) })
	case vfiouser.RegionConfig:
		m.config.Write(offset, data)
	}
}

func (m *machine) Reset() { m.room.call(m.device.Reset) }

// File implements vfiouser.Mapper.
func (m *machine) File(region uint32) *os.File {
	if region == vfiouser.RegionBAR2 {
		return m.llq
	}
	return nil
}
