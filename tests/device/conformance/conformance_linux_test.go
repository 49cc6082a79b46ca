// Package conformance holds this library to what rdma-core does on a real
// device: every operation with its data, every failure with its status.
package conformance

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// expectation is what a driver has, as the C stack finds it. It is the only place
// where tests ask for the kernel's version and, but for addresses, for the driver.
type expectation struct {
	atomicWrite bool // OpAtomicWrite
	flush       bool // OpFlush and AccessFlushGlobal
	postsAll    bool // the driver's user half posts what the kernel's half may not have
	odp         bool // AccessOnDemand
	rereg       bool // MR.Rereg of access and PD
	reregMemory bool // and of the memory
	zeroBased   bool // AccessZeroBased
	dmabuf      bool // RegDmabufMR
	udmabuf     bool // dma-bufs of ordinary memory: of the kernel, not the driver
	accessEvent bool // EventQPAccessErr when a peer uses a wrong key
	lastWQE     bool // EventQPLastWQEReached
	sqd         bool // QPSQD
	srqResize   bool // SRQ.Resize
	shrinkFull  bool // CQ.Resize refuses a size below what is unpolled
	boundMR     bool // an MR with a window on it can't be deregistered
	localAH     bool // an AH without a GRH
	checksGID   bool // CreateAH finds out that a source GID isn't there
}

func expect(t *testing.T) expectation {
	t.Helper()
	k := rdmatest.Kernel(t)
	if rdmatest.KindOf() == rdmatest.MLX5 {
		// mlx5_ib has no flush and no atomic write, and neither drains send
		// queues (its table of transitions has no SQD) nor resizes SRQs. An AH for
		// InfiniBand is made without the kernel. Whether windows hold their MR is
		// up to the adapter's firmware; that of tests/hca lets go.
		return expectation{
			odp:         true,
			rereg:       true,
			reregMemory: true,
			zeroBased:   true,
			dmabuf:      true,
			udmabuf:     k.AtLeast(6, 12), // Debian's 6.1 has none
			accessEvent: true,
			lastWQE:     true,
			localAH:     !rdmatest.RoCE,
			checksGID:   rdmatest.RoCE,
		}
	}
	return expectation{
		postsAll:    true,
		sqd:         true,
		srqResize:   true,
		shrinkFull:  true,
		boundMR:     true,
		checksGID:   true,
		atomicWrite: k.AtLeast(6, 2),
		flush:       k.AtLeast(6, 3),
		odp:         k.AtLeast(6, 15),
		rereg:       k.AtLeast(6, 4),
		zeroBased:   !k.AtLeast(6, 3),
		accessEvent: k.AtLeast(6, 13),
		lastWQE:     k.AtLeast(6, 10),
	}
}

// wantErrno fails the test if err is not the kernel's errno.
func wantErrno(t *testing.T, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// wantInvalid fails the test if err is not a refusal that the library made.
func wantInvalid(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func wantBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("byte %d of %d is %#x, want %#x", i, len(got), got[i], want[i])
		}
	}
	t.Fatalf("%d bytes, want %d", len(got), len(want))
}

// roundTrip sends one message from A to B and checks its bytes: the proof that
// a pair works.
func roundTrip(t *testing.T, p *rdmatest.Pair, seed int) {
	t.Helper()
	const n = 500
	rdmatest.Fill(p.A.MR.Bytes()[:n], seed)
	p.B.Recv(t, 2, 0, n)
	p.A.Send(t, verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}})
	rdmatest.PollOK(t, p.A.CQ, 1)
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantBytes(t, p.B.MR.Bytes()[:n], rdmatest.Pattern(n, seed))
}
