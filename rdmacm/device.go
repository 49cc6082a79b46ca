package rdmacm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A device is an opened Device with a PD, which all IDs on one RDMA device share. The
// first ID opens it, and the last one closes it.
type device struct {
	key  deviceKey
	ctx  *verbs.Device
	pd   *verbs.PD
	refs int

	// The device's limits: outstanding RDMA reads and atomics from a QP, and to one.
	maxInitiatorDepth, maxResponderResources int

	noAtomics bool // it has no atomic operations
}

// A deviceKey identifies a device. Each registration of a device gets a new
// index. GUIDs are not unique: rxe takes them from network interfaces, and a
// bridge has the address of one of its ports.
type deviceKey struct {
	guid  verbs.GUID
	index uint32
}

// noIndex stands for the index where the kernel doesn't report one.
const noIndex = ^uint32(0)

var devices = struct {
	sync.Mutex
	open map[deviceKey]*device
}{open: make(map[deviceKey]*device)}

// nodeGUID converts the kernel's field, which is in network byte order.
func nodeGUID(v uint64) (g verbs.GUID) {
	binary.NativeEndian.PutUint64(g[:], v)
	return g
}

func acquireDevice(key deviceKey) (*device, error) {
	devices.Lock()
	defer devices.Unlock()
	d := devices.open[key]
	if d == nil {
		var err error
		if d, err = openDevice(key); err != nil {
			return nil, err
		}
		devices.open[key] = d
	}
	d.refs++
	return d, nil
}

func openDevice(key deviceKey) (*device, error) {
	devs, err := verbs.Devices()
	if err != nil {
		return nil, err
	}
	dev, err := choose(devs, key)
	if err != nil {
		return nil, err
	}
	ctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	d := &device{key: key, ctx: ctx}
	attr, err := ctx.QueryDevice()
	if err == nil {
		d.maxInitiatorDepth = min(attr.MaxQPInitRDAtom, math.MaxUint8)
		d.maxResponderResources = min(attr.MaxQPRDAtom, math.MaxUint8)
		d.noAtomics = attr.AtomicCap == verbs.AtomicNone
		d.pd, err = ctx.AllocPD()
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return d, nil
}

// choose returns the device with the key: by its index, or by its GUID where one of the indices
// isn't known.
func choose[D interface {
	Index() (uint32, error)
	NodeGUID() verbs.GUID
}](devs []D, key deviceKey) (D, error) {
	var none D
	devs = slices.DeleteFunc(slices.Clone(devs), func(d D) bool {
		if index, err := d.Index(); err == nil && key.index != noIndex {
			return index != key.index
		}
		return d.NodeGUID() != key.guid
	})
	switch len(devs) {
	case 0:
		return none, fmt.Errorf("%w with node GUID %v, which has the address", verbs.ErrNoDevice, key.guid)
	case 1:
		return devs[0], nil
	}
	return none, fmt.Errorf("%d devices have the node GUID %v, and the kernel doesn't say which has the address", len(devs), key.guid)
}

// release drops one reference, and closes the device after the last. If the kernel refuses to
// close the device, it is closed later.
func (d *device) release() error {
	devices.Lock()
	d.refs--
	last := d.refs == 0
	if last && devices.open[d.key] == d {
		delete(devices.open, d.key)
	}
	devices.Unlock()
	if !last {
		return nil
	}
	if err := closeInTime(d.ctx); err != nil {
		return fmt.Errorf("closing the shared context: %w", err)
	}
	return nil
}

// closeInTime closes an object that nobody else will close. If Close fails, because a verb still runs on a
// Device or the kernel refuses, a goroutine repeats it until it succeeds. closeInTime returns the first
// failure, unless it is ErrBusy.
func closeInTime(c closer) error {
	err := c.Close()
	if err == nil {
		return nil
	}
	go func() {
		for pause := time.Millisecond; c.Close() != nil; pause = min(2*pause, time.Second) {
			time.Sleep(pause)
		}
	}()
	if errors.Is(err, ErrBusy) {
		return nil
	}
	return err
}

// removed keeps new IDs from using the removed device.
func (d *device) removed() {
	devices.Lock()
	defer devices.Unlock()
	if devices.open[d.key] == d {
		delete(devices.open, d.key)
	}
}
