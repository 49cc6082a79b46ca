package cm

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/strangertest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// strangersHost is the address of package verbstest's first device.
const strangersHost = "192.0.2.1"

// waitListening waits until a process listens.
func waitListening(n *verbstest.Network) {
	for !strings.Contains(strings.Join(n.Left(), "\n"), "listening") {
		time.Sleep(time.Millisecond)
	}
}

// waitNothing waits until no object is left open.
func waitNothing(t *testing.T, n *verbstest.Network) {
	t.Helper()
	for start := time.Now(); len(n.Left()) > 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > rdmatest.Patience {
			t.Fatalf("there are %v", n.Left())
		}
	}
}

// TestUcmatoseStrangers: whatever the client of ibv ucmatose does, the server ends, and leaves no object open. An honest
// client is served.
func TestUcmatoseStrangers(t *testing.T) {
	network := verbstest.New(t)
	o := newOptions(rdmacm.PortSpaceTCP, 7471)
	o.source = strangersHost
	server := func(silence time.Duration) (ended chan error) {
		o := o
		o.silence = silence
		ended = make(chan error, 1)
		go func() {
			nodes, err := o.serve(context.Background(), o.answerMessages)
			for _, n := range nodes {
				if closed := n.close(); err == nil {
					err = closed
				}
			}
			ended <- err
		}()
		waitListening(network)
		return ended
	}
	wait := func(ended chan error) error {
		t.Helper()
		select {
		case err := <-ended:
			waitNothing(t, network)
			return err
		case <-time.After(rdmatest.Patience):
			t.Fatal("the server doesn't end")
			return nil
		}
	}
	rdmatest.Rounds(t, 60, 1, func(rnd *rand.Rand) {
		ended := server(10 * time.Millisecond)
		strangeClient(t, rnd)
		if err := wait(ended); err != nil && strings.ContainsAny(err.Error(), "\x1b\x07") {
			t.Errorf("%q", err)
		}
		ended = server(0)
		client := o
		client.server, client.source, client.silence = strangersHost, "", 0
		nodes, err := client.exchangeMessages(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			rdmatest.Check(t, n.close())
		}
		rdmatest.Check(t, wait(ended))
	})
}

// strangeClient runs a misbehaving client of ucmatose's server.
func strangeClient(t *testing.T, rnd *rand.Rand) {
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	defer func() { rdmatest.Check(t, id.Close()) }()
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort(strangersHost+":7471"), time.Minute))
	rdmatest.Check(t, id.ResolveRoute(t.Context(), time.Minute))
	param := &rdmacm.ConnParam{PrivateData: []byte("\x1b]0;evil\x07")}
	if rnd.IntN(4) == 0 { // it never confirms the answer
		param.QPNum = 0x800000
		_, _ = id.Connect(t.Context(), param)
		return
	}
	mr := rdmatest.Must(id.PD().AllocMR(1000, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	defer func() { rdmatest.Check(t, mr.Close()) }()
	caps := verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}
	rdmatest.Must(id.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	defer func() { rdmatest.Check(t, id.DestroyQP()) }()
	for range rnd.IntN(64) {
		rdmatest.Must(id.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(0, 1000)}}))(t)
	}
	if _, err := id.Connect(t.Context(), param); err != nil {
		return
	}
	for range rnd.IntN(30) {
		wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGE(0, rnd.IntN(101))}}
		switch rnd.IntN(10) {
		case 0:
			wr.SGL[0].Length = 1000
		case 1:
			wr.Opcode, wr.SGL = verbs.OpRDMAWriteImm, nil
		case 2:
			wr.Opcode, wr.Remote = verbs.OpRDMAWrite, verbs.Remote{Addr: rnd.Uint64(), RKey: rnd.Uint32()}
		}
		if _, err := id.QP().PostSend(wr); err != nil {
			break
		}
	}
	switch rnd.IntN(3) {
	case 0:
		_ = id.Disconnect(t.Context())
	case 1: // silent for a while
		time.Sleep(20 * time.Millisecond)
	}
}

// TestRpingRounds: clients of ibv rping -s -P ping, whatever others do. Their text is printed harmlessly, and no object
// of theirs is left open.
func TestRpingRounds(t *testing.T) {
	network := verbstest.New(t)
	strangertest.Unharmed(t, func() {
		server := &rpingOptions{server: true, addr: strangersHost, port: rpingPort, size: 64, persistent: true, verbose: true, parting: rdmatest.Patience}
		client := &rpingOptions{client: true, addr: strangersHost, port: rpingPort, size: 64, count: 3, validate: true, parting: rdmatest.Patience}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.serve(ctx) }()
		waitListening(network)
		var there []*pinger
		rdmatest.Rounds(t, 60, 1, func(rnd *rand.Rand) {
			there = append(there, strangePinger(t, rnd))
			for len(there) > rnd.IntN(8) {
				there[0].close(t)
				there = there[1:]
			}
			rdmatest.Check(t, client.ping(t.Context()))
		})
		for _, p := range there {
			p.close(t)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		waitNothing(t, network)
	})
}

// TestRpingNoFile: a server of many clients outlasts one for which it has no file descriptor left.
func TestRpingNoFile(t *testing.T) {
	network := verbstest.New(t)
	var refused atomic.Bool
	network.SetRefusal(func(command string) syscall.Errno {
		if command == "open uverbs1" && refused.CompareAndSwap(false, true) {
			return syscall.EMFILE
		}
		return 0
	})
	server := &rpingOptions{server: true, port: rpingPort, size: 64, persistent: true, parting: rdmatest.Patience}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.serve(ctx) }()
	waitListening(network)
	client := &rpingOptions{client: true, addr: network.Device(1).Addr().String(), source: strangersHost, port: rpingPort, size: 64, count: 1, parting: rdmatest.Patience}
	if err := client.ping(t.Context()); !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("the client that was refused: %v", err)
	}
	rdmatest.Check(t, client.ping(t.Context()))
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waitNothing(t, network)
}

// TestRpingAfterError: a client that breaks the connection with a message, and stays, doesn't block the server.
func TestRpingAfterError(t *testing.T) {
	network := verbstest.New(t)
	server := &rpingOptions{server: true, addr: strangersHost, port: rpingPort, size: 64, parting: time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- server.serve(t.Context()) }()
	waitListening(network)
	p := newPinger(t)
	defer p.close(t)
	rdmatest.Must(p.id.Connect(t.Context(), nil))(t)
	p.note(p.mr.Addr(), p.mr.RKey(), 64)
	p.post(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.mr.SGE(0, 8)}, Remote: verbs.Remote{Addr: 1, RKey: 1}})
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the server has seen nothing wrong")
		}
	case <-time.After(rdmatest.Patience):
		t.Error("the server waits for a broken connection")
	}
}

// A pinger is a misbehaving client of rping.
type pinger struct {
	id *rdmacm.SyncID
	mr *verbs.MR
}

func newPinger(t *testing.T) *pinger {
	t.Helper()
	p := &pinger{id: rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)}
	rdmatest.Check(t, p.id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(strangersHost), rpingPort), time.Minute))
	rdmatest.Check(t, p.id.ResolveRoute(t.Context(), time.Minute))
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	p.mr = rdmatest.Must(p.id.PD().AllocMR(2*rpingMaxSize, verbs.MROptions{Access: access}))(t)
	caps := verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}
	rdmatest.Must(p.id.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	for range 32 {
		rdmatest.Must(p.id.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{p.mr.SGE(rpingMaxSize, 1000)}}))(t)
	}
	return p
}

func (p *pinger) close(t *testing.T) {
	t.Helper()
	rdmatest.Check(t, errors.Join(p.id.DestroyQP(), p.mr.Close(), p.id.Close()))
}

func (p *pinger) post(wr verbs.SendWR) {
	wr.Flags = verbs.SendSignaled
	_, _ = p.id.QP().PostSend(wr)
}

// note sends the server a note about memory.
func (p *pinger) note(addr uint64, key, n uint32) {
	b := p.mr.Bytes()[rpingMaxSize:]
	binary.BigEndian.PutUint64(b, addr)
	binary.BigEndian.PutUint32(b[8:], key)
	binary.BigEndian.PutUint32(b[12:], n)
	p.post(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{p.mr.SGE(rpingMaxSize, noteLen)}})
}

// strangePinger returns a client after it has misbehaved.
func strangePinger(t *testing.T, rnd *rand.Rand) *pinger {
	p := newPinger(t)
	for i := range 200 {
		p.mr.Bytes()[i] = byte(rnd.Uint32())
	}
	copy(p.mr.Bytes(), "\x1b]0;title\x07")
	if _, err := p.id.Connect(t.Context(), nil); err != nil {
		return p
	}
	for range rnd.IntN(8) {
		addr, key, n := p.mr.Addr(), p.mr.RKey(), uint32(64)
		switch rnd.IntN(6) {
		case 0:
			addr = rnd.Uint64()
		case 1:
			key = rnd.Uint32()
		case 2:
			n = []uint32{0, 1, rpingMaxSize, rpingMaxSize + 1, 1 << 31, 1<<32 - 1}[rnd.IntN(6)]
		}
		p.note(addr, key, n)
		switch rnd.IntN(8) {
		case 0: // no note
			p.post(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{p.mr.SGE(0, rnd.IntN(100))}})
		case 1:
			p.post(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.mr.SGE(0, 8)}, Remote: verbs.Remote{Addr: rnd.Uint64(), RKey: rnd.Uint32()}})
		case 2:
			p.post(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Imm: rnd.Uint32()})
		}
	}
	if rnd.IntN(3) == 0 {
		_ = p.id.Disconnect(t.Context())
	}
	return p
}
