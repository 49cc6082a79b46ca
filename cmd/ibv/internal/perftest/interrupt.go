package perftest

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

var errInterrupted = errors.New("interrupted: the result is that of the messages so far")

// catch makes a signal end the test, which then reports the result so far. A second signal ends the
// program.
func (s *side) catch() (release func()) {
	signals, released := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			signal.Stop(signals)
			s.cut.Store(true)
			s.interrupt(errInterrupted)
			s.x.interrupt()
		case <-released:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(released)
	}
}

// cutShort prints the result so far of an interrupted test.
func (s *side) cutShort() error {
	if len(s.report.results) == 0 {
		return errors.New("interrupted before there was a result")
	}
	s.printf(rule)
	return errors.Join(s.finish(), errInterrupted)
}
