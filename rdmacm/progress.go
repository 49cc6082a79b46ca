package rdmacm

import "slices"

// progress counts sends, which complete in the order in which they are posted,
// and notifies watches when their sends have completed. Its user locks it.
type progress struct {
	posted, done uint64
	failure      error    // of the first send that failed
	watches      []*watch // in the order of until
	unused       []*watch
}

// A watch waits until a number of sends have completed.
type watch struct {
	until  uint64
	result chan error // has room for one: the failure of the first send that failed
}

// watch returns a watch of the sends posted so far.
func (p *progress) watch() *watch {
	var w *watch
	if last := len(p.unused) - 1; last >= 0 {
		w, p.unused = p.unused[last], p.unused[:last]
	} else {
		w = &watch{result: make(chan error, 1)}
	}
	w.until = p.posted
	p.watches = append(p.watches, w)
	p.deliver()
	return w
}

// completed counts one more completion.
func (p *progress) completed(err error) {
	p.done++
	if p.failure == nil {
		p.failure = err
	}
	p.deliver()
}

// deliver delivers the result to the watches whose sends have completed.
func (p *progress) deliver() {
	n := 0
	for n < len(p.watches) && p.watches[n].until <= p.done {
		p.watches[n].result <- p.failure
		n++
	}
	p.watches = slices.Delete(p.watches, 0, n)
}

// forget ends a watch. It reports false if the watch already has its result.
func (p *progress) forget(w *watch) bool {
	i := slices.Index(p.watches, w)
	if i < 0 {
		return false
	}
	p.watches = slices.Delete(p.watches, i, i+1)
	return true
}
