package cm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A rpinger is one side of a connection, with its memory. For each ping, the
// client sends the address of its data. The server reads the data and confirms.
// The client sends the address for the answer. The server writes the answer there
// and confirms. Only these notes are sent as messages.
type rpinger struct {
	*rpingOptions
	id *rdmacm.SyncID
	pd *verbs.PD
	cq *verbs.CQ
	qp *verbs.QP

	mr     *verbs.MR // the parts below, in this order
	recv   part      // a note from the peer
	send   part      // a note to the peer
	sink   part      // the peer's data: read by the server, written to the client
	source part      // the client's data

	closers []interface{ Close() error } // in the order of their creation
	parted  context.Context              // ends with ErrDisconnected when the peer disconnects
	stop    context.CancelFunc
	left    bool   // disconnect has succeeded
	heard   func() // called for each note of the peer
}

// A part is a range of a memory region.
type part struct{ off, len int }

func (p *rpinger) bytes(m part) []byte             { return p.mr.Bytes()[m.off:][:m.len] }
func (p *rpinger) sge(m part) []verbs.SGE          { return []verbs.SGE{p.mr.SGE(m.off, m.len)} }
func (p *rpinger) sgeOf(m part, n int) []verbs.SGE { return []verbs.SGE{p.mr.SGE(m.off, n)} }

// A note describes memory: address, key and length, in network byte order.
const noteLen = 16

func newRpinger(id *rdmacm.SyncID, o *rpingOptions) (*rpinger, error) {
	p := &rpinger{
		rpingOptions: o, id: id, heard: func() {},
		recv: part{0, noteLen}, send: part{64, noteLen},
		sink: part{4096, rpingMaxSize}, source: part{4096 + rpingMaxSize, rpingMaxSize},
	}
	if err := p.allocate(); err != nil {
		return nil, errors.Join(err, p.free())
	}
	return p, nil
}

func (p *rpinger) allocate() (err error) {
	dev := p.id.Device()
	if p.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	p.closers = append(p.closers, p.pd)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if p.mr, err = p.pd.AllocMR(p.source.off+p.source.len, verbs.MROptions{Access: access}); err != nil {
		return err
	}
	p.closers = append(p.closers, p.mr)
	const sends, recvs = 16, 2
	if p.cq, err = dev.CreateCQ(verbs.CQOptions{MaxCQE: sends + recvs}); err != nil {
		return err
	}
	p.closers = append(p.closers, p.cq)
	options := verbs.QPOptions{
		Type: verbs.RC, SendCQ: p.cq, RecvCQ: p.cq,
		Cap: verbs.QPCap{MaxSendWR: sends, MaxRecvWR: recvs, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	if p.ownQP {
		p.qp, err = p.pd.CreateQP(options)
	} else {
		p.qp, err = p.id.CreateQP(p.pd, options)
	}
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.qp)
	if p.ownQP {
		if err := p.moveQP(verbs.QPInit); err != nil {
			return err
		}
	}
	p.debugf("queue pair %#x created", p.qp.Num())
	return p.postRecv()
}

// moveQP moves a queue pair of -q through the states.
func (p *rpinger) moveQP(states ...verbs.QPState) error {
	for _, state := range states {
		a, mask, err := p.id.InitQPAttr(state)
		if err != nil {
			return err
		}
		if err := p.qp.Modify(a, mask); err != nil {
			return err
		}
	}
	return nil
}

// setQP changes only the state of a queue pair of -q. Over iWARP the kernel has already
// connected it.
func (p *rpinger) setQP(state verbs.QPState) error {
	return p.qp.Modify(verbs.QPAttr{State: state}, verbs.QPAttrState)
}

func (p *rpinger) iwarp() bool { return p.id.Device().Info().Transport() == verbs.TransportIWARP }

// param returns rping's connection parameters: one outstanding read.
func (p *rpinger) param() *rdmacm.ConnParam {
	return &rdmacm.ConnParam{
		ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7,
		QPNum: p.qp.Num(),
	}
}

// accept accepts the client.
func (p *rpinger) accept(ctx context.Context) error {
	var param *rdmacm.ConnParam
	if p.ownQP {
		param = p.param()
	}
	if p.ownQP && !p.iwarp() {
		if err := p.moveQP(verbs.QPInit, verbs.QPRTR, verbs.QPRTS); err != nil {
			return err
		}
	}
	if err := p.id.Accept(ctx, param); err != nil {
		return err
	}
	if p.ownQP && p.iwarp() {
		if err := p.setQP(verbs.QPRTS); err != nil {
			return err
		}
	}
	p.debugf("connection from %v accepted", p.id.RemoteAddr())
	p.watch(ctx)
	return nil
}

// connect connects to the server.
func (p *rpinger) connect(ctx context.Context) error {
	if _, err := p.id.Connect(ctx, p.param()); err != nil {
		return err
	}
	switch {
	case p.ownQP && p.iwarp():
		if err := p.setQP(verbs.QPRTS); err != nil {
			return err
		}
	case p.ownQP:
		if err := p.moveQP(verbs.QPInit, verbs.QPRTR, verbs.QPRTS); err != nil {
			return err
		}
		if err := p.id.Establish(); err != nil {
			return err
		}
	}
	p.debugf("connected from %v", p.id.LocalAddr())
	p.watch(ctx)
	return nil
}

// watch ends waits for completions once the peer has disconnected.
func (p *rpinger) watch(ctx context.Context) {
	parted, end := context.WithCancelCause(ctx)
	p.parted, p.stop = parted, func() { end(nil) }
	go func() {
		for {
			e, err := p.id.Event(parted)
			switch {
			case err != nil:
				return
			case e.Type == rdmacm.EventDisconnected:
				end(rdmacm.ErrDisconnected)
				return
			case e.Err() != nil:
				end(e.Err())
				return
			}
		}
	}()
}

// wait waits for a completion with the opcode. It skips completions of sends.
func (p *rpinger) wait(want verbs.WCOpcode) error {
	var wc [1]verbs.WC
	for {
		if _, err := p.cq.PollWait(p.parted, wc[:]); err != nil {
			if cause := context.Cause(p.parted); cause != nil {
				return cause
			}
			return err
		}
		if wc[0].Status == verbs.WCWRFlushErr {
			// Either the connection has ended, and over iWARP the event follows this completion. Or a message has broken
			// the connection, and there is no event until the peer leaves.
			select {
			case <-p.parted.Done():
				return context.Cause(p.parted)
			case <-time.After(p.parting):
				return wc[0].Err()
			}
		}
		if err := wc[0].Err(); err != nil {
			return err
		}
		switch wc[0].Opcode {
		case want:
			p.debugf("%v completed", want)
			return nil
		case verbs.WCSend:
		default:
			return fmt.Errorf("%v completed, not %v", wc[0].Opcode, want)
		}
	}
}

func (p *rpinger) post(wr verbs.SendWR) error {
	wr.Flags = verbs.SendSignaled
	_, err := p.qp.PostSend(wr)
	return err
}

func (p *rpinger) postRecv() error {
	_, err := p.qp.PostRecv(verbs.RecvWR{SGL: p.sge(p.recv)})
	return err
}

// sendNote sends the client's note about n bytes of m. A server's notes only
// confirm, so it sends the buffer as it is.
func (p *rpinger) sendNote(m part, n int) error {
	note := p.bytes(p.send)
	binary.BigEndian.PutUint64(note, p.mr.Addr()+uint64(m.off))
	binary.BigEndian.PutUint32(note[8:], p.mr.RKey())
	binary.BigEndian.PutUint32(note[12:], uint32(n))
	return p.post(verbs.SendWR{Opcode: verbs.OpSend, SGL: p.sge(p.send)})
}

// recvNote waits for a note. It posts the next receive before the peer can send
// another one.
func (p *rpinger) recvNote() (addr uint64, rkey uint32, n int, err error) {
	if err := p.wait(verbs.WCRecv); err != nil {
		return 0, 0, 0, err
	}
	p.heard()
	note := p.bytes(p.recv)
	addr, rkey, n = binary.BigEndian.Uint64(note), binary.BigEndian.Uint32(note[8:]), int(binary.BigEndian.Uint32(note[12:]))
	return addr, rkey, n, p.postRecv()
}

// pings is the client's part.
func (p *rpinger) pings() error {
	source, sink := part{p.source.off, p.size}, part{p.sink.off, p.size}
	for ping := 0; p.count == 0 || ping < p.count; ping++ {
		fillPing(p.bytes(source), ping)
		for _, m := range []part{source, sink} {
			if err := p.sendNote(m, m.len); err != nil {
				return err
			}
			if _, _, _, err := p.recvNote(); err != nil {
				return err
			}
		}
		if p.validate && !bytes.Equal(p.bytes(source), p.bytes(sink)) {
			return fmt.Errorf("ping %d: data mismatch", ping)
		}
		if p.verbose {
			cli.Printf("ping data: %s\n", stranger.Text(string(text(p.bytes(sink)))))
		}
	}
	return nil
}

// fillPing writes rping's text, which ends with a NUL.
func fillPing(b []byte, ping int) {
	const first, last = 'A', 'z'
	n := copy(b, fmt.Sprintf("rdma-ping-%d: ", ping))
	c := first + ping%(last-first+1)
	for i := n; i < len(b); i++ {
		b[i] = byte(c)
		if c++; c > last {
			c = first
		}
	}
	b[len(b)-1] = 0
}

// text returns the bytes before the NUL.
func text(b []byte) []byte {
	s, _, _ := bytes.Cut(b, []byte{0})
	return s
}

// pong is the server's part. It ends when the client disconnects.
func (p *rpinger) pong() error {
	for {
		addr, rkey, n, err := p.recvNote()
		if err != nil {
			return err
		}
		if n > p.sink.len {
			return fmt.Errorf("the client's data has %d bytes, more than the maximum of %d", n, p.sink.len)
		}
		if err := p.move(verbs.OpRDMARead, verbs.WCRDMARead, addr, rkey, n); err != nil {
			return err
		}
		data := p.bytes(p.sink)[:n]
		if p.verbose {
			cli.Printf("server ping data: %s\n", stranger.Text(string(text(data))))
		}
		if err := p.sendNote(p.sink, 0); err != nil {
			return err
		}
		addr, rkey, room, err := p.recvNote()
		if err != nil {
			return err
		}
		n = min(len(text(data))+1, n, room)
		if err := p.move(verbs.OpRDMAWrite, verbs.WCRDMAWrite, addr, rkey, n); err != nil {
			return err
		}
		if err := p.sendNote(p.sink, 0); err != nil {
			return err
		}
	}
}

// move reads from the client's memory, or writes to it, and waits for the
// completion.
func (p *rpinger) move(op verbs.Opcode, done verbs.WCOpcode, addr uint64, rkey uint32, n int) error {
	if err := p.post(verbs.SendWR{Opcode: op, SGL: p.sgeOf(p.sink, n), Remote: verbs.Remote{Addr: addr, RKey: rkey}}); err != nil {
		return err
	}
	return p.wait(done)
}

// disconnect ends the connection.
func (p *rpinger) disconnect(ctx context.Context) error {
	if p.ownQP {
		state := verbs.QPErr
		if p.iwarp() {
			state = verbs.QPSQD // requests in progress are sent first
		}
		if err := p.setQP(state); err != nil {
			return err
		}
	}
	if err := p.id.Disconnect(ctx); err != nil {
		return err
	}
	p.left = true
	return nil
}

// close ends the connection, if it still exists, and frees all objects.
func (p *rpinger) close() {
	if p.stop != nil {
		p.stop()
		if context.Cause(p.parted) == rdmacm.ErrDisconnected && !p.left {
			p.disconnect(context.Background()) // confirms the peer's disconnect
		}
	}
	p.free()
	p.id.Close()
}

// free closes all objects, in reverse order of their creation.
func (p *rpinger) free() error {
	for _, c := range slices.Backward(p.closers) {
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}
