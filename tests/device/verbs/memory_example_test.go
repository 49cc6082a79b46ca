package verbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// A peer's memory is written, read and changed atomically.
func ExampleMR_Remote() {
	l := open("")
	defer l.dev.Close()
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	qp, _ := l.connected(nil, access)
	theirs, mine := l.alloc(16, access), l.alloc(16, verbs.AccessLocalWrite)
	remote := theirs.Remote() // sent by the peer, for example as JSON
	do := func(wr verbs.SendWR) uint64 {
		wr.Flags = verbs.SendSignaled
		wr.SGL, wr.Remote = []verbs.SGE{mine.SGE(0, 8)}, remote.At(8)
		must(qp.PostSend(wr))
		l.wait()
		return binary.NativeEndian.Uint64(mine.Bytes())
	}

	binary.NativeEndian.PutUint64(mine.Bytes(), 5)
	do(verbs.SendWR{Opcode: verbs.OpRDMAWrite})
	fmt.Println("before an addition:", do(verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: 3}))
	fmt.Println("before an exchange:", do(verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: 8, Swap: 100}))
	fmt.Println("at the end:", do(verbs.SendWR{Opcode: verbs.OpRDMARead}))
}

// Two writes with one doorbell, and one completion for both.
func ExampleQP_Sends() {
	l := open("")
	defer l.dev.Close()
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	o := verbs.QPOptions{Type: verbs.RC, SendCQ: l.cq, RecvCQ: l.cq, Cap: verbs.QPCap{MaxSendWR: 2}}
	qp := must(l.pd.CreateQP(o))
	check(qp.Connect(must(qp.Endpoint(l.gid)), verbs.ConnectOptions{Access: access})) // with itself
	theirs, mine := l.alloc(16, access), l.alloc(16, 0)
	copy(mine.Bytes(), "one after other")

	n := must(qp.Sends(func(b *verbs.SendBuilder) error {
		b.RDMAWrite(1, 0, theirs.Remote(), mine.SGE(0, 10))
		b.RDMAWrite(2, verbs.SendSignaled, theirs.Remote().At(10), mine.SGE(10, 5))
		return nil // after an error, none of them would be posted
	}))
	fmt.Printf("%d requests, completion of %d: %q\n", n, l.wait().WRID, theirs.Bytes()[:15])
}

// A peer may access a part of some memory for a while.
func ExampleMW() {
	l := open("")
	defer l.dev.Close()
	owner, peer := l.connected(nil, verbs.AccessRemoteWrite)
	mr := l.alloc(64, verbs.AccessLocalWrite|verbs.AccessMWBind) // no remote access
	mw := must(l.pd.AllocMW(verbs.MWType2))
	must(owner.PostSend(verbs.SendWR{Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, MW: mw, NewRKey: verbs.NextRKey(mw.RKey()),
		Bind: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 16, Access: verbs.AccessRemoteWrite}}))
	l.wait()
	window := mw.Remote()

	out := l.alloc(16, 0)
	n := copy(out.Bytes(), "through it")
	write := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{out.SGE(0, n)}, Remote: window}
	must(peer.PostSend(write))
	l.wait()
	fmt.Printf("%q\n", mr.Bytes()[:n])

	must(owner.PostSend(verbs.SendWR{Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: window.RKey}))
	l.wait()
	must(peer.PostSend(write))
	var wc [1]verbs.WC
	must(l.cq.PollWait(context.Background(), wc[:]))
	fmt.Println(wc[0].Status)
}

// The memory is not pinned: its pages are loaded when the device needs them, or earlier, on advice.
func ExamplePD_AdviseMR() {
	l := open("")
	defer l.dev.Close()
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	const size, lastPage = 1 << 20, 1<<20 - 4096
	mr, err := l.pd.AllocMR(size, verbs.MROptions{Access: access | verbs.AccessOnDemand})
	if errors.Is(err, verbs.ErrNotSupported) {
		fmt.Println("the device can't page")
		return
	}
	check(err)
	check(l.pd.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseFlush, mr.SGE(0, 4096)))

	qp, _ := l.connected(nil, access)
	out := l.alloc(1, 0)
	out.Bytes()[0] = 7
	must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{out.SGE(0, 1)}, Remote: mr.Remote().At(lastPage)}))
	l.wait()
	fmt.Println("last page:", mr.Bytes()[lastPage])
}

// Each request holds the reference to its buffer, and its completion returns it.
func ExampleBufferPool() {
	l := open("")
	defer l.dev.Close()
	pool := must(l.pd.NewBufferPool(verbs.BufferPoolOptions{Access: verbs.AccessLocalWrite, MaxBytes: 1 << 20, SlabBytes: 1 << 16}))
	sender, receiver := l.connected(nil, 0)
	in, out := must(pool.Get(4096)), must(pool.Get(4096))
	must(receiver.PostRecv(verbs.RecvWR{WRID: in.WRID(), SGL: []verbs.SGE{in.SGE()}}))
	copy(out.Bytes(), "from a pool")
	must(sender.PostSend(verbs.SendWR{WRID: out.WRID(), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{out.SGE()}}))
	for range 2 {
		wc := l.wait()
		b := pool.Completed(wc.WRID)
		if wc.Opcode == verbs.WCRecv {
			fmt.Printf("%q\n", b.Bytes()[:11])
		}
		b.Release()
	}
	check(pool.Close()) // it would return ErrBusy with a buffer in use
}
