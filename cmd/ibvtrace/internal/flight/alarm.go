package flight

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// An Alarm is a kind of events that something has gone wrong.
type Alarm string

const (
	Failed Alarm = "failed" // a verb or a completion that failed
	Event  Alarm = "event"  // an event about an error: asynchronous, or of the connection manager
)

// Alarms are all kinds.
var Alarms = []Alarm{Failed, Event}

// errorEvents are the types of events that report errors.
var errorEvents = []string{
	"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ERR", "SRQ_ERR", "WQ_FATAL",
	"ADDR_ERROR", "ROUTE_ERROR", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "DEVICE_REMOVAL", "MULTICAST_ERROR",
}

// Raised returns which alarm an event raises, in words, and "" if it raises none of these.
func Raised(e *event.Event, alarms []Alarm) string {
	who := fmt.Sprintf("%s of %d %s", e.Verb, e.PID, e.Comm)
	if slices.Contains(alarms, Failed) && e.Wrong() {
		if e.Failed() {
			return who + " failed with " + e.Errno
		}
		status, _ := e.Broken()
		return who + " returned a completion with " + status
	}
	if !slices.Contains(alarms, Event) || e.Kind != event.Async {
		return ""
	}
	for _, name := range []string{"event", "event_type"} {
		if v := event.Find(e.Out, name); v != nil && slices.Contains(errorEvents, v.Str) {
			return who + " returned " + v.Str
		}
	}
	return ""
}
