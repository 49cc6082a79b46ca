package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
)

// The steps of a connection's life.
const (
	stepCreate = iota
	stepResolveAddr
	stepResolveRoute
	stepCreateQP
	stepConnect
	stepDisconnect
	stepDestroyQP
	stepDestroy
	cmSteps
)

var cmStepNames = [cmSteps]string{
	"create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy qp", "destroy id",
}

// A cmConn is one connection, with the times when its steps began and ended.
type cmConn struct {
	id      *rdmacm.ID
	times   [cmSteps][2]time.Duration // since the client's clock started
	retries int
}

// A cmClient takes all connections through the steps.
type cmClient struct {
	*cmtimeOptions
	ch            *rdmacm.EventChannel
	local, remote netip.AddrPort
	queues        queues
	conns         []cmConn
	clock         time.Time
	totals        [cmSteps]time.Duration

	// The current step: its function, how many connections have yet to complete it,
	// and whether all of them have.
	step int
	do   func(*cmConn) error
	left atomic.Int32
	done chan error
}

func (o *cmtimeOptions) measure(ctx context.Context) (err error) {
	c := &cmClient{cmtimeOptions: o, conns: make([]cmConn, o.count), clock: time.Now(), done: make(chan error, 1)}
	if c.remote, err = o.address(ctx, o.server, o.port, false); err != nil {
		return err
	}
	if o.bind != "" {
		if c.local, err = o.address(ctx, o.bind, 0, true); err != nil {
			return err
		}
	}
	if c.ch, err = rdmacm.NewEventChannel(); err != nil {
		return err
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	c.report()
	return c.ch.Close()
}

func (c *cmClient) run(ctx context.Context) error {
	// This opens the device before the clock starts, and keeps it open to the end.
	warm, err := c.ch.CreateID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer warm.Close()
	if err := warm.ResolveAddr(c.local, c.remote, c.timeout); err != nil {
		return err
	}
	if e, err := c.ch.Event(ctx); err != nil || e.Err() != nil {
		return fmt.Errorf("the first event: %w", orEvent(err, e))
	}
	go c.events(ctx)
	for step, do := range [cmSteps]func(*cmConn) error{
		func(n *cmConn) (err error) {
			if n.id, err = c.ch.CreateID(rdmacm.PortSpaceTCP); err == nil {
				n.id.Value = n
			}
			return err
		},
		c.resolveAddr,
		c.resolveRoute,
		func(n *cmConn) error { return c.queues.create(n.id) },
		func(n *cmConn) error {
			return n.id.Connect(&rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7})
		},
		func(n *cmConn) error { return n.id.Disconnect() },
		func(n *cmConn) error { return n.id.DestroyQP() },
		func(n *cmConn) error { return n.id.Close() },
	} {
		if err := c.take(step, do); err != nil {
			return fmt.Errorf("%s: %w", cmStepNames[step], err)
		}
	}
	return c.queues.close()
}

// orEvent returns err or, if that is nil, the event as an error.
func orEvent(err error, e *rdmacm.Event) error {
	if err != nil {
		return err
	}
	return e.Err()
}

func (c *cmClient) resolveAddr(n *cmConn) error {
	n.retries = c.retries
	return n.id.ResolveAddr(c.local, c.remote, c.timeout)
}

func (c *cmClient) resolveRoute(n *cmConn) error {
	n.retries = c.retries
	return n.id.ResolveRoute(c.timeout)
}

// endedBy maps steps to the events that complete them. The other steps complete when
// their calls return.
var endedBy = map[int]rdmacm.EventType{
	stepResolveAddr:  rdmacm.EventAddrResolved,
	stepResolveRoute: rdmacm.EventRouteResolved,
	stepConnect:      rdmacm.EventEstablished,
	stepDisconnect:   rdmacm.EventDisconnected,
}

// take runs one step of all connections.
func (c *cmClient) take(step int, do func(*cmConn) error) error {
	_, byEvent := endedBy[step]
	c.step, c.do = step, do
	c.left.Store(int32(len(c.conns)))
	began := time.Since(c.clock)
	now := began
	for i := range c.conns {
		n := &c.conns[i]
		n.times[step][0] = now
		if err := do(n); err != nil {
			return err
		}
		now = time.Since(c.clock)
		if !byEvent {
			n.times[step][1] = now
		}
	}
	if byEvent {
		if err := <-c.done; err != nil {
			return err
		}
		now = time.Since(c.clock)
	}
	c.totals[step] = now - began
	return nil
}

// events handles events until the channel closes.
func (c *cmClient) events(ctx context.Context) {
	for {
		e, err := c.ch.Event(ctx)
		if errors.Is(err, rdmacm.ErrClosed) {
			return
		}
		if err == nil {
			err = c.event(e)
		}
		if err != nil {
			select {
			case c.done <- err:
			default:
			}
			return
		}
	}
}

// event records that a connection has completed its step, or retries the step.
func (c *cmClient) event(e *rdmacm.Event) error {
	n, ok := e.ID.Value.(*cmConn)
	end, byEvent := endedBy[c.step]
	switch {
	case !ok:
	case (e.Type == rdmacm.EventAddrError || e.Type == rdmacm.EventRouteError) && n.retries > 0:
		retries := n.retries - 1
		err := c.do(n)
		n.retries = retries
		return err
	case e.Err() != nil:
		return e.Err()
	case byEvent && e.Type == end:
		n.times[c.step][1] = time.Since(c.clock)
		if c.left.Add(-1) == 0 {
			c.done <- nil
		}
	}
	return nil
}

// report prints how long each step took, for all connections together and for one.
func (c *cmClient) report() {
	w := tabwriter.NewWriter(&cli.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "step\ttotal ms\tmax ms\tmin us\tus / conn\t")
	var total time.Duration
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	for step, name := range cmStepNames {
		least, most := time.Duration(1<<62), time.Duration(0)
		for i := range c.conns {
			took := c.conns[i].times[step][1] - c.conns[i].times[step][0]
			least, most = min(least, took), max(most, took)
		}
		fmt.Fprintf(w, "%s:\t%.2f\t%.2f\t%.2f\t%.2f\t\n", name, ms(c.totals[step]), ms(most), us(least), us(c.totals[step])/float64(len(c.conns)))
		cli.Put("step", name, "seconds", c.totals[step].Seconds(), "max_seconds", most.Seconds(), "min_seconds", least.Seconds(), "connections", len(c.conns))
		total += c.totals[step]
	}
	w.Flush()
	cli.Printf("%d connections in %.3f seconds = %.0f connections/s\n", len(c.conns), total.Seconds(), float64(len(c.conns))/total.Seconds())
}
