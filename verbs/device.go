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
	"github.com/goverbs/goverbs/rdmanl"
)

// A Device is an opened device (struct ibv_context).
//
// Its methods, and those of all objects created on it, are safe for concurrent use,
// unless a type says otherwise.
type Device struct {
	info        *DeviceInfo
	file        *ioctl.File
	prov        provider.Context
	async       *eventFile
	compVectors int

	nextID  atomic.Uint64
	mu      sync.Mutex
	members members // under mu
	events  events  // under mu
	holds   atomic.Int32
	close   sync.Mutex    // held by a running Close
	closing atomic.Bool   // Close was called: no verb may begin
	idle    chan struct{} // signaled while closing, when a hold is taken or dropped
	limits  atomic.Pointer[DeviceAttr]
	links   sync.Map // port number to provider.Link without the GID's type; it never changes
	removal removal

	scattered scatterMemory
	qps       qpTable

	waits struct { // see waitChannel
		sync.Mutex
		channel *CompChannel
	}
}

// Open opens the device (ibv_open_device). The error matches fs.ErrPermission without
// permission for the device node, fs.ErrNotExist without the node, and ErrNotSupported if the
// program has no provider for the driver.
func (d *DeviceInfo) Open() (*Device, error) {
	file, err := d.openNode()
	if err != nil {
		return nil, err
	}
	return d.open(file)
}

// openNode opens the device's node. It fails if the node belongs to another device by now.
func (d *DeviceInfo) openNode() (*ioctl.File, error) {
	if d == nil {
		return nil, &OpError{Op: "open device", Err: errNil}
	}
	file, err := ioctl.Open(d.Node())
	if err != nil {
		return nil, openError(d, err)
	}
	if _, err := d.current(); errors.Is(err, rdmanl.ErrNoDevice) {
		file.Close()
		return nil, openError(d, syscall.ENODEV)
	}
	return file, nil
}

// open makes a Device from the device's file.
func (d *DeviceInfo) open(file *ioctl.File) (*Device, error) {
	return d.openAs("open device", file, func(dev *Device, p *provider.Provider) error { return dev.getContext(p, nil) })
}

// openAs makes a Device from the device's file. The function context makes the provider's context.
func (d *DeviceInfo) openAs(op string, file *ioctl.File, context func(*Device, *provider.Provider) error) (*Device, error) {
	dev := &Device{info: d, file: file, members: members{named: make(map[uint64]member)}, idle: make(chan struct{}, 1)}
	if err := dev.start(context); err != nil {
		file.Close()
		return nil, &OpError{Op: op, Object: d.Name(), Err: err, hint: hint(err)}
	}
	opened.Store(dev, true)
	return dev, nil
}

// opened keeps Devices alive until they are closed, even without other references.
// The device may still write to their memory.
var opened sync.Map

// openError returns the error, with a hint, for a node that can't be opened.
func openError(d *DeviceInfo, err error) error {
	e := &OpError{Op: "open device", Object: d.Name() + ", " + d.Node(), Err: err}
	switch {
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EIO):
		e.Err = &removedError{err}
	case errors.Is(err, os.ErrNotExist):
		e.hint = "the kernel has the device but the node is missing: in a container, pass the node in (--device " + d.Node() + "); otherwise load ib_uverbs"
	case errors.Is(err, syscall.EPERM):
		e.hint = "either the device is in another network namespace (ibv dev set moves it, and with ibv system set netns shared all see it), or the container's device cgroup doesn't allow the node"
	case errors.Is(err, os.ErrPermission):
		e.hint = "the user needs read and write permission on the node"
	}
	return e
}

// start finds the provider and creates the context.
func (d *Device) start(context func(*Device, *provider.Provider) error) error {
	p, err := d.findProvider()
	if err != nil {
		return err
	}
	if v := d.info.ABIVersion(); v < p.MinABI || v > p.MaxABI {
		return fmt.Errorf("%w: driver %s has ABI version %d, this library supports %d to %d", ErrNotSupported, p.Name, v, p.MinABI, p.MaxABI)
	}
	if err := context(d, p); err != nil {
		return err
	}
	// The kernel delivers the events of all objects to the first such file.
	async := ioctl.NewAsyncEventAlloc()
	defer async.Release()
	fd := async.FdHandle()
	if err := async.Run(d.file); err != nil {
		d.prov.Release()
		return err
	}
	d.removal.done = make(chan struct{})
	d.async = newEventFile(int(int64(*fd)), asyncEventLen, "asynchronous events", d.removal.done)
	d.events.init()
	d.removal.stop = d.watchRemoval()
	go d.readEvents()
	return nil
}

// getContext makes the kernel create a context. It first calls prepare, unless that is nil.
func (d *Device) getContext(p *provider.Provider, prepare func() error) error {
	cmd := ioctl.NewGetContext()
	defer cmd.Release()
	vectors := cmd.NumCompVectors()
	cmd.CoreSupport()
	var err error
	if d.prov, err = p.NewContext(d.file, cmd); err != nil {
		return err
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	if err := cmd.Run(d.file); err != nil {
		if errors.Is(err, syscall.EPROTONOSUPPORT) {
			return errOldKernel
		}
		return err
	}
	d.compVectors = int(*vectors)
	return d.prov.Adopt()
}

// errOldKernel reports a kernel that lacks ioctls of uverbs. Linux has had those that create
// QPs and SRQs since 5.8, and the ioctl that reads the GID table since 5.10.
var errOldKernel = fmt.Errorf("%w: this kernel's uverbs has no ioctls; Linux 5.10 or later is needed", ErrNotSupported)

// Info returns the device's description, which is known without opening it.
func (d *Device) Info() *DeviceInfo {
	if d == nil {
		return nil
	}
	return d.info
}

// NumCompVectors returns the number of completion vectors, which
// CQOptions.Vector selects from.
func (d *Device) NumCompVectors() int {
	if d == nil {
		return 0
	}
	return d.compVectors
}

// begin keeps the Device open while a verb runs, until done.
func (d *Device) begin(op string) error {
	if d == nil {
		return &OpError{Op: op, Err: errNil}
	}
	if d.file == nil || d.closing.Load() {
		return opErr(op, "device", ErrClosed)
	}
	if d.removal.gone.Load() {
		return opErr(op, d.info.Name(), ErrDeviceRemoved)
	}
	for {
		n := d.holds.Load()
		if n < 0 {
			return opErr(op, "device", ErrClosed)
		}
		if d.holds.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (d *Device) done() {
	d.holds.Add(-1)
	d.changed()
}

// changed wakes a waiting Close after an object was released or added.
func (d *Device) changed() {
	if d.closing.Load() {
		select {
		case d.idle <- struct{}{}:
		default:
		}
	}
}

// add registers a member for events and for Close.
func (d *Device) add(o *object, m member) {
	d.holds.Add(1)
	d.mu.Lock()
	d.members.add(o, m)
	d.mu.Unlock()
	d.changed() // a verb's hold may have passed to the member
}

func (d *Device) newID() uint64 { return d.nextID.Add(1) }

func (d *Device) remove(o *object) {
	d.mu.Lock()
	d.events.forget(o.self)
	d.members.remove(o)
	d.mu.Unlock()
	d.done()
}

// member returns the object with an id that events carry, or nil if it was closed.
func (d *Device) member(id uint64) member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.members.named[id]
}

// Close closes all remaining objects of the device, in order, and then the device. Later verbs
// return ErrClosed, and waits for events end with ErrClosed. Close waits for running verbs. While
// QP.Sends builds a batch, Close returns ErrBusy. If Close fails, the remaining objects stay as
// they are, and it may be called again. Closing a closed Device does nothing.
func (d *Device) Close() error {
	const op = "close device"
	if d == nil || d.file == nil {
		return nil
	}
	d.close.Lock()
	defer d.close.Unlock()
	if d.holds.Load() < 0 {
		return nil
	}
	d.closing.Store(true)
	for {
		held, err := d.closeMembers()
		if err != nil {
			return opErr(op, d.info.Name(), err)
		}
		if !held && d.holds.CompareAndSwap(0, closedHolds) {
			break
		}
		<-d.idle
	}
	opened.Delete(d)
	d.removal.stop()
	d.async.Close()
	<-d.events.ended
	d.unsubscribeAll()
	d.prov.Release()
	if err := d.file.Close(); err != nil {
		return opErr(op, d.info.Name(), err)
	}
	return nil
}

// closeMembers closes the objects kind by kind. It stops after the first kind with an
// object that a verb holds.
func (d *Device) closeMembers() (held bool, err error) {
	for k := range kinds {
		for _, m := range d.membersOf(k) {
			switch err := m.Close(); {
			case isBusy(err):
				held = true
			case err != nil:
				return false, err
			}
		}
		if held {
			break
		}
	}
	// A running post may itself wait for the end of a batch. So Close fails instead of
	// waiting.
	for _, m := range d.membersOf(kindQP) {
		if m.(*QP).sendMu.batching() {
			return false, errBatch
		}
	}
	return held, nil
}

// membersOf returns the objects of a kind, the newest first: a driver's object may use an
// older one.
func (d *Device) membersOf(k kind) []member {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ms []member
	for m := range d.members.all() {
		if m.base().kind == k {
			ms = append(ms, m)
		}
	}
	return ms
}

// deviceLimits returns the device's limits. It queries them once.
func (d *Device) deviceLimits() (*DeviceAttr, error) {
	if l := d.limits.Load(); l != nil {
		return l, nil
	}
	l, err := d.QueryDevice()
	if err == nil {
		d.limits.Store(l)
	}
	return l, err
}
