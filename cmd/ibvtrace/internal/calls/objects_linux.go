//go:build amd64 || arm64

package calls

import (
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/uapi"
)

// track tracks the objects that a successful verb has created or destroyed.
func (t *Decoder) track(c *tracee.Call) {
	f := c.File
	if f == nil {
		return
	}
	for _, a := range c.Verb.Attrs {
		if a.Spec == nil || a.Spec.Kind != uapi.AttrIDR {
			continue
		}
		switch {
		case a.Spec.Access == uapi.AccessNew && a.Out != nil && a.Out.Err == nil:
			t.noteMade(c, tracee.KeyOf(a.Spec.Object, a.Out.Num))
		case a.Spec.Access == uapi.AccessDestroy && a.In != nil && a.In.Err == nil:
			t.noteEnded(c, tracee.KeyOf(a.Spec.Object, a.In.Num))
		}
	}
	if w := c.Verb.Write; w != nil {
		switch action, _, _ := strings.Cut(w.Name, "_"); action {
		case "alloc", "create", "reg", "open":
			for i := range c.Results {
				if v := &c.Results[i].Value; v.Kind() == uapi.TypeHandle && v.Type.Object == w.Object {
					t.noteMade(c, tracee.KeyOf(w.Object, v.Num))
				}
			}
			if w.Name == "open_qp" { // in the schema it belongs to the XRC domain
				if v := tracee.Find(c.Results, "qp"); v != nil {
					t.noteMade(c, tracee.KeyOf(uapi.UVERBS_OBJECT_QP, v.Num))
				}
			}
		case "dealloc", "destroy", "dereg", "close":
			for i := range c.Args {
				if v := &c.Args[i].Value; v.Kind() == uapi.TypeHandle && v.Type.Object == w.Object {
					t.noteEnded(c, tracee.KeyOf(w.Object, v.Num))
				}
			}
		}
	}
}

// noteMade records the object that a call created.
func (t *Decoder) noteMade(c *tracee.Call, k tracee.ObjectKey) {
	o := c.File.Made(k)
	if v := tracee.Find(c.Args, "user_handle"); v != nil {
		o.User = v.Num
	}
	if v := tracee.Find(c.Results, "qp_num", "qpn", "lkey"); v != nil {
		o.Number = v.Num
	}
	c.Made = append(c.Made, k)
	noteOffsets(c.File, c, k)
}

// noteEnded records that a call has destroyed an object.
func (t *Decoder) noteEnded(c *tracee.Call, k tracee.ObjectKey) {
	o := c.File.Seen(k)
	o.Alive = false
	c.Ended = append(c.Ended, k)
	if o.User != 0 {
		t.verbs.Destroyed(c.PID, o.User)
	}
}
