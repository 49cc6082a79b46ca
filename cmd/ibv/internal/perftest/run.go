package perftest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// run runs a test and prints its result. The sides take the same steps in the same order,
// as perftest does for the tool.
func run(o *options) error {
	s := &side{options: o, follow: cli.Follow}
	s.ctx, s.interrupt = context.WithCancelCause(context.Background())
	defer s.interrupt(nil)
	if o.cpuUtil {
		s.load = new(load)
	}
	steps := s.run
	if o.tool.raw {
		steps = s.runRaw
	}
	err := steps()
	switch {
	case len(s.report.results) > 0:
		if err != nil {
			s.printf(rule)
		}
		err = errors.Join(s.finish(), err)
	case errors.Is(err, errInterrupted):
		err = errors.New("interrupted before there was a result")
	}
	if closed := s.close(); err == nil {
		err = closed
	}
	if err == nil {
		err = s.report.failed
	}
	return err
}

func (s *side) run() error {
	if !s.cmQPs {
		if err := s.open(); err != nil {
			return err
		}
	}
	if !s.sender() {
		s.printf("\n************************************\n* Waiting for client to connect... *\n************************************\n")
	}
	steps := []func() error{s.call, s.agree, s.make, s.introduce, s.test}
	if s.cmQPs {
		// The connection determines the device.
		steps = slices.Insert(steps, 1, s.open)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// introduce connects the queue pairs.
func (s *side) introduce() error {
	s.printSettings()
	if s.tool.latency && s.tool.verb != send {
		if err := s.x.barrier(s.local[0]); err != nil {
			return err
		}
	}
	if err := s.meet(); err != nil {
		return err
	}
	if !s.cmQPs {
		if err := s.connect(); err != nil {
			return err
		}
	}
	if err := s.settleRate(); err != nil {
		return err
	}
	if s.tool.verb == send {
		if err := s.barrier(); err != nil {
			return err
		}
	}
	s.printKeys("local", s.local)
	if err := s.meet(); err != nil {
		return err
	}
	s.printKeys("remote", s.remote)
	if s.tool.verb != send {
		return s.barrier()
	}
	return nil
}

// barrier waits until the other side has reached the same step.
func (s *side) barrier() error { return s.x.barrier(s.local[0]) }

// test runs the test. A test without an end ends when the other side does. From here on, the other side
// may be silent for as long as the test takes.
func (s *side) test() error {
	s.x.limit = 0
	defer s.catch()()
	err := s.measure()
	if s.forever && errors.Is(err, errGone) {
		s.printf(rule)
		return nil
	}
	return err
}

// measure runs the test, and ends the exchange.
func (s *side) measure() error {
	passive := !s.duplex && !s.sender()
	switch {
	case s.tool.latency && s.tool.verb.responds() && passive:
		if err := s.leave(); err != nil {
			return err
		}
		s.printf(rule)
		return nil
	case s.tool.latency:
		return s.testLatency()
	case s.receives():
		return s.testSends()
	case passive:
		return s.testAsTarget()
	}
	return s.testRequests()
}

// leave sends the other side this side's costs, and ends the exchange.
func (s *side) leave() error {
	if err := s.exchangeCosts(); err != nil {
		return err
	}
	return s.x.part(s.local[0])
}

func (s *side) exchangeCosts() (err error) {
	if s.x.withIbv {
		s.theirCost, err = s.x.costs(s.cost)
	}
	return err
}

// sizes returns the sizes of messages, in the order of the test.
func (s *side) sizes() []int {
	if !s.all {
		return []int{s.size}
	}
	largest := min(maxAllSize, s.largest())
	var sizes []int
	for size := 2; size <= largest; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}

// testSends measures the bandwidth of sends. Between the sizes the sides wait for each other.
func (s *side) testSends() error {
	s.printHead()
	for _, size := range s.sizes() {
		t, err := s.newStream(size)
		if err != nil {
			return err
		}
		if err := s.barrier(); err != nil {
			return err
		}
		mine, err := t.run()
		if err != nil {
			return err
		}
		if s.all && s.imm && s.tool.verb == write {
			if err := s.barrier(); err != nil {
				return err
			}
		}
		if err := s.finishSize(mine, s.duplex && s.duration == 0); err != nil {
			return err
		}
		if s.all && s.tool.verb == send {
			if err := s.barrier(); err != nil {
				return err
			}
		}
	}
	s.printf(rule)
	return s.leave()
}

// finishSize reports a size, with the other side's result if both exchange them.
func (s *side) finishSize(mine bandwidth, exchanged bool) error {
	if !exchanged {
		s.addBandwidth(mine)
		return nil
	}
	theirs, err := s.x.reports(mine)
	if err != nil {
		return err
	}
	s.addBandwidth(mine.add(theirs))
	if s.reportBoth && !s.all {
		s.printf(rule + "\n Local results: \n")
		s.printHead()
		s.printBandwidth(mine)
		s.printf(rule + "\n Remote results: \n")
		s.printHead()
		s.printBandwidth(theirs)
	}
	return nil
}

// testAsTarget waits while the other side writes or reads this side's memory, and reports its result.
func (s *side) testAsTarget() error {
	s.printHead()
	if err := s.barrier(); err != nil {
		return err
	}
	stop := s.cost.start(func() uint64 { return 0 })
	theirs, err := s.x.reports(bandwidth{})
	stop()
	if err != nil {
		return err
	}
	s.addBandwidth(theirs)
	if err := s.leave(); err != nil {
		return err
	}
	s.printf(rule)
	return nil
}

// testRequests measures the bandwidth of writes, reads or atomics.
func (s *side) testRequests() error {
	s.printHead()
	var mine bandwidth
	for _, size := range s.sizes() {
		t, err := s.newStream(size)
		if err != nil {
			return err
		}
		if s.duplex {
			if err := s.barrier(); err != nil {
				return err
			}
		}
		if mine, err = t.run(); err != nil {
			return err
		}
		if s.duplex && s.all {
			if err := s.barrier(); err != nil {
				return err
			}
		}
		if err := s.finishSize(mine, s.duplex); err != nil {
			return err
		}
	}
	s.printf(rule)
	if !s.duplex {
		if err := s.barrier(); err != nil {
			return err
		}
		if _, err := s.x.reports(mine); err != nil {
			return err
		}
	}
	return s.leave()
}

// testLatency measures any latency. A side that only answers requests doesn't call it.
func (s *side) testLatency() error {
	s.printHead()
	for _, size := range s.sizes() {
		v, err := s.newVolley(size)
		if err != nil {
			return err
		}
		if s.receives() {
			if err := s.barrier(); err != nil {
				return err
			}
		}
		l, err := v.run()
		if err != nil {
			return err
		}
		s.addLatency(l)
	}
	s.printf(rule)
	if s.tool.verb == write {
		// There is no farewell step.
		if err := s.exchangeCosts(); err != nil {
			return err
		}
		s.x.linger(time.Second)
		return nil
	}
	return s.leave()
}
