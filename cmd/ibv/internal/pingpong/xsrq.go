package pingpong

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

// The processes of a machine share the XRC domain of this file.
const xrcDomainFile = "/tmp/xrc_domain"

// The clients' final message, and the server's answer to all of them. Until then
// a client's queues carry the server's messages to the other clients.
const xrcDone = "END\x00"

// An xrcAddress has the facts that a side needs about the other side.
type xrcAddress struct {
	lid              uint16
	recvQPN, sendQPN uint32
	psn, srqn        uint32
	gid              verbs.GID
	exchanged        int // messages sent there
}

const xrcAddressLen = len("0000:000000:000000:000000:000000:00000000000000000000000000000000\x00")

func (a *xrcAddress) String() string {
	return fmt.Sprintf("LID %04x, QPN RECV %06x SEND %06x, PSN %06x, SRQN %06x, GID %v", a.lid, a.recvQPN, a.sendQPN, a.psn, a.srqn, a.gid)
}

func (a *xrcAddress) encode() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%06x:%06x:%x\x00", a.lid, a.recvQPN, a.sendQPN, a.psn, a.srqn, a.gid[:])
}

func decodeXRCAddress(b []byte) (a xrcAddress, err error) {
	text, _, _ := strings.Cut(string(b), "\x00")
	bad := fmt.Errorf("%q is not an address", text)
	fields := strings.Split(text, ":")
	if len(fields) != 6 || len(fields[5]) != 32 {
		return a, bad
	}
	var numbers [5]uint64
	for i, bits := range []int{16, 24, 24, 24, 24} {
		if numbers[i], err = strconv.ParseUint(fields[i], 16, 64); err != nil || numbers[i]>>bits != 0 {
			return a, bad
		}
	}
	if _, err := hex.Decode(a.gid[:], []byte(fields[5])); err != nil {
		return a, bad
	}
	a.lid, a.recvQPN, a.sendQPN = uint16(numbers[0]), uint32(numbers[1]), uint32(numbers[2])
	a.psn, a.srqn = uint32(numbers[3]), uint32(numbers[4])
	return a, nil
}

// An xrcPlayer is one side: a client, or the server of several. The server has
// a pair of queue pairs for each client, and sends to each client's SRQ over
// each of them in turn.
type xrcPlayer struct {
	*options
	lid            uint16
	pd             *verbs.PD
	mr             *verbs.MR
	channel        *verbs.CompChannel // nil: poll
	sendCQ, recvCQ *verbs.CQ
	srq            *verbs.SRQ
	recv, send     []*verbs.QP
	local, remote  []xrcAddress
	conns          []net.Conn
	strangers      int // connections that sent no address
}

// playXRC connects to the other side and exchanges messages with it.
func playXRC(ctx *verbs.Device, o *options) error {
	p := &xrcPlayer{options: o}
	defer func() {
		for _, conn := range p.conns {
			conn.Close()
		}
	}()
	err := p.create(ctx)
	if err == nil {
		err = p.meet()
	}
	if err == nil {
		err = p.exchange()
	}
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return err
	}
	if err := ctx.Close(); err != nil {
		return err
	}
	cli.Println("success")
	cli.Put("bytes", o.size*o.iters*o.clients, "iterations", o.iters, "clients", o.clients)
	return nil
}

// create creates all objects, brings the queue pairs to INIT, and posts receives.
func (p *xrcPlayer) create(ctx *verbs.Device) error {
	port, err := ctx.QueryPort(p.ibPort)
	if err != nil {
		return err
	}
	if err := p.checkPort(port); err != nil {
		return err
	}
	p.lid = port.LID
	access := verbs.AccessLocalWrite
	if p.odp {
		device, err := ctx.QueryDevice()
		if err != nil {
			return err
		}
		need := verbs.ODPSupportSend | verbs.ODPSupportSRQRecv
		if device.ODP.General&verbs.ODPSupport == 0 || device.ODP.XRC&need != need {
			return fmt.Errorf("%s has no on-demand paging for XRC sends and receives", ctx.Info().Name())
		}
		access |= verbs.AccessOnDemand
	}
	if p.events {
		if p.channel, err = ctx.CreateCompChannel(); err != nil {
			return err
		}
	}
	if p.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	if p.mr, err = p.pd.AllocMR(max(p.size, 1), verbs.MROptions{Access: access}); err != nil {
		return err
	}
	domain, err := openXRCDomain(ctx)
	if errors.Is(err, verbs.ErrNotSupported) {
		return fmt.Errorf("%s has no XRC: %w", ctx.Info().Name(), err)
	}
	if err != nil {
		return err
	}
	if p.recvCQ, err = ctx.CreateCQ(verbs.CQOptions{MaxCQE: p.clients, Channel: p.channel}); err != nil {
		return err
	}
	if p.channel != nil {
		if err := p.recvCQ.Arm(false); err != nil {
			return err
		}
	}
	if p.sendCQ, err = ctx.CreateCQ(verbs.CQOptions{MaxCQE: p.clients}); err != nil {
		return err
	}
	if p.srq, err = p.pd.CreateSRQ(verbs.SRQOptions{MaxWR: p.clients, MaxSGE: 1, XRCD: domain, CQ: p.recvCQ}); err != nil {
		return err
	}
	for range p.clients {
		if err := p.createPair(domain); err != nil {
			return err
		}
	}
	for range p.clients {
		if err := p.postRecv(); err != nil {
			return err
		}
	}
	return p.findAddress(ctx)
}

// openXRCDomain opens the domain that all players on this machine share, as
// rdma-core's do: the server answers one client over the QPs of another.
func openXRCDomain(ctx *verbs.Device) (*verbs.XRCD, error) {
	f, err := os.OpenFile(xrcDomainFile, os.O_RDONLY|os.O_CREATE, 0o440)
	if err != nil {
		return ctx.OpenXRCD()
	}
	defer f.Close()
	return ctx.OpenSharedXRCD(f)
}

// createPair creates the queue pairs for one client.
func (p *xrcPlayer) createPair(domain *verbs.XRCD) error {
	init := verbs.RequiredMask(verbs.XRCSend, verbs.QPReset, verbs.QPInit)
	recv, err := domain.CreateQP(verbs.QPOptions{})
	if err != nil {
		return err
	}
	p.recv = append(p.recv, recv)
	if err := recv.Modify(verbs.QPAttr{State: verbs.QPInit, Port: p.ibPort, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead}, init); err != nil {
		return err
	}
	send, err := p.pd.CreateQP(verbs.QPOptions{
		Type: verbs.XRCSend, SendCQ: p.sendCQ, Cap: verbs.QPCap{MaxSendWR: p.clients * max(p.iters, 1), MaxSendSGE: 1},
	})
	if err != nil {
		return err
	}
	p.send = append(p.send, send)
	return send.Modify(verbs.QPAttr{State: verbs.QPInit, Port: p.ibPort}, init)
}

func (p *xrcPlayer) findAddress(ctx *verbs.Device) error {
	gid, err := p.localGID(ctx)
	if err != nil {
		return err
	}
	for i := range p.clients {
		p.local = append(p.local, xrcAddress{
			lid: p.lid, recvQPN: p.recv[i].Num(), sendQPN: p.send[i].Num(), psn: rand.Uint32N(1 << 24), srqn: p.srq.Num(), gid: gid,
		})
	}
	return nil
}

// meet exchanges addresses with the server, or with each client as it comes.
func (p *xrcPlayer) meet() error {
	if p.host != "" {
		conn, err := dial(p.host, p.port)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, conn)
		if err := p.sendAddress(0); err != nil {
			return err
		}
		if err := p.readAddress(); err != nil {
			return err
		}
		return p.connect(0)
	}
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(p.port))
	if err != nil {
		return err
	}
	defer listener.Close()
	defer cli.Waits("waiting for clients on port %d", p.port)()
	for i := range p.clients {
		if err := p.meetClient(listener); err != nil {
			return err
		}
		// rdma-core answers before it connects, and sends no message before all
		// clients have come. Connecting first keeps a client's first message from
		// arriving too early.
		if err := p.connect(i); err != nil {
			return err
		}
		if err := p.sendAddress(i); err != nil {
			return err
		}
	}
	return nil
}

// meetClient waits for the next client. It ignores connections that don't send an address.
func (p *xrcPlayer) meetClient(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		p.conns = append(p.conns, conn)
		if err = p.readAddress(); err == nil {
			return nil
		}
		if p.strangers++; p.strangers <= xrcNamed {
			noClient(conn, err)
		}
		conn.Close()
		p.conns = p.conns[:len(p.conns)-1]
	}
}

const (
	xrcSilence = 10 * time.Second // how long the other side may take to send its address
	xrcNamed   = 8                // how many other connections are named
)

func (p *xrcPlayer) sendAddress(i int) error {
	cli.Printf("   local: %v\n", &p.local[i])
	if _, err := p.conns[i].Write(p.local[i].encode()); err != nil {
		return fmt.Errorf("sending the local address: %w", err)
	}
	return nil
}

func (p *xrcPlayer) readAddress() error {
	var b [xrcAddressLen]byte
	conn := p.conns[len(p.conns)-1]
	if err := conn.SetReadDeadline(time.Now().Add(xrcSilence)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return fmt.Errorf("receiving the other side's address: %w", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil { // the clients wait for each other
		return err
	}
	a, err := decodeXRCAddress(b[:])
	if err != nil {
		return err
	}
	p.remote = append(p.remote, a)
	cli.Printf("  remote: %v\n", &a)
	return nil
}

// connect brings a pair to the states in which it can receive and send.
func (p *xrcPlayer) connect(i int) error {
	to, from := &p.remote[i], &p.local[i]
	attr := verbs.QPAttr{
		PathMTU: p.mtu, RQPSN: to.psn, SQPSN: from.psn, MinRNRTimer: 12, Timeout: 14, RetryCount: 7, RNRRetry: 7,
		AH: verbs.AHAttr{DLID: to.lid, SL: uint8(p.sl), Port: p.ibPort},
	}
	if [8]byte(to.gid[8:]) != [8]byte{} {
		attr.AH.IsGlobal, attr.AH.DGID, attr.AH.SGIDIndex, attr.AH.HopLimit = true, to.gid, p.gid, p.transport.hopLimit
	}
	for _, attr.State = range []verbs.QPState{verbs.QPRTR, verbs.QPRTS} {
		attr.DestQPN = to.sendQPN
		if err := p.recv[i].Modify(attr, verbs.RequiredMask(verbs.XRCRecv, attr.State-1, attr.State)); err != nil {
			return err
		}
		attr.DestQPN = to.recvQPN
		if err := p.send[i].Modify(attr, verbs.RequiredMask(verbs.XRCSend, attr.State-1, attr.State)); err != nil {
			return err
		}
	}
	return nil
}

func (p *xrcPlayer) postRecv() error {
	_, err := p.srq.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{p.mr.SGE(0, p.size)}})
	return err
}

// postSend sends to a client, or to the server. Only the last message is signaled.
// Its completion covers all before it.
func (p *xrcPlayer) postSend(i int) error {
	to := &p.remote[i]
	wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, RemoteSRQN: to.srqn, SGL: []verbs.SGE{p.mr.SGE(0, p.size)}}
	qp := p.send[(i+to.exchanged)%p.clients]
	if to.exchanged++; to.exchanged >= p.iters {
		wr.Flags = verbs.SendSignaled
	}
	_, err := qp.PostSend(wr)
	return err
}

// exchange exchanges messages, the server first.
func (p *xrcPlayer) exchange() error {
	if p.host == "" && p.iters > 0 {
		for i := range p.clients {
			if err := p.postSend(i); err != nil {
				return err
			}
		}
	}
	wcs := make([]verbs.WC, p.clients)
	for received := 0; received < p.clients*p.iters; {
		if p.channel != nil {
			cq, err := p.channel.Wait(context.Background())
			if err != nil {
				return err
			}
			if err := cq.Arm(false); err != nil {
				return err
			}
		}
		n := 1
		for n > 0 {
			var err error
			if n, err = p.poll(p.recvCQ, wcs); err != nil {
				return err
			}
			received += n
			for i := range wcs[:n] {
				if err := p.answer(&wcs[i]); err != nil {
					return err
				}
			}
		}
	}
	for sent := 0; sent < p.clients && p.iters > 0; {
		n, err := p.poll(p.sendCQ, wcs)
		if err != nil {
			return err
		}
		sent += n
	}
	return nil
}

func (p *xrcPlayer) poll(cq *verbs.CQ, wcs []verbs.WC) (int, error) {
	n, err := cq.Poll(wcs)
	for i := range wcs[:n] {
		if err := wcs[i].Err(); err != nil {
			return 0, err
		}
	}
	return n, err
}

// answer posts another receive, and answers a message.
func (p *xrcPlayer) answer(wc *verbs.WC) error {
	if err := p.postRecv(); err != nil {
		return err
	}
	for i, qp := range p.recv {
		// A client receives messages over other clients' QPs.
		if p.clients > 1 && qp.Num() != wc.QPNum {
			continue
		}
		if p.remote[i].exchanged >= p.iters {
			return nil
		}
		return p.postSend(i)
	}
	return fmt.Errorf("completion for unknown QPN %#06x", wc.QPNum)
}

// end ends the exchange. The clients wait for each other.
func (p *xrcPlayer) end() error {
	say := func(conn net.Conn) error {
		_, err := io.WriteString(conn, xrcDone)
		return err
	}
	listen := func(conn net.Conn) error {
		var b [len(xrcDone)]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return err
		}
		if !bytes.Equal(b[:], []byte(xrcDone)) {
			return fmt.Errorf("received %q, want the final message %q", b, xrcDone)
		}
		return nil
	}
	steps := []func(net.Conn) error{listen, say}
	if p.host != "" {
		steps = []func(net.Conn) error{say, listen}
	}
	var errs []error
	for _, step := range steps {
		for _, conn := range p.conns {
			errs = append(errs, step(conn))
		}
	}
	return errors.Join(errs...)
}
