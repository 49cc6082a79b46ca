package verbs

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// fakeGIDs makes the kernel report these entries as the device's GID tables.
func fakeGIDs(k *fakeKernel, table ...GIDEntry) {
	raw := func(e GIDEntry) uapi.IbUverbsGidEntry {
		return uapi.IbUverbsGidEntry{
			Gid:      [2]uint64{binary.NativeEndian.Uint64(e.GID[:8]), binary.NativeEndian.Uint64(e.GID[8:])},
			GidIndex: uint32(e.Index), PortNum: uint32(e.Port), GidType: uint32(e.Type - GIDTypeIB), NetdevIfindex: uint32(e.IfIndex),
		}
	}
	k.answerTo("query_gid_table", func(f *fakeCall) error {
		var all []uapi.IbUverbsGidEntry
		for _, e := range table {
			all = append(all, raw(e))
		}
		f.out(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, uint64(len(all)))
		if len(all) == 0 {
			return nil
		}
		return f.out(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, all)
	})
	k.answerTo("query_gid_ex", func(f *fakeCall) error {
		port, index := in[uint64](f, uapi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT), in[uint64](f, uapi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)
		for _, e := range table {
			if uint64(e.Port) == port && uint64(e.Index) == index {
				one := raw(e)
				return f.out(uapi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &one)
			}
		}
		return unix.ENODATA
	})
}

// TestCgroupHint: whatever object is created, EAGAIN has a hint.
func TestCgroupHint(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	raw := fakeOf(t, d, RawPacket)
	for verb, create := range map[string]func() error{
		"alloc_pd":            func() error { _, err := d.AllocPD(); return err },
		"reg_mr":              func() error { _, err := x.pd.AllocMR(4096, MROptions{}); return err },
		"reg_dmabuf_mr":       func() error { _, err := x.pd.RegDmabufMR(DmabufOptions{Length: 1}); return err },
		"rereg_mr":            func() error { return x.mr.Rereg(ReregOptions{Buf: make([]byte, 1)}) },
		"alloc_mw":            func() error { _, err := x.pd.AllocMW(MWType2); return err },
		"create_comp_channel": func() error { _, err := d.CreateCompChannel(); return err },
		"create_cq":           func() error { _, err := d.CreateCQ(CQOptions{MaxCQE: 1, Channel: x.ch}); return err },
		"create_srq":          func() error { _, err := x.pd.CreateSRQ(SRQOptions{MaxWR: 1}); return err },
		"create_qp":           func() error { _, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq}); return err },
		"create_ah":           func() error { _, err := x.pd.CreateAH(AHAttr{Port: 1}); return err },
		"open_xrcd":           func() error { _, err := d.OpenXRCD(); return err },
		"create_flow":         func() error { _, err := raw.CreateFlow(FlowOptions{}); return err },
	} {
		k.answerTo(verb, refuse(unix.EAGAIN))
		var e *OpError
		if err := create(); !errors.Is(err, unix.EAGAIN) || !errors.As(err, &e) || !strings.Contains(e.hint, "rdma.max") {
			t.Errorf("%s: %v", verb, err)
		}
		k.answerTo(verb, nil)
	}
	old := providers
	providers = func() []*provider.Provider {
		return []*provider.Provider{{Name: "fake", Driver: uapi.RDMA_DRIVER_UNKNOWN, NewContext: newFakeProvider}}
	}
	defer func() { providers = old }()
	_, err := (&DeviceInfo{name: "fake0"}).open(ioctl.NewFile(kernel.Answering(-1, func(addr uint64) syscall.Errno {
		if call, err := ioctl.Decode(addr, readOwn); err == nil && call.Method == nil {
			return unix.EPROTONOSUPPORT // Probe
		}
		return unix.EAGAIN
	})))
	if !errors.Is(err, unix.EAGAIN) || !strings.Contains(err.Error(), "rdma.max") {
		t.Error(err)
	}
}

// TestRawHint: errors of verbs that access other programs' packets name the missing capability.
func TestRawHint(t *testing.T) {
	d, k := fakeContext(t)
	raw := fakeOf(t, d, RawPacket)
	k.answerTo("create_flow", refuse(unix.EPERM))
	if _, err := raw.CreateFlow(FlowOptions{}); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Error(err)
	}
	k.answerTo("create_qp", refuse(unix.EPERM))
	pd, cq := must(d.AllocPD())(t), must(d.CreateCQ(CQOptions{MaxCQE: 1}))(t)
	for typ, want := range map[QPType]bool{RawPacket: true, UD: false} {
		if _, err := pd.CreateQP(QPOptions{Type: typ, SendCQ: cq, RecvCQ: cq}); !errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), "CAP_NET_RAW") != want {
			t.Error(err)
		}
	}
}

// TestPathHints: where the kernel can't reach a neighbour, the error names both GIDs, whether the
// path is a QP's or an address handle's.
func TestPathHints(t *testing.T) {
	d, k := fakeContext(t)
	fakePort(k, LinkLayerEthernet, uapi.IbUverbsQueryPortResp{ActiveMtu: uint8(MTU1024), GidTblLen: 8})
	v4 := GIDEntry{GID: gidOf("::ffff:192.0.2.1"), Port: 1, Index: 3, Type: GIDTypeRoCEv2}
	ib := GIDEntry{GID: gidOf("fe80::2"), Port: 1, Index: 4, Type: GIDTypeIB}
	fakeGIDs(k, v4, ib)
	qp := fakeOf(t, d, RC)
	me := must(qp.Endpoint(v4))(t)
	k.answerTo("query_qp", func(f *fakeCall) error {
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsQueryQpResp{QpState: uint8(QPInit)})
	})
	for _, tt := range []struct {
		from  int
		to    string
		errno syscall.Errno
		want  []string
	}{
		{3, "::ffff:192.0.2.9", unix.ETIMEDOUT, []string{"::ffff:192.0.2.1", "index 3", "::ffff:192.0.2.9", "no neighbour"}},
		{3, "::ffff:192.0.2.9", unix.ENETUNREACH, []string{"::ffff:192.0.2.1", "::ffff:192.0.2.9", "no route"}},
		{3, "fe80::9", unix.EINVAL, []string{"::ffff:192.0.2.1", "fe80::9", "family"}},
		{4, "::ffff:192.0.2.9", unix.EINVAL, []string{"fe80::2", "::ffff:192.0.2.9"}},
		{5, "fe80::9", unix.EINVAL, []string{"GID index 5 of port 1", "fe80::9"}},
	} {
		path := AHAttr{IsGlobal: true, DGID: gidOf(tt.to), SGIDIndex: tt.from, Port: 1}
		k.answerTo("create_ah", refuse(tt.errno))
		k.answerTo("modify_qp", refuse(tt.errno))
		_, ofAH := qp.pd.CreateAH(path)
		ofQP := qp.Modify(QPAttr{State: QPRTR, AH: path, PathMTU: me.MTU}, RequiredMask(RC, QPInit, QPRTR))
		for _, err := range []error{ofAH, ofQP} {
			var e *OpError
			if !errors.Is(err, tt.errno) || !errors.As(err, &e) || (e.hint != "") != (tt.from == 3) {
				t.Fatalf("%v: %v", tt, err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v lacks %q", err, w)
				}
			}
		}
	}
}
