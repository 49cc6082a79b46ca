//go:build linux

package main

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/tests/hca/firmware"
	"github.com/goverbs/goverbs/tests/hca/pci"
	"github.com/goverbs/goverbs/tests/hca/vfiouser"
)

const vectors = 16

// machine is one HCA with its place on a bus. One goroutine runs the HCA; what
// others want of it they put into its inbox.
type machine struct {
	config *pci.Config
	server *vfiouser.Server
	hca    *firmware.HCA

	mu    sync.Mutex
	inbox []func()
	wake  chan struct{}
}

func newMachine(c firmware.Config) *machine {
	m := &machine{config: pci.New(vectors), wake: make(chan struct{}, 1)}
	m.server = vfiouser.NewServer(m, vectors, m.call)
	c.Memory = m.server.Memory
	c.Interrupt = m.server.Interrupts.Raise
	c.Vectors = vectors
	c.UARs = pci.BARSize / firmware.PageSize
	m.hca = firmware.New(c)
	go m.run()
	return m
}

// post has f run by the HCA's goroutine, in the order of the posts.
func (m *machine) post(f func()) {
	m.mu.Lock()
	m.inbox = append(m.inbox, f)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// call is post, and returns when f has.
func (m *machine) call(f func()) {
	done := make(chan struct{})
	m.post(func() {
		f()
		close(done)
	})
	<-done
}

func (m *machine) run() {
	timer := time.NewTimer(time.Hour)
	for {
		m.mu.Lock()
		work := m.inbox
		m.inbox = nil
		m.mu.Unlock()
		for _, f := range work {
			f()
		}
		more, next := m.hca.Run()
		if more || len(work) > 0 {
			continue
		}
		timer.Reset(next)
		select {
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// serve plugs the HCA into whoever connects to the socket at path, one after
// the other.
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
		return pci.BARSize
	case vfiouser.RegionConfig:
		return pci.Size
	}
	return 0
}

func (m *machine) Read(region uint32, offset uint64, data []byte) {
	switch region {
	case vfiouser.RegionBAR0:
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
