// Package inject has the rules by which ibvtrace makes verbs fail on purpose.
package inject

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/filter"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/uapi"
)

// A Rule changes some calls of some verbs.
type Rule struct {
	Errno  syscall.Errno // the call fails with this, and is not made; 0: it is made
	Delay  time.Duration // before the call is made
	Event  *uint32       // the type of the event that the program reads
	Reason uint32        // the status in an event of the connection manager
	Status *uint32       // the status of a completion

	calls             filter.Filter
	process           string // the ID or the name; "": all
	verbs             []string
	first, last, step uint64 // which of the calls, from 1
	seen              uint64
}

// Verbs whose calls a rule changes when they return.
const (
	cmEvent    = "get_cm_event"
	asyncEvent = "get_async_event"
)

var polls = []string{"poll_cq", "start_poll", "next_poll"}

// Parse parses VERB[,VERB]...:KEY=VALUE[:KEY=VALUE]...
func Parse(s string) (*Rule, error) {
	r := &Rule{first: 1, last: ^uint64(0), step: 1}
	parts := strings.Split(s, ":")
	for _, v := range strings.Split(parts[0], ",") {
		r.verbs = append(r.verbs, filter.Bare(v))
	}
	if err := r.calls.Add("trace=" + parts[0]); err != nil {
		return nil, err
	}
	event, reason := "", false
	for i := 1; i < len(parts); i++ {
		key, value, ok := strings.Cut(parts[i], "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", parts[i])
		}
		var err error
		switch key {
		case "error":
			r.Errno, err = errnoNamed(value)
		case "delay":
			if r.Delay, err = time.ParseDuration(value); err == nil && r.Delay <= 0 {
				err = errors.New("it must be positive")
			}
		case "event":
			event = value
		case "reason":
			reason = true
			var n uint64
			n, err = strconv.ParseUint(value, 0, 32)
			r.Reason = uint32(n)
		case "status":
			r.Status, err = member(uapi.EnumIbvWcStatus, "status of completions", value)
		case "when":
			err = r.parseWhen(value)
		case "device":
			err = r.calls.Add("device=" + value)
		case "object":
			// The handle, qp:7, is the next part.
			if i+1 < len(parts) && !strings.Contains(parts[i+1], "=") {
				i++
				value += ":" + parts[i]
			}
			err = r.calls.Add("object=" + value)
		case "process":
			if r.process = value; value == "" {
				err = errors.New("no process given")
			}
		default:
			err = errors.New("no such key; the keys are error, delay, event, reason, status, when, device, object and process")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", parts[i], err)
		}
	}
	return r, r.check(event, reason)
}

// check finds out what kind of event is meant, and whether the verbs can be changed so.
func (r *Rule) check(event string, reason bool) error {
	is := func(names ...string) bool {
		return !slices.ContainsFunc(r.verbs, func(v string) bool { return !slices.Contains(names, v) })
	}
	var err error
	switch {
	case r.Errno == 0 && r.Delay == 0 && event == "" && r.Status == nil:
		return errors.New("one of error=, delay=, event= and status= must be given")
	case r.Status != nil:
		if !is(polls...) || r.Errno != 0 || r.Delay != 0 || event != "" {
			return fmt.Errorf("status= is for %s, and alone", strings.Join(polls, ", "))
		}
		return nil
	case r.calls.Data() || slices.ContainsFunc(r.verbs, func(v string) bool { return v == "open" || v == "close" || v == "exit" }):
		return errors.New("of posts, polls, open and close only the status of completions can be changed")
	case event != "" && (r.Errno != 0 || !is(cmEvent) && !is(asyncEvent)):
		return fmt.Errorf("event= is for %s or %s, without error=", cmEvent, asyncEvent)
	case event != "" && is(cmEvent):
		r.Event, err = member(uapi.EnumRdmaCmEventType, "event of the connection manager", event)
	case event != "":
		r.Event, err = member(uapi.EnumIbEventType, "asynchronous event", event)
	}
	if err == nil && reason && (r.Event == nil || !is(cmEvent)) {
		err = fmt.Errorf("reason= is for events of %s", cmEvent)
	}
	return err
}

// parseWhen parses N, N+, N+STEP, N..M or N..M+STEP.
func (r *Rule) parseWhen(s string) error {
	s, step, repeats := strings.Cut(s, "+")
	from, to, ranges := strings.Cut(s, "..")
	var err error
	if r.first, err = strconv.ParseUint(from, 10, 64); err == nil && r.first == 0 {
		err = errors.New("calls are counted from 1")
	}
	switch {
	case err == nil && ranges:
		r.last, err = strconv.ParseUint(to, 10, 64)
	case !repeats:
		r.last = r.first
	}
	if err == nil && step != "" {
		if r.step, err = strconv.ParseUint(step, 10, 64); err == nil && r.step == 0 {
			err = errors.New("the step must be positive")
		}
	}
	if err == nil && r.last < r.first {
		err = errors.New("the range is empty")
	}
	return err
}

func errnoNamed(name string) (syscall.Errno, error) {
	const maxErrno = 4095
	for e := syscall.Errno(1); e <= maxErrno && strings.HasPrefix(name, "E"); e++ { // some numbers have no name
		if operr.Name(e) == name {
			return e, nil
		}
	}
	return 0, fmt.Errorf("no errno has the name %q", name)
}

// member returns the value with a name without the enumeration's prefix. what is what it is called in an error.
func member(e *uapi.Enum, what, name string) (*uint32, error) {
	for _, v := range e.Values {
		if e.Short(v.Value) == name {
			n := uint32(v.Value)
			return &n, nil
		}
	}
	return nil, fmt.Errorf("no %s has the name %q", what, name)
}

// Match reports whether the rule changes a call. It counts the calls that it is asked about.
func (r *Rule) Match(e *event.Event) bool {
	if e.Kind == event.Note || r.process != "" && r.process != strconv.Itoa(e.PID) && r.process != e.Comm || !r.calls.Match(e) {
		return false
	}
	r.seen++
	return r.seen >= r.first && r.seen <= r.last && (r.seen-r.first)%r.step == 0
}

// Replaced reports whether the rule is about events of the connection manager, and one of this
// type may be replaced: an error takes the place of the event that would have told of success.
func (r *Rule) Replaced(old uint32) bool {
	if r.Event == nil || r.verbs[0] != cmEvent {
		return false
	}
	success, ok := successes[uapi.RdmaCmEventType(*r.Event)]
	return !ok || slices.Contains(success, uapi.RdmaCmEventType(old))
}

// successes has the events that errors take the place of.
var successes = map[uapi.RdmaCmEventType][]uapi.RdmaCmEventType{
	uapi.RDMA_CM_EVENT_ADDR_ERROR:      {uapi.RDMA_CM_EVENT_ADDR_RESOLVED},
	uapi.RDMA_CM_EVENT_ROUTE_ERROR:     {uapi.RDMA_CM_EVENT_ROUTE_RESOLVED},
	uapi.RDMA_CM_EVENT_CONNECT_ERROR:   {uapi.RDMA_CM_EVENT_CONNECT_RESPONSE, uapi.RDMA_CM_EVENT_ESTABLISHED},
	uapi.RDMA_CM_EVENT_UNREACHABLE:     {uapi.RDMA_CM_EVENT_CONNECT_RESPONSE, uapi.RDMA_CM_EVENT_ESTABLISHED},
	uapi.RDMA_CM_EVENT_REJECTED:        {uapi.RDMA_CM_EVENT_CONNECT_RESPONSE, uapi.RDMA_CM_EVENT_ESTABLISHED},
	uapi.RDMA_CM_EVENT_MULTICAST_ERROR: {uapi.RDMA_CM_EVENT_MULTICAST_JOIN},
}

// Async reports whether the rule makes the program read an asynchronous event.
func (r *Rule) Async() bool { return r.Event != nil && r.verbs[0] == asyncEvent }

// Polls reports whether any rule is about completions.
func Polls(rules []*Rule) bool {
	return slices.ContainsFunc(rules, func(r *Rule) bool { return r.Status != nil })
}
