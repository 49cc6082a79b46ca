package mlx5

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// clockPage returns a page in the kernel's form.
func clockPage(info uapi.IbUverbsClockInfo) []byte {
	b := make([]byte, 4096)
	*(*uapi.IbUverbsClockInfo)(unsafe.Pointer(unsafe.SliceData(b))) = info
	return b
}

// TestWallTime compares with computations by hand: a cycle takes 2.5 ns, and the counter
// has 41 bits.
func TestWallTime(t *testing.T) {
	const base, mask = 1_700_000_000_000_000_000, 1<<41 - 1
	for name, tt := range map[string]struct {
		last, frac, cycles uint64
		want               int64
	}{
		"the same moment":    {1000, 0, 1000, 0},
		"later":              {1000, 0, 1004, 10},
		"half a nanosecond":  {1000, 0, 1001, 2},
		"with a fraction":    {1000, 32, 1001, 3},
		"before":             {1000, 0, 996, -10},
		"before, a fraction": {1000, 32, 999, -2},
		"after a wrap":       {mask, 0, 3, 10},
		"before a wrap":      {3, 0, mask, -10},
	} {
		w := wall{mem: clockPage(uapi.IbUverbsClockInfo{Sign: 4, Nsec: base, Cycles: tt.last, Frac: tt.frac, Mult: 160, Shift: 6, Mask: mask})}
		at := w.read()
		if got := at.timeAt(tt.cycles).UnixNano() - base; got != tt.want {
			t.Errorf("%s: %d ns, want %d", name, got, tt.want)
		}
	}
	w := wall{mem: make([]byte, 4096)}
	if at := w.read(); !at.timeAt(5).IsZero() {
		t.Errorf("an empty page says %v", at.timeAt(5))
	}
	if new(wall).open(nil) {
		t.Error("a page that the kernel doesn't offer")
	}
}

// TestWallTimeBesideUpdate: a state that the kernel is changing is not used.
func TestWallTimeBesideUpdate(t *testing.T) {
	w := wall{mem: clockPage(uapi.IbUverbsClockInfo{Sign: 1, Nsec: 1, Mult: 1})}
	got := make(chan wallTime)
	go func() { got <- w.read() }()
	select {
	case at := <-got:
		t.Errorf("read %+v during an update", at)
	case <-time.After(10 * time.Millisecond):
	}
	p := (*uapi.IbUverbsClockInfo)(unsafe.Pointer(unsafe.SliceData(w.mem)))
	atomic.StoreUint32(&p.Sign, 2)
	if at := <-got; at.nsec != 1 || at.mult != 1 {
		t.Errorf("read %+v", at)
	}
}

// TestWallTimeWhole: a read returns one state of the page, however often the kernel changes the page
// meanwhile.
func TestWallTimeWhole(t *testing.T) {
	w := wall{mem: make([]byte, 4096)[40:]} // in two cache lines, so that half of a state may come
	p := (*uapi.IbUverbsClockInfo)(unsafe.Pointer(unsafe.SliceData(w.mem)))
	var over atomic.Bool
	var kernel sync.WaitGroup
	kernel.Go(func() {
		for i := uint32(1); !over.Load(); i++ {
			atomic.StoreUint32(&p.Sign, 2*i-1)
			atomic.StoreUint32(&p.Shift, i) // the last field to be read is the first to change
			atomic.StoreUint32(&p.Mult, i)
			for _, field := range []*uint64{&p.Mask, &p.Frac, &p.Cycles, &p.Nsec} {
				atomic.StoreUint64(field, uint64(i))
			}
			atomic.StoreUint32(&p.Sign, 2*i)
			if i%64 == 0 {
				runtime.Gosched() // with one processor, the reader's time mostly ends while it reads
			}
		}
	})
	last := uint64(0)
	for states, reads := 0, 0; states < 100 || reads < 1<<22; reads++ {
		at := w.read()
		if i := at.nsec; at != (wallTime{i, i, i, i, uint32(i), uint32(i)}) {
			t.Fatalf("parts of several states: %+v", at)
		}
		if at.nsec != last {
			last = at.nsec
			states++
		}
	}
	over.Store(true)
	kernel.Wait()
}

// TestFields: a completion has the selected fields; a failed request's are zero.
func TestFields(t *testing.T) {
	const all = allFields
	for _, fields := range []provider.Fields{all, provider.FieldTimestamp, provider.FieldWallClock, provider.FieldFlowTag, provider.FieldVLAN} {
		r := newRig(t, 1)
		r.wall.mem = clockPage(uapi.IbUverbsClockInfo{Nsec: 5000, Cycles: 100, Mult: 2, Mask: 1<<63 - 1})
		defer func() { r.wall.mem = nil }() // before its release, which unmaps it
		c := r.newCQ(t, provider.CQInit{CQE: 15, Fields: fields})
		raw := r.newQP(t, 0x321, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RAW_PACKET, Cap: uapi.IbUverbsQpCap{MaxSendWr: 4, MaxSendSge: 1, MaxRecvWr: 8, MaxRecvSge: 1}})
		rc := r.newQP(t, 0x322, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: uapi.IbUverbsQpCap{MaxSendWr: 4, MaxSendSge: 1, MaxRecvWr: 8, MaxRecvSge: 1}})
		for _, q := range []*qp{raw, rc} {
			if n, err := q.PostRecv(make([]provider.RecvWR, 4)); n != 4 || err != nil {
				t.Fatal(n, err)
			}
		}
		if _, err := rc.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
			t.Fatal(err)
		}
		write := func(i uint32, e cqe, tagged byte) {
			c.write(i, e)
			b := c.entry(i)
			b[29] = tagged
			binary.BigEndian.PutUint16(b[30:], 0xa123)
			if e.op != wqe.CQEResponderError {
				binary.BigEndian.PutUint64(b[48:], 110)
			}
		}
		write(0, cqe{op: wqe.CQEResponderSend, qpn: 0xabcdef, uidx: raw.uidx()}, 1)
		write(1, cqe{op: wqe.CQEResponderSend, qpn: 0x322, uidx: rc.uidx()}, 0)
		write(2, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 0x322, uidx: rc.uidx()}, 1)
		write(3, cqe{op: wqe.CQEResponderError, qpn: 0x321, uidx: raw.uidx(), counter: 1, syndrome: 5, vendor: 7}, 1)
		timed := provider.WCEx{Timestamp: 110, WallClock: time.Unix(0, 5020)}
		packet := timed
		packet.FlowTag, packet.VLAN = 0xabcdef, 0xa123
		wc := make([]provider.WCEx, 5)
		if n, err := c.PollEx(wc); n != 4 || err != nil {
			t.Fatalf("%#x: %d, %v", fields, n, err)
		}
		for i, want := range []provider.WCEx{packet, timed, timed, {}} {
			if fields&provider.FieldTimestamp == 0 {
				want.Timestamp = 0
			}
			if fields&provider.FieldWallClock == 0 {
				want.WallClock = time.Time{}
			}
			if fields&provider.FieldFlowTag == 0 {
				want.FlowTag = 0
			}
			if fields&provider.FieldVLAN == 0 {
				want.VLAN = 0
			}
			if want.WC = wc[i].WC; wc[i] != want {
				t.Errorf("%#x: completion %d is %+v, want %+v", fields, i, wc[i], want)
			}
		}
		if wc[0].QPNum != 0x321 || wc[1].QPNum != 0x322 || wc[3].Status != uint32(uapi.IB_WC_WR_FLUSH_ERR) {
			t.Errorf("%#x: %+v", fields, wc)
		}
	}
}

// TestFieldsOfCompressed: compressed completions have the timestamp of their first.
func TestFieldsOfCompressed(t *testing.T) {
	r := newRig(t, 1)
	c := r.newCQ(t, provider.CQInit{CQE: 15, Compression: uint8(wqe.MiniHash), Fields: provider.FieldTimestamp})
	q := r.newQP(t, 0x123, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: uapi.IbUverbsQpCap{MaxSendWr: 4, MaxSendSge: 1, MaxRecvWr: 8, MaxRecvSge: 1}})
	if n, err := q.PostRecv(make([]provider.RecvWR, 3)); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	c.write(0, cqe{op: wqe.CQEResponderSend, qpn: 0x123, uidx: q.uidx(), format: 3, bytes: 3})
	binary.BigEndian.PutUint64(c.entry(0)[48:], 77)
	wc := make([]provider.WCEx, 4)
	n, err := c.PollEx(wc)
	if n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i := range wc[:n] {
		if wc[i].Timestamp != 77 || wc[i].QPNum != 0x123 {
			t.Errorf("completion %d: %+v", i, wc[i])
		}
	}
}

// TestRealTime: a CQ whose completions have the wall clock alone gets them from an adapter that
// keeps it, in seconds and nanoseconds.
func TestRealTime(t *testing.T) {
	const at = 1_700_000_000<<32 | 123_456_789
	for _, tt := range []struct {
		offered bool
		fields  provider.Fields
		real    bool
	}{
		{true, provider.FieldWallClock, true},
		{true, provider.FieldWallClock | provider.FieldFlowTag, true},
		{true, provider.FieldWallClock | provider.FieldTimestamp, false},
		{true, provider.FieldTimestamp, false},
		{false, provider.FieldWallClock, false},
	} {
		r := newRig(t, 1)
		r.realTime = tt.offered
		if !tt.real {
			r.wall.mem = clockPage(uapi.IbUverbsClockInfo{Nsec: 5000, Cycles: at, Mult: 2, Mask: 1<<63 - 1})
			defer func() { r.wall.mem = nil }() // before its release, which unmaps it
		}
		cmd := ioctl.NewCqCreate()
		p, err := r.NewCQ(cmd, &provider.CQInit{CQE: 3, Fields: tt.fields})
		if err != nil {
			t.Fatal(err)
		}
		c := p.(*cq)
		q := r.newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 1, 0)})
		if _, err := q.PostSend([]provider.SendWR{{Opcode: uapi.IB_UVERBS_WR_SEND}}, false); err != nil {
			t.Fatal(err)
		}
		c.write(0, cqe{op: wqe.CQERequester, sendOp: wqe.OpSend, qpn: 1, uidx: q.uidx()})
		binary.BigEndian.PutUint64(c.entry(0)[48:], at)
		want := time.Time{}
		if tt.fields&provider.FieldWallClock != 0 {
			want = time.Unix(0, 5000)
		}
		if tt.real {
			want = time.Unix(1_700_000_000, 123_456_789)
		}
		wc := make([]provider.WCEx, 2)
		if n, err := c.PollEx(wc); n != 1 || err != nil || !wc[0].WallClock.Equal(want) {
			t.Errorf("%+v: %d, %v, %v, want %v", tt, n, err, wc[0].WallClock, want)
		}
		c.Release()
		cmd.Release()
	}
}

// TestNoField: a CQ with an unsupported field isn't created.
func TestNoField(t *testing.T) {
	r := newRig(t, 1)
	for _, fields := range []provider.Fields{provider.FieldWallClock, 1 << 20} {
		if _, err := r.NewCQ(ioctl.NewCqCreate(), &provider.CQInit{CQE: 1, Fields: fields}); err != provider.ErrNoField {
			t.Errorf("%#x: %v", fields, err)
		}
	}
}
