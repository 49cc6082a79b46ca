// Package steering finds the receivers of an Ethernet frame with flow tables. A table has
// groups, which select parts of a frame's headers. A group has entries, which have values
// of these parts, and actions for frames that match. Headers are compared in the format of
// fte_match_param in mlx5_ifc.h.
package steering

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Errors of this package.
var (
	ErrParam = errors.New("bad parameter")
	ErrIndex = errors.New("no such index, or it is taken")
	ErrBusy  = errors.New("in use")
)

// Table is a flow table.
type Table struct {
	Level   uint8
	Size    uint32
	Miss    *Table // for frames that no entry matches; nil: they are lost
	groups  []*Group
	entries []*Entry // by index
	param   [ParamSize]byte
}

// Group is a range of entries that match the same bits.
type Group struct {
	First, Last uint32
	mask        []byte
	words       []int // the indexes at which mask isn't 0
	users       int
}

// Entry is a flow table entry.
type Entry struct {
	Index uint32
	group *Group
	value []byte // masked
	Action
}

// Action is what an entry does with a frame. Without any receiver, it drops the frame.
type Action struct {
	Tag       uint32
	Tables    []*Table // of higher levels
	Receivers []uint32
	Counters  []*Counter
}

// Counter counts frames.
type Counter struct{ Packets, Octets uint64 }

// Hit is a receiver of a frame.
type Hit struct{ Receiver, Tag uint32 }

// AddGroup adds a group. It uses only the enabled parts of the mask.
func (t *Table) AddGroup(first, last uint32, parts uint8, mask []byte) (*Group, error) {
	if first > last || last >= t.Size || len(mask) != ParamSize || parts&^(partOuter|partMisc|partInner) != 0 {
		return nil, ErrParam
	}
	for _, g := range t.groups {
		if first <= g.Last && g.First <= last {
			return nil, ErrIndex
		}
	}
	g := &Group{First: first, Last: last, mask: slices.Clone(mask)}
	const part = 64 // bytes
	for i := range g.mask {
		if i/part >= 3 || parts>>(i/part)&1 == 0 {
			g.mask[i] = 0
		}
		if g.mask[i]&^matchable[i] != 0 {
			return nil, ErrParam
		}
	}
	for i := 0; i < ParamSize; i += 8 {
		if binary.BigEndian.Uint64(g.mask[i:]) != 0 {
			g.words = append(g.words, i)
		}
	}
	t.groups = append(t.groups, g)
	return g, nil
}

// RemoveGroup removes a group that has no entries.
func (t *Table) RemoveGroup(g *Group) error {
	if g.users > 0 {
		return ErrBusy
	}
	t.groups = slices.DeleteFunc(t.groups, func(x *Group) bool { return x == g })
	return nil
}

// Empty reports whether the table has no groups.
func (t *Table) Empty() bool { return len(t.groups) == 0 }

func (t *Table) find(index uint32) (int, bool) {
	return slices.BinarySearchFunc(t.entries, index, func(e *Entry, i uint32) int { return int(e.Index) - int(i) })
}

// Entry returns the entry at an index, nil if there is none.
func (t *Table) Entry(index uint32) *Entry {
	if i, ok := t.find(index); ok {
		return t.entries[i]
	}
	return nil
}

// Add adds an entry at one of the group's indexes.
func (t *Table) Add(g *Group, index uint32, value []byte, a Action) error {
	if len(value) != ParamSize {
		return ErrParam
	}
	at, taken := t.find(index)
	if taken || index < g.First || index > g.Last {
		return ErrIndex
	}
	e := &Entry{Index: index, group: g, value: slices.Clone(value), Action: a}
	for i := range e.value {
		e.value[i] &= g.mask[i]
	}
	g.users++
	t.entries = slices.Insert(t.entries, at, e)
	return nil
}

// Remove removes the entry at an index, and returns it.
func (t *Table) Remove(index uint32) *Entry {
	i, ok := t.find(index)
	if !ok {
		return nil
	}
	e := t.entries[i]
	e.group.users--
	t.entries = slices.Delete(t.entries, i, i+1)
	return e
}

func (e *Entry) matches(param []byte) bool {
	for _, i := range e.group.words {
		if binary.BigEndian.Uint64(param[i:])&binary.BigEndian.Uint64(e.group.mask[i:]) != binary.BigEndian.Uint64(e.value[i:]) {
			return false
		}
	}
	return true
}

// Steer appends the receivers of a frame that reaches the table: those of the first entry
// that matches, else those of the Miss table. It terminates, because each next table has a
// higher level.
func (t *Table) Steer(to []Hit, frame []byte) []Hit {
	clear(t.param[:])
	describe(t.param[:], frame)
	return t.walk(to, t.param[:], len(frame))
}

func (t *Table) walk(to []Hit, param []byte, size int) []Hit {
	for ; t != nil; t = t.Miss {
		for _, e := range t.entries {
			if !e.matches(param) {
				continue
			}
			for _, c := range e.Counters {
				c.Packets++
				c.Octets += uint64(size)
			}
			for _, r := range e.Receivers {
				to = append(to, Hit{r, e.Tag})
			}
			for _, next := range e.Tables {
				to = next.walk(to, param, size)
			}
			return to
		}
	}
	return to
}
