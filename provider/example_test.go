package provider_test

import (
	"fmt"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// sink is a send queue that prints what it is given: the least of a provider.QP.
type sink struct{ pending int }

func (s *sink) PutSend(wr *provider.SendWR) error {
	if s.pending == 2 {
		return provider.ErrQueueFull
	}
	s.pending++
	fmt.Println("put", wr.Opcode, wr.WRID)
	return nil
}

func (s *sink) RingSend() error {
	fmt.Println("ring for", s.pending)
	return nil
}

// Requests are put one by one, and the device hears of them all at once.
func Example() {
	q := &sink{}
	for id := range uint64(3) {
		if err := q.PutSend(&provider.SendWR{WRID: id, Opcode: uapi.IB_UVERBS_WR_SEND}); err != nil {
			fmt.Println(err)
		}
	}
	q.RingSend()
	// Output:
	// put IB_UVERBS_WR_SEND 0
	// put IB_UVERBS_WR_SEND 1
	// queue is full
	// ring for 2
}
