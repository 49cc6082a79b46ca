package mlx5ctx

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
)

// place is where mlx5_ifc.h has a field.
type place struct{ at, width int }

// header returns the fields of layouts, by their paths, from the table that the rig's adapter has made
// of the kernel's header.
func header(t *testing.T) map[string]place {
	t.Helper()
	table, err := os.ReadFile("../rig/connectx/internal/ifc/layouts.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]place)
	inner := make(map[string]string) // the layouts of fields
	layout := ""
	for line := range strings.Lines(string(table)) {
		words := strings.Fields(line)
		if line[0] != '\t' {
			layout = words[0]
			continue
		}
		var p place
		if _, err := fmt.Sscan(strings.Join(words[1:3], " "), &p.at, &p.width); err != nil {
			t.Fatal(line, err)
		}
		all[layout+"."+words[0]] = p
		if len(words) > 4 {
			inner[layout+"."+words[0]] = words[4]
		}
	}
	for name, layout := range inner {
		for path, p := range all {
			if field, ok := strings.CutPrefix(path, layout+"."); ok {
				all[name+"."+field] = place{all[name].at + p.at, p.width}
			}
		}
	}
	return all
}

// sameAs checks a layout against the header.
func sameAs[T any](t *testing.T, all map[string]place, l layout[T], context, answer, at string) {
	t.Helper()
	if p := all[answer+"."+at]; p.at != 8*l.at || p.width != 8*l.size {
		t.Errorf("%s: %d bytes at %d, the header has %+v bits", l.name, l.size, l.at, p)
	}
	seen := make(map[string]int)
	for _, f := range l.fields {
		p, ok := all[context+"."+f.name]
		p.at += seen[f.name]
		if seen[f.name] += f.width; p.width == 8 && f.width == 64 {
			p.width = 64 // an array of bytes
		}
		if !ok || p != (place{f.at, f.width}) {
			t.Errorf("%s.%s is %d bits at %d, the header has %+v", context, f.name, f.width, f.at, p)
		}
	}
}

func TestLayouts(t *testing.T) {
	all := header(t)
	sameAs(t, all, qpLayout, "qpc", "query_qp_out", "qpc")
	sameAs(t, all, cqLayout, "cqc", "query_cq_out", "cq_context")
	sameAs(t, all, plainSRQ, "srqc", "query_srq_out", "srq_context_entry")
	sameAs(t, all, xrcSRQ, "xrc_srqc", "query_xrc_srq_out", "xrc_srq_context_entry")
	sameAs(t, all, mkeyLayout, "mkc", "query_mkey_out", "memory_key_mkey_entry")
}

// TestDumps decodes dumps of random contexts, and answers of commands with the same bytes.
func TestDumps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	context := make([]byte, 300)
	for i := range context {
		context[i] = byte(random.Uint32())
	}
	word := func(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
	dump := append(word(nil, 4<<16|SegmentInfo), make([]byte, 12)...)
	dump = append(word(dump, 5<<16|SegmentCommand), make([]byte, 16)...)
	dump = append(word(word(word(word(dump, uint32(4+len(context)/4)<<16|0x1000), 0), 77), 0), context...)
	dump = word(dump, 1<<16|SegmentTerminate)
	for name, c := range map[string]struct{ dumped, queried func([]byte) (any, error) }{
		"QP": {func(b []byte) (any, error) {
			q, err := QPFromDump(b)
			n := q.Number
			q.Number = 0
			return []any{q, n}, err
		},
			func(b []byte) (any, error) { q, err := QPFromQuery(b); return []any{q, uint32(77)}, err }},
		"CQ": {func(b []byte) (any, error) {
			q, err := CQFromDump(b)
			n := q.Number
			q.Number = 0
			return []any{q, n}, err
		},
			func(b []byte) (any, error) { q, err := CQFromQuery(b); return []any{q, uint32(77)}, err }},
		"mkey": {func(b []byte) (any, error) {
			q, err := MkeyFromDump(b)
			n := q.Index
			q.Index = 0
			return []any{q, n}, err
		},
			func(b []byte) (any, error) { q, err := MkeyFromQuery(b); return []any{q, uint32(77)}, err }},
	} {
		want, err := c.queried(context)
		got, err2 := c.dumped(dump)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || err2 != nil {
			t.Errorf("%s: %v, %v (-query +dump):\n%s", name, err, err2, diff)
		}
		for n := range len(dump) - 4 { // the end has 4 bytes
			if got, err := c.dumped(dump[:n]); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: %d of %d bytes are %+v, %v", name, n, len(dump), got, err)
			}
		}
	}
	if segments, err := Segments(dump); err != nil || len(segments) != 4 || segments[2].Index1 != 77 || segments[3].Kind != SegmentTerminate {
		t.Errorf("%+v, %v", segments, err)
	}
}

// TestValues: fields have their values, whatever the others are.
func TestValues(t *testing.T) {
	for _, ones := range []bool{false, true} {
		context := make([]byte, 256)
		if ones {
			for i := range context {
				context[i] = 0xff
			}
		}
		put := func(at, width int, v uint64) {
			for i := at + width - 1; i >= at; i, v = i-1, v>>1 {
				bit := byte(0x80) >> (i % 8)
				context[24+i/8] = context[24+i/8]&^bit | byte(v&1)*bit
			}
		}
		put(0, 4, 5)
		put(8, 8, 5)
		put(64, 3, 3)
		put(73, 4, 4)
		put(80, 1, 0)
		put(81, 4, 6)
		put(168, 24, 0x123456)
		put(320, 64, 0)
		put(384, 64, 0xffffc0000201)
		put(1096, 24, 0xabcdef)
		put(1381, 3, 0)
		put(1456, 16, 0x8001)
		put(1504, 32, 0x80000001)
		q, err := QPFromQuery(context)
		if err != nil || q.State != ib.QPSQD || q.Service.String() != "DCI" || q.MTU != ib.MTU1024 || q.RecvRequests != 16 || q.SendBlocks != 64 || q.RemoteQPN != 0x123456 ||
			q.Path.DGID.Addr().String() != "192.0.2.1" || q.LastAckedPSN != 0xabcdef || q.Receives != ReceivesOwn || q.SendPosted != 0x8001 || q.RecvPosted != 0x80000001 {
			t.Errorf("%t: %+v, %v", ones, q, err)
		}
	}
}

// TestRecorded decodes what the stock driver of Linux 6.1 returned for objects of a busy ib_write_bw. Its
// adapter was the rig's software ConnectX.
func TestRecorded(t *testing.T) {
	recorded := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	qp, err := QPFromDump(recorded("qp"))
	if diff := cmp.Diff(QP{
		Number: 84, State: ib.QPRTS, PD: 6, MTU: ib.MTU4096, RemoteQPN: 84, Path: Path{Port: 1, DLID: 1, AckTimeout: 20}, SendCQ: 6, RecvCQ: 6, SRQ: 17, CounterSet: 1,
		SendBlocks: 128, RecvRequests: 4, SendPosted: 14736, SendTaken: 14736, NextSendPSN: 8005054, LastAckedPSN: 8005053, NextRecvPSN: 605298, SSN: 80272,
		RetryCount: 7, RNRRetry: 7, CurRetry: 7, CurRNRRetry: 7,
	}, qp); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	cq, err := CQFromDump(recorded("cq"))
	if diff := cmp.Diff(CQ{
		Number: 6, Armed: Fired, Entries: 256, EQ: 4, UAR: 18, Produced: 81850, Consumed: 81790, Record: 0x1045fd000,
	}, cq); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	mr, err := MkeyFromDump(recorded("mr"))
	if diff := cmp.Diff(Mkey{
		Index: 6132, Key: 228, Local: Access{true, true}, Remote: Access{Write: true}, Mode: 1, PD: 6, QP: 0xffffff, Start: 0x7feb6ab25000, Length: 131072, LogPageSize: 13, Translations: 16,
	}, mr); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestRefusals(t *testing.T) {
	word := func(n, kind int, body ...byte) []byte {
		b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(n)), uint16(kind))
		return append(b, body...)
	}
	refused := append(word(12, SegmentError, 0, 0, 0, 7), make([]byte, 40)...)
	copy(refused[16:], "no such object")
	var why *DumpError
	if _, err := QPFromDump(refused); !errors.As(err, &why) || why.Syndrome != 7 || why.Text != "no such object" {
		t.Errorf("%v", err)
	}
	for _, bad := range [][]byte{nil, {0}, word(0, 1), word(2, 1), word(2, 1, 0, 0, 0, 0), word(4, 1, make([]byte, 12)...), word(1, SegmentTerminate)} {
		if q, err := QPFromDump(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("% x: %+v, %v", bad, q, err)
		}
	}
	if _, err := SRQFromQuery(make([]byte, 79)); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

func TestCounts(t *testing.T) {
	q := QP{State: ib.QPRTS, SendPosted: 2, SendTaken: 0xffff, NextSendPSN: 3, LastAckedPSN: 0xfffffe, RecvRequests: 8, RecvPosted: 4, RecvTaken: 0xfffe}
	if q.Waiting() != 3 || q.Unacknowledged() != 4 || q.Receivable() != 6 {
		t.Errorf("%d wait, %d aren't acknowledged, %d can be received", q.Waiting(), q.Unacknowledged(), q.Receivable())
	}
	q.State, q.RecvRequests = ib.QPErr, 0
	if q.Unacknowledged() != 0 || q.Receivable() != 0 {
		t.Errorf("in error %d, %d", q.Unacknowledged(), q.Receivable())
	}
	c := CQ{Produced: 1, Consumed: 0xffffff}
	if c.Unpolled() != 2 {
		t.Errorf("%d wait", c.Unpolled())
	}
	if Service(3).String() != "XRC" || Service(99).String() != "unknown(99)" || Fired.String() != "fired" || ArmState(0).String() != "not armed (0)" || CQOverrun.String() != "overrun" {
		t.Error("names")
	}
}
