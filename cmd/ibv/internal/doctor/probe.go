package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

const (
	probeQKey = 0x1d0c
	smallSize = 16
	largeSize = 1 << 20 // a message of many packets
	grhLen    = 40      // room that a UD receive leaves for the GRH
)

// A probe is one end's objects: a UD and an RC queue pair with a GID, and a UDP socket with
// its address. It is used by one goroutine.
type probe struct {
	dev  *verbs.Device
	pd   *verbs.PD
	mr   *verbs.MR
	cq   *verbs.CQ // of the UD queue pair
	ud   *verbs.QP
	ah   *verbs.AH // the peer's
	peer verbs.Endpoint
	conn *verbs.CQ // of the RC queue pair
	rc   *verbs.QP
	gid  verbs.GIDEntry
	udp  *net.UDPConn   // nil over InfiniBand
	to   netip.AddrPort // the peer's socket, if it has one
}

// endpoints has what a peer needs to know of a probe.
type endpoints struct {
	UD, RC verbs.Endpoint
	UDP    string // the socket's address, "" without one
}

func newProbe(f Facts, index int) (p *probe, err error) {
	p = new(probe)
	if p.dev, err = verbs.Open(f.Device); err != nil {
		return nil, err
	}
	if err = p.create(f, index); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *probe) create(f Facts, index int) (err error) {
	if p.gid, err = p.dev.QueryGID(f.Port, index); err != nil {
		return err
	}
	if p.pd, err = p.dev.AllocPD(); err != nil {
		return err
	}
	if p.mr, err = p.pd.AllocMR(2*largeSize, verbs.MROptions{Access: verbs.AccessLocalWrite}); err != nil {
		return err
	}
	if p.cq, err = p.dev.CreateCQ(verbs.CQOptions{MaxCQE: 4 * shots}); err != nil {
		return err
	}
	if p.conn, err = p.dev.CreateCQ(verbs.CQOptions{MaxCQE: 8}); err != nil {
		return err
	}
	capacity := verbs.QPCap{MaxSendWR: 2 * shots, MaxRecvWR: 2 * shots, MaxSendSGE: 1, MaxRecvSGE: 1}
	if p.ud, err = p.pd.CreateQP(verbs.QPOptions{Type: verbs.UD, SendCQ: p.cq, RecvCQ: p.cq, Cap: capacity}); err != nil {
		return err
	}
	if err = p.ud.Activate(verbs.ActivateOptions{Port: f.Port, QKey: probeQKey}); err != nil {
		return err
	}
	capacity.MaxSendWR, capacity.MaxRecvWR = 2, 4
	if p.rc, err = p.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.conn, RecvCQ: p.conn, Cap: capacity}); err != nil {
		return err
	}
	if f.LinkLayer == "Ethernet" {
		address := net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.gid.GID.Addr(), 0))
		if p.gid.GID.Addr().IsLinkLocalUnicast() {
			address.Zone = p.gid.NetDev
		}
		// The socket fails if the address isn't in this network namespace. Then only RDMA
		// is tried.
		p.udp, _ = net.ListenUDP("udp", address)
	}
	return nil
}

func (p *probe) close() {
	if p.udp != nil {
		p.udp.Close()
	}
	p.dev.Close()
}

func (p *probe) endpoints() (e endpoints, err error) {
	if e.UD, err = p.ud.Endpoint(p.gid); err != nil {
		return e, err
	}
	if e.RC, err = p.rc.Endpoint(p.gid); err != nil {
		return e, err
	}
	if p.udp != nil {
		e.UDP = p.udp.LocalAddr().String()
	}
	return e, nil
}

// meet sets up the path to the peer.
func (p *probe) meet(peer endpoints) error {
	if p.ah != nil {
		return errors.New("the path is set up already")
	}
	if peer.UDP != "" && p.udp != nil {
		var err error
		if p.to, err = netip.ParseAddrPort(peer.UDP); err != nil {
			return fmt.Errorf("%.64q is not an address", peer.UDP)
		}
		// The server must not send to arbitrary addresses.
		if p.to.Addr().Unmap().WithZone("") != peer.UD.GID.Addr().Unmap() {
			return fmt.Errorf("%v is not the address of the GID %v", p.to, peer.UD.GID)
		}
		if p.to.Addr().Zone() != "" {
			// The peer's zone has no meaning on this host.
			p.to = netip.AddrPortFrom(p.to.Addr().WithZone(p.gid.NetDev), p.to.Port())
		}
	}
	path, err := p.ud.PathTo(peer.UD)
	if err != nil {
		return err
	}
	if p.ah, err = p.pd.CreateAH(path); err != nil {
		return err
	}
	p.peer = peer.UD
	for i := range 4 {
		if _, err := p.rc.PostRecv(verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{p.mr.SGE(largeSize, largeSize)}}); err != nil {
			return err
		}
	}
	return p.rc.Connect(peer.RC, verbs.ConnectOptions{})
}

// expect prepares for messages of the size.
func (p *probe) expect(size int) error {
	if err := p.drain(); err != nil {
		return err
	}
	for i := range shots {
		wr := verbs.RecvWR{WRID: uint64(size), SGL: []verbs.SGE{p.mr.SGE(i*8192, grhLen+size)}}
		if _, err := p.ud.PostRecv(wr); err != nil {
			return err
		}
	}
	return nil
}

// drain empties the receive queue of receives that earlier messages left. Only a state change of
// the queue pair can do so.
func (p *probe) drain() error {
	if err := p.ud.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState); err != nil {
		return err
	}
	wcs := make([]verbs.WC, 4*shots)
	for {
		n, err := p.cq.Poll(wcs)
		if err != nil || n == 0 {
			break
		}
	}
	return p.ud.Activate(verbs.ActivateOptions{Port: p.gid.Port, QKey: probeQKey})
}

// fire sends datagrams of a size, and waits for their completion. It reports whether they
// left: rxe retries for ever if its own host's firewall drops them.
func (p *probe) fire(size int, wait time.Duration) (left bool, err error) {
	for range shots {
		wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.mr.SGE(0, size)}, AH: p.ah, RemoteQPN: p.peer.QPN, RemoteQKey: probeQKey}
		if _, err := p.ud.PostSend(wr); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	wcs := make([]verbs.WC, shots)
	for done := 0; done < shots; {
		n, err := p.cq.PollWait(ctx, wcs)
		if errors.Is(err, context.DeadlineExceeded) {
			return false, p.drain()
		}
		if err != nil {
			return false, err
		}
		for i := range n {
			if err := wcs[i].Err(); err != nil {
				return false, err
			}
			if wcs[i].Opcode != verbs.WCRecv { // the peer's last datagrams may still arrive
				done++
			}
		}
	}
	return true, nil
}

// arrived waits for the messages, and returns how many arrived.
func (p *probe) arrived(wait time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	wcs := make([]verbs.WC, shots)
	total := 0
	for total < shots {
		n, err := p.cq.PollWait(ctx, wcs[:shots-total])
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// fireUDP sends ordinary packets to the peer's socket.
func (p *probe) fireUDP() error {
	if !p.to.IsValid() {
		return errors.New("the peer's socket is not known")
	}
	for range shots {
		// An error comes from an earlier packet, which counts as lost.
		_, _ = p.udp.WriteToUDPAddrPort([]byte(udpText), p.to)
	}
	return nil
}

const udpText = "ibv doctor"

// arrivedUDP is arrived for ordinary packets. Packets of other senders don't count.
func (p *probe) arrivedUDP(wait time.Duration) (int, error) {
	deadline := time.Now().Add(wait)
	buffer := make([]byte, 64)
	total := 0
	for total < shots {
		if err := p.udp.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, from, err := p.udp.ReadFromUDPAddrPort(buffer)
		switch {
		case isTimeout(err) || time.Now().After(deadline):
			return total, nil
		case err == nil && string(buffer[:n]) == udpText && from.Port() == p.to.Port() && from.Addr().Unmap().WithZone("") == p.to.Addr().Unmap().WithZone(""):
			total++
		}
	}
	return total, nil
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// send sends a message over the connection. The result is "ok" or the completion's status.
func (p *probe) send(size int) (string, error) {
	wr := verbs.SendWR{WRID: 99, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.mr.SGE(0, size)}}
	if _, err := p.rc.PostSend(wr); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wcs := make([]verbs.WC, 1)
	for {
		n, err := p.conn.PollWait(ctx, wcs)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return "no completion", nil
		case err != nil:
			return "", err
		case n == 1 && wcs[0].Status != verbs.WCSuccess:
			return fmt.Sprint(wcs[0].Status), nil
		case n == 1 && wcs[0].WRID == 99:
			return "ok", nil
		}
	}
}
