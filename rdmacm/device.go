package rdmacm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A device is a Context, and a PD on it, that the IDs on one RDMA device share.
// The first opens it, and the last closes it.
type device struct {
	key  deviceKey
	ctx  *verbs.Context
	pd   *verbs.PD
	refs int

	// What the device can do: RDMA reads and atomics from a QP, and towards one.
	maxInitiatorDepth, maxResponderResources uint8
}

// A deviceKey tells devices apart; the index is new with each registration.
type deviceKey struct {
	guid  verbs.GUID
	index uint32
}

var devices = struct {
	sync.Mutex
	open map[deviceKey]*device
}{open: make(map[deviceKey]*device)}

// nodeGUID makes a GUID of the kernel's field, which is in network order.
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
	ctx, err := verbs.Open(key.guid.String())
	if err != nil {
		return nil, err
	}
	d := &device{key: key, ctx: ctx}
	attr, err := ctx.QueryDevice()
	if err == nil {
		d.maxInitiatorDepth = uint8(min(attr.MaxQPInitRDAtom, MaxResources))
		d.maxResponderResources = uint8(min(attr.MaxQPRDAtom, MaxResources))
		d.pd, err = ctx.AllocPD()
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return d, nil
}

// release gives the device back.
func (d *device) release() error {
	devices.Lock()
	defer devices.Unlock()
	if d.refs--; d.refs > 0 {
		return nil
	}
	if devices.open[d.key] == d {
		delete(devices.open, d.key)
	}
	if err := d.ctx.Close(); err != nil {
		return fmt.Errorf("closing the shared context: %w", err)
	}
	return nil
}

// removed keeps new IDs from using the device, which is gone.
func (d *device) removed() {
	devices.Lock()
	defer devices.Unlock()
	if devices.open[d.key] == d {
		delete(devices.open, d.key)
	}
}
