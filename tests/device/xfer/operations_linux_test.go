package xfer

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/xfer"
)

// TestXferOperations: reads and writes of all kinds of sizes and memory, batches, notifications and atomic operations
// move the right bytes, and no others.
func TestXferOperations(t *testing.T) {
	p := newPair(t, small)
	p.up(t)
	ctx := limited(t)
	const n = 1<<20 + 5000
	mine, theirs := memory(t, p.a, n, 1), memory(t, p.b, n, 2)
	remote := grant(t, theirs.All(), xfer.Read|xfer.Write)
	model := append([]byte(nil), theirs.Bytes()...)
	for i, size := range []int{1, 8, 1000, 1024, 1025, 4096, 16 << 10, 65539, 1<<20 + 3} {
		off := 1 + 13*i
		rdmatest.Fill(mine.Bytes(), 10+i)
		rdmatest.Check(t, p.peer.Write(ctx, remote.Slice(off, size), mine.Slice(2*i, size)))
		copy(model[off:], mine.Bytes()[2*i:][:size])
		same(t, "written", theirs.Bytes(), model)
		before := append([]byte(nil), mine.Bytes()...)
		rdmatest.Check(t, p.peer.Read(ctx, mine.Slice(5*i, size), remote.Slice(off+1, size)))
		copy(before[5*i:][:size], model[off+1:])
		same(t, "read", mine.Bytes(), before)
	}

	// A batch, and its notification.
	var b xfer.Batch
	for i := range 50 {
		size := 1 + i*i*8 // so that none overlaps another: a batch has no order
		b.Write(remote.Slice(i*20_000, size), mine.Slice(i*10_000, size))
		copy(model[i*20_000:][:size], mine.Bytes()[i*10_000:])
	}
	b.Notify(77)
	rdmatest.Check(t, p.peer.Do(ctx, &b))
	if note := rdmatest.Must(p.b.Notified(ctx))(t); note.Tag != 77 {
		t.Errorf("notification %d", note.Tag)
	}
	same(t, "a batch", theirs.Bytes(), model)
	carried := make(map[string]uint64)
	for _, l := range p.peer.Stats().Lanes {
		carried[l.Rail] += l.Read + l.Written
	}
	if len(carried) != 2 || carried[p.a.Rails()[0]] == 0 || carried[p.a.Rails()[1]] == 0 {
		t.Errorf("the rails have carried %v", carried)
	}

	// A file mapping, which can only be read, and memory of Go's heap.
	file := filepath.Join(t.TempDir(), "file")
	rdmatest.Check(t, os.WriteFile(file, rdmatest.Pattern(100_000, 3), 0o666))
	f := rdmatest.Must(os.Open(file))(t)
	defer f.Close()
	mapped := rdmatest.Must(unix.Mmap(int(f.Fd()), 0, 100_000, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE))(t)
	defer unix.Munmap(mapped)
	readOnly := rdmatest.Must(p.b.Register(mapped, true))(t)
	heap := make([]byte, 100_000)
	onHeap := rdmatest.Must(p.a.Register(heap, false))(t)
	rdmatest.Check(t, p.peer.Read(ctx, onHeap.All(), grant(t, readOnly.All(), xfer.Read)))
	same(t, "a mapped file", heap, mapped)
	rdmatest.Check(t, onHeap.Close())
	rdmatest.Check(t, readOnly.Close())

	atomics(t, p)
}

// atomics adds to a counter from several batches at a time, and exchanges it.
func atomics(t *testing.T, p *pair) {
	t.Helper()
	ctx := limited(t)
	words := memory(t, p.b, 64, 0)
	clear(words.Bytes())
	word := grant(t, words.All(), xfer.Atomic|xfer.Read).Slice(8, 8)
	const batches, adds = 4, 20
	var all [batches]xfer.Batch
	for i := range all {
		for range adds {
			all[i].FetchAdd(nil, word, 3)
		}
		rdmatest.Check(t, p.peer.Start(&all[i]))
	}
	for i := range all {
		rdmatest.Check(t, all[i].Wait(ctx))
	}
	var was, failed uint64
	exchange := func(to *uint64, old, new uint64) {
		var b xfer.Batch
		b.CompareSwap(to, word, old, new)
		rdmatest.Check(t, p.peer.Do(ctx, &b))
	}
	exchange(&was, 3*batches*adds, 5)
	exchange(&failed, 6, 7)
	if got := binary.NativeEndian.Uint64(words.Bytes()[8:]); was != 3*batches*adds || failed != 5 || got != 5 {
		t.Errorf("was %d, then %d, is %d", was, failed, got)
	}
}

// TestXferManyRegions: each of many regions is registered, granted, written by a peer, and closed.
func TestXferManyRegions(t *testing.T) {
	n := 200
	if nightly() {
		n = 10_000
	}
	p := newPair(t, xfer.Options{})
	ctx := limited(t)
	const size = 4096
	mine := memory(t, p.a, n*size, 4)
	theirs := rdmatest.Must(unix.Mmap(-1, 0, n*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer unix.Munmap(theirs)
	regions := make([]*xfer.Memory, n)
	var b xfer.Batch
	for i := range regions {
		regions[i] = rdmatest.Must(p.b.Register(theirs[i*size:][:size], false))(t)
		b.Write(grant(t, regions[i].All(), xfer.Write), mine.Slice(i*size, size))
	}
	rdmatest.Check(t, p.peer.Do(ctx, &b))
	same(t, "regions", theirs, mine.Bytes())
	for _, m := range regions {
		rdmatest.Check(t, m.Close())
	}
	if err := p.peer.Do(ctx, &b); err == nil {
		t.Error("regions are written after their end")
	}
}
