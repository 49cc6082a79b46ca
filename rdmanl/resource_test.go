package rdmanl

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func address(b ...byte) []byte { return append(b, make([]byte, 128-len(b))...) }

// optional compares Optionals by their contents.
var optional = cmp.Exporter(func(reflect.Type) bool { return true })

func TestDecodeObjects(t *testing.T) {
	const (
		lqpn = uapi.RDMA_NLDEV_ATTR_RES_LQPN
		pid  = uapi.RDMA_NLDEV_ATTR_RES_PID
	)
	mine := attribute(pid, 0, u32(332))
	for _, c := range []struct {
		name  string
		table uint16
		entry []byte
		got   func(d *decoder, b []byte) any
		want  any
	}{
		{"QP", uapi.RDMA_NLDEV_ATTR_RES_QP, join(attribute(lqpn, 0, u32(0x11)), attribute(uapi.RDMA_NLDEV_ATTR_RES_TYPE, 0, u8(2)),
			attribute(uapi.RDMA_NLDEV_ATTR_RES_STATE, 0, u8(3)), attribute(uapi.RDMA_NLDEV_ATTR_RES_SQ_PSN, 0, u32(0)), mine,
			attribute(uapi.RDMA_NLDEV_ATTR_DRIVER|attrNested, 0,
				attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_STRING, 0, text("size")), attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_U32, 0, u32(64)),
				attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_STRING, 0, text("later")), attribute(2000, 0, u32(64)),
				attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_STRING, 0, text("at")), attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE, 0, u8(1)),
				attribute(uapi.RDMA_NLDEV_ATTR_DRIVER_S64, 0, u64(1<<64-1)))),
			func(d *decoder, b []byte) any { return decodeQP(d, b) },
			QP{Number: 0x11, Type: Some(ib.RC), State: Some(ib.QPRTS), SQPSN: Some(uint32(0)), Owner: Owner{PID: Some(uint32(332)),
				Driver: []DriverAttr{{"size", uint32(64), false}, {"at", int64(-1), true}}}}},
		{"CQ", uapi.RDMA_NLDEV_ATTR_RES_CQ, join(attribute(uapi.RDMA_NLDEV_ATTR_RES_CQN, 0, u32(11)), attribute(uapi.RDMA_NLDEV_ATTR_RES_CQE, 0, u32(511)),
			attribute(uapi.RDMA_NLDEV_ATTR_RES_USECNT, 0, u64(2)), attribute(uapi.RDMA_NLDEV_ATTR_RES_POLL_CTX, 0, u8(1)),
			attribute(uapi.RDMA_NLDEV_ATTR_RES_KERN_NAME, 0, text("ib_core"))),
			func(d *decoder, b []byte) any { return decodeCQ(d, b) },
			CQ{ID: 11, Entries: Some(uint32(511)), Users: Some(uint64(2)), PollCtx: Some(PollContext(1)), Owner: Owner{Kernel: Some("ib_core")}}},
		{"MR", uapi.RDMA_NLDEV_ATTR_RES_MR, join(attribute(uapi.RDMA_NLDEV_ATTR_RES_MRN, 0, u32(13)), attribute(uapi.RDMA_NLDEV_ATTR_RES_MRLEN, 0, u64(4096)), mine),
			func(d *decoder, b []byte) any { return decodeMR(d, b) },
			MR{ID: 13, Length: Some(uint64(4096)), Owner: Owner{PID: Some(uint32(332))}}},
		{"PD", uapi.RDMA_NLDEV_ATTR_RES_PD, join(attribute(uapi.RDMA_NLDEV_ATTR_RES_PDN, 0, u32(0)), attribute(uapi.RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY, 0, u32(0))),
			func(d *decoder, b []byte) any { return decodePD(d, b) },
			PD{LocalDMALKey: Some(uint32(0))}},
		{"context", uapi.RDMA_NLDEV_ATTR_RES_CTX, join(attribute(uapi.RDMA_NLDEV_ATTR_RES_CTXN, 0, u32(10)), mine),
			func(d *decoder, b []byte) any { return decodeContext(d, b) },
			Context{ID: 10, Owner: Owner{PID: Some(uint32(332))}}},
		{"SRQ", uapi.RDMA_NLDEV_ATTR_RES_SRQ, join(attribute(uapi.RDMA_NLDEV_ATTR_RES_SRQN, 0, u32(9)), attribute(uapi.RDMA_NLDEV_ATTR_RES_TYPE, 0, u8(1)),
			attribute(uapi.RDMA_NLDEV_ATTR_RES_QP|attrNested, 0,
				attribute(uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY|attrNested, 0, attribute(lqpn, 0, u32(20))),
				attribute(uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY|attrNested, 0, attribute(uapi.RDMA_NLDEV_ATTR_MIN_RANGE, 0, u32(23)), attribute(uapi.RDMA_NLDEV_ATTR_MAX_RANGE, 0, u32(25))))),
			func(d *decoder, b []byte) any { return decodeSRQ(d, b) },
			SRQ{ID: 9, Type: Some(SRQType(1)), QPs: []QPRange{{20, 20}, {23, 25}}}},
		{"CM ID", uapi.RDMA_NLDEV_ATTR_RES_CM_ID, join(attribute(uapi.RDMA_NLDEV_ATTR_RES_CM_IDN, 0, u32(3)), attribute(uapi.RDMA_NLDEV_ATTR_RES_PS, 0, u32(0x106)),
			attribute(uapi.RDMA_NLDEV_ATTR_RES_STATE, 0, u8(8)),
			attribute(uapi.RDMA_NLDEV_ATTR_RES_SRC_ADDR, 0, address(2, 0, 0x1c, 0x06, 192, 168, 77, 1)),
			attribute(uapi.RDMA_NLDEV_ATTR_RES_DST_ADDR, 0, address(10, 0, 0x1c, 0x07, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1))),
			func(d *decoder, b []byte) any { return decodeCMID(d, b) },
			CMID{ID: 3, PortSpace: Some(PortSpace(0x106)), State: Some(CMState(8)), Source: Some(netip.MustParseAddrPort("192.168.77.1:7174")), Dest: Some(netip.MustParseAddrPort("[fe80::1]:7175"))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d decoder
			message := deviceBody(attribute(c.table|attrNested, 0, attribute(c.table+1|attrNested, 0, c.entry)))
			got := entries(&d, [][]byte{message}, c.table, c.got)
			if diff := cmp.Diff([]any{c.want}, got, optional); diff != "" || d.err != nil {
				t.Errorf("%v (-want +got):\n%s", d.err, diff)
			}
			// An empty or truncated entry is not an object.
			for _, bad := range [][]byte{nil, c.entry[:len(c.entry)-1], attribute(pid, 0, u32(1)), join(c.entry, attribute(pid, 0, u64(1))), join(c.entry, attribute(3, 60))} {
				d = decoder{}
				entries(&d, [][]byte{deviceBody(attribute(c.table, 0, attribute(c.table+1, 0, bad)))}, c.table, c.got)
				if !errors.Is(d.err, ErrAnswer) {
					t.Errorf("% x: %v", bad, d.err)
				}
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{address(27, 0, 0xff, 0xff, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 6, 0x1c, 6), "[fe80::200:0:0:1]:7174"},
		{address(1), ""},
	} {
		var d decoder
		a, ok := decodeAddress(&d, c.b).Get()
		if ok != (c.want != "") || ok && a.String() != c.want || d.err != nil {
			t.Errorf("%v, %t, %v, want %s", a, ok, d.err, c.want)
		}
	}
	var d decoder
	if _, ok := decodeAddress(&d, make([]byte, 16)).Get(); ok || !errors.Is(d.err, ErrAnswer) {
		t.Errorf("an address of 16 bytes: %v", d.err)
	}
}

func TestCounts(t *testing.T) {
	entry := func(name string, more ...[]byte) []byte {
		return attribute(uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, 0, append([][]byte{attribute(uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, 0, text(name))}, more...)...)
	}
	now := attribute(uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, 0, u64(3))
	got, err := decodeOne([][]byte{deviceBody(attribute(uapi.RDMA_NLDEV_ATTR_RES_SUMMARY, 0,
		entry("qp", now), entry("mr", now, attribute(uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_MAX, 0, u64(9)))))}, decodeCounts)
	want := []Count{{Name: "qp", Now: 3}, {Name: "mr", Now: 3, Max: Some(uint64(9))}}
	if diff := cmp.Diff(want, got, optional); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := decodeOne(nil, decodeCounts); !errors.Is(err, ErrAnswer) {
		t.Errorf("no answer: %v", err)
	}
	raw, err := decodeOne([][]byte{attribute(uapi.RDMA_NLDEV_ATTR_RES_RAW, 0, []byte{1, 2, 3})}, decodeRaw)
	if err != nil || !bytes.Equal(raw, []byte{1, 2, 3}) {
		t.Errorf("raw data % x, %v", raw, err)
	}
	if _, err := decodeOne([][]byte{nil}, decodeRaw); !errors.Is(err, ErrAnswer) {
		t.Errorf("no raw data: %v", err)
	}
	if _, err := Raw(t.Context(), 0, 200, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("raw data of nothing: %v", err)
	}
	if _, err := Raws(t.Context(), 0, 200); !errors.Is(err, ErrInvalid) {
		t.Errorf("raw data of nothing: %v", err)
	}
}

func TestComm(t *testing.T) {
	module := Owner{Kernel: Some("ib_core")}
	if name, ok := module.Comm(); !ok || name != "ib_core" {
		t.Errorf("the module is %q, %t", name, ok)
	}
	if name, ok := new(Owner).Comm(); ok {
		t.Errorf("nobody is %q", name)
	}
	this := Owner{PID: Some(uint32(os.Getpid()))}
	want, err := os.ReadFile("/proc/self/comm")
	if name, ok := this.Comm(); ok != (err == nil) || name != strings.TrimSpace(string(want)) {
		t.Errorf("this process is %q, %t, want %q", name, ok, want)
	}
	if err != nil {
		return // no /proc
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		n, err := strconv.ParseUint(thread.Name(), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		o := Owner{PID: Some(uint32(n))}
		if pid, ok := o.Process(); ok && pid != uint32(os.Getpid()) {
			t.Errorf("thread %d is of process %d, want %d", n, pid, os.Getpid())
		}
	}
	if pid, ok := module.Process(); ok {
		t.Errorf("a module is process %d", pid)
	}
	if pid, ok := this.Process(); !ok || pid != uint32(os.Getpid()) {
		t.Errorf("this process is %d, %t", pid, ok)
	}
}

// BenchmarkMany reads the kernel's answer about 5,000 queue pairs.
func BenchmarkMany(b *testing.B) {
	const qps, each, sequence = 5000, 200, 7 // in a message
	var messages [][]byte
	for first := uint32(0); first < qps; first += each {
		var table []byte
		for n := first; n < first+each; n++ {
			table = append(table, attribute(uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY|attrNested, 0, join(
				attribute(uapi.RDMA_NLDEV_ATTR_PORT_INDEX, 0, u32(1)), attribute(uapi.RDMA_NLDEV_ATTR_RES_LQPN, 0, u32(n)), attribute(uapi.RDMA_NLDEV_ATTR_RES_RQPN, 0, u32(n+1)),
				attribute(uapi.RDMA_NLDEV_ATTR_RES_RQ_PSN, 0, u32(9)), attribute(uapi.RDMA_NLDEV_ATTR_RES_SQ_PSN, 0, u32(8)), attribute(uapi.RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, 0, u8(0)),
				attribute(uapi.RDMA_NLDEV_ATTR_RES_TYPE, 0, u8(2)), attribute(uapi.RDMA_NLDEV_ATTR_RES_STATE, 0, u8(3)),
				attribute(uapi.RDMA_NLDEV_ATTR_RES_PDN, 0, u32(5)), attribute(uapi.RDMA_NLDEV_ATTR_RES_PID, 0, u32(332))))...)
		}
		messages = append(messages, message(uapi.RDMA_NL_NLDEV<<10|uapi.RDMA_NLDEV_CMD_RES_QP_GET, 0, 0, deviceBody(attribute(uapi.RDMA_NLDEV_ATTR_RES_QP|attrNested, 0, table))))
	}
	for b.Loop() {
		a := answer{sequence: sequence}
		for _, m := range messages {
			if done, err := a.add(m); done || err != nil {
				b.Fatal(done, err)
			}
		}
		var d decoder
		all := entries(&d, a.bodies, uapi.RDMA_NLDEV_ATTR_RES_QP, decodeQP)
		if len(all) != qps || d.err != nil {
			b.Fatal(len(all), d.err)
		}
	}
}
