package why

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mlx5ctx"
)

// TestRecords: a CQ's record is found by its physical address, also after the program has moved it. What is known of a
// process is forgotten when it has gone.
func TestRecords(t *testing.T) {
	b := mlx5(t)
	size := os.Getpagesize()
	const base, offset, cqs = 0x10, 64, 3 // pages before the mapping, and a record's place in its page
	table, memory := make([]byte, (base+8)*entry), make([]byte, (base+8)*size)
	place := func(page, frame int, polled uint32) {
		binary.NativeEndian.PutUint64(table[(base+page)*entry:], present|uint64(frame))
		binary.BigEndian.PutUint32(memory[(base+page)*size+offset:], polled)
		binary.BigEndian.PutUint32(memory[(base+page)*size+offset+4:], 1<<24|polled)
		b.write(string(table), "proc", 7, "pagemap")
		b.write(string(memory), "proc", 7, "mem")
	}
	first := base * size
	b.write(fmt.Sprintf("%x-%x r--p 00000000 00:00 0\n%x-%x rw-p 00000000 00:00 0\n", first-size, first, first, first+8*size), "proc", 7, "maps")
	for i := range cqs {
		b.cqs[uint32(1+i)] = &bedCQ{pid: 7, number: uint32(40 + i), fields: map[field]uint64{cqArmed: 10, cqLogSize: 4, cqProduced: 20, cqConsumed: 10, cqRecord: uint64((100+i)*size + offset)}}
	}
	place(1, 100, 11)
	place(5, 101, 12) // and 102 isn't mapped
	l := &look{host: b.host()}
	look := func(want ...record) {
		t.Helper()
		v, err := l.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if got := v.devices[0].cqs[uint32(40+i)].record; got != w {
				t.Errorf("CQ %d: %+v, want %+v", i, got, w)
			}
		}
	}
	look(record{true, 11, 11}, record{true, 12, 12}, record{})
	place(5, 0, 13)
	place(6, 101, 14)
	look(record{true, 11, 11}, record{true, 14, 14}, record{})
	place(6, 0, 15)
	look(record{true, 11, 11}, record{}, record{})
	for _, q := range b.qps {
		q.pid = 9
	}
	for _, c := range b.cqs {
		c.pid = 9
	}
	look()
	if len(l.pages) != 0 {
		t.Errorf("remembered: %v", l.pages)
	}
}

// TestRecordsBounded: a program with mappings without end doesn't make a look last as long.
func TestRecordsBounded(t *testing.T) {
	b := mlx5(t)
	size := uint64(os.Getpagesize())
	var maps strings.Builder
	at := uint64(mostMapping)
	for ; at <= mostSearched; at += mostMapping {
		fmt.Fprintf(&maps, "%x-%x rw-p 00000000 00:00 0\n", at, at+mostMapping)
	}
	fmt.Fprintf(&maps, "%x-%x rw-p 00000000 00:00 0\n", at, at+size)
	b.write(maps.String(), "proc", 7, "maps")
	b.write("", "proc", 7, "mem")
	b.write("", "proc", 7, "pagemap")
	table, err := os.OpenFile(filepath.Join(b.root, "proc/7/pagemap"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if _, err := table.WriteAt(binary.NativeEndian.AppendUint64(nil, present|100), int64(at/size*entry)); err != nil {
		t.Fatal(err)
	}
	l := &look{host: b.host()}
	l.records(7, []*cq{{CQ: mlx5ctx.CQ{Record: 100 * size}}})
	if found := l.pages[7].found; len(found) != 0 {
		t.Errorf("%v", found)
	}
}
