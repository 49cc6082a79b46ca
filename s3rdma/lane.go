package s3rdma

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// depth is the number of chunks of a lane: requests that are in flight while the handler reads or writes another
// chunk.
const depth = 4

// A lane is a DC initiator with the memory that its requests use. It serves one transfer at a time.
type lane struct {
	s     *Server
	index int
	qp    *verbs.QP
	mr    *verbs.MR

	done   chan verbs.WC // completions, in the order of the requests
	posted int           // requests without a completion
	failed bool          // a request has failed, or may be left in flight

	to  port // the client's, to which ah leads
	ah  *verbs.AH
	sgl [1]verbs.SGE
}

// A port is the address of a client's port.
type port struct {
	lid uint16
	gid verbs.GID
}

func (t *Token) port() port { return port{t.LID, t.GID} }

// newLane makes a lane.
func (s *Server) newLane(index int) (l *lane, err error) {
	l = &lane{s: s, index: index, done: make(chan verbs.WC, depth)}
	if l.mr, err = s.pd.AllocMR(depth*s.o.ChunkBytes, verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
		return nil, err
	}
	if err := l.connect(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// connect makes the lane's QP, or makes it usable again.
func (l *lane) connect() error {
	l.s.stats.lanes.Add(1)
	return l.s.connect(l)
}

// initiate makes the lane a DC initiator.
func initiate(l *lane) (err error) {
	if l.qp == nil {
		o := verbs.QPOptions{Type: verbs.DCI, SendCQ: l.s.cq, RecvCQ: l.s.cq, Cap: verbs.QPCap{MaxSendWR: depth}}
		if l.qp, err = l.s.pd.CreateQP(o); err != nil {
			return err
		}
	} else if err := l.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState); err != nil {
		return err
	}
	if err := l.qp.Activate(verbs.ActivateOptions{Port: l.s.gid.Port}); err != nil {
		return err
	}
	_, err = l.qp.Endpoint(l.s.gid) // PathTo begins there
	return err
}

func (l *lane) close() error { return errors.Join(l.qp.Close(), l.ah.Close(), l.mr.Close()) }

// aim leads the lane's requests to a port.
func (l *lane) aim(to port) error {
	if l.ah != nil && l.to == to || l.qp.Type() != verbs.DCI {
		return nil
	}
	path, err := l.qp.PathTo(verbs.Endpoint{LID: to.lid, GID: to.gid})
	if err != nil {
		return err
	}
	if err := l.ah.Close(); err != nil {
		return err
	}
	if l.ah, err = l.s.pd.CreateAH(path); err != nil {
		return err
	}
	l.to = to
	return nil
}

// post reads n bytes at off of the token's memory into the MR at a place, or writes them from there.
func (l *lane) post(op verbs.Opcode, mr *verbs.MR, at, n int, t *Token, off int) error {
	if n < 1 || off < 0 || off > int(t.Size)-n { // nobody asks for this
		return fmt.Errorf("s3rdma: %d bytes at %d are not within the token's %d", n, off, t.Size)
	}
	l.sgl[0] = mr.SGE(at, n)
	_, err := l.qp.PostSend(verbs.SendWR{
		WRID: uint64(l.index), Opcode: op, Flags: verbs.SendSignaled, SGL: l.sgl[:], Remote: verbs.Remote{Addr: t.Addr, RKey: t.RKey}.At(uint64(off)),
		AH: l.ah, RemoteQPN: t.DCTN, DCKey: l.s.o.DCKey,
	})
	if err != nil {
		l.failed = true
		return err
	}
	l.posted++
	return nil
}

// wait waits until the oldest request is done.
func (l *lane) wait(ctx context.Context) error {
	select {
	case wc := <-l.done:
		l.posted--
		if err := wc.Err(); err != nil {
			l.failed = true
			return err
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.s.dead:
		return l.s.deadErr
	}
}

// rest ends what is in flight. Then no device uses the lane's memory, and the lane is good for another transfer.
func (l *lane) rest() error {
	if l.posted == 0 && !l.failed {
		return nil
	}
	if err := l.qp.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState); err != nil {
		return err
	}
	for ; l.posted > 0; l.posted-- {
		select {
		case <-l.done:
		case <-l.s.dead:
			return l.s.deadErr
		}
	}
	l.failed = false
	return l.connect()
}
