// Package efa tests provider/efa and efadv on the software EFA, with the kernel's driver.
package efa

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnEFA) }

// long returns the number of repetitions: full with GOVERBS_LONG, else short.
func long(short, full int) int {
	if os.Getenv("GOVERBS_LONG") != "" {
		return full
	}
	return short
}

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
		if s.attr.Caps&efadv.CapRDMAWrite != 0 { // without it, the driver refuses the flag
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
	a.to(t, b)
	b.to(t, a)
	return a, b
}

// to makes a side send to another side.
func (s *side) to(t *testing.T, other *side) {
	t.Helper()
	if s.ah != nil {
		rdmatest.Check(t, s.ah.Close())
	}
	s.ah = rdmatest.Must(s.pd.CreateAH(rdmatest.Must(s.qp.PathTo(other.end))(t)))(t)
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

// Each message arrives once and whole, and names its sender. SRD delivers messages in any
// order.
func TestDatagrams(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.SRD, verbs.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			a, b := pair(t, typ)
			exchange(t, a, b, 500, depth, depth)
		})
	}
}

// exchange sends messages from a to b. Up to ahead messages are in flight, to up to recvs
// receives. It returns how often the send queue was full.
func exchange(t *testing.T, a, b *side, messages, recvs, ahead int) (refused int) {
	t.Helper()
	const length, place = 700, 1024
	back := rdmatest.Must(efadv.AHNumber(b.ah))(t)
	head := 0 // of a receive
	if b.qp.Type() == verbs.UD {
		head = verbs.GRHLen
	}
	arrived := make(map[uint32]bool)
	sent, sends := 0, 0
	var free []int // places in a's buffer
	for i := range len(a.buf) / place {
		free = append(free, i)
	}
	post := func(at int) {
		_, err := b.qp.PostRecv(verbs.RecvWR{WRID: uint64(at), SGL: []verbs.SGE{b.sge(at*place, 100), b.sge(at*place+100, 900)}})
		rdmatest.Check(t, err)
	}
	for at := range recvs {
		post(at)
	}
	want := make([]byte, length)
	for deadline := time.Now().Add(rdmatest.Patience); len(arrived) < messages || sends < messages; {
		if time.Now().After(deadline) {
			t.Fatalf("of %d messages, %d were sent, %d have completed and %d have arrived", messages, sent, sends, len(arrived))
		}
		for sent < messages && sent < len(arrived)+ahead && len(free) > 0 {
			at := free[0]
			fill(a.buf[at*place:][:length], byte(sent))
			err := a.send(b, verbs.SendWR{WRID: uint64(at), Opcode: verbs.OpSendImm, Imm: uint32(sent),
				SGL: []verbs.SGE{a.sge(at*place, 10), a.sge(at*place+10, length-10)}})
			if errors.Is(err, verbs.ErrQueueFull) {
				refused++
				break
			}
			rdmatest.Check(t, err)
			free = free[1:]
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
			fill(want, byte(imm))
			got := b.buf[wc[i].WRID*place+uint64(head):][:length]
			if !ok || int(wc[i].ByteLen) != head+length || !bytes.Equal(got, want) || wc[i].SLID != back || wc[i].SrcQP != a.end.QPN {
				t.Fatalf("message %d: %+v", imm, wc[i])
			}
			if arrived[imm] {
				t.Fatalf("message %d arrived twice", imm)
			}
			arrived[imm] = true
			if len(arrived)+recvs <= messages {
				post(int(wc[i].WRID))
			}
		}
	}
	return refused
}

// RDMA reads and writes transfer data, or are refused where the device lacks them.
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

// A request that the device refuses fails with the reason. The error of a missing feature
// names the feature.
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
