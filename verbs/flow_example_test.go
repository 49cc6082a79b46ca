package verbs_test

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/verbs"
)

// Receives the packets for UDP port 4791 of a MAC address, with all headers.
func ExampleQP_CreateFlow() {
	c, err := verbs.Open("mlx5_0")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close() // and all objects created below
	pd, err := c.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	cq, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 16})
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPOptions{
		Type: verbs.RawPacket, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 16},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := qp.Activate(verbs.ActivateOptions{Port: 1}); err != nil {
		log.Fatal(err)
	}
	_, err = qp.CreateFlow(verbs.FlowOptions{Specs: []verbs.FlowSpec{
		verbs.FlowEth{
			Val:  verbs.FlowEthFilter{DstMAC: [6]byte{2, 0, 0, 0, 0, 1}},
			Mask: verbs.FlowEthFilter{DstMAC: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		},
		verbs.FlowIPv4{}, // any
		verbs.FlowUDP{Val: verbs.FlowPorts{Dst: 4791}, Mask: verbs.FlowPorts{Dst: 0xffff}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	mr, err := pd.AllocMR(2048, verbs.MROptions{Access: verbs.AccessLocalWrite})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(0, 2048)}}); err != nil {
		log.Fatal(err)
	}
	var wc [1]verbs.WC
	for n := 0; n == 0; {
		if n, err = cq.Poll(wc[:]); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("%x\n", mr.Bytes()[:wc[0].ByteLen])
}
