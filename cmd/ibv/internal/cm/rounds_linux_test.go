package cm

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/strangertest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestCmtimeRounds: the server of ibv cmtime serves the next client, whatever others do, and has no more clients than
// its limit. Sometimes all clients leave.
func TestCmtimeRounds(t *testing.T) {
	verbstest.New(t)
	strangertest.Unharmed(t, func() {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := rdmatest.Must((&cmtimeOptions{port: 7471}).listen(ctx))(t)
		s.most = 16
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx) }()
		var there strangertest.Callers
		rdmatest.Rounds(t, 100, 1, func(rnd *rand.Rand) {
			addr := []string{strangertest.Here, "192.0.2.1", "192.0.2.2"}[rnd.IntN(3)]
			there = append(there, strangertest.Strange(t, rnd, netip.MustParseAddrPort(addr+":7471"))...)
			there.Leave(t, rnd.IntN(48))
			client := &cmtimeOptions{server: addr, port: 7471, count: 1 + rnd.IntN(4), timeout: time.Minute}
			rdmatest.Check(t, client.measure(t.Context()))
			s.mu.Lock()
			defer s.mu.Unlock()
			if n := s.clients.Len(); n > s.most {
				t.Errorf("%d clients are there, %d may be", n, s.most)
			}
		})
		there.Leave(t, 0)
		for range 3 { // the device is the same when all have left, and another one comes
			client := &cmtimeOptions{server: strangertest.Here, port: 7471, count: 1, timeout: time.Minute}
			rdmatest.Check(t, client.measure(t.Context()))
			for start, left := time.Now(), -1; left != 0 && time.Since(start) < rdmatest.Patience; time.Sleep(time.Millisecond) {
				s.mu.Lock()
				left = s.clients.Len()
				s.mu.Unlock()
			}
			s.clean()
		}
		stop()
		if err := strangertest.Finished(t, ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := len(s.queues.cqs); n > 2 {
			t.Errorf("%d CQs of 2 devices", n)
		}
	})
}

// TestUcmatoseHalfOpen: a client that stays and never confirms the answer doesn't block ibv ucmatose.
func TestUcmatoseHalfOpen(t *testing.T) {
	verbstest.New(t)
	o := newOptions(rdmacm.PortSpaceTCP, 7471)
	o.silence = strangertest.Hasty
	listener := rdmatest.Must(o.listen(t.Context()))(t)
	ended := make(chan error, 1)
	go func() {
		nodes, err := o.answerMessages(context.Background(), listener)
		ended <- errors.Join(err, closeAll(nodes), listener.Close())
	}()
	c := strangertest.Call(t, rdmacm.PortSpaceTCP, netip.MustParseAddrPort(strangertest.Here+":7471"))
	defer c.Close(t)
	c.Ask(rand.New(rand.NewPCG(1, 1)))
	if err := strangertest.Finished(t, ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func closeAll(nodes endpoints) (err error) {
	for _, n := range nodes {
		err = errors.Join(err, n.close())
	}
	return err
}

// TestUdaddyRounds: whatever clients of ibv udaddy do, the server ends, and leaves no object open. The next server
// serves its client.
func TestUdaddyRounds(t *testing.T) {
	verbstest.New(t)
	strangertest.Unharmed(t, func() {
		rdmatest.Rounds(t, 60, 3, func(rnd *rand.Rand) {
			o := newOptions(rdmacm.PortSpaceUDP, 7174)
			o.connections, o.messages, o.size = 1+rnd.IntN(3), 1+rnd.IntN(10), 1+rnd.IntN(200)
			serve := func(silence time.Duration) <-chan error {
				o := o
				o.silence = silence
				listener := rdmatest.Must(o.listen(t.Context()))(t)
				ended := make(chan error, 1)
				go func() {
					nodes, err := o.answerDatagrams(context.Background(), listener)
					rdmatest.Check(t, errors.Join(closeAll(nodes), listener.Close()))
					ended <- err
				}()
				return ended
			}
			ended := serve(strangertest.Hasty)
			var there strangertest.Callers
			for range o.connections + rnd.IntN(5) {
				there = append(there, strangeDatagrams(t, rnd, &o))
			}
			_ = strangertest.Finished(t, ended)
			there.Leave(t, 0)
			ended = serve(rdmatest.Patience)
			o.server, o.silence = strangertest.Here, rdmatest.Patience
			nodes, err := o.exchangeDatagrams(t.Context())
			rdmatest.Check(t, errors.Join(err, closeAll(nodes)))
			rdmatest.Check(t, strangertest.Finished(t, ended))
		})
	})
}

// strangeDatagrams runs a misbehaving client of udaddy's server.
func strangeDatagrams(t *testing.T, rnd *rand.Rand, o *options) *strangertest.Caller {
	c := strangertest.Call(t, rdmacm.PortSpaceUDP, netip.MustParseAddrPort(strangertest.Here+":7174"))
	if rnd.IntN(3) == 0 {
		c.Ask(rnd)
		return c
	}
	c.Queue(t, 0)
	event, err := c.ID.Connect(t.Context(), &rdmacm.ConnParam{PrivateData: []byte(strangertest.Escapes)})
	if err != nil {
		return c
	}
	ah := rdmatest.Must(c.ID.PD().CreateAH(event.UD.AH))(t)
	defer func() { rdmatest.Check(t, ah.Close()) }()
	for range rnd.IntN(2 * o.messages) {
		wr := verbs.SendWR{Opcode: verbs.OpSendImm, Imm: rnd.Uint32() >> rnd.IntN(32), SGL: []verbs.SGE{c.MR.SGE(0, rnd.IntN(o.size+1))},
			AH: ah, RemoteQPN: event.UD.QPNum, RemoteQKey: event.UD.QKey}
		switch rnd.IntN(8) {
		case 0:
			wr.Opcode, wr.Imm = verbs.OpSend, 0
		case 1:
			wr.SGL[0].Length = 1024
		case 2:
			wr.RemoteQKey++
		case 3:
			wr.RemoteQPN = rnd.Uint32() & 0xffffff
		}
		c.Post(wr)
	}
	return c
}

// TestMckeyRoute: without a route to the group, the error names the option that chooses a device.
func TestMckeyRoute(t *testing.T) {
	n := verbstest.New(t)
	n.SetRefusal(func(command string) syscall.Errno {
		if strings.Contains(command, "resolve") {
			return syscall.ENETUNREACH
		}
		return 0
	})
	for line, want := range map[string]bool{"-m 239.1.2.3": true, "-m 239.1.2.3 -b " + strangertest.Here: false} {
		o := newMckey()
		rdmatest.Check(t, parse(o.command(), line))
		if _, err := o.member(t.Context()); !errors.Is(err, syscall.ENETUNREACH) || strings.Contains(err.Error(), "-b") != want {
			t.Errorf("mckey %s: %v", line, err)
		}
	}
}

// TestMckeyRounds: whatever others send to the group of ibv mckey, the receiver ends, leaves no object open, and
// receives a member's messages.
func TestMckeyRounds(t *testing.T) {
	group := netip.MustParseAddr("239.1.2.3")
	verbstest.New(t)
	strangertest.Unharmed(t, func() {
		rdmatest.Rounds(t, 60, 3, func(rnd *rand.Rand) {
			o := newMckey()
			rdmatest.Check(t, parse(o.command(), "-m 239.1.2.3 -b "+strangertest.Here))
			if o.silence == 0 {
				t.Error("a group may be silent for ever in the middle")
			}
			o.connections, o.messages, o.size = 1+rnd.IntN(3), 1+rnd.IntN(10), 1+rnd.IntN(200)
			receive := func(silence time.Duration) <-chan error {
				o := *o
				o.silence = silence
				nodes := rdmatest.Must(o.members(t.Context()))(t)
				ended := make(chan error, 1)
				go func() {
					err := o.transfer(nodes)
					rdmatest.Check(t, closeAll(nodes))
					ended <- err
				}()
				return ended
			}
			send := func() {
				o := *o
				o.sends, o.connections = true, 1
				nodes := rdmatest.Must(o.members(t.Context()))(t)
				rdmatest.Check(t, o.transfer(nodes))
				rdmatest.Check(t, closeAll(nodes))
			}
			ended := receive(strangertest.Hasty)
			heard := 0
			for range 1 + rnd.IntN(5) {
				heard += strangeMember(t, rnd, o, group)
			}
			if heard == 0 { // a receiver waits for the first message
				send()
			}
			// A busy member may also be silent for that long between two messages.
			if err := strangertest.Finished(t, ended); err == nil && heard > 0 && heard < o.messages {
				t.Errorf("%d messages of %d have come, and the receiver has ended without an error", heard, o.messages)
			}
			ended = receive(rdmatest.Patience)
			send()
			rdmatest.Check(t, strangertest.Finished(t, ended))
		})
	})
}

// strangeMember sends messages to a group that mckey wouldn't send. It returns how many of them a receiver gets.
func strangeMember(t *testing.T, rnd *rand.Rand, o *mckeyOptions, group netip.Addr) (heard int) {
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceUDP))(t)
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.MustParseAddrPort(strangertest.Here+":0"), netip.AddrPortFrom(group, 0), time.Minute))
	c := &strangertest.Caller{ID: id, MR: rdmatest.Must(id.PD().AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)}
	defer c.Close(t)
	c.Queue(t, 0)
	_, event, err := id.JoinMulticast(t.Context(), group, rdmacm.JoinFullMember)
	rdmatest.Check(t, err)
	ah := rdmatest.Must(id.PD().CreateAH(event.UD.AH))(t)
	defer func() { rdmatest.Check(t, ah.Close()) }()
	for range rnd.IntN(1 + o.messages/2) {
		wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{c.MR.SGE(0, rnd.IntN(o.size+1))},
			AH: ah, RemoteQPN: event.UD.QPNum, RemoteQKey: event.UD.QKey}
		got := 1
		switch rnd.IntN(5) {
		case 0:
			wr.Opcode, wr.Imm = verbs.OpSendImm, rnd.Uint32()
		case 1:
			wr.SGL[0].Length, got = uint32(o.size+1+rnd.IntN(1024-o.size)), 0
		case 2:
			wr.RemoteQKey, got = rnd.Uint32()|1<<31, 0
		}
		c.Post(wr)
		heard += got
	}
	return heard
}
