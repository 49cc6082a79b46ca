//go:build race && linux

package verbs

import (
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
)

// A loop is a device that the race detector doesn't see: it counts posts and completions in
// memory outside Go's.
type loop struct{ posted, polled *uint32 }

func newLoop(t *testing.T) *loop {
	mem, err := ioctl.MapMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ioctl.Munmap(mem) })
	return &loop{posted: (*uint32)(unsafe.Pointer(&mem[0])), polled: (*uint32)(unsafe.Pointer(&mem[64]))}
}

func (l *loop) post(n int) (int, error) {
	atomic.AddUint32(l.posted, uint32(n))
	return n, nil
}

type loopQP struct {
	nullQP
	*loop
}

func (q loopQP) PostSend(wrs []provider.SendWR, more bool) (int, error) { return q.post(len(wrs)) }
func (q loopQP) PostRecv(wrs []provider.RecvWR) (int, error)            { return q.post(len(wrs)) }

type loopSRQ struct {
	provider.SRQ
	*loop
}

func (q loopSRQ) PostRecv(wrs []provider.RecvWR) (int, error) { return q.post(len(wrs)) }

type loopCQ struct {
	provider.CQ
	*loop
}

func (q loopCQ) Poll(wc []provider.WC) (int, error) {
	if atomic.LoadUint32(q.posted) == atomic.LoadUint32(q.polled) {
		return 0, nil
	}
	atomic.AddUint32(q.polled, 1)
	return 1, nil
}

// TestPostHappensBeforePoll: a goroutine that has polled a completion owns the buffer that another
// goroutine has filled and posted. The race detector fails the test if it disagrees.
func TestPostHappensBeforePoll(t *testing.T) {
	l := newLoop(t)
	qp, _ := nullRC()
	qp.prov = &loopQP{loop: l}
	cq := &CQ{prov: loopCQ{loop: l}}
	cq.dev = qp.dev
	srq := &SRQ{prov: loopSRQ{loop: l}}
	srq.dev = qp.dev
	for name, post := range map[string]func() (int, error){
		"send": func() (int, error) { return qp.PostSend(SendWR{Opcode: OpSend}) },
		"builder": func() (int, error) {
			return qp.Sends(func(b *SendBuilder) error { b.Send(1, 0, SGE{}); return nil })
		},
		"receive":     func() (int, error) { return qp.PostRecv(RecvWR{}) },
		"SRQ receive": func() (int, error) { return srq.PostRecv(RecvWR{}) },
	} {
		buf := make([]byte, 8)
		done := make(chan struct{})
		go func() {
			defer close(done)
			var wc [1]WC
			for {
				if n, err := cq.Poll(wc[:]); n == 1 || err != nil {
					break
				}
				runtime.Gosched()
			}
			buf[0]++
		}()
		buf[0] = 1
		if n, err := post(); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		<-done
		if buf[0] != 2 {
			t.Errorf("%s: the buffer has %d", name, buf[0])
		}
	}
}
