package mlx5dv

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"runtime"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// TestQueryQP: commands may name the objects of verbs.
func TestQueryQP(t *testing.T) {
	c := open(t, rdmatest.Device)
	p := rdmatest.PairOn(t, c, rdmatest.Default())
	query, out := command(queryQP, 0, 16), make([]byte, 464)
	binary.BigEndian.PutUint32(query[8:], p.A.QP.Num())
	rdmatest.Check(t, mlx5dv.Query(p.A.QP, query, out))
	const ready = 3
	if state := out[24] >> 4; state != ready {
		t.Errorf("the QP is in state %d, not %d", state, ready)
	}
	if err := mlx5dv.Query(p.B.QP, query, out); err == nil {
		t.Error("a command for another QP was accepted")
	}
	query = command(queryCQ, 0, 16)
	memory := rdmatest.Must(mlx5dv.CQQueue(p.A.CQ))(t)
	binary.BigEndian.PutUint32(query[8:], memory.Number)
	rdmatest.Check(t, mlx5dv.Query(p.A.CQ, query, out[:272]))
	if n := uint32(1) << (be32(out[16:], 12) >> 24); n != memory.CQEs.Count {
		t.Errorf("the CQ has %d entries, its memory %d", n, memory.CQEs.Count)
	}
}

// TestQueues: the queues are at the returned addresses: the test sees a request in the send
// queue, and its completion in the CQ before verbs polls it.
func TestQueues(t *testing.T) {
	c := open(t, rdmatest.Device)
	p := rdmatest.PairOn(t, c, rdmatest.Default())
	qp, cq := rdmatest.Must(mlx5dv.QPQueues(p.A.QP))(t), rdmatest.Must(mlx5dv.CQQueue(p.A.CQ))(t)
	limits := p.A.QP.Cap()
	if int(qp.Sends.Count) < limits.MaxSendWR || qp.Sends.Size != 64 || int(qp.Recvs.Count) < limits.MaxRecvWR || int(qp.Recvs.Size) < 16*limits.MaxRecvSGE ||
		qp.Register == nil || cq.CQEs.Size != 64 || int(cq.CQEs.Count) <= 64 || cq.Register == nil || cq.Next != 0 {
		t.Errorf("%+v, %+v", qp, cq)
	}
	p.B.Recv(t, 5, 0, 64)
	p.A.Send(t, verbs.SendWR{WRID: 9, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 64)}})
	if n := bits.ReverseBytes32(word(qp.Record, 1)); n != 1 {
		t.Errorf("the record says that %d blocks were posted", n)
	}
	if control := bits.ReverseBytes32(word(qp.Sends.Addr, 1)); control>>8 != p.A.QP.Num() {
		t.Errorf("the send queue begins with a request of QP %#x, not %#x", control>>8, p.A.QP.Num())
	}
	rdmatest.PollOK(t, p.B.CQ, 1) // so the message was received, and completes soon
	wc := rdmatest.PollOK(t, p.A.CQ, 1)[0]
	cqe := unsafe.Add(cq.CQEs.Addr, 0)
	if op := byteAt(cqe, 63) >> 4; op != 0 || wc.WRID != 9 {
		t.Errorf("the first completion is of kind %d: %+v", op, wc)
	}
	if qpn := bits.ReverseBytes32(word(cqe, 14)) & 0xffffff; qpn != p.A.QP.Num() {
		t.Errorf("the first completion is of QP %#x, not %#x", qpn, p.A.QP.Num())
	}
	if next := rdmatest.Must(mlx5dv.CQQueue(p.A.CQ))(t).Next; next != 1 {
		t.Errorf("the next completion is %d", next)
	}
	srq := rdmatest.Must(p.PD.CreateSRQ(verbs.SRQOptions{MaxWR: 10, MaxSGE: 3}))(t)
	s := rdmatest.Must(mlx5dv.SRQQueue(srq))(t)
	rdmatest.Must(srq.PostRecv(verbs.RecvWR{}, verbs.RecvWR{}))(t)
	if n := bits.ReverseBytes32(word(s.Record, 0)); n != 2 || int(s.WQEs.Count) < 10 || s.WQEs.Size < 64 || s.Number == 0 {
		t.Errorf("%+v has %d receives", s, n)
	}
	rdmatest.Close(t, p.A.QP)
	if _, err := mlx5dv.QPQueues(p.A.QP); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a closed QP: %v", err)
	}
}

// TestSetLAGPort: the firmware stores the port where the adapter has several.
func TestSetLAGPort(t *testing.T) {
	const lagPorts = 632 // lag_tx_port_affinity
	c := open(t, rdmatest.Device)
	p := rdmatest.PairOn(t, c, rdmatest.Default())
	err := mlx5dv.SetLAGPort(p.A.QP, 2)
	var refused *mlx5dv.CommandError
	if capability(t, c, lagPorts, 1) == 0 {
		if !errors.As(err, &refused) {
			t.Errorf("the adapter has no ports to choose from: %v", err)
		}
	} else {
		rdmatest.Check(t, err)
		if port := rdmatest.Must(mlx5dv.LAGPort(p.A.QP))(t); port != 2 {
			t.Errorf("the port is %d", port)
		}
		if err := mlx5dv.SetLAGPort(p.A.QP, 9); !errors.As(err, &refused) {
			t.Errorf("port 9: %v", err)
		}
	}
	if err := mlx5dv.SetLAGPort(p.A.QP, 16); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("port 16: %v", err)
	}
	rdmatest.Check(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
	if err := mlx5dv.SetLAGPort(p.A.QP, 1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("in ERR: %v", err)
	}
}

// TestSetUDPSourcePort: the firmware stores the port over RoCE, and refuses it elsewhere. The
// QP continues.
func TestSetUDPSourcePort(t *testing.T) {
	c := open(t, rdmatest.Device)
	p := rdmatest.PairOn(t, c, rdmatest.Default())
	err := mlx5dv.SetUDPSourcePort(p.A.QP, 0xc0de)
	if rdmatest.RoCE {
		rdmatest.Check(t, err)
		query, out := command(queryQP, 0, 16), make([]byte, 464)
		binary.BigEndian.PutUint32(query[8:], p.A.QP.Num())
		rdmatest.Check(t, mlx5dv.Query(p.A.QP, query, out))
		if port := binary.BigEndian.Uint16(out[24+24+34:]); port != 0xc0de {
			t.Errorf("the port is %#x", port)
		}
	} else if refused := new(mlx5dv.CommandError); !errors.As(err, &refused) {
		t.Errorf("over InfiniBand: %v", err)
	}
	p.B.Recv(t, 5, 0, 64)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 64)}})
	rdmatest.PollOK(t, p.B.CQ, 1)
	ud := rdmatest.Must(p.PD.CreateQP(verbs.QPOptions{Type: verbs.UD, SendCQ: p.A.CQ, RecvCQ: p.A.CQ}))(t)
	if err := mlx5dv.SetUDPSourcePort(ud, 0xc0de); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("UD: %v", err)
	}
}

// TestDataOrder: DataOrder reports the firmware's promise, if there is one and the device was
// opened for DEVX.
func TestDataOrder(t *testing.T) {
	const dataInOrder = 0x62 // in mlx5_ifc_cmd_hca_cap_bits: qp_data_in_order
	c := open(t, rdmatest.Device)
	promised := verbs.DataUnordered
	if capability(t, c, dataInOrder, 1) != 0 && runtime.GOARCH == "amd64" {
		promised = verbs.DataInOrder
	}
	p := rdmatest.PairOn(t, c, rdmatest.Default())
	for _, op := range []verbs.Opcode{verbs.OpRDMARead, verbs.OpRDMAWrite, verbs.OpSend} {
		if order := rdmatest.Must(p.A.QP.DataOrder(op))(t); order != promised {
			t.Errorf("%v: %v, want %v", op, order, promised)
		}
	}
	rdmatest.Check(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
	if order := rdmatest.Must(p.A.QP.DataOrder(verbs.OpSend))(t); order != verbs.DataUnordered {
		t.Errorf("in ERR: %v", order)
	}
	srq := rdmatest.Must(p.PD.CreateSRQ(verbs.SRQOptions{MaxWR: 1, MaxSGE: 1}))(t)
	target := rdmatest.Must(p.PD.CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: p.A.CQ, RecvCQ: p.A.CQ, SRQ: srq}))(t)
	a := verbs.QPAttr{Port: rdmatest.Port, Access: verbs.AccessRemoteWrite, PathMTU: verbs.MTU1024, AH: p.Address, MinRNRTimer: 12}
	for _, a.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR} {
		rdmatest.Check(t, target.Modify(a, verbs.RequiredMask(verbs.DCT, a.State-1, a.State)))
	}
	if order := rdmatest.Must(target.DataOrder(verbs.OpRDMAWrite))(t); order != promised {
		t.Errorf("DCT: %v, want %v", order, promised)
	}
	plain := rdmatest.NewPair(t, rdmatest.Default())
	if order := rdmatest.Must(plain.A.QP.DataOrder(verbs.OpSend))(t); order != verbs.DataUnordered {
		t.Errorf("without DEVX: %v", order)
	}
}

// TestDCIStreams: a failed request stops only its stream, until the stream is reset. Too many
// streams in error stop the QP.
func TestDCIStreams(t *testing.T) {
	const streamChannels = 1419 // log_max_dci_stream_channels
	c := open(t, rdmatest.Device)
	pd := rdmatest.Must(c.AllocPD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	o := mlx5dv.QPOptions{
		QPOptions: verbs.QPOptions{Type: verbs.DCI, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}},
		Streams:   &mlx5dv.DCIStreams{LogConcurrent: 3, LogErrored: 1},
	}
	if capability(t, c, streamChannels, 5) == 0 {
		if _, err := mlx5dv.CreateQP(pd, o); !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("the adapter has no streams: %v", err)
		}
		return
	}
	dci := rdmatest.Must(mlx5dv.CreateQP(pd, o))(t)
	rdmatest.Check(t, dci.Activate(verbs.ActivateOptions{Port: rdmatest.Port}))
	const key = 0x1122334455667788
	srq := rdmatest.Must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 8, MaxSGE: 1}))(t)
	dct := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: cq, RecvCQ: cq, SRQ: srq, DCKey: key}))(t)
	a := verbs.QPAttr{Port: rdmatest.Port, Access: rdmatest.All, PathMTU: verbs.MTU1024, AH: rdmatest.Address(t, c), MinRNRTimer: 12}
	for _, a.State = range []verbs.QPState{verbs.QPInit, verbs.QPRTR} {
		rdmatest.Check(t, dct.Modify(a, verbs.RequiredMask(verbs.DCT, a.State-1, a.State)))
	}
	mr := rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{Access: rdmatest.All}))(t)
	readable := rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	ah := rdmatest.Must(pd.CreateAH(rdmatest.Address(t, c)))(t)
	var ids uint64
	write := func(stream uint16, to verbs.Remote, want verbs.WCStatus) {
		t.Helper()
		ids++
		rdmatest.Must(dci.PostSend(verbs.SendWR{
			WRID: ids, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(0, 8)}, Remote: to,
			AH: ah, RemoteQPN: dct.Num(), DCKey: key, DCStream: stream,
		}))(t)
		if wc := rdmatest.Poll(t, cq, 1)[0]; wc.WRID != ids || wc.Status != want {
			t.Errorf("stream %d: %+v, want %v", stream, wc, want)
		}
	}
	good, bad := mr.Remote().At(64), readable.Remote()
	write(1, good, verbs.WCSuccess)
	write(2, bad, verbs.WCRemAccessErr)
	write(2, good, verbs.WCWRFlushErr)
	write(1, good, verbs.WCSuccess)
	state := func(want verbs.QPState) {
		t.Helper()
		if attr, _, err := dci.Query(); err != nil || attr.State != want {
			t.Errorf("the QP is in %v, not in %v: %v", attr.State, want, err)
		}
	}
	state(verbs.QPRTS)
	if refused := new(mlx5dv.CommandError); !errors.As(mlx5dv.ResetDCIStream(dci, 1), &refused) {
		t.Error("a stream that has no error was reset")
	}
	rdmatest.Check(t, mlx5dv.ResetDCIStream(dci, 2))
	write(2, good, verbs.WCSuccess)
	write(3, bad, verbs.WCRemAccessErr)
	write(4, bad, verbs.WCRemAccessErr)
	write(1, good, verbs.WCWRFlushErr)
	state(verbs.QPErr)

	rc := rdmatest.PairOn(t, c, rdmatest.Default()).A.QP
	for name, err := range map[string]error{
		"streams of an RC QP":  second(mlx5dv.CreateQP(pd, mlx5dv.QPOptions{QPOptions: verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq}, Streams: o.Streams})),
		"2^32 streams":         second(mlx5dv.CreateQP(pd, mlx5dv.QPOptions{QPOptions: o.QPOptions, Streams: &mlx5dv.DCIStreams{LogConcurrent: 32}})),
		"a stream of an RC QP": mlx5dv.ResetDCIStream(rc, 1),
		"of a QP in ERR":       mlx5dv.ResetDCIStream(dci, 3),
	} {
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := mlx5dv.CreateQP(pd, mlx5dv.QPOptions{QPOptions: o.QPOptions, Streams: &mlx5dv.DCIStreams{LogConcurrent: 31}}); err == nil {
		t.Error("more streams than the adapter has were accepted")
	}
	plain := rdmatest.Must(mlx5dv.CreateQP(pd, mlx5dv.QPOptions{QPOptions: o.QPOptions}))(t)
	if plain.Type() != verbs.DCI {
		t.Errorf("without streams: %v", plain.Type())
	}
}

func second[T any](_ T, err error) error { return err }
