package objects

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmanl"
)

func some[T any](v T) rdmanl.Optional[T] { return rdmanl.Some(v) }

func address(s string) rdmanl.Optional[netip.AddrPort] { return some(netip.MustParseAddrPort(s)) }

// TestTree lists a process with objects of all types, and a kernel module.
func TestTree(t *testing.T) {
	module := rdmanl.Owner{Kernel: some("ib_core")}
	process := rdmanl.Owner{PID: some(uint32(332))}
	all := []Object{
		ofContext(rdmanl.Context{ID: 10, Owner: process}),
		ofPD(rdmanl.PD{ID: 0, Users: some(uint64(1)), Owner: module}),
		ofPD(rdmanl.PD{ID: 11, Users: some(uint64(2)), Context: some(uint32(10)), Owner: process}),
		ofMR(rdmanl.MR{ID: 13, RKey: some(uint32(0xe52)), LKey: some(uint32(0xf47)), IOVA: some(uint64(0x7f0012345000)), Length: some(uint64(4096)), PD: some(uint32(11)), Owner: process}),
		ofCQ(rdmanl.CQ{ID: 11, Entries: some(uint32(511)), Users: some(uint64(2)), Context: some(uint32(10)), Owner: process}),
		ofQP(rdmanl.QP{Number: 1, Port: some(uint32(1)), Type: some(ib.GSI), State: some(ib.QPRTS), Owner: module}),
		ofQP(rdmanl.QP{Number: 0x11, PD: some(uint32(11)), RemoteQPN: some(uint32(0x12)), RQPSN: some(uint32(0x111)), SQPSN: some(uint32(0x222)),
			Type: some(ib.RC), State: some(ib.QPRTS), Owner: process}),
		ofCMID(rdmanl.CMID{ID: 3, PortSpace: some(rdmanl.PortSpace(0x106)), State: some(rdmanl.CMState(8)), Source: address("192.168.77.1:7174"), Owner: process}),
		ofCMID(rdmanl.CMID{ID: 4, PortSpace: some(rdmanl.PortSpace(0x111)), State: some(rdmanl.CMState(5)), Source: address("[fe80::1]:7175"), Dest: address("[fe80::2]:7174"), Owner: process}),
		ofSRQ(rdmanl.SRQ{ID: 9, Type: some(rdmanl.SRQType(1)), PD: some(uint32(11)), CQ: some(uint32(0x21)), Owner: process}),
	}
	for i := range all {
		all[i].Device = "rxe0"
		if all[i].PID != 0 {
			all[i].Comm = "server"
		}
	}
	var b strings.Builder
	if err := WriteTree(&b, all); err != nil {
		t.Fatal(err)
	}
	want := `[ib_core] rxe0, in the kernel
├─ pd 0 users=1
└─ qp 0x1 port=1 type=GSI state=RTS
332 server rxe0
├─ ctx 10
│  ├─ pd 11 users=2
│  │  ├─ mr 13 rkey=0xe52 lkey=0xf47 iova=0x7f0012345000 length=4096
│  │  ├─ qp 0x11 rqpn=0x12 rq_psn=0x111 sq_psn=0x222 type=RC state=RTS
│  │  └─ srq 9 type=XRC cq=33
│  └─ cq 11 cqe=511 users=2
├─ cm_id 3 ps=TCP state=LISTEN src=192.168.77.1:7174
└─ cm_id 4 ps=UDP state=CONNECT src=[fe80::1]:7175 dst=[fe80::2]:7174
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Reset()
	if err := WriteJSON(&b, all[2:3]); err != nil {
		t.Fatal(err)
	}
	want = `{"v":"1.0","dev":"rxe0","type":"pd","id":11,"pid":332,"comm":"server","ctx":10,"attrs":{"users":"2"}}` + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOwner: a process that has ended has no name.
func TestOwner(t *testing.T) {
	for _, c := range []struct {
		owner rdmanl.Owner
		pid   int
		comm  string
	}{
		{rdmanl.Owner{Kernel: some("ib_core")}, 0, "ib_core"},
		{rdmanl.Owner{}, 0, ""},
		{rdmanl.Owner{PID: some(uint32(1<<31 - 1))}, 1<<31 - 1, "?"},
	} {
		if o := object("qp", 1, c.owner); o.PID != c.pid || o.Comm != c.comm {
			t.Errorf("%+v is %d %q", c.owner, o.PID, o.Comm)
		}
	}
	if o := object("qp", 1, rdmanl.Owner{PID: some(uint32(os.Getpid()))}); o.PID != os.Getpid() || o.Comm == "" {
		t.Errorf("this process is %d %q", o.PID, o.Comm)
	}
}
