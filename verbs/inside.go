package verbs

import (
	"github.com/goverbs/goverbs/internal/inside"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
)

func init() {
	inside.Begin, inside.Open, inside.RegDmabuf = beginInside, openInside, regDmabufInside
	inside.CreateQP, inside.CreateCQ, inside.PostRaw = createQPInside, createCQInside, postRawInside
}

// An extension is an object that another package has created: see inside.Made.
type extension struct {
	object
	made inside.Made
}

func (x *extension) base() *object {
	if x == nil {
		return nil
	}
	return &x.object
}

func (x *extension) Handle() uint32 { return x.handle }

func (x *extension) Close() error {
	return x.base().end(x.made.Op,
		func() error { return x.made.Destroy(x.dev.file, x.handle) },
		func() {
			if x.made.Release != nil {
				x.made.Release()
			}
		})
}

// beginInside is inside.Begin.
func beginInside(op string, on ...any) (*inside.Call, error) {
	d, isDevice := on[0].(*Device)
	if isDevice {
		if err := d.begin(op); err != nil {
			return nil, err
		}
		on = on[1:]
	}
	call := new(inside.Call)
	var objects []*object
	for _, x := range on {
		o := x.(member).base()
		objects = append(objects, o)
	}
	if err := hold(op, objects...); err != nil {
		if isDevice {
			d.done()
		}
		return nil, err
	}
	for i, o := range objects {
		call.Handles = append(call.Handles, o.handle)
		call.Providers = append(call.Providers, providerOf(on[i]))
	}
	if !isDevice {
		d = objects[0].dev
	}
	adopted := false
	call.File, call.Device = d.file, d.prov
	call.Fail = func(object string, err error) error { return d.failed(op, object, err) }
	call.Adopt = func(made inside.Made) inside.Object {
		x := &extension{made: made}
		x.adopt(d, kindExtension, made.Handle, x, objects...)
		adopted = true
		return x
	}
	call.Done = func() {
		if !adopted {
			drop(objects...)
		}
		if isDevice {
			d.done()
		}
	}
	if isDevice && len(objects) > 0 && objects[0].dev != d {
		call.Done()
		return nil, invalid(op, "%s belongs to another Device", objects[0].kind)
	}
	return call, nil
}

func providerOf(x any) any {
	switch x := x.(type) {
	case *QP:
		return x.prov
	case *CQ:
		return x.prov
	case *SRQ:
		return x.prov
	case *AH:
		return &x.ref
	}
	return nil
}

// openInside is inside.Open.
func openInside(info any, prepare func(any) error) (any, error) {
	const op = "open device"
	d := info.(*DeviceInfo)
	file, err := d.openNode()
	if err != nil {
		return nil, err
	}
	return d.openAs(op, file, func(dev *Device, p *provider.Provider) error {
		return dev.getContext(p, func() error { return prepare(dev.prov) })
	})
}

// createQPInside is inside.CreateQP.
func createQPInside(op string, on, options, extra any) (any, error) {
	return on.(*PD).createQP(op, *options.(*QPOptions), extra)
}

// createCQInside is inside.CreateCQ.
func createCQInside(op string, on, options, extra any) (any, error) {
	return on.(*Device).createCQ(op, *options.(*CQOptions), extra)
}

// regDmabufInside is inside.RegDmabuf.
func regDmabufInside(op string, on, options any, add func(ioctl.RegDmabufMr)) (any, error) {
	return on.(*PD).regDmabuf(op, options.(*DmabufOptions), add)
}

var rawRefusals = func() refusals {
	const op = "post WQE"
	r := newRefusals(op)
	r[provider.ErrWQE] = invalid(op, "%v", provider.ErrWQE)
	return r
}()

// postRawInside is inside.PostRaw.
func postRawInside(on any, wrid uint64, wqe []byte, errDriver error) error {
	qp := on.(*QP)
	if qp == nil || qp.dev == nil { // never created
		return errPostClosed
	}
	posting()
	qp.sendMu.Lock()
	defer qp.sendMu.Unlock()
	if err := qp.sendable(); err != nil {
		return err
	}
	p, ok := qp.prov.(interface {
		PostRaw(wrid uint64, wqe []byte) error
	})
	if !ok {
		return opErr("post WQE", "", errDriver)
	}
	return rawRefusals.named(p.PostRaw(wrid, wqe))
}
