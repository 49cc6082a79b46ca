package figure

import (
	"fmt"
	"path"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// find returns the first argument or result with one of the names.
func find(e *event.Event, names ...string) *event.Value {
	for _, n := range names {
		if v := event.Find(e.Args, n); v != nil {
			return v
		}
		if v := event.Find(e.Out, n); v != nil {
			return v
		}
	}
	return nil
}

// verbKey returns a key that is the same for verbs to be folded: those with the same name, QP
// state, event and opcode.
func verbKey(e *event.Event) string {
	key := e.Verb
	if s := event.Find(e.Args, "qp_state"); s != nil {
		key += " " + s.Str
	}
	if s := event.Find(e.Out, "event"); s != nil && s.Form == event.Word {
		key += " " + s.Str
	}
	if wr := list(e.Args, "wr"); len(wr) > 0 {
		if op := event.Find(wr[0].Fields, "opcode"); op != nil {
			key += " " + op.Str
		}
	}
	return key
}

func list(fields []event.Field, name string) []event.Value {
	if v := event.Find(fields, name); v != nil {
		return v.Elems
	}
	return nil
}

// detail returns the most important arguments and results of a verb.
func detail(e *event.Event) string {
	word := func(name string) string {
		if v := find(e, name); v != nil {
			return text.Value(v)
		}
		return ""
	}
	var parts []string
	add := func(form string, args ...any) { parts = append(parts, fmt.Sprintf(form, args...)) }
	switch name := strings.TrimPrefix(e.Verb, "ibv_"); {
	case name == "open":
		if p := event.Find(e.Args, "path"); p != nil {
			add("%s", path.Base(p.Str))
		}
	case name == "mmap":
		if w := event.Find(e.Args, "what"); w != nil {
			add("%s", w.Str)
		}
	case name == "reg_mr":
		if n := event.Find(e.Args, "length"); n != nil {
			add("%s", size(n.Num))
		}
	case strings.HasPrefix(name, "create_qp"):
		add("%s", word("type"))
	case name == "modify_qp":
		if s := word("qp_state"); s != "" {
			add("to %s", s)
		}
		if p := word("dest_qp_num"); p != "" {
			add("peer %s", p)
		}
	case name == "post_send" || name == "post_recv" || name == "post_srq_recv" || name == "post_wq_recv":
		if wr := list(e.Args, "wr"); len(wr) > 0 {
			if op := event.Find(wr[0].Fields, "opcode"); op != nil {
				add("%s", op.Str)
			}
		}
	case name == "rdma_get_cm_event":
		add("%s", word("event"))
	case name == "rdma_bind_addr":
		add("%s", strings.Trim(word("addr"), `"`))
	case name == "rdma_resolve_addr":
		add("%s", strings.Trim(word("dst_addr"), `"`))
	case strings.HasPrefix(name, "rdma_query"):
		add("%s", word("option"))
	case name == "rdma_init_qp_attr":
		add("%s", word("qp_state"))
	case name == "get_async_event":
		add("%s", word("event_type"))
	}
	for _, o := range e.Created {
		if o.Type == "qp" && o.Num != 0 {
			add("qp %d, number %#x", o.Handle, o.Num)
		} else {
			add("%s %d", o.Type, o.Handle)
		}
	}
	if len(e.Created) == 0 {
		for _, o := range e.Destroyed {
			add("%s %d", o.Type, o.Handle)
		}
	}
	for i, p := range parts {
		if p == "" {
			parts = append(parts[:i], parts[i+1:]...)
			break
		}
	}
	return strings.Join(parts, ", ")
}

// size formats a number of bytes with a suitable unit.
func size(n uint64) string {
	for i, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if shift := 10 * i; n>>shift < 10240 && n&(1<<shift-1) == 0 || n>>shift < 1024 {
			if n&(1<<shift-1) != 0 {
				return fmt.Sprintf("%.1f %s", float64(n)/float64(uint64(1)<<shift), unit)
			}
			return fmt.Sprintf("%d %s", n>>shift, unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// what returns the box's text beside the verb.
func (i *item) what() string {
	switch {
	case strings.HasPrefix(i.verb, "ibv_poll_cq"):
		if i.done > 0 {
			return plural(i.done, "completion")
		}
		return ""
	case strings.HasPrefix(i.verb, "ibv_post_") || strings.HasPrefix(i.verb, "ibv_wr_"):
		d := ""
		if len(i.details) > 0 {
			d = i.details[0]
		}
		if i.moved > 0 {
			if d != "" {
				d += ", "
			}
			d += size(i.moved)
			if i.count() > 1 {
				d += " in all"
			}
		}
		return d
	}
	if len(i.details) > maxDetails {
		return strings.Join(i.details[:maxDetails], "; ") + "; …"
	}
	return strings.Join(i.details, "; ")
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
