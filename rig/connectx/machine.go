//go:build linux

package main

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/firmware"
	"github.com/goverbs/goverbs/rig/internal/pci"
	"github.com/goverbs/goverbs/rig/internal/vfiouser"
)

// What the driver sees of an HCA on the bus. The MSI-X table is QEMU's.
const (
	vectors = 16
	barSize = 32 << 20
)

func function(device uint16) pci.Function {
	const mellanox, infiniBand = 0x15b3, 0x020700
	return pci.Function{
		Vendor: mellanox, Device: device, Class: infiniBand, BARs: map[int]uint64{0: barSize},
		Vectors: vectors, MSIXTable: 0x2000, MSIXPending: 0x3000,
	}
}

// maxPackets is how many packets may wait for an HCA. Further packets are lost, as on a
// congested link.
const maxPackets = 1 << 14

// A machine is one HCA, attached to a bus and to a fabric. One goroutine runs the HCA.
// Other goroutines put their functions into its inbox.
type machine struct {
	config *pci.Config
	server *vfiouser.Server
	hca    *firmware.HCA
	port   *fabric.Port
	fabric *fabric.Fabric
	idle   func() // called before the HCA's goroutine sleeps

	mu      sync.Mutex
	inbox   []func()
	packets []*fabric.Packet
	wake    chan struct{}
}

// plug creates an HCA and attaches its port to the fabric.
func plug(f *fabric.Fabric, guid uint64, c firmware.Config, idle func()) *machine {
	if c.Profile.Name == "" {
		c.Profile = firmware.Profiles[0]
	}
	m := &machine{config: pci.New(function(c.Profile.Device)), fabric: f, idle: idle, wake: make(chan struct{}, 1)}
	m.server = vfiouser.NewServer(m, vectors, m.call)
	m.port = f.Attach(fabric.PortConfig{
		GUID:    guid + 1,
		Receive: m.receive,
		Changed: func(up bool) { m.post(func() { m.hca.PortChanged(up) }) },
	})
	c.GUID = guid
	c.Memory = m.server.Memory
	c.Interrupt = m.server.Interrupts.Raise
	c.Vectors = vectors
	c.UARs = (barSize - firmware.DeviceMemory) / firmware.PageSize
	c.Port = m.port
	m.hca = firmware.New(c)
	go m.run()
	return m
}

func (m *machine) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// post makes the HCA's goroutine run f, in the order of the posts.
func (m *machine) post(f func()) {
	m.mu.Lock()
	m.inbox = append(m.inbox, f)
	m.mu.Unlock()
	m.signal()
}

// call posts f and waits until it has run.
func (m *machine) call(f func()) {
	done := make(chan struct{})
	m.post(func() {
		f()
		close(done)
	})
	<-done
}

// receive receives a packet from the fabric.
func (m *machine) receive(p *fabric.Packet) {
	m.mu.Lock()
	full := len(m.packets) >= maxPackets
	if !full {
		m.packets = append(m.packets, p)
	}
	m.mu.Unlock()
	if full {
		p.Free()
		return
	}
	m.signal()
}

func (m *machine) run() {
	timer := time.NewTimer(time.Hour)
	var work, doing []func()
	var arrived, handling []*fabric.Packet
	for {
		m.mu.Lock()
		work, m.inbox = m.inbox, doing[:0]
		arrived, m.packets = m.packets, handling[:0]
		m.mu.Unlock()
		for i, f := range work {
			f()
			work[i] = nil
		}
		for i, p := range arrived {
			m.hca.Receive(p)
			arrived[i] = nil
		}
		doing, handling = work, arrived
		more, wait := m.hca.Run()
		if more || len(work)+len(arrived) > 0 {
			continue
		}
		m.idle()
		timer.Reset(wait)
		select {
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// serve connects the HCA to the clients of the socket, one after the other.
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
		return barSize
	case vfiouser.RegionConfig:
		return pci.Size
	}
	return 0
}

func (m *machine) Read(region uint32, offset uint64, data []byte) {
	switch region {
	case vfiouser.RegionBAR0:
		if m.hca.Ordered(offset) {
			m.call(func() { m.hca.Read(offset, data) })
			return
		}
		m.hca.Read(offset, data)
	case vfiouser.RegionConfig:
		m.config.Read(offset, data)
	}
}

func (m *machine) Write(region uint32, offset uint64, data []byte) {
	switch region {
	case vfiouser.RegionBAR0:
		data = slices.Clone(data)
		m.post(func() { m.hca.Write(offset, data) })
	case vfiouser.RegionConfig:
		m.config.Write(offset, data)
	}
}

func (m *machine) Reset() { m.call(m.hca.Reset) }
