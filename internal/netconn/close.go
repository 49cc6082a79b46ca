package netconn

import "time"

const (
	// lingering is how long written data is sent in the background after Close.
	lingering = time.Minute
	// Graceful bounds the remaining steps of a Close, once no more data is sent.
	Graceful = time.Second
)

// lingers closes a connection as SetLinger's seconds say. finish sends the rest for up to the given time, and releases
// the connection. It goes on in the background, except as far as Close waits.
func lingers(sec int, finish func(try time.Duration) error) error {
	try := lingering
	if sec >= 0 {
		try = time.Duration(sec) * time.Second
	}
	released := make(chan error, 1)
	go func() { released <- finish(try) }()
	if sec <= 0 {
		return nil
	}
	timer := time.NewTimer(try + Graceful)
	defer timer.Stop()
	select {
	case err := <-released:
		return err
	case <-timer.C:
		return nil
	}
}

// releasing bounds how many connections are released at a time: each takes a thread, because the kernel waits for
// the device.
var releasing = make(chan struct{}, 16)

// retire ends a connection and releases it, after the calls that have begun. end makes them return, and later calls
// fail. They don't use what release releases.
func retire(end func(), sides []*Side, release func() error) error {
	releasing <- struct{}{}
	defer func() { <-releasing }()
	end()
	// One Call is locked at a time, so that nothing waits for one while it holds another.
	for _, s := range sides {
		s.Call.Lock()
		s.Deadline.Set(time.Time{})
		s.Call.Unlock()
	}
	return release()
}
