package inject

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/uapi"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"reg_mr:error=ENOMEM": "",
		"ibv_create_qp,create_cq:error=EINVAL:when=3+:device=rxe0": "",
		"modify_qp:delay=10ms:object=qp:7#2:process=server":        "",
		"get_cm_event:event=REJECTED:reason=28":                    "",
		"get_async_event:event=PORT_ERR:when=2":                    "",
		"poll_cq:status=RETRY_EXC_ERR:when=2..8+3":                 "",
		"nosuch:error=EIO":                        `no verb "nosuch"`,
		"reg_mr":                                  "one of error=, delay=, event= and status= must be given",
		"reg_mr:error=EWHAT":                      `no errno has the name "EWHAT"`,
		"reg_mr:error=":                           `no errno has the name ""`,
		"reg_mr:error=EIO:process=":               "no process given",
		"reg_mr:error":                            `"error" is not KEY=VALUE`,
		"reg_mr:color=red":                        "no such key",
		"reg_mr:delay=-1s":                        "it must be positive",
		"reg_mr:delay=soon":                       "invalid duration",
		"reg_mr:error=EIO:when=0":                 "counted from 1",
		"reg_mr:error=EIO:when=3..2":              "the range is empty",
		"reg_mr:error=EIO:when=1+0":               "the step must be positive",
		"reg_mr:error=EIO:object=:7":              "no type of object",
		"reg_mr:status=LOC_LEN_ERR":               "status= is for poll_cq, start_poll, next_poll, and alone",
		"poll_cq:status=LOC_LEN_ERR:error=EIO":    "and alone",
		"poll_cq:status=FINE":                     `no status of completions has the name "FINE"`,
		"post_send:error=ENOMEM":                  "of posts, polls, open and close only",
		"open:error=ENOENT":                       "of posts, polls, open and close only",
		"get_cm_event:event=PORT_ERR":             `no event of the connection manager has the name "PORT_ERR"`,
		"reg_mr:event=PORT_ERR":                   "event= is for get_cm_event or get_async_event",
		"get_cm_event:event=REJECTED:error=EIO":   "without error=",
		"get_async_event:event=PORT_ERR:reason=3": "reason= is for events of get_cm_event",
	} {
		_, err := Parse(s)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
	r, err := Parse("get_cm_event:event=REJECTED:reason=28:delay=2s")
	if err != nil || *r.Event != uint32(uapi.RDMA_CM_EVENT_REJECTED) || r.Reason != 28 || r.Delay != 2*time.Second || r.Errno != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if !r.Replaced(uint32(uapi.RDMA_CM_EVENT_ESTABLISHED)) || r.Replaced(uint32(uapi.RDMA_CM_EVENT_ADDR_RESOLVED)) || r.Async() {
		t.Error("REJECTED takes the place of the wrong events")
	}
	if r, err = Parse("get_cm_event:event=DEVICE_REMOVAL"); err != nil || !r.Replaced(uint32(uapi.RDMA_CM_EVENT_ADDR_RESOLVED)) {
		t.Errorf("DEVICE_REMOVAL takes the place of no event: %v", err)
	}
}

// TestMatch: which of 10 calls are changed.
func TestMatch(t *testing.T) {
	qp := event.Field{Name: "qp", Value: event.Value{Form: event.Handle, Str: "qp", Num: 7}}
	e := &event.Event{PID: 4711, Comm: "server", Kind: event.Control, Verb: "ibv_modify_qp", Device: "rxe0", Args: []event.Field{qp}}
	for s, want := range map[string]string{
		"":                     "1 2 3 4 5 6 7 8 9 10",
		":when=3":              "3",
		":when=8+":             "8 9 10",
		":when=2+4":            "2 6 10",
		":when=2..4":           "2 3 4",
		":when=1..8+3":         "1 4 7",
		":process=server":      "1 2 3 4 5 6 7 8 9 10",
		":process=4711":        "1 2 3 4 5 6 7 8 9 10",
		":process=client":      "",
		":device=rxe1":         "",
		":object=qp:7:when=9+": "9 10",
		":object=qp:8":         "",
	} {
		r, err := Parse("modify_qp:error=EIO" + s)
		if err != nil {
			t.Fatal(err)
		}
		if r.Errno != unix.EIO {
			t.Errorf("%s: %v", s, r.Errno)
		}
		var got []string
		for i := range 10 {
			if r.Match(&event.Event{PID: 4711, Comm: "server", Kind: event.Control, Verb: "ibv_reg_mr", Device: "rxe0"}) {
				t.Errorf("%s changes another verb", s)
			}
			if r.Match(e) {
				got = append(got, fmt.Sprint(i+1))
			}
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%s: %q, want %q", s, g, want)
		}
	}
}
