package verbs

// A RecvQueue is a *QP or an *SRQ.
type RecvQueue interface {
	PostRecv(...RecvWR) (int, error)
}

// A RecvRing keeps receives posted. It divides an MR into buffers of one size and posts them all.
// The program reposts each once it has handled the message:
//
//	ring, err := verbs.NewRecvRing(qp, mr, size, 0)
//	for wc, err := range recvCQ.All(ctx) {
//		…
//		handle(ring.Bytes(&wc))
//		err = ring.Repost(&wc)
//	}
//
// Its methods may be called at the same time for different completions. Repost allocates nothing.
type RecvRing struct {
	q     RecvQueue
	mr    *MR
	size  int
	first uint64
	wrs   []RecvWR
}

// NewRecvRing posts a receive for each size bytes of the MR, with the WRIDs from first on. For
// UD, size includes the GRHLen bytes before each message. If a receive can't be posted, the
// receives before it stay posted.
func NewRecvRing(q RecvQueue, mr *MR, size int, first uint64) (*RecvRing, error) {
	const op = "create receive ring"
	if size < 1 || size > mr.Len() {
		return nil, invalid(op, "buffers of %d bytes in an MR of %d", size, mr.Len())
	}
	r := &RecvRing{q: q, mr: mr, size: size, first: first, wrs: make([]RecvWR, mr.Len()/size)}
	for i := range r.wrs {
		r.wrs[i] = RecvWR{WRID: first + uint64(i), SGL: []SGE{mr.SGE(i*size, size)}}
	}
	if _, err := q.PostRecv(r.wrs...); err != nil {
		return nil, err
	}
	return r, nil
}

// Len returns the number of buffers.
func (r *RecvRing) Len() int { return len(r.wrs) }

// Bytes returns the received message, valid until Repost. It returns nil if the receive has
// failed, or is not one of the ring's.
func (r *RecvRing) Bytes(wc *WC) []byte {
	i := wc.WRID - r.first
	if i >= uint64(len(r.wrs)) || wc.Status != WCSuccess || int64(wc.ByteLen) > int64(r.size) {
		return nil
	}
	return r.mr.Bytes()[int(i)*r.size:][:wc.ByteLen:r.size]
}

// Repost posts the completed receive again.
func (r *RecvRing) Repost(wc *WC) error {
	i := wc.WRID - r.first
	if i >= uint64(len(r.wrs)) {
		return invalid("post receive", "WRID %#x is not one of the ring's", wc.WRID)
	}
	_, err := r.q.PostRecv(r.wrs[i : i+1]...)
	return err
}
