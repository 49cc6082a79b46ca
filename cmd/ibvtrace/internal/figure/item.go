package figure

import (
	"time"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// An item is a box of a lane: one or more verbs with the same key.
type item struct {
	key     string // see verbKey
	verb    string
	kind    event.Kind
	details []string // of the first few verbs
	line    string   // of the first verb
	errno   string
	failed  uint64
	calls   [2]uint64 // in user space, in the kernel
	moved   uint64    // bytes, of posts
	done    uint64    // completions, of polls
	first   time.Time
	end     time.Time // of the last verb
	spent   time.Duration
	timed   bool
	loop    *loop
	phase   *loop // its phase of data verbs
	into    *item // the item into which it was folded

	row int
}

// A loop is a repeated sequence of items.
type loop struct{ count uint64 }

// count returns the number of calls. A verb that the library passes on to the kernel is traced
// in both.
func (i *item) count() uint64 { return max(i.calls[0], i.calls[1]) }

// is returns the item into which this one was folded, or itself.
func (i *item) is() *item {
	for i.into != nil {
		i = i.into
	}
	return i
}

const maxDetails = 3

// add folds another item into this one.
func (i *item) add(o *item) {
	for k := range i.calls {
		i.calls[k] += o.calls[k]
	}
	i.failed += o.failed
	i.moved += o.moved
	i.done += o.done
	if o.calls[1] == 0 || i.calls[0] == 0 {
		i.spent += o.spent // otherwise it is part of the library's time
	}
	i.timed = i.timed || o.timed
	if o.end.After(i.end) {
		i.end = o.end
	}
	if i.errno == "" {
		i.errno = o.errno
	}
	for _, d := range o.details {
		if len(i.details) < maxDetails+1 {
			i.details = append(i.details, d)
		}
	}
	if o.kind == event.Control {
		i.kind = o.kind // the kernel was involved
	}
	o.into = i
}
