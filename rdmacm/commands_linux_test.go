package rdmacm

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// Each call passes its arguments to the kernel.
func TestCommands(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, id)
	if c := given[uapi.RdmaUcmCreateId](t, k, uapi.RDMA_USER_CM_CMD_CREATE_ID); c.Uid != id.number || c.Ps != 0x106 || c.QpType != 2 {
		t.Errorf("creating: %+v", c)
	}
	udp := rdmatest.Must(ch.CreateID(PortSpaceUDP))(t)
	closeAtEnd(t, udp)
	if c := given[uapi.RdmaUcmCreateId](t, k, uapi.RDMA_USER_CM_CMD_CREATE_ID); c.Ps != 0x111 || c.QpType != 4 {
		t.Errorf("creating: %+v", c)
	}
	addr := netip.MustParseAddrPort("192.168.77.1:7174")
	addrBytes := [6]byte{0x1c, 0x06, 192, 168, 77, 1}
	rdmatest.Check(t, id.Bind(addr))
	if c := given[uapi.RdmaUcmBind](t, k, uapi.RDMA_USER_CM_CMD_BIND); c.Id != id.handle || c.AddrSize != 16 || c.Addr.SsFamily != 2 || [6]byte(c.Addr.Data[:]) != addrBytes {
		t.Errorf("binding: %+v", c)
	}
	if c := given[uapi.RdmaUcmQuery](t, k, uapi.RDMA_USER_CM_CMD_QUERY); c.Id != id.handle || c.Option != uapi.RDMA_USER_CM_QUERY_ADDR {
		t.Errorf("asking what came of it: %+v", c)
	}
	rdmatest.Check(t, id.Listen(7))
	if c := given[uapi.RdmaUcmListen](t, k, uapi.RDMA_USER_CM_CMD_LISTEN); c.Id != id.handle || c.Backlog != 7 || id.backlog != 7 {
		t.Errorf("listening: %+v, and the backlog %d", c, id.backlog)
	}
	rdmatest.Check(t, id.Listen(0))
	if c := given[uapi.RdmaUcmListen](t, k, uapi.RDMA_USER_CM_CMD_LISTEN); c.Backlog != 0 || id.backlog != 1024 {
		t.Errorf("listening: %+v, and the backlog %d", c, id.backlog)
	}
	rdmatest.Check(t, id.ResolveAddr(netip.MustParseAddrPort("[::1]:258"), addr, 1500*time.Millisecond))
	if c := given[uapi.RdmaUcmResolveAddr](t, k, uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR); c.Id != id.handle || c.TimeoutMs != 1500 || c.SrcSize != 28 ||
		c.SrcAddr.SsFamily != 10 || c.SrcAddr.Data[1] != 2 || c.DstSize != 16 || [6]byte(c.DstAddr.Data[:]) != addrBytes {
		t.Errorf("resolving: %+v", c)
	}
	rdmatest.Check(t, id.ResolveAddr(netip.AddrPort{}, addr, time.Second))
	if c := given[uapi.RdmaUcmResolveAddr](t, k, uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR); c.SrcSize != 0 || c.SrcAddr.SsFamily != 0 {
		t.Errorf("resolving from anywhere: %+v", c)
	}
	rdmatest.Check(t, id.ResolveRoute(2*time.Second))
	if c := given[uapi.RdmaUcmResolveRoute](t, k, uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE); c.Id != id.handle || c.TimeoutMs != 2000 {
		t.Errorf("resolving the route: %+v", c)
	}
	rdmatest.Check(t, id.Reject([]byte("no")))
	if c := given[uapi.RdmaUcmReject](t, k, uapi.RDMA_USER_CM_CMD_REJECT); c.Id != id.handle || c.Reason != 0 || c.PrivateDataLen != 2 || string(c.PrivateData[:3]) != "no\x00" {
		t.Errorf("rejecting: %+v", c)
	}
	rdmatest.Check(t, id.RejectECE(nil))
	if c := given[uapi.RdmaUcmReject](t, k, uapi.RDMA_USER_CM_CMD_REJECT); c.Reason != 35 || c.PrivateDataLen != 0 {
		t.Errorf("rejecting: %+v", c)
	}
	rdmatest.Check(t, id.Establish())
	if c := given[uapi.RdmaUcmAccept](t, k, uapi.RDMA_USER_CM_CMD_ACCEPT); c.Id != id.handle || c.ConnParam.Valid != 0 {
		t.Errorf("establishing: %+v", c)
	}
	rdmatest.Check(t, id.WriteEvent(-7, 0x1122334455667788))
	if c := given[uapi.RdmaUcmWriteCmEvent](t, k, uapi.RDMA_USER_CM_CMD_WRITE_CM_EVENT); c.Id != id.handle || int32(c.Status) != -7 || *c.Param.Arg() != 0x1122334455667788 {
		t.Errorf("an event: %+v", c)
	}
	rdmatest.Check(t, id.Notify(verbs.EventCommEst))
	if c := given[uapi.RdmaUcmNotify](t, k, uapi.RDMA_USER_CM_CMD_NOTIFY); c.Id != id.handle || c.Event != 4 {
		t.Errorf("notifying: %+v", c)
	}

	id.bound.dev = &device{refs: 1, maxInitiatorDepth: 16, maxResponderResources: 32}
	rdmatest.Check(t, id.SetLocalECE(ECE{VendorID: 0x123456, Options: 0x9abcdef0}))
	rdmatest.Check(t, id.Connect(&ConnParam{QPNum: 0xabcdef, PrivateData: []byte("hi"), InitiatorDepth: 3}))
	if c := given[uapi.RdmaUcmConnect](t, k, uapi.RDMA_USER_CM_CMD_CONNECT); c.Id != id.handle || c.Ece != (uapi.RdmaUcmEce{VendorId: 0x123456, AttrMod: 0x9abcdef0}) ||
		c.ConnParam.QpNum != 0xabcdef || c.ConnParam.InitiatorDepth != 3 || c.ConnParam.ResponderResources != 32 || c.ConnParam.RetryCount != 6 ||
		c.ConnParam.RnrRetryCount != 7 || c.ConnParam.PrivateDataLen != 2 || string(c.ConnParam.PrivateData[:3]) != "hi\x00" || c.ConnParam.Valid != 1 {
		t.Errorf("connecting: %+v", c)
	}
	id.asked, id.own = true, ConnParam{InitiatorDepth: 2, ResponderResources: 200}
	id.answered.Store(false)
	id.noteECE(uapi.RdmaUcmEce{VendorId: 0x654321, AttrMod: 5})
	if got := id.RemoteECE(); got != (ECE{VendorID: 0x654321, Options: 5}) {
		t.Errorf("the peer's ECE is %+v", got)
	}
	rdmatest.Check(t, id.Accept(&ConnParam{QPNum: 0xabcdef}))
	if c := given[uapi.RdmaUcmAccept](t, k, uapi.RDMA_USER_CM_CMD_ACCEPT); c.Id != id.handle || c.Uid != id.number || c.Ece != (uapi.RdmaUcmEce{VendorId: 0x654321, AttrMod: 0x9abcdef0}) ||
		c.ConnParam.InitiatorDepth != 2 || c.ConnParam.ResponderResources != 32 || c.ConnParam.Valid != 1 {
		t.Errorf("accepting: %+v", c)
	}
	if err := id.Accept(&ConnParam{QPNum: 0xabcdef}); !errors.Is(err, ErrInvalid) {
		t.Errorf("accepting again: %v", err)
	}
	rdmatest.Check(t, id.Disconnect())
	if c := given[uapi.RdmaUcmDisconnect](t, k, uapi.RDMA_USER_CM_CMD_DISCONNECT); c.Id != id.handle {
		t.Errorf("disconnecting: %+v", c)
	}
	mc, err := udp.JoinMulticast(netip.MustParseAddr("239.1.2.3"), JoinSendOnlyFullMember)
	rdmatest.Check(t, err)
	if c := given[uapi.RdmaUcmJoinMcast](t, k, uapi.RDMA_USER_CM_CMD_JOIN_MCAST); c.Id != udp.handle || c.Uid != mc.number || c.AddrSize != 16 || c.JoinFlags != 1 ||
		[6]byte(c.Addr.Data[:]) != [6]byte{0, 0, 239, 1, 2, 3} {
		t.Errorf("joining: %+v", c)
	}
	rdmatest.Check(t, udp.LeaveMulticast(mc))
	if c := given[uapi.RdmaUcmDestroyId](t, k, uapi.RDMA_USER_CM_CMD_LEAVE_MCAST); c.Id != mc.handle {
		t.Errorf("leaving: %+v", c)
	}
}

// Remote atomics are not asked of a device that has none, although the kernel allows them.
func TestInitQPAttrAtomics(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, id)
	const reads = verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	k.hook = func(command, _ uint32) error {
		if command == uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR {
			k.mu.Lock()
			defer k.mu.Unlock()
			c := body[uapi.RdmaUcmInitQpAttr](k.bodies[command])
			answer[uapi.IbUverbsQpAttr](c.Response).QpAccessFlags = uint32(reads | verbs.AccessRemoteAtomic)
		}
		return nil
	}
	defer func() { id.bound.dev = nil }()
	for _, none := range []bool{false, true} {
		id.bound.dev = &device{noAtomics: none}
		want := reads
		if !none {
			want |= verbs.AccessRemoteAtomic
		}
		if a, _, err := id.InitQPAttr(verbs.QPInit); err != nil || a.Access != want {
			t.Errorf("no atomics %t: %v, %v, want %v", none, a.Access, err, want)
		}
	}
}

func TestOptionsSet(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, id)
	var value []byte
	k.hook = func(command, _ uint32) error {
		if command == uapi.RDMA_USER_CM_CMD_SET_OPTION {
			k.mu.Lock()
			defer k.mu.Unlock()
			c := body[uapi.RdmaUcmSetOption](k.bodies[command])
			value = nil
			for i := range c.Optlen {
				value = append(value, *answer[byte](c.Optval + uint64(i)))
			}
		}
		return nil
	}
	four := func(v uint32) string { return string(binary.NativeEndian.AppendUint32(nil, v)) }
	for _, test := range []struct {
		set  func() error
		name uint32
		want string
	}{
		{func() error { return id.SetTOS(0x20) }, 0, "\x20"},
		{func() error { return id.SetReuseAddr(true) }, 1, four(1)},
		{func() error { return id.SetReuseAddr(false) }, 1, four(0)},
		{func() error { return id.SetAFOnly(true) }, 2, four(1)},
		{func() error { return id.SetAckTimeout(31) }, 3, "\x1f"},
	} {
		rdmatest.Check(t, test.set())
		if c := given[uapi.RdmaUcmSetOption](t, k, uapi.RDMA_USER_CM_CMD_SET_OPTION); c.Id != id.handle || c.Level != 0 || c.Optname != test.name || string(value) != test.want {
			t.Errorf("option %d is %d of level %d: % x, want % x", test.name, c.Optname, c.Level, value, test.want)
		}
	}
}

// The kernel's answers are decoded correctly.
func TestQueries(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, id)
	guid := verbs.GUID{1, 2, 3, 4, 5, 6, 7, 8}
	paths := uint32(1)
	k.query = func(option uint32, to uint64) {
		switch option {
		case uapi.RDMA_USER_CM_QUERY_ADDR:
			a := answer[uapi.RdmaUcmQueryAddrResp](to)
			if a.IbdevIndex != noIndex {
				t.Errorf("where the kernel may say the index there is %#x", a.IbdevIndex)
			}
			a.PortNum, a.Pkey, a.IbdevIndex = 2, binary.NativeEndian.Uint16([]byte{0x80, 0x01}), 3
			a.NodeGuid = binary.NativeEndian.Uint64(guid[:])
			putAddr("test", &a.SrcAddr, netip.MustParseAddrPort("1.2.3.4:5"))
			putAddr("test", &a.DstAddr, netip.MustParseAddrPort("[2001::1]:7"))
		case uapi.RDMA_USER_CM_QUERY_GID:
			a := answer[uapi.RdmaUcmQueryAddrResp](to)
			a.PortNum = 1
			IBAddr{GID: verbs.GID{15: 1}, Service: 0x0102030405060708}.put("test", &a.SrcAddr)
			IBAddr{GID: verbs.GID{15: 2}, Service: 9}.put("test", &a.DstAddr)
		case uapi.RDMA_USER_CM_QUERY_PATH:
			answer[uapi.RdmaUcmQueryPathResp](to).NumPaths = paths
			for i := range uint64(2) {
				record := answer[uapi.IbPathRecData](to + 8 + 72*i)
				p := Path{DLID: uint16(i) + 1, MTU: verbs.MTU2048}
				b := p.bytes()
				for j := range record.PathRec {
					record.PathRec[j] = binary.NativeEndian.Uint32(b[4*j:])
				}
			}
		}
	}
	a, key, err := id.doQueryAddr()
	rdmatest.Check(t, err)
	if a.NodeGUID != guid || a.Port != 2 || a.PKey != 0x8001 || a.Local.String() != "1.2.3.4:5" || a.Remote.String() != "[2001::1]:7" || key != (deviceKey{guid, 3}) {
		t.Errorf("got %+v, device %v", a, key)
	}
	if public := rdmatest.Must(id.QueryAddr())(t); public != a {
		t.Errorf("got %+v, want %+v", public, a)
	}
	g := rdmatest.Must(id.QueryGID())(t)
	if g.LocalGID != (verbs.GID{15: 1}) || g.RemoteGID != (verbs.GID{15: 2}) || g.LocalService != 0x0102030405060708 || g.RemoteService != 9 || g.Port != 1 {
		t.Errorf("got %+v", g)
	}
	for _, n := range []uint32{0, 1, 2, 3, 6, ^uint32(0)} { // the kernel may say anything
		paths = n
		got := rdmatest.Must(id.QueryPath())(t)
		if len(got) != int(min(n, 2)) {
			t.Errorf("%d paths are %d", n, len(got))
		}
		for i, p := range got {
			if p.DLID != uint16(i)+1 || p.MTU != verbs.MTU2048 {
				t.Errorf("path %d is %+v", i, p)
			}
		}
	}
}

// QP attributes are copied to the fields of the same name.
func TestQPAttr(t *testing.T) {
	a := uapi.IbUverbsQpAttr{
		QpState: 1, CurQpState: 2, PathMtu: 3, PathMigState: 4, Qkey: 5, RqPsn: 6, SqPsn: 7, DestQpNum: 8, QpAccessFlags: 9,
		PkeyIndex: 10, AltPkeyIndex: 11, EnSqdAsyncNotify: 1, MaxRdAtomic: 13, MaxDestRdAtomic: 14, MinRnrTimer: 15, PortNum: 16,
		Timeout: 17, RetryCnt: 18, RnrRetry: 19, AltPortNum: 20, AltTimeout: 21,
	}
	a.AhAttr.Dlid, a.AltAhAttr.Dlid = 22, 23
	want := verbs.QPAttr{
		State: 1, CurState: 2, PathMTU: 3, PathMigState: 4, QKey: 5, RQPSN: 6, SQPSN: 7, DestQPN: 8, Access: 9,
		PKeyIndex: 10, AltPKeyIndex: 11, EnSQDAsyncNotify: true, MaxRDAtomic: 13, MaxDestRDAtomic: 14, MinRNRTimer: 15, Port: 16,
		Timeout: 17, RetryCount: 18, RNRRetry: 19, AltPort: 20, AltTimeout: 21,
	}
	want.AH.DLID, want.AltAH.DLID = 22, 23
	if got := qpAttr(&a); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	a.EnSqdAsyncNotify, a.SqDraining = 0, 1
	if got := qpAttr(&a); got.EnSQDAsyncNotify || !got.SQDraining {
		t.Errorf("got %+v", got)
	}
}

// If the kernel refuses a command, the error names the object, and has a hint.
func TestRefusals(t *testing.T) {
	k := newFakeKernel()
	ch := k.open(t)
	closeAtEnd(t, ch)
	id := rdmatest.Must(ch.CreateID(PortSpaceTCP))(t)
	closeAtEnd(t, id)
	var errno syscall.Errno
	k.hook = func(command, _ uint32) error {
		if command == uapi.RDMA_USER_CM_CMD_DESTROY_ID || command == uapi.RDMA_USER_CM_CMD_GET_EVENT {
			return nil
		}
		return errno
	}
	addr, from := netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("6.7.8.9:10")
	linkLocal := netip.MustParseAddrPort("[fe80::1]:1")
	for _, test := range []struct {
		errno syscall.Errno
		call  func() error
		says  []string
	}{
		{syscall.EADDRNOTAVAIL, func() error { return id.Bind(addr) }, []string{"bind to 1.2.3.4:5", "EADDRNOTAVAIL", "no RDMA device of this host"}},
		{syscall.ENODEV, func() error { return id.Bind(addr) }, []string{"no RDMA device of this host"}},
		{syscall.ENODEV, func() error { return id.BindIB(IBAddr{Service: 0x17}) }, []string{"service 0x17", "InfiniBand"}},
		{syscall.EADDRINUSE, func() error { return id.Bind(addr) }, []string{"another ID has the port"}},
		{syscall.EINVAL, func() error { return id.Bind(linkLocal) }, []string{"zone"}},
		{syscall.ENETUNREACH, func() error { return id.ResolveAddr(netip.AddrPort{}, addr, time.Second) }, []string{"resolve address of 1.2.3.4:5"}},
		{syscall.EADDRINUSE, func() error { return id.ResolveAddr(from, addr, time.Second) }, []string{"of 1.2.3.4:5 from 6.7.8.9:10", "another ID has the port"}},
		{syscall.EADDRNOTAVAIL, func() error { return id.ResolveAddr(from, addr, time.Second) }, []string{"from 6.7.8.9:10", "no RDMA device of this host"}},
		{syscall.EINVAL, func() error { return id.ResolveAddr(linkLocal, addr, time.Second) }, []string{"from [fe80::1]:1", "zone"}},
		{syscall.EINVAL, func() error { return id.ResolveAddr(from, linkLocal, time.Second) }, []string{"of [fe80::1]:1", "zone"}},
		{syscall.ENODEV, func() error { return id.ResolveAddr(from, addr, time.Second) }, []string{"from 6.7.8.9:10", "the interface that leads there"}},
		{syscall.ENODEV, func() error { return id.ResolveRoute(time.Second) }, []string{"resolve route", "the interface that leads there"}},
		{syscall.EADDRINUSE, func() error { return id.Listen(1) }, []string{"listen", "another ID has the port"}},
		{syscall.ENODEV, func() error { return id.ResolveIBAddr(nil, IBAddr{}, time.Second) }, []string{"InfiniBand"}},
		{syscall.EINVAL, func() error { return id.WriteEvent(0, 0) }, []string{"newer kernel"}},
		{syscall.EINVAL, func() error { return id.Notify(verbs.EventPathMig) }, []string{"notify"}},
		{syscall.EBUSY, func() error { return id.Listen(1) }, []string{"listen"}},
		{syscall.EINVAL, func() error { _, err := ch.CreateID(PortSpaceTCP); return err }, []string{"create ID (TCP)"}},
		{syscall.EINVAL, func() error { _, err := id.QueryPath(); return err }, []string{"query path"}},
		{syscall.EINVAL, func() error { return id.SetTOS(1) }, []string{"set TOS"}},
		{syscall.EINVAL, func() error { return id.SetPath(Path{}) }, []string{"set path"}},
		{syscall.EINVAL, func() error { return id.Establish() }, []string{"establish"}},
	} {
		errno = test.errno
		err := test.call()
		var e *OpError
		if !errors.As(err, &e) || !errors.Is(err, test.errno) {
			t.Errorf("%v: got %v", test.errno, err)
			continue
		}
		for _, s := range test.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%v does not say %q", err, s)
			}
		}
	}
}

// A listener rejects clients as Decide says, drops a client if there is no device for it,
// and ends with its ID.
func TestListener(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	decided := make(chan Request)
	answers := make(chan error)
	l := rdmatest.Must(Listen(t.Context(), "tcp4", "127.0.0.1:7", &Options{Backlog: 1, Decide: func(_ context.Context, r Request) (*ConnParam, error) {
		decided <- r
		return nil, <-answers
	}}))(t)
	ch := k.sharedChannel()
	handle := k.request(ch, l.ID())
	<-decided
	// The backlog is full.
	beyond := k.request(ch, l.ID())
	rejected := func(handle uint32) {
		t.Helper()
		rdmatest.UntilNot(t, "a request isn't rejected", func() bool { return k.has(handle) })
	}
	rejected(beyond)
	answers <- &Rejection{PrivateData: []byte("why")}
	rejected(handle)
	if c := given[uapi.RdmaUcmReject](t, k, uapi.RDMA_USER_CM_CMD_REJECT); c.Id != handle || string(c.PrivateData[:c.PrivateDataLen]) != "why" {
		t.Errorf("rejecting: %+v", c)
	}
	for _, answer := range []error{errors.New("just so"), nil} { // the latter: without a device there is no connection
		rdmatest.UntilNot(t, "a client has a place in the backlog", func() bool { return len(l.room) > 0 })
		handle = k.request(ch, l.ID())
		<-decided
		answers <- answer
		rejected(handle)
	}
	accepted := make(chan error)
	go func() {
		_, err := l.Accept(t.Context())
		accepted <- err
	}()
	rdmatest.Check(t, l.Close())
	if err := <-accepted; !errors.Is(err, ErrClosed) {
		t.Errorf("accepting once closed: %v", err)
	}
	rdmatest.Check(t, l.Close())
	for _, bad := range [][2]string{{"udp", "1.2.3.4:5"}, {"quic", "1.2.3.4:5"}, {"tcp", "1.2.3.4"}, {"tcp", "1:2:3"}, {"tcp6", "1.2.3.4:5"}} {
		if _, err := Listen(t.Context(), bad[0], bad[1], nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("listening on %v: %v", bad, err)
		}
		if _, err := Dial(t.Context(), bad[0], bad[1], nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("dialing %v: %v", bad, err)
		}
	}
}

// Dial takes one step after the other, and leaves nothing behind if a step fails.
func TestDialFails(t *testing.T) {
	k := newFakeKernel()
	k.share(t)
	sharedID(t, PortSpaceTCP) // keeps the shared channel
	ch := k.sharedChannel()
	before := len(k.ids)
	for _, test := range []struct {
		step uint32
		e    uapi.RdmaUcmEventResp
		want error
	}{
		{uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR, uapi.RdmaUcmEventResp{Event: uint32(EventAddrError), Status: ^uint32(syscall.ETIMEDOUT) + 1}, ErrAddrResolution},
		{uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, uapi.RdmaUcmEventResp{Event: uint32(EventRouteError), Status: ^uint32(syscall.EINVAL) + 1}, ErrRouteResolution},
		{uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, uapi.RdmaUcmEventResp{Event: uint32(EventDeviceRemoval)}, ErrDeviceRemoved},
		{uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, uapi.RdmaUcmEventResp{Event: uint32(EventDisconnected)}, ErrDisconnected},
	} {
		var uid uint64
		k.mu.Lock()
		k.hook = func(command, _ uint32) error {
			switch command {
			case uapi.RDMA_USER_CM_CMD_CREATE_ID:
				k.mu.Lock()
				uid = body[uapi.RdmaUcmCreateId](k.bodies[command]).Uid
				k.mu.Unlock()
			case test.step:
				test.e.Uid = uid
				k.happen(ch, uapi.RdmaUcmEventResp{Uid: uid, Event: uint32(EventAddrChange)}) // of no consequence
				k.happen(ch, test.e)
			case uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR:
				k.happen(ch, uapi.RdmaUcmEventResp{Uid: uid, Event: uint32(EventAddrResolved)})
			}
			return nil
		}
		k.mu.Unlock()
		_, err := Dial(patient(t), "tcp", "1.2.3.4:5", nil)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "1.2.3.4:5") {
			t.Errorf("%v: got %v", EventType(test.e.Event), err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ids) != before {
		t.Errorf("the kernel has %d IDs, want %d", len(k.ids), before)
	}
}
