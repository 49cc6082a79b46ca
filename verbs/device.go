package verbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
)

// A Device is an opened device (struct ibv_context).
//
// Its methods, and those of all objects created on it, are safe for concurrent use,
// unless a type says otherwise.
type Device struct {
	dev         *DeviceInfo
	file        *ioctl.File
	prov        provider.Context
	async       *eventFile
	compVectors int

	nextID  atomic.Uint64
	mu      sync.Mutex
	members map[uint64]member
	events  events // under mu
	holds   atomic.Int32
	close   sync.Mutex    // held by Close
	closing atomic.Bool   // Close was called: no verb may begin
	idle    chan struct{} // signaled while closing, when a hold has changed
	limits  atomic.Pointer[DeviceAttr]
	links   sync.Map // port number to provider.Link without a GID's type, which doesn't change
	removal removal

	scattered scatterMemory
	qps       qpTable

	waits struct { // see waitChannel
		sync.Mutex
		channel *CompChannel
	}
}

// Open opens the device.
func (d *DeviceInfo) Open() (*Device, error) {
	const op = "open device"
	if d == nil {
		return nil, &OpError{Op: op, Err: errNil}
	}
	file, err := ioctl.Open(d.Node())
	if err != nil {
		return nil, openError(d, err)
	}
	return d.open(file)
}

// open makes a Device from the device's file.
func (d *DeviceInfo) open(file *ioctl.File) (*Device, error) {
	return d.openAs("open device", file, (*Device).getContext)
}

// openAs makes a Device from the device's file, with a function that makes the provider's
// context.
func (d *DeviceInfo) openAs(op string, file *ioctl.File, context func(*Device, *provider.Provider) error) (*Device, error) {
	c := &Device{dev: d, file: file, members: make(map[uint64]member), idle: make(chan struct{}, 1)}
	if err := c.start(context); err != nil {
		file.Close()
		return nil, opErr(op, d.Name(), err)
	}
	opened.Store(c, true)
	return c, nil
}

// opened keeps Devices alive until they are closed, even without other references.
// The device may still write to their memory.
var opened sync.Map

// openError returns the error for a node that can't be opened, with a hint.
func openError(d *DeviceInfo, err error) error {
	e := &OpError{Op: "open device", Object: d.Name() + ", " + d.Node(), Err: err}
	switch {
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EIO):
		e.Err = &removedError{err}
	case errors.Is(err, os.ErrNotExist):
		e.Hint = "the kernel has the device but the node is missing: in a container, pass the node in (--device " + d.Node() + "); otherwise load ib_uverbs"
	case errors.Is(err, os.ErrPermission):
		e.Hint = "the user needs read and write permission on the node, and a container needs it allowed in its device cgroup"
	}
	return e
}

// start finds the provider and begins the context.
func (c *Device) start(context func(*Device, *provider.Provider) error) error {
	p, err := c.match()
	if err != nil {
		return err
	}
	if v := c.dev.ABIVersion(); v < p.MinABI || v > p.MaxABI {
		return fmt.Errorf("%w: driver %s has ABI version %d, this library supports %d to %d", ErrNotSupported, p.Name, v, p.MinABI, p.MaxABI)
	}
	if err := context(c, p); err != nil {
		return err
	}
	// The kernel sends the events of all objects to the first such file.
	async := ioctl.NewAsyncEventAlloc()
	defer async.Release()
	fd := async.FdHandle()
	if err := async.Run(c.file); err != nil {
		c.prov.Release()
		return err
	}
	c.removal.news = make(chan struct{})
	c.async = newEventFile(int(int64(*fd)), "async events of "+c.dev.Name(), c.removal.news)
	c.events.init()
	c.removal.stop = c.watchRemoval()
	go c.readEvents()
	return nil
}

// getContext has the kernel create a context.
func (c *Device) getContext(p *provider.Provider) error {
	cmd := ioctl.NewGetContext()
	defer cmd.Release()
	vectors := cmd.NumCompVectors()
	cmd.CoreSupport()
	var err error
	if c.prov, err = p.NewContext(c.file, cmd); err != nil {
		return err
	}
	if err := cmd.Run(c.file); err != nil {
		if errors.Is(err, syscall.EPROTONOSUPPORT) {
			return errOldKernel
		}
		return err
	}
	c.compVectors = int(*vectors)
	return c.prov.Adopt()
}

// errOldKernel: the ioctls that create QPs and SRQs exist since Linux 5.8, the one
// that reads the GID table since 5.10.
var errOldKernel = fmt.Errorf("%w: this kernel's uverbs has no ioctls; Linux 5.10 or later is needed", ErrNotSupported)

func (c *Device) match() (*provider.Provider, error) {
	for _, p := range providers() {
		ok, err := c.file.Probe(p.Driver)
		if err != nil {
			if errors.Is(err, syscall.ENOTTY) {
				return nil, errOldKernel
			}
			return nil, err
		}
		if ok {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: this program has no provider for the device's driver", ErrNotSupported)
}

// Info returns what is known of the device without opening it.
func (c *Device) Info() *DeviceInfo {
	if c == nil {
		return nil
	}
	return c.dev
}

// NumCompVectors returns the number of completion vectors, which
// CQOptions.Vector selects from.
func (c *Device) NumCompVectors() int {
	if c == nil {
		return 0
	}
	return c.compVectors
}

// begin keeps the context open for the duration of a verb, until done.
func (c *Device) begin(op string) error {
	if c == nil {
		return &OpError{Op: op, Err: errNil}
	}
	if c.file == nil || c.closing.Load() {
		return opErr(op, "context", ErrClosed)
	}
	if c.removal.gone.Load() {
		return opErr(op, c.dev.Name(), ErrDeviceRemoved)
	}
	for {
		n := c.holds.Load()
		if n < 0 {
			return opErr(op, "context", ErrClosed)
		}
		if c.holds.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (c *Device) done() {
	c.holds.Add(-1)
	c.changed()
}

// changed wakes a waiting Close: an object was released or added.
func (c *Device) changed() {
	if c.closing.Load() {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// add registers a member for events and for Close.
func (c *Device) add(o *object, m member) {
	c.holds.Add(1)
	c.mu.Lock()
	if o.id == 0 {
		o.id = c.newID()
	}
	c.members[o.id] = m
	c.mu.Unlock()
	c.changed() // a hold may have passed from a verb to the member
}

func (c *Device) newID() uint64 { return c.nextID.Add(1) }

func (c *Device) remove(o *object) {
	c.mu.Lock()
	c.events.forget(c.members[o.id])
	delete(c.members, o.id)
	c.mu.Unlock()
	c.done()
}

// member returns the object with the id, or nil if it was closed.
func (c *Device) member(id uint64) member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[id]
}

// Close closes all remaining objects of the device, in order, and then the device.
// Verbs called from then on return ErrClosed, and waits for events end with it. Close
// waits for verbs that are already running. It does not wait for a batch that
// QP.Sends builds, but returns ErrBusy. If Close fails, the remaining objects stay as
// they are, and it may be called again. Closing a closed Device does nothing.
func (c *Device) Close() error {
	const op = "close device"
	if c == nil || c.file == nil {
		return nil
	}
	c.close.Lock()
	defer c.close.Unlock()
	if c.holds.Load() < 0 {
		return nil
	}
	c.closing.Store(true)
	for {
		held, err := c.closeMembers()
		if err != nil {
			return opErr(op, c.dev.Name(), err)
		}
		if !held && c.holds.CompareAndSwap(0, closedHolds) {
			break
		}
		<-c.idle
	}
	opened.Delete(c)
	c.removal.stop()
	c.async.Close()
	<-c.events.ended
	c.unsubscribeAll()
	c.prov.Release()
	if err := c.file.Close(); err != nil {
		return opErr(op, c.dev.Name(), err)
	}
	return nil
}

// closeMembers closes the objects kind by kind. It stops after the first kind with an
// object that a verb holds.
func (c *Device) closeMembers() (held bool, err error) {
	for k := range kinds {
		for _, m := range c.membersOf(k) {
			switch err := m.Close(); {
			case errors.Is(err, errHeld):
				held = true
			case err != nil:
				return false, err
			}
		}
		if held {
			break
		}
	}
	// A running post may itself wait for the end of a batch.
	for _, m := range c.membersOf(kindQP) {
		if m.(*QP).sendMu.batching() {
			return false, errBatch
		}
	}
	return held, nil
}

func (c *Device) membersOf(k kind) []member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ms []member
	for _, m := range c.members {
		if m.base().kind == k {
			ms = append(ms, m)
		}
	}
	return ms
}

// deviceLimits returns the device's limits. It queries them once.
func (c *Device) deviceLimits() (*DeviceAttr, error) {
	if l := c.limits.Load(); l != nil {
		return l, nil
	}
	l, err := c.QueryDevice()
	if err == nil {
		c.limits.Store(l)
	}
	return l, err
}
