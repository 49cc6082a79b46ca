// Package explain explains why verbs failed, if the trace so far tells more than the errno.
package explain

import (
	"fmt"
	"maps"
	"strings"

	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/uapi"
)

// An Explainer is a Sink that sets Rejects and Why in failed events, and passes all events on.
// Its memory use is bounded by the number of existing objects.
type Explainer struct {
	// Limits asks the device of a process's descriptor for its limits, if the program has not asked.
	// It may be nil.
	Limits func(pid, fd int) map[string]uint64

	next  event.Sink
	files map[int]*file
}

// New returns an Explainer that passes events on to next.
func New(next event.Sink) *Explainer { return &Explainer{next: next, files: make(map[int]*file)} }

// Close closes the next Sink.
func (x *Explainer) Close() error { return x.next.Close() }

// A file is an open device file with its objects.
type file struct {
	pid     int // the process that opened it
	objects map[id]*object
	limits  map[string]uint64 // results of query_device, by field
	ask     func(pid, fd int) map[string]uint64
	probed  bool // rdma-core has probed for the ioctl
}

type id struct {
	kind   string
	handle uint64
}

// An object is an existing object.
type object struct {
	uses    []id // objects that can't be destroyed before it
	qpType  string
	qpState uapi.IbQpState
	known   bool   // qpState is known
	number  uint64 // of a QP
	peer    string // of a connected QP, in words
	posts   []post // the last ones to a QP
}

// Event explains the event if it failed, and passes it on.
func (x *Explainer) Event(e *event.Event) error {
	if e.Why == "" {
		e.Why = x.broken(e)
	}
	if e.File != 0 {
		f := x.files[e.File]
		if f == nil {
			f = &file{pid: e.PID, objects: make(map[id]*object), limits: make(map[string]uint64), ask: x.Limits}
			x.files[e.File] = f
		}
		switch {
		case !e.Failed() || e.Why != "":
		case e.Kind == event.Control || e.Kind == event.CM:
			f.explain(e)
		case e.Kind == event.Async && e.Errno == "EAGAIN":
			e.Why = event.NoError + "there is no event to be read"
		}
		f.follow(e)
		if e.Kind == event.Close {
			delete(x.files, e.File)
		}
	}
	if e.Kind == event.Exit {
		maps.DeleteFunc(x.files, func(_ int, f *file) bool { return f.pid == e.PID })
	}
	return x.next.Event(e)
}

// follow tracks the objects and QP states that a verb changes.
func (f *file) follow(e *event.Event) {
	for _, o := range e.Created {
		n := &object{}
		if !o.Before {
			n.uses = handles(e.Args)
		}
		if o.Type == "qp" {
			n.known, n.number = !o.Before, o.Num
			if t := event.Find(e.Args, "type"); t != nil {
				n.qpType = t.Str
			} else if t := event.Find(e.Args, "qp_type"); t != nil {
				n.qpType = t.Str
			}
		}
		f.objects[id{o.Type, o.Handle}] = n
	}
	for _, o := range e.Destroyed {
		delete(f.objects, id{o.Type, o.Handle})
	}
	if !e.Returned || e.Failed() {
		return
	}
	switch strings.TrimPrefix(e.Verb, "ibv_") {
	case "query_device", "query_device_ex":
		f.learn(e.Out)
	case "post_send", "post_recv", "wr_complete":
		if q := f.qp(e.Args); q != nil {
			q.posted(e)
		}
	case "modify_qp":
		if q := f.qp(e.Args); q != nil {
			if s := event.Find(e.Args, "qp_state"); s != nil {
				q.qpState, q.known = stateNamed(s.Str)
			}
			if peer := peerOf(e.Args); peer != "" {
				q.peer = peer
			}
		}
	}
}

// learn records a device's limits.
func (f *file) learn(fields []event.Field) {
	for i := range fields {
		v := &fields[i].Value
		if strings.HasPrefix(fields[i].Name, "max_") && (v.Form == event.Uint || v.Form == event.Int) {
			f.limits[fields[i].Name] = v.Num
		}
		f.learn(v.Fields)
	}
}

// handles returns the objects that the arguments refer to.
func handles(fields []event.Field) []id {
	var out []id
	event.Walk(fields, func(v *event.Value) {
		if v.Form == event.Handle {
			out = append(out, id{v.Str, v.Num})
		}
	})
	return out
}

func (f *file) qp(args []event.Field) *object {
	v := event.Find(args, "qp")
	if v == nil || v.Form != event.Handle {
		return nil
	}
	return f.objects[id{"qp", v.Num}]
}

func stateNamed(name string) (uapi.IbQpState, bool) {
	for s := uapi.IB_QPS_RESET; s <= uapi.IB_QPS_ERR; s++ {
		if uapi.EnumIbQpState.Short(uint64(s)) == name {
			return s, true
		}
	}
	return 0, false
}

// explain tries the possible reasons, the most certain first.
func (f *file) explain(e *event.Event) {
	for _, try := range []func(*event.Event) (rejects, why string){
		f.probe, f.missing, f.busy, f.transition, f.limit, f.memory, f.byErrno,
	} {
		if e.Rejects, e.Why = try(e); e.Why != "" {
			return
		}
	}
}

// probe recognizes calls of rdma-core and goverbs that fail on purpose.
func (f *file) probe(e *event.Event) (string, string) {
	// EINVAL: it is another one.
	if (e.Errno == "EPROTONOSUPPORT" || e.Errno == "EINVAL") && e.Object == "DEVICE" && e.Method == "0xfff" {
		return "", event.NoError + "this is how goverbs asks which driver a device has"
	}
	if e.Errno == "ENOSPC" && strings.HasPrefix(e.Verb, "ibv_query_device") && !f.probed {
		f.probed = true
		return "", event.NoError + "this is how rdma-core asks whether the kernel has the ioctl"
	}
	return "", ""
}

// missing looks for handles of objects that do not exist.
func (f *file) missing(e *event.Event) (string, string) {
	if e.Errno != "ENOENT" && e.Errno != "EINVAL" && e.Errno != "EBADF" {
		return "", ""
	}
	for i := range e.Args {
		v := &e.Args[i].Value
		if v.Form != event.Handle || v.Str == "handle" {
			continue
		}
		if _, ok := f.objects[id{v.Str, v.Num}]; ok {
			continue
		}
		if v.Gen > 0 && e.Errno != "EINVAL" {
			return e.Args[i].Name, fmt.Sprintf("%s %d was destroyed", v.Str, v.Num)
		}
		if e.Errno == "ENOENT" {
			return e.Args[i].Name, fmt.Sprintf("there is no %s %d in this context", v.Str, v.Num)
		}
	}
	return "", ""
}

// maxUsers bounds the users of an object that are named.
const maxUsers = 3

// busy names the objects that keep an object from being destroyed.
func (f *file) busy(e *event.Event) (string, string) {
	if e.Errno != "EBUSY" || len(e.Args) == 0 || e.Args[0].Value.Form != event.Handle {
		return "", ""
	}
	target := id{e.Args[0].Value.Str, e.Args[0].Value.Num}
	var users []string
	n := 0
	for k, o := range f.objects {
		for _, u := range o.uses {
			if u == target {
				n++
				users = append(users, fmt.Sprintf("%s %d", k.kind, k.handle))
				break
			}
		}
	}
	if n == 0 {
		return e.Args[0].Name, "something still depends on it"
	}
	return e.Args[0].Name, "still used by " + some(users, maxUsers)
}

// transition checks a modify_qp against the state table.
func (f *file) transition(e *event.Event) (string, string) {
	if !strings.HasSuffix(e.Verb, "modify_qp") || e.Errno != "EINVAL" {
		return "", ""
	}
	q := f.qp(e.Args)
	if q == nil || !q.known || q.qpType == "" {
		return "", ""
	}
	from, to := q.qpState, q.qpState
	if s := event.Find(e.Args, "cur_qp_state"); s != nil {
		if named, ok := stateNamed(s.Str); ok {
			from, to = named, named
		}
	}
	if s := event.Find(e.Args, "qp_state"); s != nil {
		named, ok := stateNamed(s.Str)
		if !ok {
			return "qp_state", "there is no such state"
		}
		to = named
	}
	m := event.Find(e.Args, "attr_mask")
	if m == nil {
		return "", ""
	}
	if why := uapi.WhyNotModifyQP(q.qpType, from, to, maskOf(m.Words)); why != "" {
		return "attr_mask", why
	}
	return "", "the state transition allows these attributes, so a value is wrong (port, P_Key or GID index, path MTU), or there is no path to the peer"
}

func maskOf(words []string) uapi.IbQpAttrMask {
	var mask uapi.IbQpAttrMask
	for _, v := range uapi.EnumIbQpAttrMask.Values {
		for _, w := range words {
			if strings.TrimPrefix(v.CName, uapi.EnumIbQpAttrMask.Prefix) == w {
				mask |= uapi.IbQpAttrMask(v.Value)
			}
		}
	}
	return mask
}

// limitsOf has the device limit of an argument.
var limitsOf = map[string]string{
	"max_send_wr":  "max_qp_wr",
	"max_recv_wr":  "max_qp_wr",
	"max_send_sge": "max_sge",
	"max_recv_sge": "max_sge",
	"cqe":          "max_cqe",
	"max_wr":       "max_srq_wr",
	"max_sge":      "max_srq_sge",
}

// limit compares arguments with the limits that the program has queried, or that the device tells now.
func (f *file) limit(e *event.Event) (string, string) {
	if e.Errno != "EINVAL" && e.Errno != "ENOMEM" {
		return "", ""
	}
	if !strings.Contains(e.Verb, "create_") && !strings.Contains(e.Verb, "resize_") && !strings.Contains(e.Verb, "modify_srq") {
		return "", ""
	}
	if len(f.limits) == 0 && f.ask != nil {
		maps.Copy(f.limits, f.ask(e.PID, e.FD))
		f.ask = nil
	}
	return f.beyond(e.Args, "")
}

func (f *file) beyond(args []event.Field, path string) (string, string) {
	for i := range args {
		v := &args[i].Value
		name := path + args[i].Name
		if v.Form == event.Struct {
			if rejects, why := f.beyond(v.Fields, name+"."); why != "" {
				return rejects, why
			}
		}
		limit, ok := limitsOf[args[i].Name]
		if max := f.limits[limit]; ok && (v.Form == event.Uint || v.Form == event.Int) && max > 0 && v.Num > max {
			return name, fmt.Sprintf("the device's limit is %d (%s)", max, limit)
		}
	}
	return "", ""
}

// memory explains failed memory registrations.
func (f *file) memory(e *event.Event) (string, string) {
	if !strings.Contains(e.Verb, "reg_mr") {
		return "", ""
	}
	switch e.Errno {
	case "ENOMEM":
		return "length", "more memory than the process may lock, see ulimit -l (RLIMIT_MEMLOCK), or the kernel has no more"
	case "EFAULT":
		return "start", "not all of the memory is mapped, or the access flags need write permission that it lacks"
	case "EINVAL":
		if a := event.Find(e.Args, "access_flags"); a != nil {
			local := false
			remote := ""
			for _, w := range a.Words {
				local = local || w == "LOCAL_WRITE"
				if w == "REMOTE_WRITE" || w == "REMOTE_ATOMIC" {
					remote = w
				}
			}
			if remote != "" && !local {
				return "access_flags", remote + " also needs LOCAL_WRITE"
			}
		}
		start, hca := event.Find(e.Args, "start"), event.Find(e.Args, "hca_va")
		if start != nil && hca != nil && (start.Num^hca.Num)&4095 != 0 {
			return "hca_va", "its offset in the page differs from start's"
		}
	case "EOPNOTSUPP":
		return "access_flags", "the device does not support these flags"
	}
	return "", ""
}

// errnos are the meanings of errors for which nothing better is known.
var errnos = map[string]string{
	"EPROTONOSUPPORT": "this kernel does not have the verb",
	"EOPNOTSUPP":      "the device or its driver does not support this",
	"ENOSYS":          "the driver does not have this verb",
	"ENOTTY":          "this file is not an RDMA device",
	"EIO":             "the device is gone: it was removed or reset",
	"ENODATA":         "there is no such entry",
	"ENODEV":          "no device or network interface matches",
	"EACCES":          "not allowed for this user",
	"EPERM":           "the process lacks a privilege",
	"ENETUNREACH":     "there is no route to this address",
	"EADDRNOTAVAIL":   "no RDMA device has this address",
	"EADDRINUSE":      "another listener uses this address",
}

func (f *file) byErrno(e *event.Event) (string, string) {
	switch {
	case e.Errno == "ENODATA" && strings.Contains(e.Verb, "query_gid"):
		return "", event.NoError + "this entry of the GID table is empty"
	case e.Errno == "EACCES" && e.Kind == event.CM && e.PID != f.pid:
		return "", "another process has opened this file, and the connection manager obeys only that"
	case e.Errno == "EACCES" && (e.Verb == "rdma_bind_addr" || e.Verb == "rdma_resolve_addr"):
		return "", "a port below 1024 takes CAP_NET_BIND_SERVICE"
	case e.Errno == "ENOSPC" && strings.Contains(e.Verb, "alloc_pd"):
		return "", "the device has no more protection domains, see max_pd in ibv_devinfo -v"
	}
	return "", errnos[e.Errno]
}
