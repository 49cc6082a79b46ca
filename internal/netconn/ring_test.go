package netconn

import "testing"

// TestDiscard: bytes that have arrived are dropped, but not while a Read still copies them: the ring's memory would
// be published to the peer.
func TestDiscard(t *testing.T) {
	const half = 100
	r := MakeRing(half)
	r.Publish() // the second half
	r.Written(half)
	r.Written(half)
	r.copying = true
	from, to := r.next()
	if r.Discard(); r.Publishable() || r.Unread != 2*half {
		t.Errorf("%d bytes are free while a Read copies", r.unpublished)
	}
	r.read(to - from)
	r.copying = false
	if r.Discard(); r.unpublished != 2*half || r.Unread != 0 {
		t.Errorf("%d bytes are free and %d unread, want all free", r.unpublished, r.Unread)
	}
}
