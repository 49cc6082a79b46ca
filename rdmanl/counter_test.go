package rdmanl

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

func counterEntry(name string, more ...[]byte) []byte {
	return attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY|attrNested, 0,
		append([][]byte{attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, 0, text(name))}, more...)...)
}

func countersTable(entries ...[]byte) []byte {
	return attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTERS|attrNested, 0, entries...)
}

func TestDecodeCounters(t *testing.T) {
	value := attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, 0, u64(1<<40))
	table := countersTable(counterEntry("sent_pkts", value), counterEntry("link_downed", attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, 0, u64(0))))
	want := []Counter{{"sent_pkts", 1 << 40}, {"link_downed", 0}}
	if got, err := decodeOne([][]byte{deviceBody(table)}, decodeCounters); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range [][]byte{countersTable(counterEntry("sent_pkts")), countersTable(counterEntry("", value)), countersTable([]byte{9, 9, 9}),
		countersTable(counterEntry("x", attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, 0, u32(1))))} {
		if got, err := decodeOne([][]byte{bad}, decodeCounters); !errors.Is(err, ErrAnswer) {
			t.Errorf("% x: %v, %v", bad, got, err)
		}
	}

	qp := func(n uint32) []byte {
		return attribute(uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY|attrNested, 0, attribute(uapi.RDMA_NLDEV_ATTR_RES_LQPN, 0, u32(n)))
	}
	body := join(attribute(uapi.RDMA_NLDEV_ATTR_PORT_INDEX, 0, u32(1)), attribute(uapi.RDMA_NLDEV_ATTR_STAT_COUNTER_ID, 0, u32(4)),
		attribute(uapi.RDMA_NLDEV_ATTR_STAT_MODE, 0, u32(1)), attribute(uapi.RDMA_NLDEV_ATTR_RES_TYPE, 0, u8(2)),
		attribute(uapi.RDMA_NLDEV_ATTR_RES_QP|attrNested, 0, qp(178), qp(180)), table)
	var d decoder
	got := decodeQPCounter(&d, body)
	wantQP := QPCounter{ID: 4, Port: 1, Mode: Some(CounterAuto), QPType: Some(ib.RC), QPs: []uint32{178, 180}, Counters: want}
	if diff := cmp.Diff(wantQP, got, optional); diff != "" || d.err != nil {
		t.Errorf("%v (-want +got):\n%s", d.err, diff)
	}
	if decodeQPCounter(&d, table); !errors.Is(d.err, ErrAnswer) {
		t.Errorf("a counter of QPs without an ID: %v", d.err)
	}

	d = decoder{}
	mr := decodeMRCounters(&d, join(attribute(uapi.RDMA_NLDEV_ATTR_RES_MRN, 0, u32(7)), table))
	if mr.ID != 7 || !cmp.Equal(mr.Counters, want) || d.err != nil {
		t.Errorf("counters of an MR: %+v, %v", mr, d.err)
	}
	if decodeMRCounters(&d, table); !errors.Is(d.err, ErrAnswer) {
		t.Errorf("counters of an MR without an ID: %v", d.err)
	}
	d = decoder{}
	if id := decodeCounterID(&d, body); id != 4 || d.err != nil {
		t.Errorf("the counter's ID is %d, %v", id, d.err)
	}
	if decodeCounterID(&d, table); !errors.Is(d.err, ErrAnswer) {
		t.Errorf("a binding without a counter: %v", d.err)
	}
}

func TestDecodeOptional(t *testing.T) {
	index := func(n uint32) []byte { return attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX, 0, u32(n)) }
	dynamic := func(n uint8) []byte { return attribute(uapi.RDMA_NLDEV_ATTR_STAT_HWCOUNTER_DYNAMIC, 0, u8(n)) }
	got, err := decodeOne([][]byte{countersTable(counterEntry("a", index(0)), counterEntry("b", index(1), dynamic(0)), counterEntry("c", index(2), dynamic(1)))}, decodeOptional)
	want := []OptionalCounter{{"b", false, 1}, {"c", true, 2}}
	if diff := cmp.Diff(want, got, optional); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := decodeOne([][]byte{countersTable(counterEntry("a", dynamic(1)))}, decodeOptional); !errors.Is(err, ErrAnswer) {
		t.Errorf("a counter without an index: %v", err)
	}
	var d decoder
	c := decodeCounting(&d, join(attribute(uapi.RDMA_NLDEV_ATTR_STAT_MODE, 0, u32(1)), attribute(uapi.RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, 0, u32(7))))
	if c.Mode.Or(0) != CounterAuto || c.Auto.Or(0).String() != "type,pid,0x4" || d.err != nil {
		t.Errorf("the mode is %+v, %v", c, d.err)
	}
	if _, ok := c.Optional.Get(); ok {
		t.Error("what the kernel didn't send is there")
	}
	if CounterManual.String() != "manual" || CounterMode(9).String() != "unknown(9)" {
		t.Errorf("the modes are %v and %v", CounterManual, CounterMode(9))
	}
}
