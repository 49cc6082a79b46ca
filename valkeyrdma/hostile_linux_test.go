package valkeyrdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/netconn"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestHostileRounds: whatever the clients of a Listener do, the next honest one is served. In the end nothing is left of
// them.
func TestHostileRounds(t *testing.T) {
	n := verbstest.New(t)
	o := Options{SendBuffer: 4 << 10, RecvBuffer: 8 << 10}
	l := listen(t, ListenConfig{Options: o, Backlog: 16})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				continue
			}
			tasks.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	honest := func() {
		d := Dialer{Options: o}
		c := rdmatest.Must(d.Dial("tcp", l.Addr().String()))(t)
		text, got := bytes.Repeat([]byte("honest"), 3000), make([]byte, 18000)
		sent := make(chan error)
		go func() {
			_, err := c.Write(text)
			sent <- err
		}()
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, text) {
			t.Errorf("an honest client: %v, or other bytes", err)
		}
		rdmatest.Check(t, <-sent)
		rdmatest.Close(t, c)
	}
	there := func() string { return strings.Join(append(n.Left(), netconn.Held()...), "\n") }
	before := there()
	settle := func(goroutines int) {
		t.Helper()
		rdmatest.Until(t, func() string {
			now, left := runtime.NumGoroutine(), there()
			if now <= goroutines && left == before {
				return ""
			}
			return fmt.Sprintf("%d goroutines, %d before, and there are:\n%s\nbefore:\n%s", now, goroutines, left, before)
		})
	}
	honest()
	settle(math.MaxInt)
	goroutines := runtime.NumGoroutine()
	var rogues []*rogue // those that linger
	leave := func() {
		rogues[0].close(t)
		rogues = rogues[1:]
	}
	rdmatest.Rounds(t, 100, 1, func(rnd *rand.Rand) {
		rdmatest.InTime(func() {
			r := newRogue(t, l.Addr().(*net.TCPAddr).AddrPort())
			if _, err := r.id.Connect(t.Context(), &rdmacm.ConnParam{PrivateData: make([]byte, rnd.IntN(56))}); err != nil {
				t.Error(err)
			}
			for range rnd.IntN(12) {
				r.strike(rnd)
			}
			rogues = append(rogues, r)
			for len(rogues) > rnd.IntN(8) {
				leave()
			}
			honest()
		})
	})
	for len(rogues) > 0 {
		leave()
	}
	settle(goroutines)
	rdmatest.Close(t, l)
	tasks.Wait()
}

// A rogue is a client that has no rules.
type rogue struct {
	id *rdmacm.SyncID
	mr *verbs.MR
	at memory // what the other side has registered
}

const (
	rogueRoom = 64
	rogueMem  = 16 << 10
)

func newRogue(t testing.TB, to netip.AddrPort) *rogue {
	t.Helper()
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, to, time.Minute))
	rdmatest.Check(t, id.ResolveRoute(t.Context(), time.Minute))
	caps := verbs.QPCap{MaxSendWR: rogueRoom, MaxRecvWR: rogueRoom, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}
	rdmatest.Must(id.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	r := &rogue{id: id}
	r.mr = rdmatest.Must(id.PD().AllocMR(rogueMem, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))(t)
	for range rogueRoom {
		rdmatest.Must(id.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{r.mr.SGE(0, commandLen)}}))(t)
	}
	return r
}

// post posts a request, unless the queue is full or the connection over.
func (r *rogue) post(wr verbs.SendWR) {
	wr.Flags = verbs.SendSignaled
	_, _ = r.id.QP().PostSend(wr)
	var wcs [8]verbs.WC
	_, _ = r.id.SendCQ().Poll(wcs[:])
	if n, _ := r.id.RecvCQ().Poll(wcs[:]); n > 0 {
		if m, err := parseMemory(r.mr.Bytes()[:commandLen]); err == nil && binary.BigEndian.Uint16(r.mr.Bytes()) == opRegisterXferMemory {
			r.at = m
		}
	}
}

// strike does one thing, which may be honest.
func (r *rogue) strike(rnd *rand.Rand) {
	odd := func() uint64 {
		return []uint64{0, 1, r.mr.Addr(), math.MaxUint64, math.MaxUint32, uint64(rnd.Uint32()), rnd.Uint64()}[rnd.IntN(7)]
	}
	var b [commandLen]byte
	switch rnd.IntN(8) {
	case 0: // a command of any kind
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		binary.BigEndian.PutUint16(b[:], uint16(rnd.IntN(6)))
		r.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: b[:]})
	case 1: // of another length
		r.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: b[:rnd.IntN(commandLen)]})
	case 2: // memory
		memory{addr: odd(), key: uint32(odd()), length: uint32(odd())}.register(&b)
		r.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: b[:]})
	case 3: // its own memory, so that the other side answers
		memory{addr: r.mr.Addr() + commandLen, key: r.mr.RKey(), length: 1 + rnd.Uint32N(rogueMem-commandLen)}.register(&b)
		r.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: b[:]})
	case 4: // questions
		for range rnd.IntN(2 * rogueRoom) {
			clear(b[:])
			r.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: b[:]})
		}
	case 5: // data, true or not
		n := 1 + rnd.IntN(64)
		imm := uint32(n)
		if rnd.IntN(2) == 0 {
			imm = uint32(odd())
		}
		r.post(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Imm: imm, SGL: []verbs.SGE{r.mr.SGE(0, n)},
			Remote: verbs.Remote{Addr: r.at.addr + uint64(rnd.IntN(100)), RKey: r.at.key}})
	case 6: // data to anywhere
		r.post(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Imm: 10, SGL: []verbs.SGE{r.mr.SGE(0, 10)}, Remote: verbs.Remote{Addr: odd(), RKey: uint32(odd())}})
	case 7: // death
		_ = r.id.QP().Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
	}
}

// close ends the rogue.
func (r *rogue) close(t testing.TB) {
	t.Helper()
	rdmatest.Check(t, errors.Join(r.id.DestroyQP(), r.mr.Close(), r.id.Close()))
}
