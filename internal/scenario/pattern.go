package scenario

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Fill writes a pattern without repetitions, so that misplaced bytes and exchanged packets are
// detected.
func Fill(b []byte, seed uint64) {
	var word [8]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(word[:], Mix(seed+uint64(i/8)*0x9e3779b97f4a7c15))
		copy(b[i:], word[:])
	}
}

// Mix is the finalizer of splitmix64.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// A Piece is a part of a window of memory.
type Piece struct{ Off, N int }

// gap separates the pieces of a message in memory. The bytes between them must not change.
const gap = 48

// divide places n bytes in k pieces of different lengths, with gaps between them, from
// offset off on. It returns at most n pieces.
func divide(n, k, off int) []Piece {
	k = min(k, n)
	var list []Piece
	for i := range k {
		left, pieces := n, k-i
		m := left / pieces
		if pieces > 1 && m > 3 {
			m += []int{-1, 2, 0, -3}[i%4] // so that pieces begin at odd addresses, and packets within them
		}
		list = append(list, Piece{off, m})
		off += m + gap
		n -= m
	}
	return list
}

// extent returns the length of n bytes in k pieces.
func extent(n, k int) int { return n + max(0, min(k, n)-1)*gap }

// scatter copies data to the pieces.
func scatter(to []byte, pieces []Piece, data []byte) {
	for _, p := range pieces {
		data = data[copy(to[p.Off:p.Off+p.N], data):]
	}
}

// gather appends the bytes of the pieces.
func gather(to, from []byte, pieces []Piece) []byte {
	for _, p := range pieces {
		to = append(to, from[p.Off:p.Off+p.N]...)
	}
	return to
}

// Differences describes how memory differs from its expected contents. was is the memory's previous
// contents, which distinguishes bytes that were not written from bytes that were written wrongly. seen
// is "" if there is no difference.
func Differences(got, want, was []byte, pieces []Piece) (seen string, details []string) {
	if bytes.Equal(got, want) {
		return "", nil
	}
	first, last, n, unwritten := -1, 0, 0, 0
	for i := range want {
		if got[i] == want[i] {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
		n++
		if got[i] == was[i] {
			unwritten++
		}
	}
	cause := "written with other bytes"
	switch {
	case unwritten == n:
		cause = "not written"
	case unwritten > 0:
		cause = fmt.Sprintf("of which %d were not written", unwritten)
	}
	from, to := max(0, first-4), min(len(want), first+12)
	return fmt.Sprintf("%d of %d bytes differ, from %s to %s, %s", n, total(pieces), where(first, pieces), where(last, pieces), cause), []string{
		fmt.Sprintf("expected %s from byte %d of the window", hex.EncodeToString(want[from:to]), from),
		fmt.Sprintf("seen     %s, before %s", hex.EncodeToString(got[from:to]), hex.EncodeToString(was[from:to])),
	}
}

func total(pieces []Piece) (n int) {
	for _, p := range pieces {
		n += p.N
	}
	return n
}

// where describes the place in a message of a byte of its window.
func where(at int, pieces []Piece) string {
	done := 0
	for i, p := range pieces {
		if at < p.Off {
			if i == 0 {
				return fmt.Sprintf("%d bytes before the data", p.Off-at)
			}
			return fmt.Sprintf("the gap before piece %d", i)
		}
		if at < p.Off+p.N {
			return fmt.Sprintf("byte %d", done+at-p.Off)
		}
		done += p.N
	}
	if len(pieces) == 0 {
		return fmt.Sprintf("byte %d of the window around no data", at)
	}
	end := pieces[len(pieces)-1]
	return fmt.Sprintf("%d bytes after the data", at-end.Off-end.N)
}
