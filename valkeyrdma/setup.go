package valkeyrdma

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// newConn makes a connection's parts on an ID that has a device. Receives are posted, so that the peer can send at once.
// If it fails, the ID is the caller's.
func newConn(id *rdmacm.SyncID, o Options) (*Conn, error) {
	c := new(Conn)
	c.link.Init(opNet, id)
	c.link.Waits.Process = c.process
	c.link.Completed, c.link.Repost, c.link.Flushed, c.link.Probe = c.completed, c.receive, c.flushed, c.probe
	c.sender.Room, c.sender.Writable, c.sender.Post = c.room, c.writable, c.postData
	if err := c.open(o); err != nil {
		return nil, errors.Join(err, c.link.Release())
	}
	return c, nil
}

func (c *Conn) open(o Options) (err error) {
	ctx := c.link.Sync.Device()
	if ctx.Info().Transport() == verbs.TransportIWARP {
		return fmt.Errorf("%w: %s is for iWARP, which has no immediate data", errors.ErrUnsupported, ctx.Info().Name())
	}
	limits, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	if c.o, err = o.complete(limits); err != nil {
		return err
	}
	c.link.Waits.Spin = c.o.Spin
	if c.link.Device, err = netconn.AcquireDevice(ctx); err != nil {
		return err
	}
	pd := c.link.Sync.PD()
	if c.link.Memory, err = pd.AllocMR(c.o.SendBuffer+receives*commandLen, verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
		return err
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if c.link.Exposed, err = pd.AllocMR(c.o.RecvBuffer, verbs.MROptions{Access: access}); err != nil {
		return err
	}
	const sends = sendQueue + commands + reserved
	// All requests complete when the connection breaks.
	cq := verbs.CQOptions{MaxCQE: sends + receives, Channel: c.link.Device.Channel(), Value: c.link.Event}
	if c.link.CQ, err = ctx.CreateCQ(cq); err != nil {
		return err
	}
	caps := verbs.QPCap{MaxSendWR: sends, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: inline}
	if c.link.QP, err = c.link.Sync.CreateQP(pd, verbs.QPOptions{SendCQ: c.link.CQ, RecvCQ: c.link.CQ, Cap: caps}); err != nil {
		return err
	}
	c.sender.Memory, c.sender.Size, c.sender.Queue, c.sender.Inline = c.link.Memory, c.o.SendBuffer, sendQueue, inline
	c.sender.Init()
	c.in = netconn.MakeRing(c.o.RecvBuffer / 2)
	for posted := 0; posted < receives; posted += netconn.Batch {
		for i := range c.link.Recvs {
			c.receive(&c.link.Recvs[i], i, uint64(posted+i))
		}
		if _, err := c.link.QP.PostRecv(c.link.Recvs[:]...); err != nil {
			return err
		}
	}
	return nil
}

// receive makes wr, the i-th of link.Recvs, a receive at a place, which is also in the WRID.
func (c *Conn) receive(wr *verbs.RecvWR, i int, place uint64) {
	place &^= wridKind
	c.sgls[i][0] = c.link.Memory.SGE(c.o.SendBuffer+int(place)*commandLen, commandLen)
	*wr = verbs.RecvWR{WRID: wridRecv | place, SGL: c.sgls[i][:]}
}

// establish begins the connection's life, after the handshake.
func (c *Conn) establish() error {
	return c.link.Establish(c.o.KeepAlive, func() { c.register(0) })
}

// probe posts a request, which only the peer's device answers, unless one is in flight. If there is no answer,
// the connection breaks. probe reports whether the connection goes on. The caller holds
// link.Waits.Mu.
func (c *Conn) probe() bool {
	if c.link.Phase != netconn.Open || c.link.Err != nil {
		return false
	}
	c.process()
	if !c.link.Probing && c.link.Err == nil {
		c.link.Probing = true
		c.link.PostEmpty(wridProbe)
	}
	return c.link.Err == nil
}
