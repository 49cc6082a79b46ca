package verbs

import (
	"io"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
)

func init() { driverapi.Verbs = driverVerbs{} }

// driverVerbs implements driververbs.Verbs, which documents its methods.
type driverVerbs struct{}

// An extension is an object that another package has created: see driverapi.Made.
type extension struct {
	object
	made driverapi.Made
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

func (driverVerbs) Begin(op string, on ...io.Closer) (*driverapi.Call, error) {
	d, isDevice := on[0].(*Device)
	if isDevice {
		if err := d.begin(op); err != nil {
			return nil, err
		}
		on = on[1:]
	}
	call := new(driverapi.Call)
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
	call.Adopt = func(made driverapi.Made) driverapi.Object {
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

func (driverVerbs) Open(info *DeviceInfo, prepare func(context any) error) (*Device, error) {
	file, err := info.openNode()
	if err != nil {
		return nil, err
	}
	return info.openAs("open device", file, func(dev *Device, p *provider.Provider) error {
		return dev.getContext(p, func() error { return prepare(dev.prov) })
	})
}

func (driverVerbs) CreateQP(op string, pd *PD, o *QPOptions, extra any) (*QP, error) {
	return pd.createQP(op, *o, extra)
}

func (driverVerbs) CreateCQ(op string, dev *Device, o *CQOptions, extra any) (*CQ, error) {
	return dev.createCQ(op, *o, extra)
}

func (driverVerbs) RegDmabufMR(op string, pd *PD, o *DmabufOptions, add func(ioctl.RegDmabufMr)) (*MR, error) {
	return pd.regDmabuf(op, o, add)
}

var wqeRefusals = func() refusals {
	const op = "post WQE"
	r := newRefusals(op)
	r[provider.ErrWQE] = invalid(op, "%v", provider.ErrWQE)
	return r
}()

func (driverVerbs) PostWQE(qp *QP, wrid uint64, wqe []byte, errDriver error) error {
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
	return wqeRefusals.wrap(p.PostRaw(wrid, wqe))
}
