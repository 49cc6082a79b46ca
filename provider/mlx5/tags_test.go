package mlx5

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5/wqe"
	"github.com/goverbs/goverbs/uapi"
)

// A tagRig is an SRQ with two tags, and its CQ.
type tagRig struct {
	*srq
	cq   *cq
	q    *qp
	uidx uint32 // by which CQEs name the SRQ
	n    uint32 // CQEs so far
}

func newTagRig(t *testing.T, version uint8) *tagRig {
	t.Helper()
	r := newRig(t, version)
	s := &tagRig{cq: r.newCQ(t, provider.CQInit{CQE: 15})}
	s.srq = r.newSRQ(t, provider.SRQInit{MaxWR: 3, MaxSGE: 1, MaxTags: 2})
	s.q = r.newQP(t, 0x123, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, SRQ: s.srq, Cap: uapi.IbUverbsQpCap{MaxSendWr: 4, MaxSendSge: 1}})
	s.Operate(s.q)
	if s.uidx = s.number; version != 0 {
		s.uidx = s.resource.number
	}
	return s
}

// poll polls a CQE about tags.
func (s *tagRig) poll(op wqe.CQEOpcode, event wqe.TagEvent, index byte) (provider.WC, error) {
	s.cq.write(s.n, cqe{op: op, uidx: s.uidx, qpn: 0x123, counter: uint32(index), bytes: 9})
	e := s.cq.entry(s.n)
	e[0], e[40], e[41], e[43] = 0x80, 1, byte(event), index
	s.n++
	var wc [2]provider.WC
	n, err := s.cq.Poll(wc[:])
	if n == 0 && err == nil {
		err = errNothing
	}
	return wc[0], err
}

var errNothing = errors.New("no completion")

// TestTagCQEs: a CQE that doesn't match a posted operation is an error, and changes nothing.
func TestTagCQEs(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		s := newTagRig(t, version)
		refused := func(why string, op wqe.CQEOpcode, event wqe.TagEvent, index byte) {
			t.Helper()
			var e *provider.CQEError
			if wc, err := s.poll(op, event, index); !errors.As(err, &e) || !strings.Contains(err.Error(), why) {
				t.Errorf("%+v, %v; want an error about %q", wc, err, why)
			}
		}
		refused("request", wqe.CQENoPacket, wqe.TagAppended, 0)
		refused("request", wqe.CQENoPacket, wqe.TagConsumed, 0)
		refused("request", wqe.CQEResponderSend, wqe.TagConsumedMessage, 1)
		refused("request", wqe.CQEResponderSend, wqe.TagConsumedMessage, 200)
		refused("request", wqe.CQEResponderSend, wqe.TagUnexpected, 200)
		refused("kind", wqe.CQEResponderSend, 0x55, 0)

		ops := []provider.TagOp{
			{WRID: 1, Op: provider.TagAdd, RecvWRID: 10}, {WRID: 2, Op: provider.TagAdd, RecvWRID: 11, Flags: provider.TagSignaled},
			{WRID: 3, Op: provider.TagAdd},
		}
		if n, err := s.PostTagOps(ops); n != 2 || !errors.Is(err, provider.ErrTagsFull) || ops[0].Handle != 0 || ops[1].Handle != 1 {
			t.Fatal(n, err, ops)
		}
		if wc, err := s.poll(wqe.CQENoPacket, wqe.TagAppended, 1); err != nil || wc.WRID != 2 || wc.Opcode != provider.WCTagAdd || wc.Flags != 0 {
			t.Errorf("%+v, %v", wc, err)
		}
		refused("request", wqe.CQENoPacket, wqe.TagAppended, 1)
		if wc, err := s.poll(wqe.CQEResponderSend, wqe.TagConsumedMessage, 0); err != nil || wc.WRID != 10 || wc.ByteLen != 9 {
			t.Errorf("%+v, %v", wc, err)
		}
		refused("request", wqe.CQEResponderSend, wqe.TagConsumedMessage, 0) // once
		// An unsignaled deletion.
		if n, err := s.PostTagOps([]provider.TagOp{{Op: provider.TagDelete, Handle: 1}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if wc, err := s.poll(wqe.CQENoPacket, wqe.TagRemoved, 1); err != errNothing {
			t.Errorf("%+v, %v", wc, err)
		}
		for _, handle := range []uint32{0, 1, 2, 3} {
			if n, err := s.PostTagOps([]provider.TagOp{{Op: provider.TagDelete, Handle: handle}}); n != 0 || !errors.Is(err, provider.ErrNoTag) {
				t.Errorf("tag %d: %d, %v", handle, n, err)
			}
		}
		if n, err := s.PostTagOps([]provider.TagOp{{Op: provider.TagAdd}, {Op: provider.TagAdd}}); n != 2 || err != nil {
			t.Error(n, err)
		}
		if n, err := s.PostTagOps([]provider.TagOp{{Op: 9}}); n != 0 || !errors.Is(err, provider.ErrOpcode) {
			t.Error(n, err)
		}
	}
}

// TestTagSyncNeeded: completions ask for a sync when the device has counted more unexpected
// messages than the program.
func TestTagSyncNeeded(t *testing.T) {
	s := newTagRig(t, 1)
	wc := provider.WC{}
	for i := range maxUnhandled + 1 {
		at := s.head
		if n, err := s.srq.PostRecv([]provider.RecvWR{{WRID: 5}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		var err error
		if wc, err = s.poll(wqe.CQEResponderSend, wqe.TagUnexpected, byte(at)); err != nil || wc.WRID != 5 || wc.Opcode != provider.WCTagRecv || (wc.Flags != 0) != (i == maxUnhandled) {
			t.Fatalf("message %d: %+v, %v", i, wc, err)
		}
	}
	if wc.Flags != provider.WCTagSyncNeeded {
		t.Errorf("%+v", wc)
	}
}
