package mlx5dv_test

import (
	"encoding/binary"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// The firmware's capabilities have the maximum number of QPs.
func Example() {
	devices, err := verbs.Devices()
	if err != nil || len(devices) == 0 {
		log.Fatal("no device: ", err)
	}
	dev, err := mlx5dv.Open(devices[0], mlx5dv.Options{DEVX: true})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close() // and all objects created below

	// QUERY_HCA_CAP of the general capabilities, as they are now.
	in, out := make([]byte, 16), make([]byte, 16+4096)
	binary.BigEndian.PutUint16(in, 0x100)
	in[7] = 1
	if err := mlx5dv.Command(dev, in, out); err != nil {
		log.Fatal(err)
	}
	fmt.Println(1 << (out[16+19] & 0x1f)) // log_max_qp
}

// A connection's packets are sent from another UDP port.
func ExampleSetUDPSourcePort() {
	var qp *verbs.QP // RC, connected over RoCE v2, on a device that mlx5dv.Open has opened
	if err := mlx5dv.SetUDPSourcePort(qp, 0xc123); err != nil {
		log.Print(err)
	}
}

// A device that polls by itself gets the address of a CQ.
func ExampleCQQueue() {
	var cq *verbs.CQ
	memory, err := mlx5dv.CQQueue(cq)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Printf("%d entries of %d bytes at %p\n", memory.CQEs.Count, memory.CQEs.Size, memory.CQEs.Addr)
}

// Steers the packets with a VLAN tag of 5 to a QP, by the bits of struct
// mlx5_ifc_fte_match_param.
func ExampleCreateMatcher() {
	var dev *verbs.Device
	var qp *verbs.QP // RawPacket
	// cvlan_tag is bit 144, first_vid has 12 bits from 116.
	mask, value := make(mlx5dv.Match, 64), make(mlx5dv.Match, 64)
	mask[18], value[18] = 0x80, 0x80
	mask[14], mask[15] = 0x0f, 0xff
	value[15] = 5
	matcher, err := mlx5dv.CreateMatcher(dev, mlx5dv.MatcherOptions{Mask: mask, Criteria: mlx5dv.MatchOuter})
	if err != nil {
		log.Print(err)
		return
	}
	flow, err := matcher.CreateFlow(mlx5dv.FlowOptions{Value: value, QP: qp})
	if err != nil {
		log.Print(err)
		return
	}
	defer flow.Close()
}

// A request in the adapter's format does nothing but complete.
func ExamplePostWQE() {
	var qp *verbs.QP // in QPRTS
	const nop, signaled = 0x00, 8
	control := make([]byte, 16) // struct mlx5_wqe_ctrl_seg
	control[3] = nop
	control[7] = 1 // segment
	control[11] = signaled
	if err := mlx5dv.PostWQE(qp, 1, control); err != nil {
		log.Print(err)
	}
}
