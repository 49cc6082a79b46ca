package cq

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/internal/bus"
)

// A receive has the fields of a decompressed entry.
type receive struct {
	qpn     uint32
	counter uint16
	bytes   uint32
	hash    uint32
	sum     uint16
}

// drain reads all entries as mlx5e_decompress_cqes_start and _cont in the kernel's
// en_rx.c do. They also set the owner bits of the slots that they skip.
func (h *host) drain(f Format) (got []receive, blocks int) {
	for {
		first := h.next
		e := h.poll()
		if e == nil {
			return got, blocks
		}
		r := receive{be.Uint32(e[56:]) & indexMask, be.Uint16(e[60:]), be.Uint32(e[44:]), be.Uint32(e[12:]), be.Uint16(e[20:])}
		if e[63]>>2&3 != formatCompressed {
			got = append(got, r)
			continue
		}
		blocks++
		n, counter := r.bytes, r.counter
		arr, idx := h.entry(first+1), 0
		for i := range n {
			if idx == 8 {
				arr, idx = h.entry(first+i), 0
			}
			m := arr[idx*8:]
			r.bytes = be.Uint32(m[4:])
			r.counter = counter + uint16(i)
			if f == FormatHash {
				r.hash = be.Uint32(m)
			} else {
				r.sum = be.Uint16(m)
			}
			if f == FormatChecksumStride {
				r.counter = be.Uint16(m[2:])
			}
			got = append(got, r)
			idx++
		}
		for i := range n {
			h.entry(first + i)[63] = byte((first + i) >> h.log & 1)
		}
		h.next = first + n
		be.PutUint32(h.mem.Data[dbr:], h.next)
	}
}

func TestCompression(t *testing.T) {
	for _, f := range []Format{FormatHash, FormatChecksum, FormatChecksumStride} {
		var counts, wantCounts Counts
		h := newHost(t, 5, Config{Compress: true, Format: f, Counts: &counts})
		h.arm(0, 0)
		counter := uint16(0xfff0) // wraps
		for _, n := range []int{1, 2, 7, 8, 9, 16, 17, 27} {
			var want []receive
			for i := range n {
				r := receive{qpn: 3, counter: counter, bytes: uint32(100 + i)}
				if f == FormatChecksumStride {
					r.counter = counter * 7
				}
				counter++
				hash, sum := uint32(i)<<8, uint16(i)<<4
				// Fields that a mini CQE doesn't have are the first completion's.
				if f == FormatHash {
					r.hash = hash
				} else {
					r.sum = sum
				}
				want = append(want, r)
				h.Post(&Completion{Kind: ResponderSend, QPN: r.qpn, WQECounter: r.counter, ByteCount: r.bytes, RSSHash: hash, Checksum: sum}, 0)
			}
			if got, _ := h.drain(f); len(got) != 0 {
				t.Fatalf("%d entries before the session's end", len(got))
			}
			next := h.Tick(CompressTimeout - 1)
			if got, _ := h.drain(f); len(got) != 0 {
				t.Fatalf("%d entries before the timeout", len(got))
			}
			if h.Tick(next) != 0 {
				t.Error("something is due after the session")
			}
			got, blocks := h.drain(f)
			if len(got) != n || blocks > 1 || (n > 1) != (blocks == 1) {
				t.Fatalf("format %d: %d entries in %d blocks, want %d", f, len(got), blocks, n)
			}
			wantCounts.Completions += n
			if n > 1 {
				wantCounts.Blocks++
				wantCounts.Compressed += n
			}
			if counts != wantCounts {
				t.Errorf("format %d: %+v, want %+v", f, counts, wantCounts)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("format %d, %d of %d: %+v, want %+v", f, i, n, got[i], want[i])
				}
			}
		}
		if h.events != 1 || len(h.errors) != 0 {
			t.Errorf("format %d: %d events, errors %v", f, h.events, h.errors)
		}
	}
}

func TestSessionEnds(t *testing.T) {
	base := Completion{Kind: ResponderSend, QPN: 3, ByteCount: 10, WQECounter: 1}
	for _, c := range []struct {
		name   string
		spoil  func(*Completion)
		blocks int
	}{
		{"no more", func(c *Completion) {}, 1},
		{"another QP", func(c *Completion) { c.QPN++ }, 0},
		{"a counter left out", func(c *Completion) { c.WQECounter++ }, 0},
		{"an immediate", func(c *Completion) { c.Kind = ResponderSendImm }, 0},
		{"an error", func(c *Completion) { c.Kind = ResponderError }, 0},
		{"a requester's", func(c *Completion) { c.Kind = Requester }, 0},
		{"solicited", func(c *Completion) { c.Solicited = true }, 0},
		{"inline", func(c *Completion) { c.Inline = make([]byte, 4) }, 0},
		{"another sender", func(c *Completion) { c.RemoteQPN++ }, 0},
	} {
		h := newHost(t, 4, Config{Compress: true})
		first, second := base, base
		second.WQECounter++
		c.spoil(&second)
		h.Post(&first, 0)
		h.Post(&second, 0)
		h.Tick(time.Second)
		if got, blocks := h.drain(FormatHash); len(got) != 2 || blocks != c.blocks {
			t.Errorf("%s: %d entries, %d blocks, want 2, %d", c.name, len(got), blocks, c.blocks)
		}
	}

	h := newHost(t, 3, Config{Compress: true})
	for i := range 8 { // as many as fit
		h.Post(&Completion{Kind: ResponderSend, WQECounter: uint16(i)}, 0)
	}
	h.Flush(0)
	if got, blocks := h.drain(FormatHash); len(got) != 8 || blocks != 1 || len(h.errors) != 0 {
		t.Errorf("a full queue: %d entries, %d blocks, errors %v", len(got), blocks, h.errors)
	}
	for i := range 9 {
		h.Post(&Completion{Kind: ResponderSend, WQECounter: uint16(i)}, 0)
	}
	h.Flush(0)
	if len(h.errors) != 1 {
		t.Errorf("one too many: errors %v", h.errors)
	}

	h = newHost(t, 7, Config{Compress: true})
	for i := range CompressMax + 1 {
		h.Post(&Completion{Kind: ResponderSend, WQECounter: uint16(i)}, 0)
	}
	if got, _ := h.drain(FormatHash); len(got) != CompressMax {
		t.Errorf("the longest session has %d", len(got))
	}
}

// FuzzCQ has a hostile consumer move its index and arm the queue arbitrarily.
func FuzzCQ(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0x40, 0, 0, 0, 0x80, 0, 0, 1, 0xc0, 0, 0, 9}, true)
	f.Fuzz(func(t *testing.T, ops []byte, compress bool) {
		h := newHost(t, 3, Config{Compress: compress, Period: 3, MaxCount: 2})
		var now time.Duration
		for len(ops) >= 4 {
			w := be.Uint32(ops)
			ops = ops[4:]
			now += time.Duration(w & 0xff)
			switch w >> 30 {
			case 0:
				h.Post(&Completion{Kind: Kind(w >> 8 & 0xf), WQECounter: uint16(w), Inline: make([]byte, w>>16&63)}, now)
			case 1:
				h.Arm(w, now)
			case 2:
				be.PutUint32(h.mem.Data[dbr:], w)
			case 3:
				h.Tick(now)
				if w&0x10000 != 0 {
					b := bus.Buffer{Shift: 12, Offset: uint64(w & 0xfc0), Pages: []uint64{uint64(w & 0xf000)}}
					h.Resize(b, uint(w>>20&3), Size64, now)
				}
			}
		}
		if len(h.errors) > 1 {
			t.Fatalf("%d error events", len(h.errors))
		}
	})
}
