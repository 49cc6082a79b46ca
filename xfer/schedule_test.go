package xfer

import (
	"errors"
	"testing"
)

// A slice that hangs on each link isn't tried for ever. One whose links break for other reasons is.
func TestBlame(t *testing.T) {
	p := &Peer{e: new(Engine), dialed: "peer", rails: make([]railInfo, 1)}
	p.scheduler.init(p, 1)
	for reason, want := range map[error]int{errHung: tries, errDown: 100} {
		k := &link{lane: &lane{s: &p.scheduler, rail: &rail{name: "rail"}}, err: reason}
		b := &Batch{open: 1, parts: make([]part, 1)}
		q := &b.parts[0]
		q.b = b
		x := slice{part: q}
		n := 0
		for ; b.err == nil && n < 100; n++ {
			k.failed = []slice{x}
			k.blame()
			p.resolve(k, k.failed[0], nil)
			if list := p.again[q.class]; len(list) > 0 {
				x, p.again[q.class] = list[0], nil
			}
		}
		if n != want || reason == errHung && !errors.Is(b.err, errHung) {
			t.Errorf("%v: tried %d times, and failed with %v", reason, n, b.err)
		}
	}
}
