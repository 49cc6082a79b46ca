package rxe

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// bulk is a request that takes the kernel a long time.
var bulk = provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Remote: provider.Remote{RKey: 1}, SGL: []provider.SGE{{Length: 1 << 20}}}

// The amount of data to send determines whether a doorbell is brief.
func TestBriefDoorbell(t *testing.T) {
	write := func(n uint32) provider.SendWR {
		return provider.SendWR{Opcode: uapi.IB_UVERBS_WR_RDMA_WRITE, Remote: provider.Remote{RKey: 1}, SGL: []provider.SGE{{Length: n}}}
	}
	q := memQP(t, 256)
	post := func(wr provider.SendWR, n int, want bool) {
		t.Helper()
		for range n {
			if m, err := q.PostSend([]provider.SendWR{wr}, true); m != 1 || err != nil {
				t.Fatal(m, err)
			}
		}
		if got := q.brief(); got != want {
			t.Errorf("%d requests of %v: brief %v, want %v", n, wr.SGL, got, want)
		}
	}
	ring := func() {
		t.Helper()
		if n, err := q.PostSend(nil, false); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	post(write(0), 65, true)
	post(write(0), 1, false)
	ring()
	post(write(64<<10), 1, true)
	ring()
	post(write(64<<10+1), 1, false)
	q.TakeBack()
	post(write(12<<10), 5, true)
	post(write(12<<10), 1, false)
	q.Moved(uapi.IB_QPS_RESET)
	post(write(1<<31), 1, false)
	post(write(1<<31), 1, false) // the sum is 0 in 32 bits
	q.TakeBack()
	post(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: make([]byte, 64)}, 61, true)
	post(provider.SendWR{Opcode: uapi.IB_UVERBS_WR_SEND, Inline: make([]byte, 64)}, 1, false)
}

// While the kernel sends much data, other goroutines run.
func TestOthersGoOn(t *testing.T) {
	first := memQP(t, 4)
	qps := make(chan *qp, 64)
	for range cap(qps) {
		q := memQP(t, 4)
		q.file = first.file
		qps <- q
	}
	syscalltest.Test(t, syscalltest.Filter{Number: unix.SYS_WRITE, Arg: 0, Value: uint32(first.file.FD())}, func() error {
		_, err := (<-qps).PostSend([]provider.SendWR{bulk}, false)
		return err
	})
}
