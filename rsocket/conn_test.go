package rsocket

import "testing"

// TestDiscard: after CloseRead, bytes that have arrived are dropped, but not while a Read still copies from
// the ring: the ring's memory would be published to the peer.
func TestDiscard(t *testing.T) {
	const half = 100
	c := &Conn{copying: true}
	c.in.init(half, 16)
	c.in.dropped = true
	c.in.grant() // the second half
	for _, n := range []uint32{half, half} {
		if err := c.in.data(n, n); err != nil {
			t.Fatal(err)
		}
	}
	from, to := c.in.next()
	c.discard()
	if c.in.unpublished != 0 || c.in.unread != 2*half {
		t.Errorf("%d bytes are free while a Read copies", c.in.unpublished)
	}
	c.in.read(to - from)
	c.copying = false
	c.discard()
	if c.in.unpublished != 2*half || c.in.unread != 0 {
		t.Errorf("%d bytes are free and %d unread, want all free", c.in.unpublished, c.in.unread)
	}
}
