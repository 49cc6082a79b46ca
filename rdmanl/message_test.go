package rdmanl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

const nldev = uapi.RDMA_NL_NLDEV << 10

// message returns a message with the sequence number 7. A length other than 0 replaces its own.
func message(kind, flags uint16, length int, body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	if length == 0 {
		length = headerSize + len(b)
	}
	m := binary.NativeEndian.AppendUint32(nil, uint32(length))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags)
	m = binary.NativeEndian.AppendUint32(m, 7)
	m = binary.NativeEndian.AppendUint32(m, 0)
	return append(m, b...)
}

// attribute returns an attribute. A length other than 0 replaces its own.
func attribute(kind uint16, length int, data ...[]byte) []byte {
	b := bytes.Join(data, nil)
	if length == 0 {
		length = attrSize + len(b)
	}
	a := binary.NativeEndian.AppendUint16(nil, uint16(length))
	a = binary.NativeEndian.AppendUint16(a, kind)
	a = append(a, b...)
	return append(a, make([]byte, -len(b)&3)...)
}

func u8(v uint8) []byte   { return []byte{v} }
func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
func text(s string) []byte {
	return append([]byte(s), 0)
}

// errnoOf is the beginning of an error: the errno, and the header of the request.
func errnoOf(errno syscall.Errno) []byte {
	return append(u32(uint32(-int32(errno))), message(nldev|1, 0, 0)...)
}

func TestRequest(t *testing.T) {
	got := list(uapi.RDMA_NLDEV_CMD_GET).port(3, 1).text(uapi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe0").u8(uapi.RDMA_NLDEV_ATTR_DEV_DIM, 1).encode(9)
	want := bytes.Join([][]byte{
		u32(16 + 8 + 8 + 12 + 8), {0x01, 0x14}, {0x05, 0x03}, u32(9), u32(0),
		{8, 0, 1, 0}, u32(3), {8, 0, 3, 0}, u32(1), {9, 0, 2, 0, 'r', 'x', 'e', '0', 0, 0, 0, 0}, {5, 0, uapi.RDMA_NLDEV_ATTR_DEV_DIM, 0, 1, 0, 0, 0},
	}, nil)
	if !bytes.Equal(got, want) {
		t.Errorf("the request is\n% x, want\n% x", got, want)
	}
}

func TestAnswer(t *testing.T) {
	device := attribute(uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 0, u32(3))
	stale := message(typeDone, 0, 0, u32(0))
	binary.NativeEndian.PutUint32(stale[8:], 6)
	for _, c := range []struct {
		name   string
		b      []byte
		bodies int
		done   bool
		err    error
		text   string
	}{
		{name: "one message", b: message(nldev|1, 0, 0, device), bodies: 1},
		{name: "two and the end", b: bytes.Join([][]byte{message(nldev|1, 2, 0, device), message(nldev|1, 2, 0, device), message(typeDone, 2, 0, u32(0))}, nil), bodies: 2, done: true},
		{name: "a message and its acknowledgement", b: append(message(nldev|5, 0, 0, device), message(typeError, flagCapped, 0, errnoOf(0))...), bodies: 1, done: true},
		{name: "the end without a code", b: message(typeDone, 2, 0), done: true},
		{name: "the end of an earlier request", b: stale},
		{name: "refused", b: message(typeError, flagCapped, 0, errnoOf(syscall.EINVAL)), done: true, err: syscall.EINVAL},
		{name: "a list that fails", b: message(typeDone, 2, 0, u32(0xffffffff)), done: true, err: syscall.EPERM},
		{name: "refused, with a reason", b: message(typeError, flagCapped|flagAckTLVs, 0, errnoOf(syscall.EBUSY), attribute(errorMsg, 0, text("in use"))),
			done: true, err: syscall.EBUSY, text: "in use"},
		{name: "refused, with the request and a reason", b: message(typeError, flagAckTLVs, 0, u32(0xfffffff0),
			message(nldev|3, 0, 0, device), attribute(errorMsg, 0, text("in use"))), done: true, err: syscall.EBUSY, text: "in use"},
		{name: "a list that fails with a reason", b: message(typeDone, flagAckTLVs, 0, u32(0xfffffff0), attribute(errorMsg, 0, text("in use"))),
			done: true, err: syscall.EBUSY, text: "in use"},
		{name: "a reason beyond the end", b: message(typeError, flagAckTLVs, 0, u32(0xffffffea), message(nldev|3, 0, 1000)), done: true, err: syscall.EINVAL},

		{name: "nothing", err: ErrAnswer},
		{name: "15 bytes", b: make([]byte, 15), err: ErrAnswer},
		{name: "a length of 0", b: make([]byte, 16), err: ErrAnswer},
		{name: "a length of 15", b: message(nldev|1, 0, 15), err: ErrAnswer},
		{name: "a length beyond the end", b: message(nldev|1, 0, 17), err: ErrAnswer},
		{name: "the largest length", b: message(nldev|1, 0, 0xffffffff), err: ErrAnswer},
		{name: "another protocol", b: message(4<<10|1, 0, 0), err: ErrAnswer},
		{name: "an error without a code", b: message(typeError, 0, 0), err: ErrAnswer},
		{name: "an error with a positive code", b: message(typeError, 0, 0, u32(22)), err: ErrAnswer},
		{name: "an error with an impossible code", b: message(typeError, 0, 0, u32(0x80000000)), err: ErrAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := answer{sequence: 7}
			done, err := a.add(c.b)
			if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("the error is %v, want %v with %q", err, c.err, c.text)
			}
			if !errors.Is(err, ErrAnswer) && (done != c.done || len(a.bodies) != c.bodies) {
				t.Errorf("%d messages, done %t", len(a.bodies), done)
			}
		})
	}
	a := answer{sequence: 7}
	b := message(nldev|1, flagInterrupted, 0, device)
	if _, err := a.add(b); err != nil || !a.changed {
		t.Errorf("a list that changed: %t, %v", a.changed, err)
	}
	clear(b) // as the next receive overwrites it
	if len(a.bodies) != 1 || !bytes.Equal(a.bodies[0], device) {
		t.Errorf("once the buffer is used again, the answer has % x, want % x", a.bodies, device)
	}
}

// deviceBody returns the kernel's message for a device.
func deviceBody(more ...[]byte) []byte {
	return bytes.Join(append([][]byte{
		attribute(uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 0, u32(3)),
		attribute(uapi.RDMA_NLDEV_ATTR_DEV_NAME|attrNested, 0, text("rxe0")),
		attribute(uapi.RDMA_NLDEV_ATTR_PORT_INDEX, 0, u32(1)),
	}, more...), nil)
}

func TestDecodeDevice(t *testing.T) {
	var d decoder
	got := decodeDevice(&d, deviceBody(
		attribute(uapi.RDMA_NLDEV_ATTR_PAD, 0), attribute(3000, 0, []byte("something new")),
		attribute(uapi.RDMA_NLDEV_ATTR_NODE_GUID, 0, u64(0x505400fffe000001)), attribute(uapi.RDMA_NLDEV_ATTR_FW_VERSION, 0, text("")),
		attribute(uapi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE, 0, u8(1)), attribute(uapi.RDMA_NLDEV_ATTR_CAP_FLAGS, 0, u64(0)),
	))
	want := Device{Index: 3, Name: "rxe0", Ports: 1, NodeGUID: Some(ib.GUIDOf(0x505400fffe000001)), Firmware: Some(""),
		NodeType: Some(ib.NodeCA), Caps: Some(DeviceCaps(0))}
	if got != want || d.err != nil {
		t.Errorf("%+v, %v, want %+v", got, d.err, want)
	}
	if _, ok := got.Protocol.Get(); ok || got.Protocol.Or("none") != "none" {
		t.Error("a protocol that the kernel didn't send is there")
	}
	if v, ok := got.Caps.Get(); !ok || v != 0 || got.NodeGUID.Or(ib.GUID{}).String() != "5054:00ff:fe00:0001" {
		t.Errorf("capabilities %v, %t; GUID %v", v, ok, got.NodeGUID.Or(ib.GUID{}))
	}
	name := attribute(uapi.RDMA_NLDEV_ATTR_DEV_NAME, 0, text("x"))
	for _, bad := range [][]byte{
		nil, name, attribute(uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 0, u32(1)),
		append(attribute(uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 0, []byte("12")), name...),
		append(attribute(uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 0, u64(1)), name...),
		deviceBody(attribute(99, 3)), deviceBody(attribute(99, 0xffff)), deviceBody([]byte{4, 0}),
		deviceBody(attribute(uapi.RDMA_NLDEV_ATTR_CAP_FLAGS, 0, u32(1))),
	} {
		var d decoder
		if decodeDevice(&d, bad); !errors.Is(d.err, ErrAnswer) {
			t.Errorf("% x: %v", bad, d.err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{NetnsShared.String(), "shared"}, {CMState(200).String(), "unknown(200)"},
		{strings.Join(DeviceCaps(1<<31|1<<16|1<<33|1<<63).Names(), " "), "UNKNOWN ON_DEMAND_PAGING VIRTUAL_FUNCTION UNKNOWN"},
		{strings.Join(PortCaps(1<<16|1<<26).Names(), " "), "CM OTHER_LOCAL_CHANGES"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// decoders are all functions that decode a message.
var decoders = []func(d *decoder, b []byte) any{
	func(d *decoder, b []byte) any { return decodeDevice(d, b) },
	func(d *decoder, b []byte) any { return decodeLink(d, b) },
	func(d *decoder, b []byte) any { return decodeSystem(d, b) },
	func(d *decoder, b []byte) any { return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_QP, decodeQP) },
	func(d *decoder, b []byte) any { return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_QP, decodeCQ) },
	func(d *decoder, b []byte) any { return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_QP, decodeMR) },
	func(d *decoder, b []byte) any { return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_QP, decodePD) },
	func(d *decoder, b []byte) any { return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_QP, decodeSRQ) },
	func(d *decoder, b []byte) any {
		return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_QP, decodeContext)
	},
	func(d *decoder, b []byte) any {
		return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_QP, decodeCMID)
	},
	func(d *decoder, b []byte) any { return decodeCounts(d, b) },
	func(d *decoder, b []byte) any { return decodeRaw(d, b) },
	func(d *decoder, b []byte) any { return decodeCounters(d, b) },
	func(d *decoder, b []byte) any { return decodeOptional(d, b) },
	func(d *decoder, b []byte) any { return decodeCounting(d, b) },
	func(d *decoder, b []byte) any { return decodeCounterID(d, b) },
	func(d *decoder, b []byte) any { return decodeMRCounters(d, b) },
	func(d *decoder, b []byte) any { return decodeQPCounter(d, b) },
	func(d *decoder, b []byte) any { return decodeEvent(d, b) },
}

// Decoding ends for any bytes, and returns no more data than it received.
func FuzzAnswer(f *testing.F) {
	f.Add(message(nldev|1, 0, 0, deviceBody()))
	f.Add(append(message(nldev|1, 2, 0, deviceBody(attribute(uapi.RDMA_NLDEV_ATTR_CAP_FLAGS, 0, u64(1)))), message(typeDone, 2, 0, u32(0))...))
	f.Add(message(typeError, flagAckTLVs, 0, errnoOf(syscall.EBUSY), attribute(errorMsg, 0, text("in use"))))
	owner := join(attribute(uapi.RDMA_NLDEV_ATTR_RES_PID, 0, u32(1)), attribute(uapi.RDMA_NLDEV_ATTR_DRIVER, 0,
		attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_STRING, 0, text("size")), attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_U32, 0, u32(64))))
	for _, id := range []uint16{uapi.RDMA_NLDEV_ATTR_RES_LQPN, uapi.RDMA_NLDEV_ATTR_RES_CQN, uapi.RDMA_NLDEV_ATTR_RES_MRN, uapi.RDMA_NLDEV_ATTR_RES_PDN,
		uapi.RDMA_NLDEV_ATTR_RES_SRQN, uapi.RDMA_NLDEV_ATTR_RES_CTXN, uapi.RDMA_NLDEV_ATTR_RES_CM_IDN} {
		f.Add(message(nldev|1, 0, 0, attribute(uapi.RDMA_NLDEV_ATTR_RES_QP, 0, attribute(uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY, 0,
			attribute(id, 0, u32(1)), attribute(uapi.RDMA_NLDEV_ATTR_RES_QP, 0, attribute(uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY, 0, attribute(id, 0, u32(1)))), owner))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a := answer{sequence: 7}
		a.add(b)
		bodies := 0
		for _, body := range a.bodies {
			bodies += headerSize + len(body)
			for _, decode := range decoders {
				var d decoder
				if n := values(reflect.ValueOf(decode(&d, body))); n > 10*len(body)+100 {
					t.Errorf("%d values in % x", n, body)
				}
			}
		}
		if bodies > len(b) {
			t.Errorf("messages of %d bytes in %d", bodies, len(b))
		}
	})
}

// values counts the values in v.
func values(v reflect.Value) int {
	n := 1
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			n += values(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			n += values(v.Index(i))
		}
	}
	return n
}
