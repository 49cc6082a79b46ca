// Package conformance checks that this library behaves as rdma-core does on a real
// device: every operation with its data, every failure with its status.
package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/iwarp"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	if os.Getenv(guestVar) != "" {
		if err := guest(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	rdmatest.ConnectIWARP = iwarp.Connect
	rdmatest.Main(m, rdmatest.Profiles, rdmatest.LongOn("mlx5-eth"), rdmatest.AlsoVerbstest)
}

// expectation lists a driver's features, as the C stack observes them. No other test code
// depends on the kernel's version or, except for addresses, on the driver.
type expectation struct {
	atomicWrite bool // OpAtomicWrite
	flush       bool // OpFlush and AccessFlushGlobal
	postsAll    bool // the user-space driver posts operations that the kernel's may not support
	odp         bool // AccessOnDemand
	advise      bool // PD.AdviseMR
	implicit    bool // PD.RegImplicitMR
	nullMR      bool // PD.AllocNullMR
	moderation  bool // CQ.Moderate
	createFlags bool // QPOptions.CreateFlags
	imports     bool // ImportDevice
	dm          bool // Device.AllocDM
	dmExport    bool // DM.ExportDmabuf
	rereg       bool // MR.Rereg of access and PD
	reregMemory bool // MR.Rereg of the memory
	zeroBased   bool // AccessZeroBased
	dmabuf      bool // RegDmabufMR
	udmabuf     bool // dma-bufs of ordinary memory; a feature of the kernel, not of the driver
	accessEvent bool // EventQPAccessErr when a peer uses a wrong key
	lastWQE     bool // EventQPLastWQEReached
	sqd         bool // QPSQD
	srqResize   bool // SRQ.Resize
	shrinkFull  bool // CQ.Resize refuses a size below the number of unpolled completions
	boundMR     bool // an MR with a bound window can't be deregistered
	localAH     bool // an AH without a GRH
	checksGID   bool // CreateAH notices that a source GID doesn't exist
	unreliable  bool // UC
	immediate   bool // operations with immediate data
	readsPieces bool // an RDMA read into several pieces of memory
}

func expect(t *testing.T) expectation {
	t.Helper()
	k := rdmatest.Kernel(t)
	if rdmatest.KindOf() == rdmatest.SIW {
		return expectation{} // TestIWARPLacks has the rest
	}
	if rdmatest.KindOf() == rdmatest.Verbstest {
		return expectation{
			unreliable:  true,
			immediate:   true,
			readsPieces: true,
			postsAll:    true,
			sqd:         true,
			srqResize:   true,
			shrinkFull:  true,
			checksGID:   true,
			rereg:       true,
			reregMemory: true,
			zeroBased:   true,
			accessEvent: true,
			lastWQE:     true,
		}
	}
	if rdmatest.KindOf() == rdmatest.MLX5 {
		// mlx5_ib has no flush and no atomic write. It doesn't drain send queues
		// (its table of transitions has no SQD) or resize SRQs. An AH for
		// InfiniBand is created without the kernel. The adapter's firmware decides
		// whether a bound window keeps its MR registered; in rig/connectx it doesn't.
		return expectation{
			odp:         true,
			advise:      true,
			implicit:    true,
			nullMR:      true,
			moderation:  true,
			createFlags: true,
			imports:     true,
			dm:          true,
			dmExport:    k.AtLeast(7, 0),
			rereg:       true,
			reregMemory: true,
			zeroBased:   true,
			dmabuf:      true,
			udmabuf:     k.AtLeast(6, 12), // Debian's 6.1 has no /dev/udmabuf
			accessEvent: true,
			lastWQE:     true,
			localAH:     !rdmatest.RoCE,
			checksGID:   rdmatest.RoCE,
			unreliable:  true,
			immediate:   true,
			readsPieces: true,
		}
	}
	return expectation{
		unreliable:  true,
		immediate:   true,
		readsPieces: true,
		postsAll:    true,
		sqd:         true,
		srqResize:   true,
		shrinkFull:  true,
		boundMR:     true,
		checksGID:   true,
		atomicWrite: k.AtLeast(6, 2),
		flush:       k.AtLeast(6, 3),
		odp:         k.AtLeast(6, 15),
		advise:      k.AtLeast(6, 16),
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

// wantInvalid fails the test if err is not the library's own refusal.
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

// roundTrip sends one message from A to B and checks its bytes, to prove that the pair
// works.
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
