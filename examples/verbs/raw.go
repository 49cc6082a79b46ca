package main

import (
	"bytes"
	"fmt"
	"log"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

// raw sends an Ethernet frame to its own interface, where a flow steers it to the QP. It prints
//
//	received a frame of type 0x88b5: "raw"
func raw(e *env) {
	const etherType = 0x88b5 // for experiments
	nic := must(net.InterfaceByName(e.gid.NetDev))
	qp := must(e.pd.CreateQP(verbs.QPOptions{Type: verbs.RawPacket, SendCQ: e.cq, RecvCQ: e.cq, Cap: small}))
	check(qp.Activate(verbs.ActivateOptions{Port: e.gid.Port}))

	var spec verbs.FlowEth
	copy(spec.Val.DstMAC[:], nic.HardwareAddr)
	spec.Mask.DstMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	spec.Val.EtherType, spec.Mask.EtherType = etherType, 0xffff
	flow := must(qp.CreateFlow(verbs.FlowOptions{Port: e.gid.Port, Specs: []verbs.FlowSpec{spec}}))
	defer flow.Close()

	header := append(append(bytes.Clone(nic.HardwareAddr), nic.HardwareAddr...), etherType>>8, etherType&0xff)
	out, in := e.alloc(64, 0), e.alloc(2048, verbs.AccessLocalWrite)
	copy(out.Bytes(), append(header, "raw"...))
	must(qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 2048)}}))
	must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{out.SGE(0, 60)}}))
	frame := in.Bytes()[:e.waits(2).ByteLen]
	if !bytes.HasPrefix(frame, header) {
		log.Fatalf("received %x", frame)
	}
	fmt.Printf("received a frame of type %#x: %q\n", etherType, bytes.TrimRight(frame[len(header):], "\x00"))
}
