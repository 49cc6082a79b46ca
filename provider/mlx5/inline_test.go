package mlx5

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestTakeHeader: the bytes that must be inline are taken from the front of the list, exactly.
func TestTakeHeader(t *testing.T) {
	packet := []byte("0123456789abcdefghijklmnopqrstuv")
	at := func(off int) uint64 { return uint64(uintptr(unsafe.Pointer(&packet[off]))) }
	for _, lengths := range [][]int{{32}, {18, 14}, {17, 15}, {19, 13}, {1, 31}, {1, 1, 1, 29}, {4, 14, 14}, {4, 13, 15}, {4, 15, 13}, {18}} {
		var sgl, want []provider.SGE
		off := 0
		for i, n := range lengths {
			sge := provider.SGE{Addr: at(off), Length: uint32(n), LKey: uint32(i + 1)}
			sgl = append(sgl, sge)
			if end := off + n; end > 18 {
				if cut := max(18-off, 0); cut > 0 {
					sge.Addr, sge.Length = sge.Addr+uint64(cut), sge.Length-uint32(cut)
				}
				want = append(want, sge)
			}
			off += n
		}
		var header [18]byte
		given := slices.Clone(sgl)
		got, rest, err := takeHeader(header[:], make([]provider.SGE, len(sgl)), sgl)
		if err != nil || string(got) != string(packet[:18]) || !slices.Equal(rest, want) {
			t.Errorf("%v: %q and %+v, %v; want %+v", lengths, got, rest, err, want)
		}
		if !slices.Equal(sgl, given) {
			t.Errorf("%v: the caller's list was changed", lengths)
		}
	}
	var header [18]byte
	short := []provider.SGE{{Addr: at(0), Length: 10}, {Addr: at(10), Length: 7}}
	if _, _, err := takeHeader(header[:], make([]provider.SGE, 2), short); err != provider.ErrShortPacket {
		t.Errorf("17 bytes: %v", err)
	}
	if got, rest, err := takeHeader(nil, nil, short); len(got) != 0 || !slices.Equal(rest, short) || err != nil {
		t.Errorf("no header: %q and %+v, %v", got, rest, err)
	}
	if mode := ethInline(uapi.MLX5_USER_INLINE_MODE_NONE); mode != 0 {
		t.Errorf("%d bytes inline for a device that wants none", mode)
	}
	if mode := ethInline(uapi.MLX5_USER_INLINE_MODE_NA); mode != 18 {
		t.Errorf("%d bytes inline for a device that doesn't say", mode)
	}
}

// TestReceivesFill: a queue takes as many receives as it has room for, whichever way they
// are posted, and no more.
func TestReceivesFill(t *testing.T) {
	long := provider.RecvWR{SGL: []provider.SGE{{Addr: 1, Length: 1}, {Addr: 2, Length: 2}}}
	short := provider.RecvWR{SGL: long.SGL[:1]}
	for _, wr := range []provider.RecvWR{long, short} {
		for _, at := range []int{1, 3, 4, 5, 9} { // together
			q := newRig(t, 1).newQP(t, 1, provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(4, 2, 0)})
			posted := 0
			for {
				n, err := q.PostRecv(slices.Repeat([]provider.RecvWR{wr}, at))
				posted += n
				if err == provider.ErrQueueFull {
					break
				}
				if n != at || err != nil || posted > 4 {
					t.Fatalf("%d at a time: %d, %v after %d", at, n, err, posted)
				}
			}
			if posted != 4 || number(q.record[0]) != 4 {
				t.Errorf("%d at a time: %d were posted of 4, the record says %d", at, posted, number(q.record[0]))
			}
		}
	}
}
