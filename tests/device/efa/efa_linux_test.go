// Package efa tests provider/efa and efadv on the software EFA, with the kernel's driver.
package efa

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnEFA) }

// A side is a device with a queue pair.
type side struct {
	*verbs.Device
	attr efadv.DeviceAttr
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	buf  []byte
	end  verbs.Endpoint
	ah   *verbs.AH // to the other side
}

const (
	qkey  = 0x1ee7
	depth = 32
)

func open(t *testing.T, name string, typ verbs.QPType) *side {
	t.Helper()
	for _, info := range rdmatest.Must(verbs.Devices())(t) {
		if info.Name() != name {
			continue
		}
		s := &side{Device: rdmatest.Must(info.Open())(t)}
		t.Cleanup(func() { rdmatest.Check(t, s.Close()) })
		s.attr = rdmatest.Must(efadv.QueryDevice(s.Device))(t)
		s.pd = rdmatest.Must(s.AllocPD())(t)
		access := verbs.AccessLocalWrite | verbs.AccessRemoteRead
		if s.attr.Caps&efadv.CapRDMAWrite != 0 { // else the driver refuses it
			access |= verbs.AccessRemoteWrite
		}
		s.mr = rdmatest.Must(s.pd.AllocMR(1<<18, verbs.MROptions{Access: access}))(t)
		s.buf = s.mr.Bytes()
		s.cq = rdmatest.Must(s.CreateCQ(verbs.CQOptions{MaxCQE: 2 * depth}))(t)
		s.qp = rdmatest.Must(s.pd.CreateQP(verbs.QPOptions{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, SignalAll: true,
			Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 32}}))(t)
		rdmatest.Check(t, s.qp.Activate(verbs.ActivateOptions{Port: 1, QKey: qkey}))
		s.end = rdmatest.Must(s.qp.Endpoint(rdmatest.Must(s.GIDTable())(t)[0]))(t)
		return s
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// pair returns two sides with address handles to each other.
func pair(t *testing.T, typ verbs.QPType) (a, b *side) {
	t.Helper()
	a, b = open(t, "efa_0", typ), open(t, "efa_1", typ)
	a.ah = rdmatest.Must(a.pd.CreateAH(rdmatest.Must(a.qp.PathTo(b.end))(t)))(t)
	b.ah = rdmatest.Must(b.pd.CreateAH(rdmatest.Must(b.qp.PathTo(a.end))(t)))(t)
	return a, b
}

func (s *side) sge(at, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mr.Addr() + uint64(at), Length: uint32(n), LKey: s.mr.LKey()}
}

func (s *side) send(to *side, wr verbs.SendWR) error {
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ah, to.end.QPN, qkey
	_, err := s.qp.PostSend(wr)
	return err
}

// wait waits for a completion's event, and returns the completion.
func (s *side) wait(t *testing.T) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	if n, err := s.cq.PollWait(context.Background(), wc[:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return wc[0]
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
}

// Each message arrives once, whole, and from whom it is. SRD brings them in any order.
func TestDatagrams(t *testing.T) {
	const messages, length = 500, 700
	for _, typ := range []verbs.QPType{verbs.SRD, verbs.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			a, b := pair(t, typ)
			back := rdmatest.Must(efadv.AHNumber(b.ah))(t)
			head := 0 // of a receive
			if typ == verbs.UD {
				head = verbs.GRHLen
			}
			arrived := make(map[uint32]int)
			posted, sent, sends, recvs := 0, 0, 0, 0
			var free []int // rooms of a's buffer
			for i := range depth {
				free = append(free, i)
			}
			post := func(room int) {
				_, err := b.qp.PostRecv(verbs.RecvWR{WRID: uint64(room), SGL: []verbs.SGE{b.sge(room*1024, 100), b.sge(room*1024+100, 900)}})
				rdmatest.Check(t, err)
				posted++
			}
			for room := range depth {
				post(room)
			}
			for recvs < messages || sends < messages {
				for sent < messages && sent < recvs+depth && len(free) > 0 {
					room := free[0]
					free = free[1:]
					fill(a.buf[room*1024:][:length], byte(sent))
					rdmatest.Check(t, a.send(b, verbs.SendWR{WRID: uint64(room), Opcode: verbs.OpSendImm, Imm: uint32(sent),
						SGL: []verbs.SGE{a.sge(room*1024, 10), a.sge(room*1024+10, length-10)}}))
					sent++
				}
				var wc [16]verbs.WC
				n := rdmatest.Must(a.cq.Poll(wc[:]))(t)
				for i := range wc[:n] {
					rdmatest.Check(t, wc[i].Err())
					free = append(free, int(wc[i].WRID))
					sends++
				}
				n = rdmatest.Must(b.cq.Poll(wc[:]))(t)
				for i := range wc[:n] {
					rdmatest.Check(t, wc[i].Err())
					imm, ok := wc[i].Imm()
					want := make([]byte, length)
					fill(want, byte(imm))
					got := b.buf[wc[i].WRID*1024+uint64(head):][:length]
					if !ok || int(wc[i].ByteLen) != head+length || !bytes.Equal(got, want) || wc[i].SLID != back || wc[i].SrcQP != a.end.QPN {
						t.Fatalf("message %d: %+v", imm, wc[i])
					}
					arrived[imm]++
					recvs++
					post(int(wc[i].WRID))
				}
			}
			if len(arrived) != messages {
				t.Errorf("%d different messages", len(arrived))
			}
		})
	}
}

// RDMA reads and writes bring data, or are refused where the device has none.
func TestReadAndWrite(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	const length, theirs, ours = 40_000, 1 << 17, 1 << 16
	remote := verbs.Remote{Addr: b.mr.Addr() + theirs, RKey: b.mr.RKey()}
	for op, need := range map[verbs.Opcode]efadv.Caps{
		verbs.OpRDMARead: efadv.CapRDMARead, verbs.OpRDMAWrite: efadv.CapRDMAWrite, verbs.OpRDMAWriteImm: efadv.CapRDMAWrite,
	} {
		fill(a.buf[ours:ours+length], 1)
		fill(b.buf[theirs:theirs+length], byte(op)+2)
		if op == verbs.OpRDMAWriteImm {
			_, err := b.qp.PostRecv(verbs.RecvWR{WRID: 5, SGL: []verbs.SGE{b.sge(0, 64)}})
			rdmatest.Check(t, err)
		}
		err := a.send(b, verbs.SendWR{WRID: 7, Opcode: op, Imm: 77, SGL: []verbs.SGE{a.sge(ours, length)}, Remote: remote})
		if a.attr.Caps&need == 0 {
			if !errors.Is(err, verbs.ErrNotSupported) {
				t.Errorf("%v on a device with %v: %v", op, a.attr.Caps, err)
			}
			continue
		}
		rdmatest.Check(t, err)
		wc := a.wait(t)
		if wc.Err() != nil || wc.WRID != 7 || !bytes.Equal(a.buf[ours:ours+length], b.buf[theirs:theirs+length]) {
			t.Errorf("%v: %+v", op, wc)
		}
		if op == verbs.OpRDMARead && (wc.Opcode != verbs.WCRDMARead || wc.ByteLen != length) {
			t.Errorf("%v: %+v", op, wc)
		}
		if op == verbs.OpRDMAWriteImm {
			if wc := b.wait(t); wc.Opcode != verbs.WCRecvRDMAWithImm || wc.ByteLen != length || wc.WRID != 5 {
				t.Errorf("the receive: %+v", wc)
			}
		}
	}
	if a.attr.Caps&efadv.CapRDMARead != 0 {
		remote.RKey++
		rdmatest.Check(t, a.send(b, verbs.SendWR{WRID: 8, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{a.sge(0, 100)}, Remote: remote}))
		if wc := a.wait(t); wc.Status != verbs.WCRemAccessErr {
			t.Errorf("a wrong key: %+v", wc)
		}
	}
}

// What the device refuses fails with the reason, and what it lacks is refused in words.
func TestRefusedByEFA(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	rdmatest.Check(t, a.send(b, verbs.SendWR{WRID: 8, Opcode: verbs.OpSend, SGL: []verbs.SGE{{Addr: a.mr.Addr(), Length: 4, LKey: a.mr.LKey() + 1}}}))
	if wc := a.wait(t); wc.Status != verbs.WCLocProtErr {
		t.Errorf("a wrong key: %+v", wc)
	}
	if err := a.send(b, verbs.SendWR{Opcode: verbs.OpFetchAdd, SGL: []verbs.SGE{a.sge(0, 8)}}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an atomic operation: %v", err)
	}
	if _, err := a.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: a.cq, RecvCQ: a.cq, Cap: verbs.QPCap{MaxSendWR: 1}}); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("RC: %v", err)
	}
	for _, to := range []verbs.QPState{verbs.QPErr, verbs.QPReset} {
		rdmatest.Check(t, a.qp.Modify(verbs.QPAttr{State: to}, verbs.QPAttrState))
		if attr, _, err := a.qp.Query(); err != nil || attr.State != to {
			t.Errorf("%v: %v, %v", to, attr.State, err)
		}
	}
	rdmatest.Check(t, a.qp.Activate(verbs.ActivateOptions{Port: 1, QKey: qkey}))
	_, err := b.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{b.sge(0, 64)}})
	rdmatest.Check(t, err)
	rdmatest.Check(t, a.send(b, verbs.SendWR{WRID: 9, Opcode: verbs.OpSend, Inline: []byte("again")}))
	if wc := a.wait(t); wc.Err() != nil || wc.WRID != 9 {
		t.Errorf("after RESET: %+v", wc)
	}
	if wc := b.wait(t); wc.Err() != nil || string(b.buf[:wc.ByteLen]) != "again" {
		t.Errorf("after RESET: %+v, %q", wc, b.buf[:5])
	}
}
