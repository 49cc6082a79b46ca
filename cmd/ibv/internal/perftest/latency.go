package perftest

import "time"

// A volley is one size of a latency test: one message at a time.
type volley struct {
	*side
	bytes     int
	first     bool // this side's message is the first
	queue     *sendQueue
	recvs     *recvQueue
	incoming  watched // the last byte of the peer's writes
	last      []byte  // the last byte of this side's writes
	clock     *clock
	times     *recorder // times of the sampled messages; nil: not needed
	sent, got int
	timed     bool // a duration's phases have begun
	sampled   int  // messages in the sampled time
}

func (s *side) newVolley(size int) (v *volley, err error) {
	v = &volley{side: s, bytes: size, queue: s.newSendQueue(0, size)}
	// The client sends the first message, but the server writes first.
	v.first = s.client() == (s.tool.verb == send)
	if s.duration == 0 || s.wantsTimes() {
		v.times = newRecorder(!s.tool.verb.responds(), s.kept())
	}
	switch s.tool.verb {
	case send:
		v.recvs, err = s.newRecvQueue(0, size)
	case write:
		if s.imm {
			v.recvs, err = s.newRecvQueue(0, size)
			break
		}
		v.incoming = watchByte(s.mem, s.recvAt(s.receiver(0))+size-1)
		v.last = s.mem[s.sendAt(0)+size-1:][:1]
	}
	return v, err
}

// run exchanges messages until the end.
func (v *volley) run() (latency, error) {
	v.watch = v.newWatch(v.transport.lossy())
	defer v.watch.stop(nil)
	v.clock = newClock(v.load)
	stop := v.startProgress(v.clock, v.iters, 0, v.times)
	defer v.cost.start(v.messages)()
	if v.tool.verb != send {
		v.startPhases()
	}
	var err error
	switch {
	case v.recvs != nil:
		err = v.echo(v.awaitMessage)
	case v.tool.verb == write:
		err = v.echo(v.awaitByte)
	default:
		err = v.ask()
	}
	stop()
	if err == nil {
		return v.result(), nil
	}
	v.clock.cut()
	if v.duration > 0 && v.sampled > 0 || v.duration == 0 && v.times.hist.Count() > outliers {
		v.addLatency(v.result())
		err = partly(err)
	}
	return latency{}, err
}

// result computes the latencies.
func (v *volley) result() latency {
	if v.duration > 0 {
		took := float64(v.clock.took()) / 1e3
		l := latency{size: v.bytes, iters: v.sampled, average: took / float64(max(v.sampled, 1)), perSecond: float64(v.sampled) / (took / 1e6), times: v.times}
		if !v.tool.verb.responds() {
			l.average /= 2
		}
		return l
	}
	return v.times.summarise(v.bytes)
}

// messages returns the number of messages that this side has sent.
func (v *volley) messages() uint64 { return uint64(v.sent) }

func (v *volley) startPhases() {
	if v.duration > 0 && !v.timed {
		v.timed = true
		v.clock.run(time.Duration(v.duration)*time.Second, time.Duration(v.margin)*time.Second)
	}
}

func (v *volley) more(n int) bool {
	if v.duration > 0 {
		return !v.clock.over()
	}
	return n < v.iters
}

// echo alternates sending and receiving. await waits for the n-th message.
func (v *volley) echo(await func(n int) error) error {
	sent, got := 0, 0
	for v.more(sent) || v.more(got) {
		if v.cut.Load() {
			return errInterrupted
		}
		if v.more(got) && (sent > 0 || !v.first) {
			got++
			if err := await(got); err != nil {
				return err
			}
		}
		if !v.more(sent) {
			continue
		}
		sent++
		v.pause()
		if v.last != nil {
			v.last[0] = byte(sent)
		}
		if err := v.postOne(); err != nil {
			return err
		}
	}
	return nil
}

// ask posts requests that the other side's adapter answers.
func (v *volley) ask() error {
	for n := 0; v.more(n); n++ {
		if v.cut.Load() {
			return errInterrupted
		}
		v.pause()
		if err := v.postOne(); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for the requested gap.
func (v *volley) pause() {
	if v.gap > 0 {
		for end := v.clock.now() + int64(v.gap)*1e3; v.clock.now() < end; {
		}
	}
}

// postOne posts a message and waits until it is sent.
func (v *volley) postOne() error {
	if v.times != nil && (v.duration == 0 || v.clock.samples()) {
		if v.times.stamp(v.clock.now()); v.times.answer() {
			v.times.last = v.clock.now()
		}
	}
	if err := v.queue.post(); err != nil {
		return err
	}
	for v.sent++; v.queue.done < v.sent && (v.duration == 0 || !v.clock.over()); {
		if err := v.drain(); err != nil {
			return err
		}
	}
	if v.recvs == nil && v.clock.samples() {
		v.sampled++
	}
	return nil
}

// drain handles the available completions.
func (v *volley) drain() error {
	wcs, err := v.poll()
	if err != nil {
		return err
	}
	if len(wcs) > 0 {
		v.watch.progress.Store(uint64(v.sent))
	}
	for i := range wcs {
		if wcs[i].WRID&recvBit == 0 {
			v.queue.complete()
			continue
		}
		v.startPhases()
		if v.got++; v.clock.samples() {
			v.sampled++
		}
		if err := v.recvs.post(); err != nil {
			return err
		}
	}
	return nil
}

// awaitMessage waits for the n-th receive.
func (v *volley) awaitMessage(n int) error {
	for v.got < n && (v.duration == 0 || !v.clock.over()) {
		if err := v.drain(); err != nil {
			return err
		}
	}
	return nil
}

// awaitByte waits for the n-th write. Its last byte is n.
func (v *volley) awaitByte(n int) error {
	for v.incoming.load() != byte(n) && (v.duration == 0 || !v.clock.over()) {
		if v.idle++; v.idle&0x3ff == 0 {
			if err := v.watch.err(); err != nil {
				return err
			}
		}
	}
	v.watch.progress.Store(uint64(v.sent))
	return nil
}
