package cq

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/mutant"
)

// Format says what each entry of a mini CQE array has besides the byte count,
// MLX5_CQE_RES_FORMAT_*.
type Format uint8

const (
	FormatHash           Format = 0
	FormatChecksum       Format = 1
	FormatChecksumStride Format = 3 // and the WQE counter
)

// CompressMax is the maximum number of completions in a compression session, and
// CompressTimeout is how long it may hold the first of them: the capabilities
// cqe_compression_max_num and cqe_compression_timeout.
const (
	CompressMax     = 64
	CompressTimeout = 16 * time.Microsecond
)

// miniArray is the number of mini CQEs in an array, which replaces one CQE.
const miniArray = 8

// hold adds a completion to the compression session if it fits. Otherwise the session
// ends.
func (q *CQ) hold(c *Completion, now time.Duration) bool {
	if !q.c.Compress || q.c.Size != Size64 {
		return false
	}
	if len(q.held) > 0 && (!q.follows(c) || uint32(len(q.held)) >= q.free()) {
		q.Flush(now)
	}
	if c.Kind != ResponderSend || c.Match.Op != 0 || len(c.Inline) > 0 || c.Solicited || q.status != StatusOK || q.free() < 2 {
		return false
	}
	q.held = append(q.held, *c)
	if len(q.held) == CompressMax {
		q.Flush(now)
	} else if len(q.held) == 1 {
		q.until = now + CompressTimeout
	}
	return true
}

// follows reports whether c differs from the session's first completion only in the
// fields of a mini CQE.
func (q *CQ) follows(c *Completion) bool {
	first, n := q.held[0], *c
	if q.c.Format == FormatChecksumStride {
		n.WQECounter = first.WQECounter
	} else {
		n.WQECounter -= uint16(len(q.held))
	}
	// A mini CQE has either the hash or the checksum. The other one is lost.
	n.ByteCount, n.RSSHash, n.Checksum = first.ByteCount, first.RSSHash, first.Checksum
	return len(c.Inline) == 0 && sameTitle(&first, &n)
}

func sameTitle(a, b *Completion) bool {
	var x, y [64]byte
	a.fields(&x, 0)
	b.fields(&y, 0)
	return x == y && a.Kind == b.Kind && a.WQECounter == b.WQECounter && a.Solicited == b.Solicited
}

// Flush ends the session, which must not outlive its QP. It writes a title: the first CQE
// with the number of completions as its byte count. Arrays of mini CQEs follow: one right
// after the title, the others in the slots of the ninth, seventeenth... completion. The
// slots between them are not written.
func (q *CQ) Flush(now time.Duration) {
	n := uint32(len(q.held))
	if n == 0 {
		return
	}
	if n == 1 {
		q.write(&q.held[0])
	} else {
		q.writeBlock(n)
	}
	q.held = q.held[:0]
	q.notify(n, false, now)
}

func (q *CQ) writeBlock(n uint32) {
	for i := uint32(0); i < n; i += miniArray {
		_, b := q.slot(max(i, 1))
		if b == nil {
			return
		}
		for j, c := range q.held[i:min(i+miniArray, n)] {
			m := b[j*8:]
			switch q.c.Format {
			case FormatHash:
				binary.BigEndian.PutUint32(m, c.RSSHash)
			case FormatChecksum:
				binary.BigEndian.PutUint32(m, uint32(c.Checksum)<<16)
			case FormatChecksumStride:
				binary.BigEndian.PutUint32(m, uint32(c.Checksum)<<16|uint32(c.WQECounter))
			}
			if q.c.Mutant.Is(mutant.MiniOff) {
				c.ByteCount = q.held[min(i+uint32(j)+1, n-1)].ByteCount
			}
			binary.BigEndian.PutUint32(m[4:], c.ByteCount)
		}
	}
	_, cqe := q.slot(0)
	if cqe == nil {
		return
	}
	var ts uint64
	if q.c.Timestamp != nil {
		ts = q.c.Timestamp(q.held[0].RealTime)
	}
	var b [64]byte
	title := q.held[0]
	title.ByteCount = n
	title.fields(&b, ts)
	finish(cqe, &b, &title, formatCompressed, q.owner(0))
	q.producer = (q.producer + n) & indexMask
	if q.c.Counts != nil {
		q.c.Counts.Blocks++
		q.c.Counts.Compressed += int(n)
	}
}
