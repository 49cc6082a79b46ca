package objects

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strconv"
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

var errShort = errors.New("the kernel's response is truncated")

// attrs yields the netlink attributes in b. It clears the bits for nesting and byte order in
// their types, and stops after an error.
func attrs(b []byte) iter.Seq2[attr, error] {
	return func(yield func(attr, error) bool) {
		for len(b) >= 4 {
			n := int(binary.NativeEndian.Uint16(b))
			kind := binary.NativeEndian.Uint16(b[2:]) & 0x3fff
			if n < 4 || n > len(b) {
				yield(attr{}, errShort)
				return
			}
			if !yield(attr{kind, b[4:n]}, nil) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}

type attr struct {
	kind uint16
	data []byte
}

// num decodes a number of any size.
func (a attr) num() uint64 {
	switch len(a.data) {
	case 1:
		return uint64(a.data[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(a.data))
	case 4:
		return uint64(binary.NativeEndian.Uint32(a.data))
	case 8:
		return binary.NativeEndian.Uint64(a.data)
	}
	return 0
}

func (a attr) str() string {
	s, _, _ := bytes.Cut(a.data, []byte{0})
	return string(s)
}

// parseTable parses one message of a dump, which has a device and a table of its objects.
func parseTable(b []byte, c class) ([]Object, error) {
	var out []Object
	device := ""
	for a, err := range attrs(b) {
		switch {
		case err != nil:
			return nil, err
		case a.kind == attrDevName:
			device = a.str()
		case a.kind == c.table:
			for entry, err := range attrs(a.data) {
				if err != nil {
					return nil, err
				}
				o, err := parseEntry(entry.data, c)
				if err != nil {
					return nil, err
				}
				out = append(out, o)
			}
		}
	}
	for i := range out {
		out[i].Device = device
	}
	return out, nil
}

func parseEntry(b []byte, c class) (Object, error) {
	o := Object{Type: c.name}
	say := func(name, form string, args ...any) {
		o.Attrs = append(o.Attrs, Attr{name, fmt.Sprintf(form, args...)})
	}
	for a, err := range attrs(b) {
		if err != nil {
			return o, err
		}
		switch a.kind {
		case c.id:
			o.ID = a.num()
		case attrPID:
			o.PID = int(a.num())
		case attrKernName:
			o.Comm = a.str()
		case attrPortIndex:
			o.Port = a.num()
		case attrCtxN:
			o.Ctx, o.HasCtx = a.num(), true
		case attrPDN:
			o.PD, o.HasPD = a.num(), true
		case attrType:
			say("type", "%s", name(typesOf(c.name), a.num()))
		case attrState:
			say("state", "%s", name(statesOf(c.name), a.num()))
		case attrLQPN:
			say("lqpn", "%#x", a.num())
		case attrRQPN:
			say("rqpn", "%#x", a.num())
		case attrRQPSN:
			say("rq_psn", "%#x", a.num())
		case attrSQPSN:
			say("sq_psn", "%#x", a.num())
		case attrPS:
			if ps, ok := portSpaces[a.num()]; ok {
				say("ps", "%s", ps)
			} else {
				say("ps", "%#x", a.num())
			}
		case attrSrcAddr:
			say("src", "%s", address(a.data))
		case attrDstAddr:
			say("dst", "%s", address(a.data))
		case attrCQE:
			say("cqe", "%d", a.num())
		case attrUseCnt:
			say("users", "%d", a.num())
		case attrCQN:
			say("cq", "%d", a.num())
		case attrLKey:
			say("lkey", "%#x", a.num())
		case attrRKey:
			say("rkey", "%#x", a.num())
		case attrIOVA:
			say("iova", "%#x", a.num())
		case attrMRLen:
			say("length", "%d", a.num())
		case attrSubtype:
			say("subtype", "%s", a.str())
		}
	}
	return o, nil
}

func typesOf(class string) []string {
	if class == "srq" {
		return srqTypes
	}
	return qpTypes
}

func statesOf(class string) []string {
	if class == "cm_id" {
		return cmStates
	}
	return qpStates
}

func name(names []string, n uint64) string {
	if n < uint64(len(names)) && names[n] != "" {
		return names[n]
	}
	return strconv.FormatUint(n, 10)
}

// address formats a struct sockaddr_storage.
func address(b []byte) string {
	const inet, inet6 = 2, 10
	if len(b) >= 8 && binary.NativeEndian.Uint16(b) == inet {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])).String()
	}
	if len(b) >= 24 && binary.NativeEndian.Uint16(b) == inet6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:])).String()
	}
	return fmt.Sprintf("%x", b[:min(len(b), 32)])
}
