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

func message(c class, entries ...[]byte) []byte {
	var table []byte
	for _, e := range entries {
		table = append(table, nla(c.table+1|nested, e)...)
	}
	return join(nla(attrDevIndex, u32(0)), nla(attrDevName, []byte("rxe0\x00")), nla(c.table|nested, table))
}

func classNamed(name string) class {
	for _, c := range classes {
		if c.name == name {
			return c
		}
	}
	panic(name)
}

// TestTree is about a process with everything, and a module of the kernel.
func TestTree(t *testing.T) {
	pid := nla(attrPID, u32(332))
	var all []Object
	for _, m := range []struct {
		class   string
		entries [][]byte
	}{
		{"ctx", [][]byte{join(nla(attrCtxN, u32(10)), pid)}},
		{"pd", [][]byte{
			join(nla(attrPDN, u32(0)), nla(attrUseCnt, u64(1)), nla(attrKernName, []byte("ib_core\x00"))),
			join(nla(attrPDN, u32(11)), nla(attrUseCnt, u64(2)), nla(attrCtxN, u32(10)), pid),
		}},
		{"mr", [][]byte{join(nla(attrRKey, u32(0)), nla(attrLKey, u32(0xf47)), nla(attrMRLen, u64(4096)), nla(attrMRN, u32(13)), nla(attrPDN, u32(11)), pid)}},
		{"cq", [][]byte{join(nla(attrCQN, u32(11)), nla(attrCQE, u32(511)), nla(attrUseCnt, u64(2)), nla(attrCtxN, u32(10)), pid)}},
		{"qp", [][]byte{
			join(nla(attrPortIndex, u32(1)), nla(attrLQPN, u32(1)), nla(attrType, []byte{1}), nla(attrState, []byte{3}), nla(attrKernName, []byte("ib_core\x00"))),
			join(nla(attrLQPN, u32(0x11)), nla(attrPDN, u32(11)), pid, nla(attrRQPN, u32(0x12)), nla(attrType, []byte{2}), nla(attrState, []byte{3})),
		}},
		{"cm_id", [][]byte{join(nla(attrPS, u32(0x106)), nla(attrState, []byte{8}), nla(attrSrcAddr, join([]byte{2, 0, 0x1c, 0x06, 192, 168, 77, 1}, make([]byte, 120))), nla(attrCMIDN, u32(3)), pid)}},
	} {
		objects, err := parseTable(message(classNamed(m.class), m.entries...), classNamed(m.class))
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
│  │  ├─ mr 13 rkey=0x0 lkey=0xf47 length=4096
│  │  └─ qp 0x11 rqpn=0x12 type=RC state=RTS
│  └─ cq 11 cqe=511 users=2
└─ cm_id 3 ps=TCP state=LISTEN src=192.168.77.1:7174
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
	f.Add(message(qp, join(nla(attrLQPN, u32(1)), nla(attrType, []byte{200}), nla(attrState, nil))))
	f.Add(message(qp, nla(attrSrcAddr, []byte{10, 0, 1})))
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
