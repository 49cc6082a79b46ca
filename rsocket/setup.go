package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// newConn makes a connection's parts on an ID that has a device. Receives are posted, so that the
// peer can send at once. If it fails, the ID is the caller's.
func newConn(id *rdmacm.SyncID, o Options) (*Conn, error) {
	c := &Conn{sync: id, linger: -1, ended: make(chan struct{}), local: tcpAddr(id.LocalAddr()), remote: tcpAddr(id.RemoteAddr())}
	c.rd.deadline.init()
	c.wr.deadline.init()
	c.end.deadline.init()
	c.lent.deadline.init()
	if err := c.open(o); err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

func tcpAddr(a netip.AddrPort) *net.TCPAddr { return net.TCPAddrFromAddrPort(a) }

func (c *Conn) open(o Options) (err error) {
	ctx := c.sync.Device()
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
	if c.device, err = acquireDevice(ctx); err != nil {
		return err
	}
	pd := c.sync.PD()
	sends, recvs := (c.o.SendQueue+controls+reserved)*requests, c.o.RecvQueue+controls+reserved
	size, use := c.o.SendBuffer, verbs.AccessFlags(0)
	if iw {
		size, use = size+recvs*msgLen, verbs.AccessLocalWrite
	}
	if c.memory, err = pd.AllocMR(size, verbs.MROptions{Access: use}); err != nil {
		return err
	}
	if iw {
		c.iwarp = &iwarp{mr: c.memory, at: c.o.SendBuffer}
	}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if c.exposed, err = pd.AllocMR(c.o.RecvBuffer+targetsLen+c.o.Mappings*mappingLen, verbs.MROptions{Access: access}); err != nil {
		return err
	}
	c.theirs = make([]mapping, c.o.Mappings)
	c.targets = newTargets(c.exposed.Bytes()[c.o.RecvBuffer:])
	// All requests complete when the connection breaks.
	cq := verbs.CQOptions{MaxCQE: sends + recvs, Channel: c.device.channel, Value: c}
	if c.cq, err = ctx.CreateCQ(cq); err != nil {
		return err
	}
	caps := verbs.QPCap{MaxSendWR: sends, MaxRecvWR: recvs, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: c.o.Inline}
	if c.qp, err = c.sync.CreateQP(pd, verbs.QPOptions{SendCQ: c.cq, RecvCQ: c.cq, Cap: caps}); err != nil {
		return err
	}
	c.slots, c.space = c.o.SendQueue, c.o.SendBuffer
	c.in.init(c.o.RecvBuffer/2, uint16(c.o.RecvQueue))
	for i := range c.recvs {
		c.recvs[i].WRID = wridRecv
	}
	for posted := 0; posted < recvs; {
		batch := c.recvs[:min(recvs-posted, len(c.recvs))]
		if iw {
			for i := range batch {
				c.iwarp.receive(&batch[i], i, uint64(posted+i))
			}
		}
		n, err := c.qp.PostRecv(batch...)
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
		targets: sge{addr: c.exposed.Addr() + uint64(c.o.RecvBuffer), key: c.exposed.RKey(), length: entries},
		ring:    sge{addr: c.exposed.Addr(), key: c.exposed.RKey(), length: uint32(c.in.half)},
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

// establish begins the connection's life, after the handshake. The peer may have left already; then
// there may still be something to read.
func (c *Conn) establish() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone, err := c.manage()
	if err != nil {
		return err
	}
	c.process()
	if gone != nil {
		c.fail(gone)
	}
	if c.o.KeepAlive > 0 {
		c.keepalive = time.AfterFunc(c.o.KeepAlive, c.keepAlive)
	}
	return nil
}

// keepAlive is the function of the keepalive timer.
func (c *Conn) keepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probe() {
		c.keepalive.Reset(c.o.KeepAlive)
	}
}

// networkChanged probes the peer, because the network has changed.
func (c *Conn) networkChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probe()
}

// probe posts a request, which only the peer's device answers, unless one is in flight. If there is no answer,
// the connection breaks. probe reports whether the connection goes on. The caller holds mu.
func (c *Conn) probe() bool {
	if c.phase != connOpen || c.out.refused || c.err != nil {
		return false
	}
	c.process()
	if !c.probing && !c.out.blocked && c.err == nil {
		c.probing = true
		if _, err := c.qp.PostSend(verbs.SendWR{WRID: wridControl | ctlKeepalive, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled}); err != nil {
			c.fail(lost(err))
		}
	}
	return c.err == nil
}

// release closes the connection's parts. No call uses them any more.
func (c *Conn) release() (err error) {
	note := func(e error) { err = errors.Join(err, e) }
	if c.qp != nil {
		note(c.sync.DestroyQP())
	}
	if c.cq != nil {
		note(c.cq.Close())
	}
	if c.exposed != nil {
		note(c.exposed.Close())
	}
	if c.memory != nil {
		note(c.memory.Close())
	}
	if c.device != nil {
		note(c.device.release())
	}
	if err != nil {
		return fmt.Errorf("releasing a connection: %w", err)
	}
	return nil
}
