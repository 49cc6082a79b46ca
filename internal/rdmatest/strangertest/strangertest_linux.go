// Package strangertest has clients that misbehave, for the tests of servers.
package strangertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

const (
	Here    = "127.0.0.1"         // an address of the first device
	Escapes = "\x1b]0;evil\x07\n" // a stranger's text
	Hasty   = time.Millisecond    // a server's patience with strangers
)

// Unharmed runs play, in which strangers take part. It checks that the output can't control a terminal, and that in
// the end there are no more goroutines than before, and hardly more memory.
func Unharmed(t *testing.T, play func()) {
	t.Helper()
	printed := rdmatest.Must(os.Create(filepath.Join(t.TempDir(), "printed")))(t)
	defer printed.Close()
	stdout, stderr := os.Stdout, os.Stderr
	restore := func() { os.Stdout, os.Stderr = stdout, stderr }
	defer restore()
	os.Stdout, os.Stderr = printed, printed
	goroutines, memory := runtime.NumGoroutine(), heap()
	play()
	for start := time.Now(); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Since(start) > rdmatest.Patience {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), goroutines, b[:runtime.Stack(b, true)])
		}
	}
	if more := heap() - memory; more > 8<<20 {
		t.Errorf("%d bytes more than before", more)
	}
	text := rdmatest.Must(os.ReadFile(printed.Name()))(t) // for the race detector, what was written comes before what follows
	restore()
	Harmless(t, string(text))
}

// Harmless checks that a text can't control a terminal.
func Harmless(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || strings.Contains(text, "evil") {
		t.Errorf("%.1000q", text)
	}
}

// heap returns the memory in use after a garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Finished waits for a server's end, and returns its error.
func Finished(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			Harmless(t, err.Error())
		}
		return err
	case <-time.After(rdmatest.Patience):
		b := make([]byte, 1<<20)
		t.Fatalf("the server doesn't end:\n%s", b[:runtime.Stack(b, true)])
		return nil
	}
}

// A Caller is a misbehaving client, made from the verbs.
type Caller struct {
	ID     *rdmacm.SyncID
	MR     *verbs.MR
	asking sync.WaitGroup
}

// Call returns a caller with a resolved route to a server, and memory.
func Call(t *testing.T, ps rdmacm.PortSpace, to netip.AddrPort) *Caller {
	t.Helper()
	c := &Caller{ID: rdmatest.Must(rdmacm.CreateSyncID(ps))(t)}
	rdmatest.Check(t, c.ID.ResolveAddr(t.Context(), netip.AddrPort{}, to, time.Minute))
	rdmatest.Check(t, c.ID.ResolveRoute(t.Context(), time.Minute))
	c.MR = rdmatest.Must(c.ID.PD().AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	copy(c.MR.Bytes(), strings.Repeat(Escapes, 100))
	return c
}

// Queue makes a queue pair with n receives.
func (c *Caller) Queue(t *testing.T, n int) {
	t.Helper()
	caps := verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}
	rdmatest.Must(c.ID.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	for range n {
		rdmatest.Must(c.ID.QP().PostRecv(verbs.RecvWR{SGL: []verbs.SGE{c.MR.SGE(0, 4096)}}))(t)
	}
}

// Ask requests a connection. It neither waits for the answer nor confirms it.
func (c *Caller) Ask(rnd *rand.Rand) {
	p := &rdmacm.ConnParam{QPNum: 0x800000 + rnd.Uint32()&0x7fffff, PrivateData: []byte(Escapes)}
	c.asking.Go(func() { _, _ = c.ID.Connect(context.Background(), p) })
}

// Post posts a request. It may fail.
func (c *Caller) Post(wr verbs.SendWR) {
	wr.Flags |= verbs.SendSignaled
	_, _ = c.ID.QP().PostSend(wr)
	var wcs [8]verbs.WC
	_, _ = c.ID.SendCQ().Poll(wcs[:])
}

// Close closes everything.
func (c *Caller) Close(t *testing.T) {
	t.Helper()
	rdmatest.Check(t, errors.Join(c.ID.DestroyQP(), c.MR.Close(), c.ID.Close()))
	c.asking.Wait()
}

// Callers are the callers that stay connected.
type Callers []*Caller

// Leave closes all callers but n.
func (all *Callers) Leave(t *testing.T, n int) {
	t.Helper()
	for len(*all) > n {
		(*all)[0].Close(t)
		*all = (*all)[1:]
	}
}

// Strange lets a caller misbehave towards a server, or several callers ask and stay silent. It returns those that stay.
func Strange(t *testing.T, rnd *rand.Rand, to netip.AddrPort) (there Callers) {
	if rnd.IntN(3) == 0 {
		for range 1 + rnd.IntN(6) {
			c := Call(t, rdmacm.PortSpaceTCP, to)
			there = append(there, c)
			c.Ask(rnd)
		}
		return there
	}
	c := Call(t, rdmacm.PortSpaceTCP, to)
	there = append(there, c)
	c.Queue(t, rnd.IntN(64))
	data := make([]byte, rnd.IntN(rdmacm.MaxConnectData+1))
	copy(data, Escapes)
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	if _, err := c.ID.Connect(ctx, &rdmacm.ConnParam{PrivateData: data}); err != nil {
		return there
	}
	for range rnd.IntN(20) {
		wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{c.MR.SGE(0, rnd.IntN(4097))}}
		switch rnd.IntN(5) {
		case 0:
			wr.Opcode, wr.Imm, wr.SGL = verbs.OpRDMAWriteImm, rnd.Uint32(), nil
		case 1:
			wr.Opcode, wr.Remote = verbs.OpRDMAWrite, verbs.Remote{Addr: rnd.Uint64(), RKey: rnd.Uint32()}
		}
		c.Post(wr)
	}
	switch rnd.IntN(3) {
	case 0:
		_ = c.ID.Disconnect(t.Context())
	case 1:
		_ = c.ID.QP().Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
	}
	return there
}
