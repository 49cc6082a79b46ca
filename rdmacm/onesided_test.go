package rdmacm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/verbs"
)

// TestOneSided: each operation posts its request and returns the outcome.
func TestOneSided(t *testing.T) {
	local, remote := verbs.SGE{Addr: 0x1000, Length: 16, LKey: 7}, verbs.Remote{Addr: 0x2000, RKey: 9}
	for _, test := range []struct {
		name string
		call func(*Conn, context.Context) (uint64, error)
		want verbs.SendWR // without its SGL
		wc   verbs.WCOpcode
	}{
		{"write", func(c *Conn, ctx context.Context) (uint64, error) { return 0, c.Write(ctx, local, remote) },
			verbs.SendWR{Opcode: verbs.OpRDMAWrite, Remote: remote}, verbs.WCRDMAWrite},
		{"write with immediate", func(c *Conn, ctx context.Context) (uint64, error) { return 0, c.WriteImm(ctx, local, remote, 5) },
			verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Remote: remote, Imm: 5}, verbs.WCRDMAWrite},
		{"read", func(c *Conn, ctx context.Context) (uint64, error) { return 0, c.Read(ctx, local, remote) },
			verbs.SendWR{Opcode: verbs.OpRDMARead, Remote: remote}, verbs.WCRDMARead},
		{"compare-and-swap", func(c *Conn, ctx context.Context) (uint64, error) { return c.CompareSwap(ctx, remote, 3, 4) },
			verbs.SendWR{Opcode: verbs.OpCompareSwap, Remote: remote, Compare: 3, Swap: 4}, verbs.WCCompareSwap},
		{"fetch-and-add", func(c *Conn, ctx context.Context) (uint64, error) { return c.FetchAdd(ctx, remote, 6) },
			verbs.SendWR{Opcode: verbs.OpFetchAdd, Remote: remote, Add: 6}, verbs.WCFetchAdd},
	} {
		for _, status := range []verbs.WCStatus{verbs.WCSuccess, verbs.WCRemAccessErr} {
			t.Run(fmt.Sprint(test.name, " ", status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeConn(t, 2, 5) // the results of atomic operations are aligned nevertheless
					var before uint64
					result := async(func() (err error) { before, err = test.call(f.Conn, t.Context()); return err })
					synctest.Wait()
					_, wr := f.qp.sent()
					sge := wr.SGL[0]
					var want uint64
					if atomic := test.wc == verbs.WCCompareSwap || test.wc == verbs.WCFetchAdd; atomic {
						if sge.Length != 8 || sge.Addr%8 != 0 || sge.Addr < 2*2*5 {
							t.Errorf("the result is for %+v", sge)
						}
						want = 1234567890123
						binary.NativeEndian.PutUint64(f.bytes(wr.SGL), want)
					} else if len(wr.SGL) != 1 || sge != local {
						t.Errorf("the memory is %+v", wr.SGL)
					}
					f.sendCQ.put(verbs.WC{WRID: wr.WRID, Opcode: verbs.WCTSO}, verbs.WC{WRID: wr.WRID, Opcode: test.wc, Status: status})
					err := <-result
					if status != verbs.WCSuccess {
						wantWC(t, err, status)
						wantWC(t, f.Err(), status)
					} else if err != nil || before != want {
						t.Errorf("%d, %v, want %d", before, err, want)
					}
					test.want.WRID, test.want.Flags, wr.SGL = wr.WRID, verbs.SendSignaled, nil
					if fmt.Sprintf("%+v", wr) != fmt.Sprintf("%+v", test.want) {
						t.Errorf("posted %+v, want %+v", wr, test.want)
					}
				})
			})
		}
	}
}

// TestPostWrite: as many writes are in flight as there are slots, and each has its outcome once.
func TestPostWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		var outcomes []error
		post := func() error {
			return f.PostWrite(t.Context(), verbs.SGE{Length: 1}, verbs.Remote{}, func(err error) { outcomes = append(outcomes, err) })
		}
		if err := errors.Join(post(), post()); err != nil {
			t.Fatal(err)
		}
		third := async(post)
		synctest.Wait()
		none(t, third)
		f.sendCQ.put(verbs.WC{WRID: f.qp.sends[0].WRID, Opcode: verbs.WCRDMAWrite})
		if err := <-third; err != nil || len(outcomes) != 1 || outcomes[0] != nil {
			t.Fatalf("%v, outcomes %v", err, outcomes)
		}
		flushed := async(func() error { return f.Flush(t.Context()) })
		synctest.Wait()
		none(t, flushed)
		f.sendCQ.put(verbs.WC{WRID: f.qp.sends[1].WRID, Opcode: verbs.WCRDMAWrite})
		synctest.Wait()
		// The queue pair goes with the third one in flight.
		f.messages.gone()
		f.messages.gone()
		f.sendCQ.put(verbs.WC{WRID: f.qp.sends[2].WRID, Opcode: verbs.WCRDMAWrite})
		if err := <-flushed; err != nil || len(outcomes) != 3 || outcomes[1] != nil || !errors.Is(outcomes[2], ErrClosed) {
			t.Errorf("%v, outcomes %v", err, outcomes)
		}
	})
}

// TestRecvWrite: writes with immediate data come beside messages, and consume their buffers.
func TestRecvWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 3, 8)
		f.arrive(t, []byte("one"))
		f.recvCQ.put(verbs.WC{WRID: f.qp.takeRecv(t).WRID, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 1 << 31, Flags: verbs.WCWithImm})
		f.arrive(t, []byte("two"))
		b := make([]byte, 8)
		for _, want := range []string{"one", "two"} {
			if n, err := f.Recv(t.Context(), b); err != nil || string(b[:n]) != want {
				t.Fatalf("%q, %v, want %q", b[:n], err, want)
			}
		}
		if len(f.qp.recvs) != 2 {
			t.Errorf("%d receives are posted before the write was taken", len(f.qp.recvs))
		}
		if imm, n, err := f.RecvWrite(t.Context()); imm != 0 || n != 1<<31 || err != nil {
			t.Errorf("%d, %d bytes, %v", imm, n, err)
		}
		if len(f.qp.recvs) != 3 {
			t.Errorf("%d receives are posted afterwards", len(f.qp.recvs))
		}
		waits := async(func() error { _, _, err := f.RecvWrite(t.Context()); return err })
		synctest.Wait()
		none(t, waits)
		f.endLife(ErrDisconnected)
		wantErr(t, <-waits, io.EOF)
	})
}

// TestDrain: draining a connection that has ended waits until its requests have completed.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(t, 2, 8)
		drain := func(ctx context.Context) error {
			f.messages.drains()
			f.endLife(ErrClosed)
			return f.messages.drain(ctx)
		}
		if err := f.Post(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := async(func() error { return drain(ctx) })
		synctest.Wait()
		if !errors.Is(f.Err(), ErrClosed) {
			t.Errorf("meanwhile: %v", f.Err())
		}
		cancel()
		wantErr(t, <-first, context.Canceled)
		second := async(func() error { return drain(t.Context()) })
		synctest.Wait()
		for _, wr := range f.qp.sends {
			none(t, second)
			f.sendCQ.put(verbs.WC{WRID: 3, Status: verbs.WCWRFlushErr}, verbs.WC{WRID: wr.WRID, Status: verbs.WCWRFlushErr})
			synctest.Wait()
		}
		for len(f.qp.recvs) > 0 {
			none(t, second)
			f.recvCQ.put(verbs.WC{WRID: f.qp.takeRecv(t).WRID, Status: verbs.WCWRFlushErr})
			synctest.Wait()
		}
		if err := errors.Join(<-second, drain(t.Context())); err != nil {
			t.Error(err)
		}
		if len(f.qp.sends) != 2 {
			t.Errorf("%d sends were posted", len(f.qp.sends))
		}
		var wcs [4]verbs.WC
		if n, err := f.WaitSends(t.Context(), wcs[:]); n != 2 || err != nil || wcs[0].WRID != 3 {
			t.Errorf("%d of the caller's requests, %v: %+v", n, err, wcs)
		}
		n, err := f.WaitSends(t.Context(), wcs[:])
		if n != 0 {
			t.Errorf("%d more", n)
		}
		wantErr(t, err, ErrClosed)
	})
}
