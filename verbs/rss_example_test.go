package verbs_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/verbs"
)

// Spreads the UDP packets to a MAC address over four queues, by their addresses and ports, and
// counts them. A goroutine serves each queue.
func ExamplePD_CreateRSSQP() {
	dev, err := verbs.Open("mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close() // and all objects created below
	pd := must(dev.AllocPD())

	var queues []*verbs.WQ
	for range 4 {
		cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 64}))
		wq := must(pd.CreateWQ(verbs.WQOptions{CQ: cq, MaxWR: 64}))
		if err := wq.SetState(verbs.WQReady); err != nil {
			log.Fatal(err)
		}
		mr := must(pd.AllocMR(64*2048, verbs.MROptions{Access: verbs.AccessLocalWrite}))
		for i := range 64 {
			must(wq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{mr.SGE(i*2048, 2048)}}))
		}
		queues = append(queues, wq)
		go func() {
			for wc, err := range cq.All(context.Background()) {
				if err != nil {
					return
				}
				fmt.Printf("%d bytes\n", wc.ByteLen)
				must(wq.PostRecv(verbs.RecvWR{WRID: wc.WRID, SGL: []verbs.SGE{mr.SGE(int(wc.WRID)*2048, 2048)}}))
			}
		}()
	}

	key := make([]byte, 40)
	rand.Read(key)
	qp := must(pd.CreateRSSQP(verbs.RSSOptions{
		Table: must(dev.CreateIndirectionTable(queues...)), Key: key,
		Fields: verbs.RSSSrcIPv4 | verbs.RSSDstIPv4 | verbs.RSSSrcPortUDP | verbs.RSSDstPortUDP,
	}))
	counters := must(dev.CreateCounters(verbs.CountPackets, verbs.CountBytes))
	must(qp.CreateFlow(verbs.FlowOptions{Specs: []verbs.FlowSpec{
		verbs.FlowEth{
			Val:  verbs.FlowEthFilter{DstMAC: [6]byte{2, 0, 0, 0, 0, 1}},
			Mask: verbs.FlowEthFilter{DstMAC: [6]byte{255, 255, 255, 255, 255, 255}},
		},
		verbs.FlowCount{Counters: counters},
	}}))
	fmt.Println(must(counters.Read()))
}
