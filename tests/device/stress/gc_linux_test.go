package stress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

const (
	workers = 64
	slot    = 1024 // bytes per worker in each memory
)

// TestGarbageCollector makes 64 goroutines share one queue pair and one CQ. Meanwhile, the
// garbage collector runs all the time, and each verb is called from a stack that has just
// moved. A pointer that the collector doesn't see, or a stack address kept across a call,
// causes wrong bytes, a wrong completion or EFAULT.
func TestGarbageCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	s := rdmatest.Default()
	s.Len = 3 * workers * slot
	s.Cap.MaxSendWR, s.CQE = workers, 4*workers
	p := rdmatest.NewPair(t, s)

	stop := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
				time.Sleep(time.Millisecond)
			}
		}
	})
	defer background.Wait()
	defer close(stop)

	ctx, cancel := context.WithTimeout(t.Context(), 2*rdmatest.Patience)
	defer cancel()
	d := dispatcher{cq: p.A.CQ}
	for i := range d.done {
		d.done[i] = make(chan verbs.WC, 2)
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range 10 {
				// A new goroutine has a small stack, which grows with the calls.
				result := make(chan error)
				go func() { result <- deep(1+(w+i)%40, func() error { return work(ctx, p, &d, w, i) }) }()
				if err := <-result; err != nil {
					t.Errorf("worker %d, round %d: %v", w, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	rdmatest.Idle(t, p.A.CQ)
	rdmatest.Idle(t, p.B.CQ)
}

// deep calls f below n frames of 512 bytes: the stack moves on the way.
//
//go:noinline
func deep(n int, f func() error) error {
	var frame [512]byte
	if n == 0 {
		return f()
	}
	frame[n] = byte(n)
	err := deep(n-1, f)
	if frame[n] != byte(n) {
		return errors.New("the stack is corrupt")
	}
	return err
}

// A dispatcher passes completions to the workers that wait for them. Any worker may poll.
type dispatcher struct {
	cq   *verbs.CQ
	done [workers]chan verbs.WC
}

func (d *dispatcher) wait(ctx context.Context, w int, id uint64) error {
	for {
		select {
		case wc := <-d.done[w]:
			if wc.WRID != id {
				return fmt.Errorf("completion %#x, want %#x", wc.WRID, id)
			}
			return wc.Err()
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		var wcs [3]verbs.WC
		n, err := d.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			d.done[wc.WRID>>32] <- wc
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
}

var posts atomic.Int64

// post posts one request and waits for it. The request itself is on the stack.
func post(ctx context.Context, p *rdmatest.Pair, d *dispatcher, w int, wr verbs.SendWR) error {
	wr.WRID = uint64(w)<<32 | uint64(posts.Add(1)&0xffffffff)
	wr.Flags = verbs.SendSignaled
	for {
		n, err := p.A.QP.PostSend(wr)
		if err == nil && n == 1 {
			return d.wait(ctx, w, wr.WRID)
		}
		if !errors.Is(err, verbs.ErrQueueFull) {
			return err
		}
		// Another worker polls, or this worker must.
		var wcs [1]verbs.WC
		if n, err := d.cq.Poll(wcs[:]); err != nil {
			return err
		} else if n == 1 {
			d.done[wcs[0].WRID>>32] <- wcs[0]
		}
		runtime.Gosched()
	}
}

// work writes from a newly registered heap buffer, from its own part of the pair's
// memory, and inline. It reads everything back and compares it.
func work(ctx context.Context, p *rdmatest.Pair, d *dispatcher, w, i int) error {
	far := func(part int) uint64 { return p.B.MR.Addr() + uint64((part*workers+w)*slot) }
	near := (2*workers + w) * slot
	back := p.A.MR.Bytes()[near : near+slot]
	compare := func(part int, want []byte) error {
		clear(back)
		if err := post(ctx, p, d, w, verbs.SendWR{
			Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{p.A.MR.SGE(near, len(want))}, Remote: verbs.Remote{Addr: far(part), RKey: p.B.MR.RKey()},
		}); err != nil {
			return err
		}
		if !bytes.Equal(back[:len(want)], want) {
			return fmt.Errorf("part %d was read back with other data", part)
		}
		return nil
	}

	heap := make([]byte, slot)
	rdmatest.Fill(heap, w+i)
	mr, err := p.PD.RegMR(heap, verbs.MROptions{Access: verbs.AccessLocalWrite})
	if err != nil {
		return err
	}
	// From here on, only the registration keeps the buffer alive.
	heap = nil
	runtime.GC()
	if err := post(ctx, p, d, w, verbs.SendWR{
		Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{mr.SGE(0, 100), mr.SGE(100, slot-100)}, Remote: verbs.Remote{Addr: far(0), RKey: p.B.MR.RKey()},
	}); err != nil {
		return err
	}
	if err := mr.Close(); err != nil {
		return err
	}
	if err := compare(0, rdmatest.Pattern(slot, w+i)); err != nil {
		return err
	}

	var inline [60]byte // on the stack
	rdmatest.Fill(inline[:], w-i)
	if err := post(ctx, p, d, w, verbs.SendWR{
		Opcode: verbs.OpRDMAWrite, Inline: inline[:], Remote: verbs.Remote{Addr: far(1), RKey: p.B.MR.RKey()},
	}); err != nil {
		return err
	}
	if err := compare(1, rdmatest.Pattern(60, w-i)); err != nil {
		return err
	}

	// Control verbs, whose responses are written to the library's own memory.
	attr, _, err := p.A.QP.Query()
	if err != nil {
		return err
	}
	if rdmatest.KindOf() == rdmatest.SIW {
		return nil // siw reports neither the peer nor the state
	}
	if attr.DestQPN != p.B.QP.Num() || attr.State != verbs.QPRTS || attr.AH.DGID != p.Address.DGID || attr.AH.DLID != p.Address.DLID {
		return fmt.Errorf("the QP's attributes are %+v", attr)
	}
	return nil
}
