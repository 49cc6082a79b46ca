package perftest

import "time"

// A stream is one size of a bandwidth test.
type stream struct {
	*side
	bytes   int
	clock   *clock
	sends   []*sendQueue // by queue pair; nil if this side doesn't send
	recvs   []*recvQueue // the same for receives
	pace    *pace        // nil: no limit
	held    bool         // send only after the first message has arrived
	posts   []int64      // times, for the peak
	batches int
	done    []completion

	sent, got              int
	idleBefore, busyBefore int // polls of earlier sizes
	sampled                int // messages in the sampled time
	begin, end             int64
}

// newStream prepares a size. It posts the receives.
func (s *side) newStream(size int) (*stream, error) {
	t := &stream{side: s, bytes: size, begin: -1, pace: s.newPace(size)}
	receives := s.receives() && (s.duplex || !s.sender())
	if s.duplex || s.sender() {
		for i := range s.numQPs {
			t.sends = append(t.sends, s.newSendQueue(i, size))
		}
		if !s.noPeak {
			total := s.iters * s.numQPs
			t.posts = make([]int64, total/s.postList)
			t.done = make([]completion, 0, total/s.signal+s.numQPs)
		}
	}
	if receives {
		for i := range s.numQPs {
			q, err := s.newRecvQueue(i, size)
			if err != nil {
				return nil, err
			}
			t.recvs = append(t.recvs, q)
		}
		// A client that hasn't left the barrier yet would lose messages over UC
		// and UD.
		t.held = t.sends == nil || !s.client()
	}
	return t, nil
}

// run sends and receives until the end, and returns the result.
func (t *stream) run() (bandwidth, error) {
	t.watch = t.newWatch(t.transport.lossy())
	defer t.watch.stop(nil)
	t.clock = newClock(t.load)
	stop := t.startProgress(t.clock, t.total(), t.bytes, nil)
	defer t.cost.start(t.messages)()
	t.idleBefore, t.busyBefore = t.idle, t.busy
	if t.credits != nil {
		t.credits.begin(t.side)
	}
	if !t.held {
		t.startPhases()
	}
	err := t.loop()
	stop()
	if err != nil {
		t.clock.cut()
		if n, _ := t.counted(); n == 0 || t.forever {
			return bandwidth{}, err
		}
	}
	mine := t.result()
	if t.limit.rate == 0 {
		t.report.limit = t.limits(mine).says()
	}
	if err != nil {
		t.addBandwidth(mine)
		err = partly(err)
	}
	return mine, err
}

// loop sends and receives until the end.
func (t *stream) loop() error {
	for !t.finished() {
		if t.cut.Load() {
			return errInterrupted
		}
		if t.sends != nil && !t.held {
			if err := t.fill(); err != nil {
				return err
			}
		}
		if err := t.drain(); err != nil {
			return err
		}
		if t.forever && t.clock.ticked() {
			t.addBandwidth(t.result())
			t.sampled = 0
		}
	}
	return nil
}

// total returns how many messages this side will send and receive.
func (t *stream) total() (n int) {
	if t.sends != nil {
		n += t.iters * t.numQPs
	}
	if t.recvs != nil {
		n += t.iters * t.numQPs
	}
	return n
}

// messages returns the number of messages so far.
func (t *stream) messages() uint64 { return uint64(t.sent + t.got) }

// limits returns the facts that may show what limits the bandwidth of this side's messages.
func (t *stream) limits(mine bandwidth) facts {
	mtu, larger := t.pathMTU.Bytes(), t.port.MaxMTU.Bytes()
	unit := 8 * float64(1<<20) / 1e9
	if t.gbits {
		unit = 1
	}
	f := facts{
		bytes: t.bytes, average: mine.average * unit, link: t.linkGbits(), mtu: mtu, larger: larger,
		limit: t.linkGbits() * t.payload(t.bytes, mtu), withLarger: t.linkGbits() * t.payload(t.bytes, larger),
		idle: t.idle - t.idleBefore, busy: t.busy - t.busyBefore, sends: t.sends != nil && !t.events, depth: t.txDepth,
	}
	if t.posts != nil && t.numQPs == 1 && t.iters >= enough {
		f.queue = reside(t.posts[:t.batches], t.postList, t.done, t.txDepth)
	}
	return f
}

func (t *stream) startPhases() {
	switch {
	case t.forever:
		t.clock.tick(t.watch.ctx, time.Duration(t.duration)*time.Second)
	case t.duration > 0:
		t.clock.run(time.Duration(t.duration)*time.Second, time.Duration(t.margin)*time.Second)
	}
}

func (t *stream) finished() bool {
	switch {
	case t.forever:
		return false
	case t.duration > 0:
		return t.clock.over()
	}
	total := t.iters * t.numQPs
	return (t.sends == nil || t.sent == total) && (t.recvs == nil || t.got == total) && (t.credits == nil || t.credits.onWay == 0)
}

// fill posts as many sends as fit.
func (t *stream) fill() error {
	for i, q := range t.sends {
		for q.room(t.txDepth) && t.credits.allow(i, q.posted, t.postList) {
			if t.pace != nil && !t.pace.allows(t.clock.now(), t.postList) {
				return nil
			}
			if t.posts != nil {
				t.posts[t.batches] = t.clock.now()
				t.batches++
			} else if t.begin < 0 {
				t.begin = t.clock.now()
			}
			if err := q.post(); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain handles the available completions.
func (t *stream) drain() error {
	wcs, err := t.poll()
	if err != nil || len(wcs) == 0 {
		return err
	}
	n, ends := 0, t.sends == nil
	for i := range wcs {
		id := wcs[i].WRID
		if id&recvBit == 0 {
			ends = true
			done := t.sends[id].complete()
			t.sent += done
			n += done
			if t.posts != nil {
				t.done = append(t.done, completion{t.sent, t.clock.now()})
			}
			continue
		}
		if id&creditBit != 0 {
			if err := t.credits.written(int(id &^ (recvBit | creditBit))); err != nil {
				return err
			}
			continue
		}
		if t.got == 0 {
			t.first()
		}
		t.got++
		n++
		if err := t.recvs[id&^recvBit].post(); err != nil {
			return err
		}
		if t.credits != nil {
			if err := t.credits.arrived(&wcs[i]); err != nil {
				return err
			}
		}
	}
	t.watch.progress.Store(t.messages())
	switch {
	case t.forever || t.duration > 0 && t.clock.samples():
		t.sampled += n
	case t.duration == 0 && ends:
		t.end = t.clock.now()
	}
	return nil
}

// first handles the first message that arrives.
func (t *stream) first() {
	if t.sends == nil {
		t.begin = t.clock.now()
	}
	if t.held {
		t.held = false
		t.startPhases()
	}
}

// result computes the bandwidth. A side that only receives measures from the first
// message on.
func (t *stream) result() bandwidth {
	messages, took := t.counted()
	unit := float64(1 << 20)
	if t.gbits {
		unit = 1e9 / 8
	}
	seconds := float64(max(took, 1)) / 1e9
	b := bandwidth{
		size: uint64(t.bytes), iters: uint64(messages),
		average: float64(t.bytes) * float64(messages) / seconds / unit, rate: float64(messages) / seconds / 1e6,
	}
	if t.posts != nil {
		per := fastest(t.posts[:t.batches], t.postList, t.done, float64(took)/float64(messages))
		b.peak = float64(t.bytes) / (per / 1e9) / unit
	}
	return b
}

// counted returns the sampled messages of one direction, and their time.
func (t *stream) counted() (messages int, took time.Duration) {
	messages, took = t.sent, time.Duration(t.end-t.begin)
	switch {
	case t.duration > 0:
		return t.sampled, t.clock.took()
	case t.sends == nil:
		messages = t.got
	case t.posts != nil:
		took = time.Duration(t.end - t.posts[0])
	}
	return messages, took
}

// add returns the result of both directions.
func (b bandwidth) add(other bandwidth) bandwidth {
	b.peak += other.peak
	b.average += other.average
	b.rate += other.rate
	return b
}
