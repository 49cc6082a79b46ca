package objects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
)

// Version is the version of the JSON format.
const Version = "1.0"

// WriteJSON writes one JSON object per line, with v, dev, type, id, pid (omitted for the
// kernel's objects), comm, port, ctx, pd, and attrs with the other attributes as strings. port,
// ctx and pd are omitted if the object has none.
func WriteJSON(w io.Writer, objects []Object) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range objects {
		o := &objects[i]
		line := struct {
			Version string            `json:"v"`
			Device  string            `json:"dev"`
			Type    string            `json:"type"`
			ID      uint64            `json:"id"`
			PID     int               `json:"pid,omitempty"`
			Comm    string            `json:"comm"`
			Port    uint64            `json:"port,omitempty"`
			Ctx     *uint64           `json:"ctx,omitempty"`
			PD      *uint64           `json:"pd,omitempty"`
			Attrs   map[string]string `json:"attrs,omitempty"`
		}{Version: Version, Device: o.Device, Type: o.Type, ID: o.ID, PID: o.PID, Comm: o.Comm, Port: o.Port}
		if o.HasCtx {
			line.Ctx = &o.Ctx
		}
		if o.HasPD {
			line.PD = &o.PD
		}
		for _, a := range o.Attrs {
			if line.Attrs == nil {
				line.Attrs = make(map[string]string)
			}
			line.Attrs[a.Name] = a.Value
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteTree writes the objects as a tree of processes with their devices, contexts, PDs and
// further objects. Objects whose parent is not listed are below the process.
func WriteTree(w io.Writer, objects []Object) error {
	type owner struct {
		pid    int
		comm   string
		device string
	}
	groups := make(map[owner][]Object)
	for _, o := range objects {
		k := owner{o.PID, o.Comm, o.Device}
		groups[k] = append(groups[k], o)
	}
	owners := make([]owner, 0, len(groups))
	for k := range groups {
		owners = append(owners, k)
	}
	slices.SortFunc(owners, func(a, b owner) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), strings.Compare(a.comm, b.comm), strings.Compare(a.device, b.device))
	})
	var b strings.Builder
	for _, k := range owners {
		if k.pid == 0 {
			fmt.Fprintf(&b, "[%s] %s, in the kernel\n", text.Clean(k.comm), text.Clean(k.device))
		} else {
			fmt.Fprintf(&b, "%d %s %s\n", k.pid, text.Clean(k.comm), text.Clean(k.device))
		}
		writeLevel(&b, hang(groups[k]), root, "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A parent identifies the parent of an object in the tree.
type parent struct {
	class string // "", ctx or pd
	id    uint64
}

var root = parent{}

// hang returns the objects by parent. The parent is root if it is not listed.
func hang(all []Object) map[parent][]*Object {
	listed := make(map[parent]bool)
	for i := range all {
		if o := &all[i]; o.Type == "ctx" || o.Type == "pd" {
			listed[parent{o.Type, o.ID}] = true
		}
	}
	out := make(map[parent][]*Object)
	for i := range all {
		o, at := &all[i], root
		if p := (parent{"ctx", o.Ctx}); o.HasCtx && o.Type != "ctx" && listed[p] {
			at = p
		}
		if p := (parent{"pd", o.PD}); o.HasPD && o.Type != "pd" && listed[p] {
			at = p
		}
		out[at] = append(out[at], o)
	}
	return out
}

func writeLevel(b *strings.Builder, children map[parent][]*Object, at parent, indent string) {
	here := children[at]
	for i, o := range here {
		branch, below := "├─ ", "│  "
		if i == len(here)-1 {
			branch, below = "└─ ", "   "
		}
		fmt.Fprintf(b, "%s%s%s\n", indent, branch, o)
		if o.Type == "ctx" || o.Type == "pd" {
			writeLevel(b, children, parent{o.Type, o.ID}, indent+below)
		}
	}
}

// String returns the object's line: "qp 0x11 type=RC state=RTS".
func (o *Object) String() string {
	var b strings.Builder
	if o.Type == "qp" {
		fmt.Fprintf(&b, "qp %#x", o.ID)
	} else {
		fmt.Fprintf(&b, "%s %d", o.Type, o.ID)
	}
	if o.Port != 0 {
		fmt.Fprintf(&b, " port=%d", o.Port)
	}
	for _, a := range o.Attrs {
		fmt.Fprintf(&b, " %s=%s", a.Name, text.Clean(a.Value))
	}
	return b.String()
}
