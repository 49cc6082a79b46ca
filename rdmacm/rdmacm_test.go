package rdmacm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// Addresses are converted to Linux's struct sockaddr_in and sockaddr_in6, and back.
func TestAddresses(t *testing.T) {
	for text, want := range map[string][]byte{ // behind the family
		"192.168.77.1:7174": {0x1c, 0x06, 192, 168, 77, 1, 0, 0, 0, 0, 0, 0, 0, 0},
		"0.0.0.0:0":         make([]byte, 14),
		"[::]:258":          {0: 1, 1: 2, 25: 0},
		"[2001:db8::1]:65535": {0xff, 0xff, 0, 0, 0, 0,
			0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		"[fe80::2%263]:80": append([]byte{0, 80, 0, 0, 0, 0,
			0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, binary.NativeEndian.AppendUint32(nil, 263)...),
	} {
		addr := netip.MustParseAddrPort(text)
		family := uint16(10)
		if addr.Addr().Is4() {
			family = 2
		}
		var s uapi.KernelSockaddrStorage
		size, err := putAddr("test", &s, addr)
		if err != nil {
			t.Fatal(err)
		}
		if s.SsFamily != family || int(size) != 2+len(want) || !bytes.Equal(s.Data[:len(want)], want) || !allZero(s.Data[len(want):]) {
			t.Errorf("%v is %d bytes, family %d: % x, want % x", addr, size, s.SsFamily, s.Data[:size-2], want)
		}
		if got := addrPort(&s); got != addr {
			t.Errorf("%v becomes %v", addr, got)
		}
	}
	// An IPv4-mapped IPv6 address is an IPv4 address.
	var s uapi.KernelSockaddrStorage
	size, err := putAddr("test", &s, netip.MustParseAddrPort("[::ffff:1.2.3.4]:5"))
	if size != 16 || err != nil || s.SsFamily != 2 || !bytes.Equal(s.Data[:6], []byte{0, 5, 1, 2, 3, 4}) {
		t.Errorf("mapped address: %d bytes, family %d, % x, %v", size, s.SsFamily, s.Data[:6], err)
	}
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("[fe80::1%no-such-interface]:1")} {
		if _, err := putAddr("test", &s, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	for _, family := range []uint16{0, 1, 27, 0xffff} {
		if got := addrPort(&uapi.KernelSockaddrStorage{SsFamily: family}); got.IsValid() {
			t.Errorf("an address of family %d becomes %v", family, got)
		}
	}
	if gid, service := gidAndService(&uapi.KernelSockaddrStorage{SsFamily: 2, Data: [126]byte{8: 1, 23: 1}}); gid != (verbs.GID{}) || service != 0 {
		t.Errorf("an IPv4 address becomes %v, service %d", gid, service)
	}
}

// A zone may be an interface's name.
func TestZone(t *testing.T) {
	interfaces, err := net.Interfaces()
	if err != nil || len(interfaces) == 0 {
		t.Fatalf("this machine has the network interfaces %v, %v", interfaces, err)
	}
	i := interfaces[0]
	var s uapi.KernelSockaddrStorage
	addr := netip.MustParseAddrPort("[fe80::1%" + i.Name + "]:1")
	if _, err := putAddr("test", &s, addr); err != nil {
		t.Fatal(err)
	}
	if index := binary.NativeEndian.Uint32(s.Data[22:]); index != uint32(i.Index) {
		t.Errorf("%v has the scope %d, want %d", addr, index, i.Index)
	}
	if got := addrPort(&s); got != addr {
		t.Errorf("%v becomes %v", addr, got)
	}
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// The frame has room for the largest command and the largest answer.
func TestFrame(t *testing.T) {
	f := newFrame()
	defer f.release()
	req := in[uapi.RdmaUcmAccept](f)
	req.Id = 0x11223344
	if b := f.bytes(); len(b) != 8+int(unsafe.Sizeof(*req)) || uintptr(unsafe.Pointer(req)) != uintptr(unsafe.Pointer(&b[8])) {
		t.Errorf("a command of %d bytes has %d", unsafe.Sizeof(*req), len(b))
	}
	out[uapi.RdmaUcmEventResp](f, 0)
	out[uapi.RdmaUcmQueryPathResp](f, maxPaths*sizeofPathData)
	if unsafe.Sizeof(uapi.IbPathRecData{}) != sizeofPathData {
		t.Errorf("a path has %d bytes", unsafe.Sizeof(uapi.IbPathRecData{}))
	}
	defer func() {
		if recover() == nil {
			t.Error("an answer that is too large fits")
		}
	}()
	out[uapi.RdmaUcmEventResp](f, 4096)
}

// A frame is clear when it is used again.
func TestFrameReused(t *testing.T) {
	f := newFrame()
	in[uapi.RdmaUcmMigrateId](f).Fd = 1
	f.release()
	f = newFrame()
	in[uapi.RdmaUcmDisconnect](f).Id = 1 // not a whole number of words
	resp, _ := out[uapi.RdmaUcmQueryPathResp](f, maxPaths*sizeofPathData)
	resp.NumPaths = 1
	record := f.answer(uapi.RdmaUcmQueryPathRespPathDataOffset+sizeofPathData, sizeofPathData)
	record[len(record)-1] = 1
	f.release()
	if *f != (frame{}) {
		t.Errorf("not clear: %+v", f)
	}
}

func TestPath(t *testing.T) {
	b := make([]byte, 64)
	b[8+15], b[24+15] = 1, 2
	b[40], b[41], b[42], b[43] = 0x12, 0x34, 0x56, 0x78
	b[44], b[45], b[46], b[47] = 0x0a, 0xbc, 0xde, 64
	b[48], b[49] = 0x20, 0x81
	b[50], b[51] = 0xff, 0xff
	b[53], b[54], b[55], b[56] = 0x05, 0x83, 0x82, 0x92
	want := Path{
		DGID: verbs.GID{15: 1}, SGID: verbs.GID{15: 2}, DLID: 0x1234, SLID: 0x5678,
		FlowLabel: 0xabcde, HopLimit: 64, TrafficClass: 0x20, Reversible: true, PKey: 0xffff,
		SL: 5, MTU: verbs.MTU1024, Rate: 2, PacketLifeTime: 18,
	}
	if got := parsePath(b); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	again := want.bytes()
	if got := parsePath(again[:]); got != want {
		t.Errorf("written and read again: %+v, want %+v", got, want)
	}
	// Selectors that say exactly, and one path.
	if again[54]>>6 != 2 || again[55]>>6 != 2 || again[56]>>6 != 2 || again[49]&0x7f != 1 {
		t.Errorf("selectors: % x", again[49:57])
	}
}

func TestIBAddr(t *testing.T) {
	addr := IBAddr{
		GID: verbs.GID{0: 0xfe, 15: 0x01}, PKey: 0x8001, FlowInfo: 0x12345, ScopeID: 7,
		Service: 0x0102030405060708, ServiceMask: 0xffff,
	}
	var s uapi.KernelSockaddrStorage
	size, err := addr.put("test", &s)
	want := []byte{
		0x80, 0x01, 0, 1, 0x23, 0x45, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
		1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
	}
	if err != nil || size != 48 || s.SsFamily != afIB || string(s.Data[:len(want)]) != string(want) ||
		binary.NativeEndian.Uint64(s.Data[38:]) != 7 {
		t.Errorf("%d bytes, family %d: % x, %v", size, s.SsFamily, s.Data[:size-2], err)
	}
	if gid, service := gidAndService(&s); gid != addr.GID || service != addr.Service {
		t.Errorf("read again: %v, %#x", gid, service)
	}
}

// Every event of a failure matches one of the package's errors, and has details.
func TestEventErrors(t *testing.T) {
	for _, test := range []struct {
		event Event
		is    []error
		says  string
	}{
		{Event{Type: EventAddrError, Status: -int(syscall.ETIMEDOUT)}, []error{ErrAddrResolution, syscall.ETIMEDOUT}, "no neighbour"},
		{Event{Type: EventAddrError, Status: -int(syscall.ENODEV)}, []error{ErrAddrResolution, syscall.ENODEV}, "address resolution failed: ENODEV; the interface that leads there has no RDMA device"},
		{Event{Type: EventRouteError, Status: -int(syscall.ENODEV)}, []error{ErrRouteResolution, syscall.ENODEV}, "the interface that leads there"},
		{Event{Type: EventRouteError, Status: -int(syscall.EINVAL)}, []error{ErrRouteResolution, syscall.EINVAL}, "does a subnet manager run"},
		{Event{Type: EventRouteError, Status: -int(syscall.ETIMEDOUT)}, []error{ErrRouteResolution, syscall.ETIMEDOUT}, "does a subnet manager run"},
		{Event{Type: EventUnreachable, Status: -int(syscall.ETIMEDOUT)}, []error{ErrUnreachable, syscall.ETIMEDOUT}, "unreachable"},
		{Event{Type: EventUnreachable, Status: 2}, []error{ErrUnreachable, ErrRejected, syscall.ECONNREFUSED}, "by the program at the other end"},
		{Event{Type: EventUnreachable, Status: 1}, []error{ErrUnreachable, ErrRejected}, "nothing listens"},
		{Event{Type: EventRejected, Status: 8}, []error{ErrRejected, syscall.ECONNREFUSED}, "nothing listens"},
		{Event{Type: EventRejected, Status: 77}, []error{ErrRejected}, "reason 77"},
		{Event{Type: EventConnectError, Status: -int(syscall.EINVAL)}, []error{ErrConnect, syscall.EINVAL}, "connection setup failed"},
		{Event{Type: EventDeviceRemoval}, []error{ErrDeviceRemoved, verbs.ErrDeviceRemoved}, "removed"},
		{Event{Type: EventMulticastError, Status: -int(syscall.ENETUNREACH)}, []error{ErrMulticast}, "multicast"},
	} {
		err := opErr("connect", "to somewhere", test.event.Err())
		for _, is := range test.is {
			if !errors.Is(err, is) {
				t.Errorf("%v is not %v", err, is)
			}
		}
		if detail, ok := strings.CutPrefix(err.Error(), "rdmacm: connect to somewhere: "); ok && strings.Contains(detail, ": ") != (test.event.Status != 0) {
			t.Errorf("%v, with status %d", err, test.event.Status)
		}
		if !strings.Contains(err.Error(), test.says) || !strings.HasPrefix(err.Error(), "rdmacm: connect to somewhere: ") {
			t.Errorf("%v does not say %q", err, test.says)
		}
		if _, hint, _ := strings.Cut(err.Error(), "; "); ib.Hint(err) != hint {
			t.Errorf("the hint of %v is %q", err, ib.Hint(err))
		}
		if want := test.event.Status == -int(syscall.ETIMEDOUT); os.IsTimeout(err) != want {
			t.Errorf("%v is a timeout: %t", err, !want)
		}
	}
	for _, good := range []EventType{EventAddrResolved, EventRouteResolved, EventConnectRequest, EventConnectResponse, EventEstablished, EventDisconnected, EventMulticastJoin, EventAddrChange, EventTimewaitExit} {
		if err := (&Event{Type: good}).Err(); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	failed := &Event{Type: EventAddrResolved}
	failed.fail(EventAddrError, ErrAddrResolution, syscall.ENODEV)
	if err := failed.Err(); failed.Type != EventAddrError || failed.Status != -int(syscall.ENODEV) ||
		!errors.Is(err, ErrAddrResolution) || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("%v, status %d: %v", failed.Type, failed.Status, err)
	}
}

func TestOpErrors(t *testing.T) {
	for _, test := range []struct {
		op    string
		errno syscall.Errno
		is    error
		want  bool
	}{
		{opResolveAddr, syscall.ENETUNREACH, ErrAddrResolution, true},
		{opConnect, syscall.ENETUNREACH, ErrAddrResolution, false},
		{opResolveRoute, syscall.EINVAL, ErrRouteResolution, true},
		{opConnect, syscall.ENXIO, ErrDeviceRemoved, true},
		{opBind, syscall.ENODEV, ErrDeviceRemoved, false},
		{opResolveRoute, syscall.ENODEV, ErrDeviceRemoved, false},
		{opBind, syscall.EBUSY, ErrBusy, true},
		{opBind, syscall.ENOSYS, ErrNotSupported, true},
	} {
		if err := opErr(test.op, "", test.errno); errors.Is(err, test.is) != test.want || !errors.Is(err, test.errno) {
			t.Errorf("%v is %v: %t", err, test.is, !test.want)
		}
	}
}

// A deferred Close may come before the check of the error that left the pointer nil.
func TestCloseNil(t *testing.T) {
	for _, c := range []interface{ Close() error }{
		(*EventChannel)(nil), (*ID)(nil), (*SyncID)(nil), (*Conn)(nil), (*Listener)(nil),
	} {
		if err := c.Close(); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
}

// ErrClosed is net.ErrClosed and verbs.ErrClosed to errors.Is, and so is every OpError
// whose object was closed, whichever package has found it closed.
func TestErrClosed(t *testing.T) {
	all := []error{ErrClosed, net.ErrClosed, verbs.ErrClosed}
	for _, err := range []error{ErrClosed, opErr(opSend, "", ErrClosed), opErr(opSend, "", fmt.Errorf("CQ: %w", verbs.ErrClosed))} {
		for _, want := range all {
			if !errors.Is(err, want) {
				t.Errorf("%v is not %#v", err, want)
			}
		}
	}
	for _, other := range []error{ErrBusy, opErr(opSend, "", ErrDisconnected), opErr(opSend, "", syscall.EBUSY)} {
		for _, want := range all {
			if errors.Is(other, want) {
				t.Errorf("%v is %#v", other, want)
			}
		}
	}
}

// Dial takes an Addr's network and string.
func TestAddr(t *testing.T) {
	ap := netip.MustParseAddrPort("[fe80::1%eth0]:80")
	for ps, network := range map[PortSpace]string{PortSpaceTCP: "tcp", PortSpaceIB: "ib"} {
		var addr net.Addr = Addr{ps, ap}
		node, service, err := parseAddress(addr.String())
		space, _, netErr := parseNetwork(addr.Network())
		if addr.Network() != network || space != ps || node != "fe80::1%eth0" || service != "80" || err != nil || netErr != nil {
			t.Errorf("%v of network %v is %q, %q: %v, %v", addr, addr.Network(), node, service, err, netErr)
		}
		if addr.(Addr).AddrPort() != ap || addr != (Addr{ps, ap}) {
			t.Errorf("%v is another address than %v", addr, ap)
		}
	}
}

func TestLookup(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		node, service string
		hints         Hints
		src, dst      string
	}{
		{"192.168.77.1", "7174", Hints{}, "", "192.168.77.1:7174"},
		{"fe80::1%7", "1", Hints{NumericHost: true}, "", "[fe80::1%7]:1"},
		{"192.168.77.1", "", Hints{Passive: true}, "192.168.77.1:0", ""},
		{"", "7174", Hints{Passive: true}, "0.0.0.0:7174", ""},
		{"", "7174", Hints{Passive: true, Family: "ip6"}, "[::]:7174", ""},
		{"", "7174", Hints{}, "", "127.0.0.1:7174"},
		{"::ffff:1.2.3.4", "5", Hints{Family: "ip4"}, "", "1.2.3.4:5"},
	} {
		infos, err := Lookup(ctx, test.node, test.service, test.hints)
		if err != nil {
			t.Errorf("%q %q: %v", test.node, test.service, err)
			continue
		}
		text := func(a netip.AddrPort) string {
			if !a.IsValid() {
				return ""
			}
			return a.String()
		}
		if got := infos[0]; text(got.Src) != test.src || text(got.Dst) != test.dst || got.PortSpace != PortSpaceTCP || got.QPType != verbs.RC {
			t.Errorf("%q %q: got %+v", test.node, test.service, got)
		}
	}
	udp, err := Lookup(ctx, "1.2.3.4", "5", Hints{PortSpace: PortSpaceUDP, Src: netip.MustParseAddrPort("4.3.2.1:0")})
	if err != nil || udp[0].QPType != verbs.UD || udp[0].Src.String() != "4.3.2.1:0" {
		t.Errorf("datagrams: %+v, %v", udp, err)
	}
	for _, bad := range []struct {
		node  string
		hints Hints
	}{
		{"localhost", Hints{NumericHost: true}},
		{"1.2.3.4", Hints{Family: "ip6"}},
		{"::1", Hints{Family: "ip4"}},
		{"::1", Hints{Family: "ipx"}},
	} {
		if _, err := Lookup(ctx, bad.node, "1", bad.hints); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad.node, err)
		}
	}
}

func TestOptions(t *testing.T) {
	var none *Options
	o, err := none.complete("test")
	if err != nil || o.Messages != 4 || o.MessageSize != 4096 {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	if o, err := (&Options{Messages: -1}).complete("test"); err != nil || o.Messages != 0 {
		t.Errorf("no messages: %+v, %v", o, err)
	}
	for _, bad := range []*Options{{MessageSize: -1}, {Backlog: -1}, {MessageSize: 1 << 31}, {Messages: math.MaxInt / 4096}} {
		if _, err := bad.complete("test"); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Without the kernel's connection manager, the error has a hint.
func TestNoNode(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rdma_cm")
	_, err := openChannel(name)
	var e *OpError
	if !errors.As(err, &e) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), name) || e.hint == "" {
		t.Errorf("got %v", err)
	}
	e = nodeError(name, syscall.ENOENT, nil)
	if !errors.Is(e, os.ErrNotExist) || errors.Is(e, verbs.ErrNoDevice) || !strings.Contains(e.hint, "rdma_ucm") {
		t.Errorf("with a device: %v", e)
	}
	e = nodeError(name, syscall.ENOENT, verbs.ErrNoDevice)
	if !errors.Is(e, os.ErrNotExist) || !errors.Is(e, verbs.ErrNoDevice) || strings.Contains(e.hint, "rdma_ucm") {
		t.Errorf("without a device: %v", e)
	}
	e = nodeError(name, syscall.EACCES, verbs.ErrNoDevice)
	if !errors.Is(e, os.ErrPermission) || !strings.Contains(e.hint, "permission") {
		t.Errorf("got %v", e)
	}
	if e := nodeError(name, syscall.EMFILE, nil); e.hint != "" || !errors.Is(e, syscall.EMFILE) {
		t.Errorf("got %v", e)
	}
}
