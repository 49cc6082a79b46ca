package perftest

// A burst is the test of latencies under load. One side sends many frames, and the other side
// answers every n-th frame.
type burst struct {
	*side
	clock  *clock
	pace   *pace
	queue  *sendQueue
	recvs  *recvQueue
	times  *recorder
	asked  []int64 // post times of the frames that are answered
	first  int     // index in asked of the oldest frame without an answer
	count  int     // of asked
	got    int     // frames
	answer int     // answers among this side's frames
}

// newBurst prepares a burst. It posts the receives.
func (s *side) newBurst() (b *burst, err error) {
	b = &burst{side: s, queue: s.newSendQueue(0, s.size), times: newRecorder(false, s.kept()), pace: s.newPace(s.size)}
	b.queue.every, b.queue.until, b.queue.last = 1, 1, 0
	if b.pace == nil {
		b.pace = &pace{burst: s.txDepth}
		if s.limit.burst > 0 {
			b.pace.burst = s.limit.burst
		}
	}
	if b.recvs, err = s.newRecvQueue(0, s.size); err != nil {
		return nil, err
	}
	if s.client() {
		b.recvs.last = 0 // the frames are counted, not the answers
		b.asked = make([]int64, s.iters/s.raw.replyEvery+1)
	}
	return b, nil
}

// run returns the client's latencies, from a frame to its answer.
func (b *burst) run() (latency, error) {
	b.watch = b.newWatch(true)
	defer b.watch.stop(nil)
	b.clock = newClock(nil)
	defer b.cost.start(func() uint64 { return uint64(b.queue.posted + b.got) })()
	if !b.client() {
		return latency{}, b.reply()
	}
	stop := b.startProgress(b.clock, b.iters+b.iters/b.raw.replyEvery, 0, b.times)
	err := b.ask()
	stop()
	l := latency{size: b.size}
	if b.times.hist.Count() > outliers {
		l = b.times.summarise(b.size)
	}
	l.iters = b.got
	if err != nil && b.got > 0 {
		b.addLatency(l)
		err = partly(err)
	}
	return l, err
}

// ask sends the frames and takes the answers.
func (b *burst) ask() error {
	for b.queue.done < b.iters || b.got < b.iters/b.raw.replyEvery {
		if b.cut.Load() {
			return errInterrupted
		}
		for b.queue.posted < b.iters && b.queue.posted-b.queue.done < b.txDepth && b.pace.allows(b.clock.now(), 1) {
			if (b.queue.posted+1)%b.raw.replyEvery == 0 {
				b.asked[b.count] = b.clock.now()
				b.count++
			}
			if err := b.queue.post(); err != nil {
				return err
			}
		}
		if err := b.drain(); err != nil {
			return err
		}
	}
	return nil
}

// reply answers every n-th frame.
func (b *burst) reply() error {
	for b.got < b.iters || b.queue.done < b.queue.posted {
		if err := b.drain(); err != nil {
			return err
		}
		for due := b.got / b.raw.replyEvery; b.answer < due; b.answer++ {
			if b.queue.posted-b.queue.done >= b.txDepth {
				break
			}
			if err := b.queue.post(); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain handles the available completions.
func (b *burst) drain() error {
	wcs, err := b.poll()
	if err != nil {
		return err
	}
	for i := range wcs {
		if wcs[i].WRID&recvBit == 0 {
			b.queue.complete()
			continue
		}
		if b.got++; b.asked != nil && b.first < b.count {
			now := b.clock.now()
			b.times.add(now, now-b.asked[b.first])
			b.times.answer()
			b.first++
		}
		if err := b.recvs.post(); err != nil {
			return err
		}
	}
	b.watch.progress.Store(uint64(b.queue.done + b.got))
	return nil
}
