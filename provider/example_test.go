package provider_test

import (
	"fmt"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A sink is a send queue that prints its requests: a minimal provider.QP.
type sink struct{ pending int }

func (s *sink) put(wr *provider.SendWR) error {
	if s.pending == 2 {
		return provider.ErrQueueFull
	}
	s.pending++
	fmt.Println("put", wr.Opcode, wr.WRID)
	return nil
}

func (s *sink) ring() { fmt.Println("ring for", s.pending) }

func (s *sink) PostSend(wrs []provider.SendWR, more bool) (n int, err error) {
	for n = range wrs {
		if err = s.put(&wrs[n]); err != nil {
			break
		}
	}
	if !more {
		s.ring()
	}
	return n, err
}

// Requests are put one by one, and one doorbell is rung for all of them.
func Example() {
	wrs := make([]provider.SendWR, 3)
	for i := range wrs {
		wrs[i] = provider.SendWR{WRID: uint64(i), Opcode: uapi.IB_UVERBS_WR_SEND}
	}
	n, err := new(sink).PostSend(wrs, false)
	fmt.Println(n, err)
	// Output:
	// put IB_UVERBS_WR_SEND 0
	// put IB_UVERBS_WR_SEND 1
	// ring for 2
	// 2 queue is full
}
