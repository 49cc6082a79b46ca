package rsocket

import (
	"encoding/binary"
	"errors"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// newConn makes a connection's parts on an ID that has a device. Receives are posted, so that the
// peer can send at once. If it fails, the ID is the caller's.
func newConn(id *rdmacm.SyncID, o Options) (*Conn, error) {
	c := new(Conn)
	c.link.Init(opNet, id)
	c.link.Waits.Process = c.process
	c.link.Completed, c.link.Flushed, c.link.Probe = c.completed, c.flushed, c.probe
	c.sender.Room, c.sender.Writable, c.sender.Post = c.room, c.writable, c.postData
	if err := c.open(o); err != nil {
		return nil, errors.Join(err, c.link.Release())
	}
	return c, nil
}

func (c *Conn) open(o Options) (err error) {
	ctx := c.link.Sync.Device()
	limits, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	iw := ctx.Info().Transport() == verbs.TransportIWARP
	requests := 1 // for a message
	if iw {
		requests = 2
	}
	if c.o, err = o.complete(limits, requests); err != nil {
		return err
	}
	c.link.Waits.Spin = c.o.Spin
	if c.link.Device, err = netconn.AcquireDevice(ctx); err != nil {
		return err
	}
	pd := c.link.Sync.PD()
	sends, recvs := (c.o.SendQueue+controls+reserved)*requests, c.o.RecvQueue+controls+reserved
	size, use := c.o.SendBuffer, verbs.AccessFlags(0)
	if iw {
		size, use = size+recvs*msgLen, verbs.AccessLocalWrite
	}
	if c.link.Memory, err = pd.AllocMR(size, verbs.MROptions{Access: use}); err != nil {
		return err
	}
	if iw {
		c.iwarp = &iwarp{mr: c.link.Memory, at: c.o.SendBuffer}
		c.link.Repost = c.iwarp.receive
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if c.link.Exposed, err = pd.AllocMR(c.o.RecvBuffer+targetsLen+c.o.Mappings*mappingLen, verbs.MROptions{Access: access}); err != nil {
		return err
	}
	c.theirs = make([]mapping, c.o.Mappings)
	c.targets = newTargets(c.link.Exposed.Bytes()[c.o.RecvBuffer:])
	// All requests complete when the connection breaks.
	cq := verbs.CQOptions{MaxCQE: sends + recvs, Channel: c.link.Device.Channel(), Value: c.link.Event}
	if c.link.CQ, err = ctx.CreateCQ(cq); err != nil {
		return err
	}
	caps := verbs.QPCap{MaxSendWR: sends, MaxRecvWR: recvs, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: c.o.Inline}
	if c.link.QP, err = c.link.Sync.CreateQP(pd, verbs.QPOptions{SendCQ: c.link.CQ, RecvCQ: c.link.CQ, Cap: caps}); err != nil {
		return err
	}
	c.sender.Memory, c.sender.Size = c.link.Memory, c.o.SendBuffer
	c.sender.Queue, c.sender.Inline = c.o.SendQueue, c.o.Inline
	c.sender.Init()
	c.in.init(c.o.RecvBuffer/2, uint16(c.o.RecvQueue))
	for i := range c.link.Recvs {
		c.link.Recvs[i].WRID = wridRecv
	}
	for posted := 0; posted < recvs; {
		batch := c.link.Recvs[:min(recvs-posted, len(c.link.Recvs))]
		if iw {
			for i := range batch {
				c.iwarp.receive(&batch[i], i, uint64(posted+i))
			}
		}
		n, err := c.link.QP.PostRecv(batch...)
		if err != nil {
			return err
		}
		posted += n
	}
	return nil
}

// param returns the parameters for the peer.
func (c *Conn) param() *rdmacm.ConnParam {
	d := connData{
		credits: uint16(c.o.RecvQueue), mappings: c.o.Mappings,
		targets: sge{addr: c.link.Exposed.Addr() + uint64(c.o.RecvBuffer), key: c.link.Exposed.RKey(), length: entries},
		ring:    sge{addr: c.link.Exposed.Addr(), key: c.link.Exposed.RKey(), length: uint32(c.in.Half)},
	}
	d.bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1
	p := &rdmacm.ConnParam{PrivateData: d.bytes(), FlowControl: true}
	if c.iwarp == nil { // over iWARP, the kernels may read when they connect
		p.ResponderResources, p.InitiatorDepth = rdmacm.None, rdmacm.None
	}
	return p
}

// setPeer records the peer's parameters.
func (c *Conn) setPeer(d *connData) {
	c.out.init(d)
	c.peer, c.entry = d.targets, 1
	c.ours = make([]*verbs.MR, d.mappings)
	c.order = binary.LittleEndian
	if d.bigEndian {
		c.order = binary.BigEndian
	}
}

// probe posts a request, which only the peer's device answers, unless one is in flight. If there is no answer,
// the connection breaks. probe reports whether the connection goes on. The caller holds
// link.Waits.Mu.
func (c *Conn) probe() bool {
	if c.link.Phase != netconn.Open || c.out.refused || c.link.Err != nil {
		return false
	}
	c.process()
	if !c.link.Probing && !c.out.blocked && c.link.Err == nil {
		c.link.Probing = true
		c.link.PostEmpty(wridControl | ctlKeepalive)
	}
	return c.link.Err == nil
}
