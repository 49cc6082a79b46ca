package verbs_test

import (
	"bytes"
	"context"
	"fmt"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

// A local is an opened device, with the first objects of each example.
type local struct {
	dev *verbs.Device
	gid verbs.GIDEntry
	pd  *verbs.PD
	cq  *verbs.CQ // of all QPs
}

func open(device string) *local {
	dev := must(verbs.Open(device))
	return &local{dev: dev, gid: must(dev.FindGID(verbs.GIDSelector{Port: 1})), pd: must(dev.AllocPD()),
		cq: must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 16}))}
}

// one makes room for one request of each kind.
var one = verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}

// connected creates two RC queue pairs that are connected to each other.
func (l *local) connected(srq *verbs.SRQ, access verbs.AccessFlags) (a, b *verbs.QP) {
	o := verbs.QPOptions{Type: verbs.RC, SendCQ: l.cq, RecvCQ: l.cq, SRQ: srq, Cap: one}
	a, b = must(l.pd.CreateQP(o)), must(l.pd.CreateQP(o))
	atA, atB := must(a.Endpoint(l.gid)), must(b.Endpoint(l.gid))
	check(a.Connect(atB, verbs.ConnectOptions{Access: access}))
	check(b.Connect(atA, verbs.ConnectOptions{Access: access}))
	return a, b
}

// alloc allocates registered memory.
func (l *local) alloc(n int, access verbs.AccessFlags) *verbs.MR {
	return must(l.pd.AllocMR(n, verbs.MROptions{Access: access}))
}

// wait waits for a completion, which must be a success.
func (l *local) wait() verbs.WC {
	var wc [1]verbs.WC
	must(l.cq.PollWait(context.Background(), wc[:]))
	check(wc[0].Err())
	return wc[0]
}

// Two queue pairs are connected without a guarantee that messages arrive (UC).
func ExampleQP_Connect() {
	l := open("")
	defer l.dev.Close()
	o := verbs.QPOptions{Type: verbs.UC, SendCQ: l.cq, RecvCQ: l.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
	a, b := must(l.pd.CreateQP(o)), must(l.pd.CreateQP(o))
	// The peers of a real connection send each other their endpoints, for example as JSON.
	atA, atB := must(a.Endpoint(l.gid)), must(b.Endpoint(l.gid))
	check(a.Connect(atB, verbs.ConnectOptions{}))
	check(b.Connect(atA, verbs.ConnectOptions{}))

	in := l.alloc(64, verbs.AccessLocalWrite)
	must(b.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 64)}}))
	out := l.alloc(64, 0)
	n := copy(out.Bytes(), "over UC")
	must(a.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{out.SGE(0, n)}}))
	fmt.Printf("%q\n", in.Bytes()[:l.wait().ByteLen])
}

// A datagram (UD), and a reply to its sender.
func ExamplePD_CreateAHFromWC() {
	l := open("")
	defer l.dev.Close()
	const key = 0x11111111 // the Q_Key of both
	o := verbs.QPOptions{Type: verbs.UD, SendCQ: l.cq, RecvCQ: l.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
	client, server := must(l.pd.CreateQP(o)), must(l.pd.CreateQP(o))
	check(client.Activate(verbs.ActivateOptions{Port: 1, QKey: key}))
	check(server.Activate(verbs.ActivateOptions{Port: 1, QKey: key}))

	// The GRH comes before the data.
	in := l.alloc(verbs.GRHLen+64, verbs.AccessLocalWrite)
	out := l.alloc(64, 0)
	recv := verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, in.Len())}}
	must(server.PostRecv(recv))
	must(client.Endpoint(l.gid)) // where PathTo begins
	to := must(server.Endpoint(l.gid))
	ah := must(l.pd.CreateAH(must(client.PathTo(to))))
	n := copy(out.Bytes(), "question")
	must(client.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{out.SGE(0, n)},
		AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey}))
	question := l.wait()
	fmt.Printf("%q\n", in.Bytes()[verbs.GRHLen:question.ByteLen])

	back := must(l.pd.CreateAHFromWC(&question, in.Bytes(), 1))
	must(client.PostRecv(recv))
	n = copy(out.Bytes(), "answer")
	must(server.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{out.SGE(0, n)},
		AH: back, RemoteQPN: question.SrcQP, RemoteQKey: key}))
	fmt.Printf("%q\n", in.Bytes()[verbs.GRHLen:l.wait().ByteLen])
}

// Two connections receive from one queue.
func ExampleSRQ() {
	l := open("")
	defer l.dev.Close()
	srq := must(l.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 2, MaxSGE: 1}))
	in := l.alloc(2*64, verbs.AccessLocalWrite)
	for i := range 2 {
		must(srq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{in.SGE(64*i, 64)}}))
	}
	for i := range 2 {
		sender, receiver := l.connected(srq, 0)
		must(sender.PostSend(verbs.SendWR{Opcode: verbs.OpSendImm, Imm: uint32(i)}))
		wc := l.wait()
		imm, _ := wc.Imm()
		fmt.Println("receive", wc.WRID, "took message", imm, "of its QP:", wc.QPNum == receiver.Num())
	}
}

// Messages to two receive queues over one connection (XRC).
func ExampleXRCD() {
	l := open("")
	defer l.dev.Close()
	domain := must(l.dev.OpenXRCD())
	receiver := must(domain.CreateQP(verbs.QPOptions{}))
	sender := must(l.pd.CreateQP(verbs.QPOptions{Type: verbs.XRCSend, SendCQ: l.cq, Cap: verbs.QPCap{MaxSendWR: 1}}))
	there, here := must(receiver.Endpoint(l.gid)), must(sender.Endpoint(l.gid))
	check(sender.Connect(there, verbs.ConnectOptions{}))
	check(receiver.Connect(here, verbs.ConnectOptions{}))

	out, in := l.alloc(64, 0), l.alloc(64, verbs.AccessLocalWrite)
	for i := range 2 {
		srq := must(l.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 1, MaxSGE: 1, XRCD: domain, CQ: l.cq}))
		must(srq.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 64)}}))
		n := copy(out.Bytes(), fmt.Sprint("for SRQ ", i))
		must(sender.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{out.SGE(0, n)}, RemoteSRQN: srq.Num()}))
		l.wait() // for one of the two completions
		l.wait()
		fmt.Printf("%q\n", in.Bytes()[:n])
	}
}

// Messages to two targets without connections (DC of mlx5).
func Example_dynamicallyConnected() {
	l := open("")
	defer l.dev.Close()
	const key = 0xdc
	srq := must(l.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 1, MaxSGE: 1}))
	initiator := must(l.pd.CreateQP(verbs.QPOptions{Type: verbs.DCI, SendCQ: l.cq, RecvCQ: l.cq, Cap: verbs.QPCap{MaxSendWR: 1}}))
	check(initiator.Activate(verbs.ActivateOptions{Port: 1}))
	must(initiator.Endpoint(l.gid)) // where PathTo begins

	out, in := l.alloc(64, 0), l.alloc(64, verbs.AccessLocalWrite)
	for i := range 2 {
		target := must(l.pd.CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: l.cq, RecvCQ: l.cq, SRQ: srq, DCKey: key}))
		check(target.Activate(verbs.ActivateOptions{Port: 1, GID: l.gid}))
		ah := must(l.pd.CreateAH(must(initiator.PathTo(must(target.Endpoint(l.gid))))))
		must(srq.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 64)}}))
		n := copy(out.Bytes(), fmt.Sprint("for target ", i))
		must(initiator.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{out.SGE(0, n)}, AH: ah, RemoteQPN: target.Num(), DCKey: key}))
		l.wait() // for one of the two completions
		l.wait()
		fmt.Printf("%q\n", in.Bytes()[:n])
	}
}

// An Ethernet frame from one port to another in the same network. It needs CAP_NET_RAW.
func Example_rawEthernet() {
	here, there := open("mlx5_0"), open("mlx5_1")
	defer here.dev.Close()
	defer there.dev.Close()
	src := must(net.InterfaceByName(here.gid.NetDev)).HardwareAddr
	dst := must(net.InterfaceByName(there.gid.NetDev)).HardwareAddr
	raw := func(l *local) *verbs.QP {
		qp := must(l.pd.CreateQP(verbs.QPOptions{Type: verbs.RawPacket, SendCQ: l.cq, RecvCQ: l.cq,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))
		check(qp.Activate(verbs.ActivateOptions{Port: 1}))
		return qp
	}
	sender, receiver := raw(here), raw(there)

	// A flow selects the frames that the receiver gets: frames to its address, of a type for
	// experiments.
	const etherType = 0x88b5
	var spec verbs.FlowEth
	copy(spec.Val.DstMAC[:], dst)
	spec.Mask.DstMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	spec.Val.EtherType, spec.Mask.EtherType = etherType, 0xffff
	must(receiver.CreateFlow(verbs.FlowOptions{Specs: []verbs.FlowSpec{spec}}))
	in := there.alloc(2048, verbs.AccessLocalWrite)
	must(receiver.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{in.SGE(0, 2048)}}))

	out := here.alloc(60, 0) // the shortest frame
	header := append(append(bytes.Clone(dst), src...), etherType>>8, etherType&0xff)
	copy(out.Bytes(), append(header, "raw"...))
	must(sender.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{out.SGE(0, 60)}}))
	frame := in.Bytes()[:there.wait().ByteLen]
	fmt.Printf("%q\n", bytes.TrimRight(frame[len(header):], "\x00"))
}
