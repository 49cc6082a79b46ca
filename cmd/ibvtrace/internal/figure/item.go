package figure

import (
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/event"
)

// An item is a box of a lane: a verb, or one after the other of the same kind.
type item struct {
	key     string // what makes verbs the same
	verb    string
	kind    event.Kind
	details []string // of the first few
	line    string   // the first one as text
	errno   string
	failed  uint64
	calls   [2]uint64 // in user space, in the kernel
	moved   uint64    // bytes, of posts
	done    uint64    // completions, of polls
	first   time.Time
	end     time.Time // of the last
	spent   time.Duration
	timed   bool
	loop    *loop
	phase   *loop // the phase of posting and polling that it is in
	into    *item // it was found to be a repetition of this one

	row int
}

// A loop is a sequence of items that came again and again.
type loop struct{ count uint64 }

// count is how often the verb was called. One that the library hands on to the
// kernel is seen in both.
func (i *item) count() uint64 { return max(i.calls[0], i.calls[1]) }

// is returns the item that stands for this one.
func (i *item) is() *item {
	for i.into != nil {
		i = i.into
	}
	return i
}

const maxDetails = 3

// add counts another of the same.
func (i *item) add(o *item) {
	for k := range i.calls {
		i.calls[k] += o.calls[k]
	}
	i.failed += o.failed
	i.moved += o.moved
	i.done += o.done
	if o.calls[1] == 0 || i.calls[0] == 0 {
		i.spent += o.spent // else it is within the library's time
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
		i.kind = o.kind // the kernel was in it
	}
	o.into = i
}
