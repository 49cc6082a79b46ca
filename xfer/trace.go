package xfer

// A TraceKind is what a Trace tells of.
type TraceKind uint8

const (
	TraceStart TraceKind = iota // an operation is queued, after Peer.Start; a notification once all else is done
	TraceSlice                  // a slice of it is handed to a rail
	TraceDone                   // the slice is done
	TraceAgain                  // the slice was not done, and will be handed to a rail again
	TraceEnd                    // the batch is over
)

func (k TraceKind) String() string {
	return [...]string{"start", "slice", "done", "again", "end"}[k]
}

// A Trace tells of a step of an operation: see Options.Trace. Of those with an Err, Err is why.
type Trace struct {
	Kind  TraceKind // the step
	Peer  *Peer     // the operation's
	Batch *Batch    // the operation's
	Part  int       // the operation, counted from 0 in the order in which it was added; -1 for the notification and TraceEnd
	Op    string    // as in Error; "" for TraceEnd
	Off   int       // of the slice's first byte in the operation
	Len   int       // bytes: of the operation with TraceStart, of the slice, or of the whole batch with TraceEnd
	Rail  string    // of this engine's, to which the slice was handed, such as "mlx5_0/1"
	Err   error     // with TraceAgain, and with TraceEnd if the batch has failed
}

// trace tells of a step of a part, and of a slice of it on a lane.
func (s *scheduler) trace(kind TraceKind, q *part, l *lane, off, n int, err error) {
	if s.p.e.o.Trace != nil {
		s.traced(kind, q, l, off, n, err)
	}
}

func (s *scheduler) traced(kind TraceKind, q *part, l *lane, off, n int, err error) {
	t := Trace{Kind: kind, Peer: s.p, Batch: q.b, Part: q.index, Op: q.op.String(), Off: off, Len: n, Err: err}
	if l != nil {
		t.Rail = l.rail.name
	}
	s.p.e.o.Trace(t)
}

// traceEnd tells of the end of a batch.
func (s *scheduler) traceEnd(b *Batch) {
	if f := s.p.e.o.Trace; f != nil {
		f(Trace{Kind: TraceEnd, Peer: s.p, Batch: b, Part: -1, Len: int(b.total), Err: b.err})
	}
}
