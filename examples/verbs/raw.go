package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

// raw sends an Ethernet frame to another device on the same network, which is named on the
// command line. There, a flow steers it to the QP. It prints
//
//	received a frame of type 0x88b5: "raw"
func raw(e *env) {
	const etherType = 0x88b5 // for experiments
	peer := newEnv(flag.Arg(1))
	src := must(net.InterfaceByName(e.gid.NetDev)).HardwareAddr
	dst := must(net.InterfaceByName(peer.gid.NetDev)).HardwareAddr
	sender, receiver := e.rawQP(), peer.rawQP()

	var spec verbs.FlowEth
	copy(spec.Val.DstMAC[:], dst)
	spec.Mask.DstMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	spec.Val.EtherType, spec.Mask.EtherType = etherType, 0xffff
	must(receiver.CreateFlow(verbs.FlowOptions{Port: peer.gid.Port, Specs: []verbs.FlowSpec{spec}}))

	in := peer.alloc(2048, verbs.AccessLocalWrite)
	must(receiver.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 2048)}}))
	out := e.alloc(60, 0) // the shortest frame
	header := append(append(bytes.Clone(dst), src...), etherType>>8, etherType&0xff)
	copy(out.Bytes(), append(header, "raw"...))
	check(e.send(sender, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{out.SGE(0, 60)}}))

	frame := in.Bytes()[:peer.waits(1).ByteLen]
	if !bytes.HasPrefix(frame, header) {
		log.Fatalf("received %x", frame)
	}
	fmt.Printf("received a frame of type %#x: %q\n", etherType, bytes.TrimRight(frame[len(header):], "\x00"))
	check(peer.dev.Close())
}

// rawQP creates a QP for frames.
func (e *env) rawQP() *verbs.QP {
	qp := must(e.pd.CreateQP(verbs.QPOptions{Type: verbs.RawPacket, SendCQ: e.cq, RecvCQ: e.cq, Cap: small}))
	check(qp.Activate(verbs.ActivateOptions{Port: e.gid.Port}))
	return qp
}
