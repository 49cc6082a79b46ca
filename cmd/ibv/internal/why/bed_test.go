package why

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// A bed is a host without devices of its own: what its kernel and its adapters tell is made up.
type bed struct {
	name string

	qps     map[uint32]*bedQP
	cqs     map[uint32]*bedCQ
	state   ib.PortState
	layer   ib.LinkLayer
	count   map[string]uint64
	failure error  // of all questions about objects
	refusal error  // of questions to the adapter
	kind    string // of device: its protocol
	root    string
	t       testing.TB
}

type bedQP struct {
	state  ib.QPState
	typ    ib.QPType
	remote uint32
	sq, rq uint32 // PSNs
	pid    uint32
	peer   string
	fields map[field]uint64 // of the context
}

type bedCQ struct {
	pid    uint32
	number uint32
	fields map[field]uint64
}

// A field is a place of a context in bits.
type field struct{ at, width int }

// The fields of contexts that tests set, as mlx5_ifc.h has them.
var (
	qpState    = field{0, 4}
	qpMTU      = field{64, 3}
	qpLogRQ    = field{73, 4}
	qpLogSQ    = field{81, 4}
	qpRemote   = field{168, 24}
	qpPKey     = field{208, 16}
	qpGRH      = field{232, 1}
	qpTimeout  = field{256, 5}
	qpSGID     = field{264, 8}
	qpDGIDLow  = field{384, 64}
	qpRetries  = field{909, 3}
	qpRNRNow   = field{917, 3}
	qpRetryNow = field{920, 3}
	qpNextPSN  = field{968, 24}
	qpSendCQ   = field{1000, 24}
	qpAcked    = field{1096, 24}
	qpRecvPSN  = field{1192, 24}
	qpRecvCQ   = field{1256, 24}
	qpSQTaken  = field{1440, 16}
	qpSQPosted = field{1456, 16}
	qpRQTaken  = field{1472, 32}
	qpRQPosted = field{1504, 32}
	cqStatus   = field{0, 4}
	cqArmed    = field{20, 4}
	cqLogSize  = field{99, 5}
	cqConsumed = field{328, 24}
	cqProduced = field{360, 24}
	cqRecord   = field{448, 64}
)

// dump returns what RES_*_GET_RAW returns for a context.
func dump(number uint32, at, size int, fields map[field]uint64) []byte {
	context := make([]byte, at+size)
	for f, v := range fields {
		for i := f.at + f.width - 1; i >= f.at; i, v = i-1, v>>1 {
			context[at+i/8] |= byte(v&1) << (7 - i%8)
		}
	}
	word := func(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
	b := word(nil, uint32(4+len(context)/4)<<16|0x1000)
	b = append(word(word(word(b, 0), number), 0), context...)
	return word(b, 1<<16|0xfffb)
}

func newBed(t testing.TB, name string) *bed {
	return &bed{name: name, t: t, root: t.TempDir(), state: ib.PortActive, layer: ib.LinkLayerEthernet,
		qps: make(map[uint32]*bedQP), cqs: make(map[uint32]*bedCQ), count: make(map[string]uint64)}
}

func (b *bed) host() *Host { return &Host{b.root, b} }

// write writes a file below the root.
func (b *bed) write(text string, path ...any) {
	b.t.Helper()
	name := b.root
	for _, p := range path {
		name = filepath.Join(name, fmt.Sprint(p))
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// link makes a symbolic link below the root.
func (b *bed) link(to, path string) {
	b.t.Helper()
	name := filepath.Join(b.root, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		b.t.Fatal(err)
	}
}

// process adds a process.
func (b *bed) process(pid uint32, comm, state, wchan string) {
	b.write(fmt.Sprintf("Name:\t%s\nState:\t%s (what)\nTgid:\t%d\n", comm, state, pid), "proc", pid, "status")
	b.write(comm+"\n", "proc", pid, "comm")
	b.write(wchan, "proc", pid, "task", pid, "wchan")
}

func (b *bed) Devices(context.Context) ([]rdmanl.Device, error) {
	return []rdmanl.Device{{Index: 3, Name: b.name, Ports: 1, Protocol: rdmanl.Some(b.kind)}}, nil
}

func (b *bed) QPs(context.Context, uint32) ([]rdmanl.QP, error) {
	if b.failure != nil {
		return nil, b.failure
	}
	var all []rdmanl.QP
	for _, n := range slices.Sorted(maps.Keys(b.qps)) {
		q := b.qps[n]
		x := rdmanl.QP{Number: n, Port: rdmanl.Some(uint32(1)), Type: rdmanl.Some(q.typ), State: rdmanl.Some(q.state), SQPSN: rdmanl.Some(q.sq), RQPSN: rdmanl.Some(q.rq),
			Owner: rdmanl.Owner{PID: rdmanl.Some(q.pid)}}
		if q.remote != 0 {
			x.RemoteQPN = rdmanl.Some(q.remote)
		}
		all = append(all, x)
	}
	return all, nil
}

func (b *bed) CQs(context.Context, uint32) ([]rdmanl.CQ, error) {
	var all []rdmanl.CQ
	for _, n := range slices.Sorted(maps.Keys(b.cqs)) {
		all = append(all, rdmanl.CQ{ID: n, Owner: rdmanl.Owner{PID: rdmanl.Some(b.cqs[n].pid)}})
	}
	return all, nil
}

func (b *bed) CMIDs(context.Context, uint32) ([]rdmanl.CMID, error) {
	var all []rdmanl.CMID
	for n, q := range b.qps {
		if q.peer != "" {
			all = append(all, rdmanl.CMID{QPN: rdmanl.Some(n), Dest: rdmanl.Some(netip.AddrPortFrom(netip.MustParseAddr(q.peer), 7471))})
		}
	}
	return all, nil
}

func (b *bed) Raws(_ context.Context, _ uint32, kind rdmanl.RawKind) (all [][]byte, err error) {
	switch {
	case b.refusal != nil:
		return nil, b.refusal
	case kind == rdmanl.RawCQ:
		for _, n := range slices.Sorted(maps.Keys(b.cqs)) {
			all = append(all, dump(b.cqs[n].number, 16, 64, b.cqs[n].fields))
		}
	case kind == rdmanl.RawQP:
		for _, n := range slices.Sorted(maps.Keys(b.qps)) {
			all = append(all, dump(n, 24, 232, b.qps[n].fields))
		}
	}
	return all, nil
}

func (b *bed) Port(context.Context, string, int) (monitor.Port, error) {
	return monitor.Port{Device: b.name, Number: 1, State: b.state, LinkLayer: b.layer, MTU: ib.MTU1024, Netdev: "eth0"}, nil
}

func (b *bed) Counters(context.Context, monitor.Port) (map[string]uint64, error) {
	return maps.Clone(b.count), nil
}
