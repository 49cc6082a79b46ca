// Package gvisor checks commands as gVisor does. A sandbox in gVisor uses an RDMA device through
// a proxy, which forwards the commands that it knows and refuses the others. Package gvisor is for
// tests.
package gvisor

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed table.txt
var table string

// A Command is a command for the kernel's ib_uverbs.
type Command struct {
	Verb   string // for messages
	Method string // "UVERBS_METHOD_QP_CREATE"; "" if it came through write(2)
	Attrs  []Attr
	Write  string // the command in UVERBS_METHOD_INVOKE_WRITE: "IB_USER_VERBS_CMD_MODIFY_QP"
}

// An Attr is an attribute of a Command.
type Attr struct {
	Name string // "UVERBS_ATTR_CREATE_QP_CAP"
	Len  uint16
}

// maxAttrs is the largest number of attributes.
const maxAttrs = 64

// known parses the table: the attributes of each method, with the greatest length of each, and the
// write commands.
var known = sync.OnceValue(func() (k struct {
	methods map[string]map[string]int
	writes  map[string]bool
}) {
	k.methods, k.writes = make(map[string]map[string]int), make(map[string]bool)
	for line := range strings.Lines(table) {
		switch f := strings.Fields(line); {
		case len(f) > 1 && f[0] == "method":
			attrs := make(map[string]int)
			for _, a := range f[2:] {
				name, length, limited := strings.Cut(a, ":")
				attrs[name] = 0xffff
				if limited {
					attrs[name], _ = strconv.Atoi(length)
				}
			}
			k.methods[f[1]] = attrs
		case len(f) == 2 && f[0] == "write":
			k.writes[f[1]] = true
		}
	}
	return k
})

// Refused returns the part of a command that gVisor refuses, or "" if gVisor forwards the command.
func Refused(c Command) string {
	k := known()
	if c.Method == "" {
		return "write(2)"
	}
	attrs, ok := k.methods[c.Method]
	if !ok {
		return c.Method
	}
	if len(c.Attrs) > maxAttrs {
		return fmt.Sprintf("%d attributes", len(c.Attrs))
	}
	for _, a := range c.Attrs {
		name := strings.TrimPrefix(strings.TrimPrefix(a.Name, "UVERBS_ATTR_"), "MLX5_IB_ATTR_")
		if most, ok := attrs[name]; !ok {
			return a.Name
		} else if int(a.Len) > most {
			return fmt.Sprintf("%s of %d bytes", a.Name, a.Len)
		}
	}
	if c.Write != "" && !k.writes[c.Write] {
		return c.Write
	}
	return ""
}

// Refusals collects gVisor's refusals. Its methods are safe for concurrent use.
type Refusals struct {
	mu       sync.Mutex
	refused  map[string]bool
	commands int
}

// Look checks a command, and records a refusal.
func (r *Refusals) Look(c Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands++
	if what := Refused(c); what != "" {
		if r.refused == nil {
			r.refused = make(map[string]bool)
		}
		r.refused[c.Verb+": "+what] = true
	}
}

// Commands returns the number of checked commands.
func (r *Refusals) Commands() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commands
}

// Compare compares the refusals with the list in a file. more has refusals that are not listed, and less has
// listed refusals that did not occur.
func (r *Refusals) Compare(file string) (more, less []string, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	listed := make(map[string]bool)
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			listed[line] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(r.refused)) {
		if !listed[what] {
			more = append(more, what)
		}
		delete(listed, what)
	}
	return more, slices.Sorted(maps.Keys(listed)), nil
}
