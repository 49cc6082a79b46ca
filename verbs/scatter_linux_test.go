package verbs

import (
	"bytes"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// TestScatterMemory: Poll can copy to the writable memory of open MRs, at their addresses
// in requests, and to no other memory.
func TestScatterMemory(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	reg := func(n int, access AccessFlags) *MR {
		return must(pd.RegMR(make([]byte, n), MROptions{Access: access}))(t)
	}
	before := reg(100, AccessLocalWrite)
	data := []byte("a message")
	if d.scatter(before.LKey(), before.Addr(), data) {
		t.Error("memory is known without a QP that needs it")
	}
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	must(pd.CreateQP(QPOptions{Type: RC, SendCQ: cq, RecvCQ: cq, ScatterToCQE: true, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	after := reg(100, AccessLocalWrite)
	zero := reg(100, AccessLocalWrite|AccessZeroBased)
	written := func(mr *MR, off uint64) bool {
		clear(mr.Bytes())
		ok := d.scatter(mr.LKey(), mr.Addr()+off, data)
		want := make([]byte, mr.Len())
		if ok {
			copy(want[off:], data)
		}
		if !bytes.Equal(mr.Bytes(), want) {
			t.Errorf("at %d, left %q", off, mr.Bytes())
		}
		return ok
	}
	for name, mr := range map[string]*MR{"before": before, "after": after, "zero-based": zero} {
		for off, want := range map[uint64]bool{0: true, 91: true, 92: false, 1 << 40: false, 1<<64 - 1: false} {
			if got := written(mr, off); got != want {
				t.Errorf("%s: at %d: %t", name, int64(off), got)
			}
		}
	}
	if readable := reg(100, AccessRemoteRead); d.scatter(readable.LKey(), readable.Addr(), data) {
		t.Error("wrote to memory that may only be read")
	}
	if d.scatter(after.LKey()+1, after.Addr(), data) {
		t.Error("wrote with another key")
	}

	// The registration moves, and its key changes.
	old, key := before.Bytes(), before.LKey()
	at := before.Addr()
	k.answerTo("rereg_mr", func(f *fakeCall) error {
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsReregMrResp{Lkey: 0x777700, Rkey: 0x777701})
	})
	if err := before.Rereg(ReregOptions{Buf: make([]byte, 200)}); err != nil {
		t.Fatal(err)
	}
	clear(old)
	if !written(before, 191) || d.scatter(key, at, data) || d.scatter(before.LKey(), at, data) || !bytes.Equal(old, make([]byte, 100)) {
		t.Error("after a move, its new memory isn't written, or the old one is")
	}
	lose := AccessRemoteRead
	if err := before.Rereg(ReregOptions{Access: &lose}); err != nil || written(before, 0) {
		t.Errorf("wrote to memory that may not be written any more: %v", err)
	}
	at, key, old = after.Addr(), after.LKey(), after.Bytes()
	if err := after.Close(); err != nil {
		t.Fatal(err)
	}
	clear(old)
	if d.scatter(key, at, data) || !bytes.Equal(old, make([]byte, 100)) {
		t.Error("wrote to memory that isn't registered any more")
	}
	// A reused key belongs to the newer MR, even if the older MR ends later.
	zero.remap(func() { zero.ref.LKey = key })
	newer := reg(100, AccessLocalWrite)
	newer.remap(func() { newer.ref.LKey = key })
	if err := zero.Close(); err != nil || !written(newer, 0) {
		t.Errorf("the newer MR with a key isn't found: %v", err)
	}
}

// TestScatterBesideClose: memory is freed while messages for it are copied. The race
// detector and the memory's protection detect a later copy.
func TestScatterBesideClose(t *testing.T) {
	d, _ := fakeContext(t)
	pd := must(d.AllocPD())(t)
	d.trackMRs()
	for range 200 {
		mr := must(pd.AllocMR(4096, MROptions{Access: AccessLocalWrite}))(t)
		key, at := mr.LKey(), mr.Addr()
		var wg sync.WaitGroup
		began := make(chan struct{})
		wg.Go(func() {
			for i := 0; d.scatter(key, at, []byte("a message")); i++ {
				if i == 0 {
					close(began)
				}
			}
		})
		<-began
		if err := mr.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}

// BenchmarkScatter measures the part of Poll that finds the memory among 1000 MRs.
func BenchmarkScatter(b *testing.B) {
	d := &Device{}
	d.trackMRs()
	var last *MR
	for i := range uint32(1000) {
		last = &MR{buf: make([]byte, 64), iova: 0x1000, access: AccessLocalWrite}
		last.dev, last.ref.LKey = d, i<<8
		last.remap(func() {})
	}
	data := make([]byte, 20)
	for b.Loop() {
		if !d.scatter(last.ref.LKey, 0x1000, data) {
			b.Fatal("not found")
		}
	}
}
