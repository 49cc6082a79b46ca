package efadv_test

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/verbs"
)

// Creates an SRD queue pair whose RDMA writes may have inline data, where the device has RDMA
// writes.
func Example() {
	devices, err := verbs.Devices()
	if err != nil {
		log.Fatal(err)
	}
	for _, info := range devices {
		dev, err := info.Open()
		if err != nil {
			continue
		}
		defer dev.Close() // and all objects created below
		attr, err := efadv.QueryDevice(dev)
		if err != nil {
			continue // another driver's
		}
		fmt.Println(info.Name(), attr.Caps)
		pd, err := dev.AllocPD()
		if err != nil {
			log.Fatal(err)
		}
		cq, err := dev.CreateCQ(verbs.CQOptions{MaxCQE: 128, PollOnly: true})
		if err != nil {
			log.Fatal(err)
		}
		o := efadv.QPOptions{InlineWrite: attr.Caps&efadv.CapRDMAWrite != 0}
		o.SendCQ, o.RecvCQ, o.SignalAll = cq, cq, true
		o.Cap = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxInlineData: attr.InlineBufSize}
		qp, err := efadv.CreateQP(pd, o)
		if err != nil {
			log.Fatal(err)
		}
		if err := qp.Activate(verbs.ActivateOptions{Port: 1, QKey: 0x1ee7}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(qp.Type(), qp.Cap())
	}
}
