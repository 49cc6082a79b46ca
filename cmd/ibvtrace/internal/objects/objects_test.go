package objects

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func nla(kind uint16, data []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func u32(x uint32) []byte { return binary.NativeEndian.AppendUint32(nil, x) }
func u64(x uint64) []byte { return binary.NativeEndian.AppendUint64(nil, x) }

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

const nested = 0x8000

// The attributes as <rdma/rdma_netlink.h> numbers them, enum rdma_nldev_attr.
const (
	nlDevIndex  = 1
	nlDevName   = 2
	nlPortIndex = 3
	nlLQPN      = 21
	nlRQPN      = 22
	nlType      = 26
	nlState     = 27
	nlPID       = 28
	nlKernName  = 29
	nlPS        = 32
	nlSrcAddr   = 33
	nlCQE       = 37
	nlUseCnt    = 38
	nlRKey      = 42
	nlLKey      = 43
	nlMRLen     = 45
	nlPDN       = 60
	nlCQN       = 61
	nlMRN       = 62
	nlCMIDN     = 63
	nlCtxN      = 64
	nlRQPSN     = 23
	nlSQPSN     = 24
	nlDstAddr   = 34
	nlIOVA      = 44
	nlSRQN      = 90
	nlSubtype   = 98
)

// The command of each class, RDMA_NLDEV_CMD_RES_..._GET, and its table.
var numbers = map[string][2]uint16{
	"ctx": {22, 86}, "pd": {14, 46}, "mr": {13, 40}, "cq": {12, 35}, "srq": {23, 88}, "qp": {10, 19}, "cm_id": {11, 30},
}

func message(class string, entries ...[]byte) []byte {
	table := numbers[class][1]
	var all []byte
	for _, e := range entries {
		all = append(all, nla(table+1|nested, e)...)
	}
	return join(nla(nlDevIndex, u32(0)), nla(nlDevName, []byte("rxe0\x00")), nla(table|nested, all))
}

// TestNumbers compares the package's constants with the kernel's header.
func TestNumbers(t *testing.T) {
	got := make(map[string][2]uint16)
	for _, c := range classes {
		got[c.name] = [2]uint16{c.cmd, c.table}
	}
	if diff := cmp.Diff(numbers, got); diff != "" {
		t.Errorf("(-header +here):\n%s", diff)
	}
	if rdmaNlNldev != 5 || rdmaNldevCmdGet != 1 {
		t.Errorf("RDMA_NL_NLDEV is %d, RDMA_NLDEV_CMD_GET %d", rdmaNlNldev, rdmaNldevCmdGet)
	}
}

func classNamed(name string) class {
	for _, c := range classes {
		if c.name == name {
			return c
		}
	}
	panic(name)
}

// TestTree lists a process with objects of all types, and a kernel module.
func TestTree(t *testing.T) {
	pid := nla(nlPID, u32(332))
	var all []Object
	for _, m := range []struct {
		class   string
		entries [][]byte
	}{
		{"ctx", [][]byte{join(nla(nlCtxN, u32(10)), pid)}},
		{"pd", [][]byte{
			join(nla(nlPDN, u32(0)), nla(nlUseCnt, u64(1)), nla(nlKernName, []byte("ib_core\x00"))),
			join(nla(nlPDN, u32(11)), nla(nlUseCnt, u64(2)), nla(nlCtxN, u32(10)), pid),
		}},
		{"mr", [][]byte{join(nla(nlRKey, u32(0xe52)), nla(nlLKey, u32(0xf47)), nla(nlIOVA, u64(0x7f0012345000)), nla(nlMRLen, u64(4096)), nla(nlMRN, u32(13)), nla(nlPDN, u32(11)), pid)}},
		{"cq", [][]byte{join(nla(nlCQN, u32(11)), nla(nlCQE, u32(511)), nla(nlUseCnt, u64(2)), nla(nlCtxN, u32(10)), pid)}},
		{"qp", [][]byte{
			join(nla(nlPortIndex, u32(1)), nla(nlLQPN, u32(1)), nla(nlType, []byte{1}), nla(nlState, []byte{3}), nla(nlKernName, []byte("ib_core\x00"))),
			join(nla(nlLQPN, u32(0x11)), nla(nlPDN, u32(11)), pid, nla(nlRQPN, u32(0x12)), nla(nlRQPSN, u32(0x111)), nla(nlSQPSN, u32(0x222)), nla(nlType, []byte{2}), nla(nlState, []byte{3})),
		}},
		{"cm_id", [][]byte{join(nla(nlPS, u32(0x106)), nla(nlState, []byte{8}), nla(nlSrcAddr, join([]byte{2, 0, 0x1c, 0x06, 192, 168, 77, 1}, make([]byte, 120))), nla(nlCMIDN, u32(3)), pid),
			join(nla(nlPS, u32(0x111)), nla(nlState, []byte{5}),
				nla(nlSrcAddr, join([]byte{10, 0, 0x1c, 0x07, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 104))),
				nla(nlDstAddr, join([]byte{10, 0, 0x1c, 0x06, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, make([]byte, 104))),
				nla(nlCMIDN, u32(4)), pid)}},
		{"srq", [][]byte{join(nla(nlSRQN, u32(9)), nla(nlType, []byte{1}), nla(nlPDN, u32(11)), nla(nlSubtype, []byte("x\x00")), pid)}},
	} {
		objects, err := parseTable(message(m.class, m.entries...), classNamed(m.class))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, objects...)
	}
	for i := range all {
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
│  │  └─ srq 9 type=XRC subtype=x
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

func FuzzParseTable(f *testing.F) {
	qp := classNamed("qp")
	f.Add(message("qp", join(nla(nlLQPN, u32(1)), nla(nlType, []byte{200}), nla(nlState, nil))))
	f.Add(message("qp", nla(nlSrcAddr, []byte{10, 0, 1})))
	f.Fuzz(func(t *testing.T, b []byte) {
		objects, err := parseTable(b, qp)
		if err != nil {
			return
		}
		if len(objects) > len(b)/4 {
			t.Errorf("%d objects in %d bytes", len(objects), len(b))
		}
		if err := WriteTree(&strings.Builder{}, objects); err != nil {
			t.Error(err)
		}
	})
}
