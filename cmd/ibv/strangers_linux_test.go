package main

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/fakerdma"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// TestUcmatoseStrangers: whatever the client of ibv ucmatose does, the server ends, and leaves nothing. An honest client
// is served.
func TestUcmatoseStrangers(t *testing.T) {
	w := fakerdma.New(t)
	o := newCMOptions(rdmacm.PortSpaceTCP, 7471)
	o.source = fakerdma.Host
	server := func(silence time.Duration) (ended chan error) {
		o := o
		o.silence = silence
		ended = make(chan error, 1)
		go func() {
			nodes, err := o.serveMessages(context.Background())
			for _, n := range nodes {
				if closed := n.close(); err == nil {
					err = closed
				}
			}
			ended <- err
		}()
		for len(w.Listening()) == 0 {
			time.Sleep(time.Millisecond)
		}
		return ended
	}
	wait := func(ended chan error) error {
		t.Helper()
		select {
		case err := <-ended:
			if left := w.Left(); len(left) > 0 {
				t.Errorf("there are %v", left)
			}
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
		ended = server(time.Minute)
		client := o
		client.server, client.source = fakerdma.Host, ""
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

// strangeClient is a client of ucmatose's server that does something else.
func strangeClient(t *testing.T, rnd *rand.Rand) {
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	defer func() { rdmatest.Check(t, id.Close()) }()
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort(fakerdma.Host+":7471"), time.Minute))
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
