package netconn

// A Ring counts the bytes of memory that the peer writes to. The memory's two halves are published to the peer in
// turn. A half may be published again after as many bytes were read as it has. So no byte is overwritten before
// it was read.
type Ring struct {
	Half   int
	Unread int // bytes that have arrived and were not read

	free        int // published bytes that the peer has not yet written
	unpublished int // bytes that were read and not yet published again
	readAt      int // where the next byte to be read is in the ring
	writeAt     int // where the peer writes next
	publishAt   int // the half to be published next
	copying     bool
}

// MakeRing returns a ring whose first half is published.
func MakeRing(half int) Ring {
	return Ring{Half: half, free: half, unpublished: half, publishAt: half}
}

// Target returns how many bytes the peer may write at once: up to the end of a half.
func (r *Ring) Target() int { return min(r.free, r.Half-r.writeAt%r.Half) }

// Full reports whether the peer has written all that was published.
func (r *Ring) Full() bool { return r.free == 0 }

// Written counts bytes that the peer has written, at most Target.
func (r *Ring) Written(n int) {
	r.free -= n
	r.Unread += n
	r.writeAt = r.wrap(r.writeAt + n)
}

// Publishable reports whether a half may be published.
func (r *Ring) Publishable() bool { return r.unpublished >= r.Half }

// Publish counts the next half as published, and returns where it is in the ring.
func (r *Ring) Publish() (at int) {
	at = r.publishAt
	r.publishAt = r.wrap(at + r.Half)
	r.unpublished -= r.Half
	r.free += r.Half
	return at
}

func (r *Ring) wrap(at int) int {
	if at >= 2*r.Half {
		at -= 2 * r.Half
	}
	return at
}

// next returns where unread bytes are in the ring: the first contiguous piece.
func (r *Ring) next() (from, to int) {
	return r.readAt, r.readAt + min(r.Unread, 2*r.Half-r.readAt)
}

// read counts bytes as read.
func (r *Ring) read(n int) {
	r.Unread -= n
	r.unpublished += n
	r.readAt = r.wrap(r.readAt + n)
}

// Read copies unread bytes of the ring's memory to b. The caller holds mu, which Read unlocks while it copies.
func (r *Ring) Read(mu *Mutex, b, memory []byte) (n int) {
	for n < len(b) && r.Unread > 0 {
		from, to := r.next()
		to = min(to, from+len(b)-n)
		r.copying = true // so that nobody else touches these bytes
		mu.Unlock()
		copied := copy(b[n:], memory[from:to])
		mu.Lock()
		r.copying = false
		r.read(copied)
		n += copied
	}
	return n
}

// Discard counts the unread bytes as read. While a Read copies, it does nothing, so that no memory is published
// while it is read.
func (r *Ring) Discard() {
	for !r.copying && r.Unread > 0 {
		from, to := r.next()
		r.read(to - from)
	}
}
