package pingpong

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

const qkey = 0x11111111

// Work request IDs. They are bits, so that a set of bits records the completions that a queue pair
// waits for.
const (
	recvID = 1 << iota
	sendID
)

// A player is one side. Each of its queue pairs has one message in flight. It
// sends the next one when that message has been sent and the other side's has
// arrived.
type player struct {
	*options
	pd      *verbs.PD
	mr      *verbs.MR
	channel *verbs.CompChannel // nil: poll
	cq      *verbs.CQ
	srq     *verbs.SRQ // nil: each queue pair has its own receives
	qps     []*verbs.QP
	local   []qpAddress // by queue pair, as are the slices below
	remote  []qpAddress
	waits   []uint64
	send    []verbs.SendWR
	recv    []verbs.RecvWR // as many as fit, all the same
	posted  int            // receives
	wcs     []verbs.WC
}

// newPlayer creates all objects, with queue pairs that can receive.
func newPlayer(ctx *verbs.Device, o *options) (*player, error) {
	p := &player{options: o}
	port, err := ctx.QueryPort(o.ibPort)
	if err != nil {
		return nil, err
	}
	if err := o.checkPort(port); err != nil {
		return nil, err
	}
	if err := p.makeMemory(ctx); err != nil {
		return nil, err
	}
	if err := p.makeQueues(ctx); err != nil {
		return nil, err
	}
	if err := p.refill(); err != nil {
		return nil, err
	}
	if p.channel != nil {
		if err := p.cq.Arm(false); err != nil {
			return nil, err
		}
	}
	return p, p.findAddress(ctx, port.LID)
}

func (o *options) checkPort(port *verbs.PortAttr) error {
	switch {
	case o.transport.qpType == verbs.UD && o.size > port.ActiveMTU.Bytes():
		return fmt.Errorf("a UD message of %d bytes is larger than the port's MTU, %d", o.size, port.ActiveMTU.Bytes())
	case uint64(o.size) > uint64(port.MaxMsgSize):
		return fmt.Errorf("a message of %d bytes is larger than the port takes, %d", o.size, port.MaxMsgSize)
	case port.LinkLayer == verbs.LinkLayerEthernet && o.gid < 0:
		return errors.New("over RoCE, addresses are GIDs: choose one with -g ('ibv info -v' lists them)")
	case port.LinkLayer == verbs.LinkLayerUnspecified && port.LID == 0 && o.gid < 0:
		return errors.New("the port has no LID: choose a GID with -g ('ibv info -v' lists them)")
	case port.LinkLayer == verbs.LinkLayerInfiniBand && port.LID == 0:
		return fmt.Errorf("port %d has no LID: it waits for a subnet manager", o.ibPort)
	}
	return nil
}

func (p *player) makeMemory(ctx *verbs.Device) (err error) {
	access := verbs.AccessLocalWrite
	if p.odp {
		if err := p.checkODP(ctx); err != nil {
			return err
		}
		access |= verbs.AccessOnDemand
	}
	if p.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	if p.mr, err = p.pd.AllocMR(p.transport.headroom+p.size, verbs.MROptions{Access: access}); err != nil {
		return err
	}
	fill := p.transport.fill
	if p.check && p.host == "" {
		// Only received data may pass the check.
		fill = ^fill
	}
	b := p.mr.Bytes()
	for i := range b {
		b[i] = fill
	}
	return nil
}

func (p *player) checkODP(ctx *verbs.Device) error {
	device, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	need := verbs.ODPSupportSend | verbs.ODPSupportRecv
	if p.transport.srq {
		need = verbs.ODPSupportSend | verbs.ODPSupportSRQRecv
	}
	if device.ODP.General&verbs.ODPSupport == 0 || device.ODP.RC&need != need {
		return fmt.Errorf("%s has no on-demand paging for RC sends and receives", ctx.Info().Name())
	}
	return nil
}

// message returns the buffer that messages are sent from and received into.
func (p *player) message() []byte { return p.mr.Bytes()[p.transport.headroom:] }

func (p *player) makeQueues(ctx *verbs.Device) (err error) {
	if p.events {
		if p.channel, err = ctx.CreateCompChannel(); err != nil {
			return err
		}
	}
	if p.cq, err = ctx.CreateCQ(verbs.CQOptions{MaxCQE: p.depth + p.nqps, Channel: p.channel, SingleOwner: true}); err != nil {
		return err
	}
	capacity := verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}
	if p.transport.srq {
		if p.srq, err = p.pd.CreateSRQ(verbs.SRQOptions{MaxWR: p.depth, MaxSGE: 1, SingleOwner: true}); err != nil {
			return err
		}
	} else {
		capacity.MaxRecvWR, capacity.MaxRecvSGE = p.depth, 1
	}
	for range p.nqps {
		qp, err := p.makeQP(capacity)
		if err != nil {
			return err
		}
		p.qps = append(p.qps, qp)
		p.send = append(p.send, p.sendWR(qp))
	}
	p.waits = make([]uint64, p.nqps)
	p.recv = make([]verbs.RecvWR, p.depth)
	sgl := []verbs.SGE{p.mr.SGE(0, p.mr.Len())}
	for i := range p.recv {
		p.recv[i] = verbs.RecvWR{WRID: recvID, SGL: sgl}
	}
	p.wcs = make([]verbs.WC, 2*p.nqps) // for the completions of all messages in flight
	return nil
}

func (p *player) makeQP(capacity verbs.QPCap) (*verbs.QP, error) {
	qp, err := p.pd.CreateQP(verbs.QPOptions{
		Type: p.transport.qpType, SendCQ: p.cq, RecvCQ: p.cq, SRQ: p.srq, Cap: capacity, SingleOwner: true,
	})
	if err != nil {
		return nil, err
	}
	init := verbs.QPAttr{State: verbs.QPInit, Port: p.ibPort, QKey: qkey}
	return qp, qp.Modify(init, verbs.RequiredMask(qp.Type(), verbs.QPReset, verbs.QPInit))
}

func (p *player) sendWR(qp *verbs.QP) verbs.SendWR {
	wr := verbs.SendWR{WRID: sendID, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if p.size <= qp.Cap().MaxInlineData {
		wr.Inline = p.message()
	} else {
		wr.SGL = []verbs.SGE{p.mr.SGE(p.transport.headroom, p.size)}
	}
	return wr
}

// localGID returns the GID at the index that -g names, or the zero GID without -g.
func (o *options) localGID(ctx *verbs.Device) (verbs.GID, error) {
	if o.gid < 0 {
		return verbs.GID{}, nil
	}
	entry, err := ctx.QueryGID(o.ibPort, o.gid)
	return entry.GID, err
}

// findAddress records the local addresses, which the other side needs.
func (p *player) findAddress(ctx *verbs.Device, lid uint16) error {
	gid, err := p.localGID(ctx)
	if err != nil {
		return err
	}
	for _, qp := range p.qps {
		p.local = append(p.local, qpAddress{lid: lid, qpn: qp.Num(), psn: rand.Uint32N(1 << 24), gid: gid})
	}
	return nil
}

// meetServer exchanges addresses with the server and connects the queue pairs. The
// server's can receive by then.
func (p *player) meetServer() error {
	remote, err := callServer(p.host, p.port, p.transport.addresses, p.local)
	if err != nil {
		return err
	}
	return p.connect(remote)
}

// meetClient waits for a client and connects the queue pairs to the client's.
func (p *player) meetClient() error {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(p.port))
	if err != nil {
		return err
	}
	defer cli.Waits("waiting for a client on port %d", p.port)()
	_, err = serveClient(listener, p.transport.addresses, p.local, p.connect)
	return err
}

// connect brings the queue pairs to RTS.
func (p *player) connect(remote []qpAddress) error {
	p.remote = remote
	for i, qp := range p.qps {
		to, from := remote[i], p.local[i]
		path := verbs.AHAttr{DLID: to.lid, SL: uint8(p.sl), Port: p.ibPort}
		if [8]byte(to.gid[8:]) != [8]byte{} {
			path.IsGlobal, path.DGID, path.SGIDIndex = true, to.gid, p.gid
			path.HopLimit = p.transport.hopLimit
		}
		attr := verbs.QPAttr{
			AH: path, PathMTU: p.mtu, DestQPN: to.qpn, RQPSN: to.psn, SQPSN: from.psn,
			MaxRDAtomic: 1, MaxDestRDAtomic: 1, MinRNRTimer: 12, Timeout: 14, RetryCount: 7, RNRRetry: 7,
		}
		if p.transport.qpType == verbs.UD {
			ah, err := p.pd.CreateAH(path)
			if err != nil {
				return err
			}
			p.send[i].AH, p.send[i].RemoteQPN, p.send[i].RemoteQKey = ah, to.qpn, qkey
		}
		for _, attr.State = range []verbs.QPState{verbs.QPRTR, verbs.QPRTS} {
			if err := qp.Modify(attr, verbs.RequiredMask(qp.Type(), attr.State-1, attr.State)); err != nil {
				return err
			}
		}
	}
	return nil
}

// refill posts as many receives as the queue has room for.
func (p *player) refill() error {
	wrs := p.recv[p.posted:]
	var n int
	var err error
	if p.srq != nil {
		n, err = p.srq.PostRecv(wrs...)
	} else {
		n, err = p.qps[0].PostRecv(wrs...)
	}
	p.posted += n
	return err
}

// exchange exchanges messages, the client first, and returns how long that took.
func (p *player) exchange() (time.Duration, error) {
	for i := range p.qps {
		p.waits[i] = recvID
	}
	if p.host != "" {
		if p.check {
			fillPages(p.message(), p.transport.fill)
		}
		for i := range p.qps {
			if err := p.sendOn(i); err != nil {
				return 0, err
			}
		}
	}
	start := time.Now()
	received, sent := 0, 0
	for received < p.iters || sent < p.iters {
		if p.channel != nil {
			if err := p.sleep(); err != nil {
				return 0, err
			}
		}
		n, err := p.cq.Poll(p.wcs)
		if err != nil {
			return 0, err
		}
		for i := range p.wcs[:n] {
			wc := &p.wcs[i]
			if err := wc.Err(); err != nil {
				return 0, err
			}
			qp, err := p.find(wc.QPNum)
			if err != nil {
				return 0, err
			}
			if wc.WRID == sendID {
				sent++
			} else {
				received++
				if p.posted--; p.posted <= len(p.qps) {
					if err := p.refill(); err != nil {
						return 0, err
					}
				}
			}
			p.waits[qp] &^= wc.WRID
			if p.waits[qp] == 0 && sent < p.iters {
				if err := p.sendOn(qp); err != nil {
					return 0, err
				}
			}
		}
	}
	return time.Since(start), nil
}

// sendOn sends a message. The queue pair then waits for its completion and for
// the next message.
func (p *player) sendOn(qp int) error {
	p.waits[qp] = recvID | sendID
	_, err := p.qps[qp].PostSend(p.send[qp : qp+1]...)
	return err
}

// sleep waits for an event. The CQ is armed before it is polled, so that no
// completion is missed.
func (p *player) sleep() error {
	cq, err := p.channel.Wait(context.Background())
	if err != nil {
		return err
	}
	return cq.Arm(false)
}

func (p *player) find(qpn uint32) (int, error) {
	for i, qp := range p.qps {
		if qp.Num() == qpn {
			return i, nil
		}
	}
	return 0, fmt.Errorf("completion for unknown QPN %#06x", qpn)
}
