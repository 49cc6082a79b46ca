//go:build amd64 || arm64

package trace

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// classCMID is the class of the connection manager's ids, which have no number
// among the objects of uverbs.
const classCMID = 0xfffe

// An objectKey names an object of a file. Handles are used again.
type objectKey struct {
	class  uint16 // UVERBS_OBJECT_..., or classCMID
	handle uint64
}

// An object is one, or the trace of one that is gone.
type object struct {
	generation int // counts those that had the handle, from 1
	before     bool
	alive      bool
	user       uint64 // what the program calls it: user_handle
	number     uint64 // a QP's number, a memory region's lkey
	ud         bool   // of the connection manager: for datagrams
}

// className returns the word for a class of objects.
func className(driver uapi.RdmaDriverId, class uint16) string {
	if class == classCMID {
		return "cm_id"
	}
	if o := uapi.LookupObject(driver, class); o != nil {
		return strings.ToLower(o.Name)
	}
	return "object"
}

// made notes that an object has come to be.
func (f *file) made(k objectKey) *object {
	o := f.objects[k]
	if o == nil {
		o = &object{}
		f.objects[k] = o
	}
	o.generation++
	*o = object{generation: o.generation, alive: true}
	return o
}

// seen returns an object that was named. If nobody saw it come, it was there before.
func (f *file) seen(k objectKey) *object {
	o := f.objects[k]
	if o == nil {
		o = &object{generation: 1, before: true, alive: true}
		f.objects[k] = o
	}
	return o
}

// byUser returns the object that the program calls so.
func (f *file) byUser(class uint16, user uint64) (objectKey, bool) {
	for k, o := range f.objects {
		if k.class == class && o.user == user && o.alive {
			return k, true
		}
	}
	return objectKey{}, false
}

// track follows what a verb that succeeded did to objects.
func (t *tracer) track(c *call) {
	f := c.file
	if f == nil {
		return
	}
	for _, a := range c.verb.Attrs {
		if a.Spec == nil || a.Spec.Kind != uapi.AttrIDR {
			continue
		}
		switch {
		case a.Spec.Access == uapi.AccessNew && a.Out != nil && a.Out.Err == nil:
			t.noteMade(c, objectKey{a.Spec.Object, a.Out.Num})
		case a.Spec.Access == uapi.AccessDestroy && a.In != nil && a.In.Err == nil:
			t.noteEnded(c, objectKey{a.Spec.Object, a.In.Num})
		}
	}
	if w := c.verb.Write; w != nil {
		switch action, _, _ := strings.Cut(w.Name, "_"); action {
		case "alloc", "create", "reg", "open":
			for i := range c.results {
				if v := &c.results[i].Value; v.Kind() == uapi.TypeHandle && v.Type.Object == w.Object {
					t.noteMade(c, objectKey{w.Object, v.Num})
				}
			}
			if w.Name == "open_qp" { // the schema has it with the XRC domain's
				if v := find(c.results, "qp"); v != nil {
					t.noteMade(c, objectKey{uapi.UVERBS_OBJECT_QP, v.Num})
				}
			}
		case "dealloc", "destroy", "dereg", "close":
			for i := range c.args {
				if v := &c.args[i].Value; v.Kind() == uapi.TypeHandle && v.Type.Object == w.Object {
					t.noteEnded(c, objectKey{w.Object, v.Num})
				}
			}
		}
	}
}

// noteMade notes the object that a call made, and what is said of it there.
func (t *tracer) noteMade(c *call, k objectKey) {
	o := c.file.made(k)
	if v := find(c.args, "user_handle"); v != nil {
		o.user = v.Num
	}
	if v := find(c.results, "qp_num", "qpn", "lkey"); v != nil {
		o.number = v.Num
	}
	c.made = append(c.made, k)
	c.file.noteOffsets(c, k)
}

// noteEnded notes the object that a call destroyed.
func (t *tracer) noteEnded(c *call, k objectKey) {
	o := c.file.seen(k)
	o.alive = false
	c.ended = append(c.ended, k)
	if o.user != 0 {
		if p := t.processes[c.pid]; p != nil && p.data != nil {
			p.data.forget(o.user)
		}
	}
}

// find returns the value with one of the names, nil if there is none.
func find(fields []ioctl.NamedValue, names ...string) *ioctl.Value {
	for i := range fields {
		for _, n := range names {
			if fields[i].Name == n && fields[i].Value.Err == nil {
				return &fields[i].Value
			}
		}
	}
	return nil
}

// The kinds of objects that may have been there before ibvtrace. In the order in
// which programs make them.
var existingClasses = []uint16{
	uapi.UVERBS_OBJECT_PD, uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_OBJECT_DM, uapi.UVERBS_OBJECT_MR, uapi.UVERBS_OBJECT_MW,
	uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_OBJECT_RWQ_IND_TBL,
	uapi.UVERBS_OBJECT_QP, uapi.UVERBS_OBJECT_AH, uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_OBJECT_FLOW_ACTION,
	uapi.UVERBS_OBJECT_COUNTERS,
}

// maxExisting bounds how many objects of a kind are asked for.
const maxExisting = 16000

// existing returns the objects that a file had before ibvtrace came, as the kernel
// lists them, without the program's help.
func (f *file) existing(pid, fd int) []objectKey {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return nil
	}
	uverbs := ioctl.NewFile(own)
	defer uverbs.Close()
	for _, d := range []uapi.RdmaDriverId{f.driver, uapi.RDMA_DRIVER_RXE, uapi.RDMA_DRIVER_MLX5} {
		if ok, err := uverbs.Probe(d); err == nil && ok {
			f.driver = d
			break
		}
	}
	var out []objectKey
	handles := make([]uint32, maxExisting)
	for _, class := range existingClasses {
		c := ioctl.New(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INFO_HANDLES)
		c.U64(uapi.UVERBS_ATTR_INFO_OBJECT_ID, uint64(class))
		ioctl.OutSlice(c, uapi.UVERBS_ATTR_INFO_HANDLES_LIST, handles)
		n := ioctl.Out[uint32](c, uapi.UVERBS_ATTR_INFO_TOTAL_HANDLES)
		err := c.Run(uverbs)
		count := min(int(*n), len(handles))
		c.Release()
		if err != nil {
			continue // the driver has none of these
		}
		for _, h := range handles[:count] {
			k := objectKey{class, uint64(h)}
			f.seen(k)
			out = append(out, k)
		}
	}
	return out
}
