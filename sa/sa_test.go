package sa

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/umad"
)

// A fake stands for the agent and the SA behind it.
type fake struct {
	asked  umad.Message
	answer func(mad []byte) ([]byte, error)
}

func (f *fake) Do(_ context.Context, m umad.Message) (umad.Message, error) {
	f.asked = m
	mad, err := f.answer(m.MAD)
	return umad.Message{MAD: mad}, err
}

func (f *fake) Close() error { return nil }

// asking returns a client on a port that knows a subnet manager.
func asking(answer func(mad []byte) ([]byte, error)) (*Client, *fake) {
	f := &fake{answer: answer}
	return &Client{
		agent: f, name: umad.Name{Device: "mlx5_0", Port: 1}, o: Options{Timeout: time.Second, Retries: 2, SMKey: 0x1122334455667788},
		attribute: func(name string) (string, error) { return map[string]string{"sm_lid": "0x7", "sm_sl": "3"}[name], nil },
	}, f
}

// answering returns the beginning of an answer to a request.
func answering(mad []byte, method umad.Method, step int) []byte {
	b := bytes.Clone(mad[:dataOffset])
	b[3] = byte(method | umad.MethodResponse)
	if method == MethodGetTable {
		b[rmppVersion], b[rmppVersion+1], b[rmppFlags] = 1, 1, 7
	}
	binary.BigEndian.PutUint16(b[recordOffset:], uint16(step/8))
	return b
}

// A request is in the form of the specification, and goes to the subnet manager of the port.
func TestRequest(t *testing.T) {
	c, f := asking(func(mad []byte) ([]byte, error) { return answering(mad, MethodGetTable, 0), nil })
	nodes, err := c.Nodes(t.Context(), NodeRecord{LID: 0x1234}, NodeLID)
	if err != nil || len(nodes) != 0 {
		t.Fatalf("%v, %v", nodes, err)
	}
	want := make([]byte, umad.Size)
	copy(want, []byte{1, 3, 2, 0x12, 16: 0, 0x11, 36: 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 55: 1, 0x12, 0x34})
	if !bytes.Equal(f.asked.MAD, want) {
		t.Errorf("the MAD is % x", f.asked.MAD)
	}
	if a := (umad.Addr{LID: 7, SL: 3, QPN: 1, QKey: 0x80010000}); f.asked.Addr != a || f.asked.Timeout != time.Second || f.asked.Retries != 2 {
		t.Errorf("it is sent as %+v", f.asked)
	}
	c.o.LID, c.o.SL = 9, 1
	if _, err := c.PortsWith(t.Context(), CapIsSM); err != nil || f.asked.Addr.LID != 9 || f.asked.Addr.SL != 1 {
		t.Errorf("%v, sent to %+v", err, f.asked.Addr)
	}
	if mad := f.asked.MAD; mad[20] != 0x80 || mad[55] != 0x80 || mad[dataOffset+4+23] != byte(CapIsSM) {
		t.Errorf("the ports with a subnet manager: % x", mad)
	}
}

// Options that are not set have the documented values.
func TestOptions(t *testing.T) {
	for o, want := range map[Options]Options{
		{}:                                  {Timeout: time.Second, Retries: 2},
		{Timeout: time.Minute, Retries: -1}: {Timeout: time.Minute},
		{LID: 1, SL: 2, Timeout: time.Millisecond, Retries: 3, SMKey: 4}: {LID: 1, SL: 2, Timeout: time.Millisecond, Retries: 3, SMKey: 4},
	} {
		if got := o.complete(); got != want {
			t.Errorf("%+v stands for %+v, want %+v", o, got, want)
		}
	}
}

// Decoding reverses encoding: each component is in a place of its own.
func TestRecords(t *testing.T) {
	gid, other := [16]byte{0xfe, 0x80, 15: 1}, [16]byte{0xff, 0x12, 15: 2}
	check := func(name string, wide int, encode func([]byte) error, decode func([]byte) any, want any) {
		t.Helper()
		b := make([]byte, wide)
		if err := encode(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := decode(b); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, want)
		}
	}
	node := NodeRecord{1, 2, 3, 4, ib.NodeSwitch, 6, ib.GUIDOf(7), ib.GUIDOf(8), ib.GUIDOf(9), 10, 11, 12, 13, 0xabcdef, strings.Repeat("x", 64)}
	check("node", node.size(), node.encode, func(b []byte) any { var n NodeRecord; n.decode(b); return n }, node)
	path := PathRecord{
		math.MaxUint64, gid, other, 1, 2, true, 0xfffff, 255, 4, true, 127, 5, 0xfff, 15,
		Limit{3, 63}, Limit{2, 1}, Limit{1, 2}, 7, [6]byte{1, 2, 3, 4, 5, 6},
	}
	check("path", path.size(), path.encode, func(b []byte) any { var p PathRecord; p.decode(b); return p }, path)
	member := MCMemberRecord{other, gid, 1, 0xc001, Limit{2, 4}, 3, 4, Limit{1, 5}, Limit{3, 63}, 15, 0xfffff, 255, 2, 15, true}
	check("member", member.size(), member.encode, func(b []byte) any { var m MCMemberRecord; m.decode(b); return m }, member)
	port := PortInfoRecord{LID: 1, Port: 2, Options: 3, GIDPrefix: ib.GUIDOf(4), BaseLID: 5, SMLID: 6, Capabilities: 7, State: ib.PortActive, PhysState: ib.PhysLinkUp}
	check("port", port.size(), port.encode, func(b []byte) any {
		var p PortInfoRecord
		p.decode(b)
		if !bytes.Equal(p.Info[:54], b[4:]) {
			t.Errorf("the whole attribute: % x, not % x", p.Info, b[4:])
		}
		p.Info = [64]byte{}
		return p
	}, port)
	// The offsets are the specification's.
	b := make([]byte, 64)
	path.encode(b)
	if want := []byte{0, 1, 0, 2, 0x8f, 0xff, 0xff, 0xff, 4, 0xff, 0, 5, 0xff, 0xff, 0xff, 0x81, 0x42, 7}; !bytes.Equal(b[40:58], want) {
		t.Errorf("the path's components from byte 40 on: % x, want % x", b[40:58], want)
	}
	var c ClassPortInfo
	b = make([]byte, 72)
	copy(b, []byte{1, 2, 0x20, 2, 0, 0, 0, 0x52, 24: 9, 0x5a, 0xbc, 0xde, 0, 4, 0xff, 0xff, 0, 0, 0, 1, 0x80, 1, 56: 1, 64: 7, 0, 0, 8})
	c.decode(b)
	if want := (ClassPortInfo{
		1, 2, 0x2002, 2, 0x12, ClassPort{TClass: 9, SL: 5, FlowLabel: 0xabcde, LID: 4, PKey: 0xffff, QPN: 1, QKey: 0x80010000},
		ClassPort{TClass: 1, QPN: 8}, 7,
	}); c != want {
		t.Errorf("%+v, want\n%+v", c, want)
	}
}

// A table has as many records as its length says, with padding between them, and maybe after the
// last.
func TestTable(t *testing.T) {
	record := make([]byte, 112)
	node := NodeRecord{LID: 5, Description: "a node"}
	node.encode(record)
	for _, length := range []int{3 * 112, 2*112 + 108} {
		c, _ := asking(func(mad []byte) ([]byte, error) {
			return append(answering(mad, MethodGetTable, 112), bytes.Repeat(record, 3)[:length]...), nil
		})
		nodes, err := c.Nodes(t.Context(), NodeRecord{}, 0)
		if err != nil || !reflect.DeepEqual(nodes, []NodeRecord{node, node, node}) {
			t.Errorf("%d bytes: %+v, %v", length, nodes, err)
		}
	}
}

// An answer that doesn't fit its request, or itself, is malformed.
func TestMalformed(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"nothing":               func([]byte) []byte { return nil },
		"half a header":         func(b []byte) []byte { return b[:40] },
		"another class":         func(b []byte) []byte { b[1] = 4; return b },
		"another version":       func(b []byte) []byte { b[2] = 1; return b },
		"another method":        func(b []byte) []byte { b[3] = 0x81; return b },
		"a request":             func(b []byte) []byte { b[3] = 0x12; return b },
		"another attribute":     func(b []byte) []byte { b[17] = 0x35; return b },
		"no RMPP":               func(b []byte) []byte { b[rmppFlags] = 0; return b },
		"another RMPP":          func(b []byte) []byte { b[rmppVersion] = 2; return b },
		"an offset of 0":        func(b []byte) []byte { b[recordOffset+1] = 0; return b },
		"records too near":      func(b []byte) []byte { b[recordOffset+1] = 13; return b },
		"records too far":       func(b []byte) []byte { b[recordOffset] = 0xff; return b[:dataOffset+100] },
		"the last is truncated": func(b []byte) []byte { return b[:len(b)-5] },
	} {
		c, _ := asking(func(mad []byte) ([]byte, error) {
			return change(append(answering(mad, MethodGetTable, 112), make([]byte, 2*112)...)), nil
		})
		nodes, err := c.Nodes(t.Context(), NodeRecord{}, 0)
		if !errors.Is(err, ErrMalformed) || nodes != nil {
			t.Errorf("%s: %v, %v", name, nodes, err)
		}
	}
	c, _ := asking(func(mad []byte) ([]byte, error) {
		return append(answering(mad, MethodGet, 0), make([]byte, 63)...), nil
	})
	if _, err := c.Path(t.Context(), PathRecord{}, 0); !errors.Is(err, ErrMalformed) {
		t.Errorf("a short path: %v", err)
	}
}

// Joining is a set, which is answered like a get. Leaving is a delete.
func TestMembership(t *testing.T) {
	want := MCMemberRecord{MLID: 0xc005, JoinState: JoinFull}
	for _, step := range []struct {
		method, answer umad.Method
		do             func(*Client) (MCMemberRecord, error)
	}{
		{MethodSet, MethodGet, func(c *Client) (MCMemberRecord, error) { return c.Join(t.Context(), MCMemberRecord{}, MemberJoin) }},
		{MethodDelete, MethodDelete, func(c *Client) (MCMemberRecord, error) { return c.Leave(t.Context(), MCMemberRecord{}, MemberJoin) }},
	} {
		c, f := asking(func(mad []byte) ([]byte, error) {
			b := append(answering(mad, step.answer, 0), make([]byte, MaxRecord)...)
			return b, want.encode(b[dataOffset:])
		})
		if got, err := step.do(c); err != nil || got != want || umad.Method(f.asked.MAD[3]) != step.method {
			t.Errorf("method %#x: %+v, %v", f.asked.MAD[3], got, err)
		}
	}
}

// An attribute that commands query has a name.
func TestAttributeNames(t *testing.T) {
	for a, want := range map[Attribute]string{AttrPathRecord: "PathRecord", AttrLinkRecord: "LinkRecord", AttrSMInfoRecord: "SMInfoRecord", 0x1234: "attribute 0x1234"} {
		if got := a.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The errors have the SA's status, the status of all MADs, or the kernel's errno.
func TestErrors(t *testing.T) {
	for _, e := range []struct {
		from, is error
		text     string
	}{
		{umad.Status(0x300), NoRecords, "sa: get PathRecord at mlx5_0/1: the SA refuses with status 3, no records"},
		{umad.Status(0x4200), Status(0x42), "sa: get PathRecord at mlx5_0/1: the SA refuses with status 66"},
		{umad.Status(0x30c), umad.Status(0x30c), "sa: get PathRecord at mlx5_0/1: status 0x030c, unsupported attribute"},
		{syscall.ETIMEDOUT, syscall.ETIMEDOUT, "sa: get PathRecord at mlx5_0/1: ETIMEDOUT; no subnet administration has answered: no subnet manager runs where the port has last seen one, or it is busy"},
	} {
		c, _ := asking(func([]byte) ([]byte, error) {
			return nil, &umad.OpError{Op: "request by", Object: "mlx5_0/1", Err: e.from}
		})
		if _, err := c.Path(t.Context(), PathRecord{}, 0); !errors.Is(err, e.is) || err.Error() != e.text {
			t.Errorf("%v", err)
		}
	}
	c, f := asking(nil)
	for _, err := range []error{
		second(c.Nodes(t.Context(), NodeRecord{Description: strings.Repeat("x", 65)}, 0)),
		second(c.Nodes(t.Context(), NodeRecord{VendorID: 1 << 24}, 0)),
		second(c.Ports(t.Context(), PortInfoRecord{State: 16}, 0)),
		second(c.Path(t.Context(), PathRecord{Count: 128}, 0)),
		second(c.Paths(t.Context(), PathRecord{MTU: Limit{4, 0}}, 0)),
		second(c.Members(t.Context(), MCMemberRecord{Rate: Limit{0, 64}}, 0)),
		second(c.Join(t.Context(), MCMemberRecord{FlowLabel: 1 << 20}, 0)),
		second(c.Do(t.Context(), Request{Method: MethodGet, Record: make([]byte, MaxRecord+1)})),
		second(c.Do(t.Context(), Request{Method: umad.MethodTrap})),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.ClassPortInfo(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	for _, lid := range []string{"0x0", "0xffff"} {
		c.attribute = func(name string) (string, error) { return map[string]string{"sm_lid": lid, "sm_sl": "0"}[name], nil }
		if _, err := c.ClassPortInfo(t.Context()); !errors.Is(err, ErrNoManager) {
			t.Errorf("%s: %v", lid, err)
		}
	}
	if f.asked.MAD != nil {
		t.Errorf("% x is sent", f.asked.MAD)
	}
}

func second[T any](_ T, err error) error { return err }

// Any answer is decoded or refused. Records don't have more bytes than the answer.
func FuzzAnswer(f *testing.F) {
	r := Request{Method: MethodGetTable, Attr: AttrNodeRecord}
	mad, err := r.encode(0)
	if err != nil {
		f.Fatal(err)
	}
	for method, attr := range map[umad.Method]Attribute{MethodGetTable: AttrNodeRecord, MethodGet: AttrPathRecord, MethodDelete: AttrMCMemberRecord} {
		binary.BigEndian.PutUint16(mad[16:], uint16(attr))
		f.Add(append(answering(mad, method, 112), make([]byte, 230)...))
	}
	f.Fuzz(func(t *testing.T, mad []byte) {
		for _, method := range []Method{MethodGet, MethodGetTable, MethodDelete} {
			c, _ := asking(func([]byte) ([]byte, error) { return mad, nil })
			records, err := c.Do(t.Context(), Request{Method: method, Attr: AttrServiceRecord})
			sum := 0
			for _, r := range records {
				sum += len(r)
			}
			if err == nil && sum != len(mad)-dataOffset || err != nil && (records != nil || !errors.Is(err, ErrMalformed)) {
				t.Errorf("%d records with %d bytes of %d, %v", len(records), sum, len(mad), err)
			}
		}
		c, _ := asking(func([]byte) ([]byte, error) { return mad, nil })
		nodes, err := c.Nodes(t.Context(), NodeRecord{}, 0)
		for _, n := range nodes {
			b := make([]byte, n.size())
			if n.encode(b) != nil || err != nil {
				t.Errorf("%+v can't be encoded: %v", n, err)
			}
		}
		c.Ports(t.Context(), PortInfoRecord{}, 0)
		c.Paths(t.Context(), PathRecord{}, 0)
		c.Path(t.Context(), PathRecord{}, 0)
		c.Members(t.Context(), MCMemberRecord{}, 0)
		c.Leave(t.Context(), MCMemberRecord{}, 0)
		c.ClassPortInfo(t.Context())
	})
}
