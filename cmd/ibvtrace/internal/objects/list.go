// Package objects lists the RDMA objects in the kernel, as rdma(8) does.
package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/rdmanl"
)

// An Object is an object in the kernel.
type Object struct {
	Device string
	Type   string // ctx, pd, mr, cq, srq, qp or cm_id
	ID     uint64 // a QP's number, otherwise the kernel's ID
	PID    int    // 0: an object of the kernel
	Comm   string // the process's name, or the module's
	Port   uint64 // 0: none
	Ctx    uint64 // the context it belongs to, if HasCtx
	PD     uint64 // the PD, if HasPD
	HasCtx bool
	HasPD  bool
	// Attrs are the other attributes, in the kernel's order.
	Attrs []Attr
}

// An Attr is an attribute of an object.
type Attr struct{ Name, Value string }

// List returns all objects of all devices, in the kernel's order.
func List() ([]Object, error) {
	ctx := context.Background()
	devices, err := rdmanl.Devices(ctx)
	if err != nil {
		return nil, err
	}
	var all []Object
	for _, d := range devices {
		for _, list := range []func(context.Context, rdmanl.Device) ([]Object, error){
			listed(rdmanl.Contexts, ofContext), listed(rdmanl.PDs, ofPD), listed(rdmanl.MRs, ofMR), listed(rdmanl.CQs, ofCQ),
			listed(rdmanl.SRQs, ofSRQ), listed(rdmanl.QPs, ofQP), listed(rdmanl.CMIDs, ofCMID),
		} {
			objects, err := list(ctx, d)
			switch {
			case errors.Is(err, errors.ErrUnsupported): // an older kernel
			case errors.Is(err, rdmanl.ErrNoDevice): // it went away meanwhile
			case err != nil:
				return nil, err
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

// listed lists the objects of one kind on a device.
func listed[T any](list func(context.Context, uint32, rdmanl.Detail) ([]T, error), describe func(T) Object) func(context.Context, rdmanl.Device) ([]Object, error) {
	return func(ctx context.Context, d rdmanl.Device) ([]Object, error) {
		objects, err := list(ctx, d.Index, rdmanl.DetailCommon)
		var all []Object
		for _, o := range objects {
			x := describe(o)
			x.Device = d.Name
			all = append(all, x)
		}
		return all, err
	}
}

// object begins the description of an object.
func object(class string, id uint32, owner rdmanl.Owner) Object {
	pid, ok := owner.Process()
	if !ok {
		pid = owner.PID.Or(0)
	}
	o := Object{Type: class, ID: uint64(id), PID: int(pid)}
	name, ok := owner.Comm()
	if !ok && o.PID != 0 {
		name = "?" // the process has ended
	}
	o.Comm = name
	return o
}

// say adds an attribute if the kernel has reported it.
func say[T any](o *Object, name, layout string, value rdmanl.Optional[T]) {
	if v, ok := value.Get(); ok {
		o.Attrs = append(o.Attrs, Attr{name, fmt.Sprintf(layout, v)})
	}
}

func (o *Object) inContext(id rdmanl.Optional[uint32]) {
	n, ok := id.Get()
	o.Ctx, o.HasCtx = uint64(n), ok
}

func (o *Object) inPD(id rdmanl.Optional[uint32]) {
	n, ok := id.Get()
	o.PD, o.HasPD = uint64(n), ok
}

func ofContext(c rdmanl.Context) Object { return object("ctx", c.ID, c.Owner) }

func ofPD(p rdmanl.PD) Object {
	o := object("pd", p.ID, p.Owner)
	o.inContext(p.Context)
	say(&o, "users", "%d", p.Users)
	return o
}

func ofMR(m rdmanl.MR) Object {
	o := object("mr", m.ID, m.Owner)
	o.inPD(m.PD)
	say(&o, "rkey", "%#x", m.RKey)
	say(&o, "lkey", "%#x", m.LKey)
	say(&o, "iova", "%#x", m.IOVA)
	say(&o, "length", "%d", m.Length)
	return o
}

func ofCQ(c rdmanl.CQ) Object {
	o := object("cq", c.ID, c.Owner)
	o.inContext(c.Context)
	say(&o, "cqe", "%d", c.Entries)
	say(&o, "users", "%d", c.Users)
	return o
}

func ofSRQ(s rdmanl.SRQ) Object {
	o := object("srq", s.ID, s.Owner)
	o.inPD(s.PD)
	say(&o, "type", "%v", s.Type)
	say(&o, "cq", "%d", s.CQ)
	return o
}

func ofQP(q rdmanl.QP) Object {
	o := object("qp", q.Number, q.Owner)
	o.Port = uint64(q.Port.Or(0))
	o.inPD(q.PD)
	say(&o, "rqpn", "%#x", q.RemoteQPN)
	say(&o, "rq_psn", "%#x", q.RQPSN)
	say(&o, "sq_psn", "%#x", q.SQPSN)
	say(&o, "type", "%v", q.Type)
	say(&o, "state", "%v", q.State)
	say(&o, "subtype", "%s", q.Subtype)
	return o
}

func ofCMID(c rdmanl.CMID) Object {
	o := object("cm_id", c.ID, c.Owner)
	o.Port = uint64(c.Port.Or(0))
	say(&o, "lqpn", "%#x", c.QPN)
	say(&o, "type", "%v", c.QPType)
	say(&o, "ps", "%v", c.PortSpace)
	say(&o, "state", "%v", c.State)
	say(&o, "src", "%v", c.Source)
	say(&o, "dst", "%v", c.Dest)
	return o
}
