package rdmacm

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/rdmacm"
)

// ibv rping makes the same calls to the connection manager as rping, and no more queries.
// ibvtrace shows both.
func TestTracedAsC(t *testing.T) {
	rdmatest.CheckLeaks(t)
	dir := t.TempDir()
	type side struct {
		steps     []string
		questions int
	}
	sides := map[string]side{}
	for _, maker := range []string{"go", "c"} {
		lastPort++
		traced := func(name string, args ...string) *rdmatest.Process {
			command := []string{"rping"}
			if maker == "go" {
				command = []string{rdmatest.Program(t, "ibv"), "rping"}
			}
			file := filepath.Join(dir, maker+name)
			prefix := []string{rdmatest.Program(t, "ibvtrace"), "--how=ptrace", "--json", "-o", file, "-e", "trace=cm,event", "--"}
			return rdmatest.Start(t, slices.Concat(prefix, command, args, []string{"-a", host, "-p", fmt.Sprint(lastPort)})...)
		}
		server := traced("server", "-s", "-v", "-C", "3")
		listens(t, server, rdmacm.PortSpaceTCP, lastPort)
		traced("client", "-c", "-v", "-C", "3").Succeeds(t) // -v shows that all pings were answered
		server.Succeeds(t)
		for _, name := range []string{"server", "client"} {
			var s side
			s.steps, s.questions = steps(t, filepath.Join(dir, maker+name))
			sides[maker+name] = s
		}
	}
	for name, want := range map[string][]string{
		"server": {
			"rdma_create_id", "rdma_bind_addr", "rdma_listen", "CONNECT_REQUEST", "rdma_accept", "ESTABLISHED",
			"DISCONNECTED", "rdma_disconnect", "rdma_destroy_id", "rdma_destroy_id",
		},
		"client": {
			"rdma_create_id", "rdma_resolve_addr", "ADDR_RESOLVED", "rdma_resolve_route", "ROUTE_RESOLVED",
			"rdma_connect", "CONNECT_RESPONSE", "rdma_accept", "rdma_disconnect", "rdma_destroy_id",
		},
	} {
		ours, theirs := sides["go"+name], sides["c"+name]
		if diff := cmp.Diff(want, ours.steps); diff != "" {
			t.Errorf("ibv rping, %s (-want +got):\n%s", name, diff)
		}
		// librdmacm first probes whether the kernel supports InfiniBand addresses.
		want = append([]string{"rdma_create_id", "rdma_bind_addr", "rdma_destroy_id"}, want...)
		if diff := cmp.Diff(want, theirs.steps); diff != "" {
			t.Errorf("rping, %s (-want +got):\n%s", name, diff)
		}
		if ours.questions > theirs.questions {
			t.Errorf("%s: %d queries, rping has %d", name, ours.questions, theirs.questions)
		}
	}
}

// answers maps commands to the events that they cause.
var answers = map[string]string{
	"rdma_resolve_addr": "ADDR_RESOLVED", "rdma_resolve_route": "ROUTE_RESOLVED", "rdma_connect": "CONNECT_RESPONSE",
}

// steps returns the commands and events of a trace in order. It only counts the queries.
func steps(t *testing.T, file string) (steps []string, questions int) {
	t.Helper()
	for _, e := range rdmatest.ReadTrace(t, file) {
		switch {
		case !e.Returned || e.Errno != "":
		case e.Verb == "rdma_query" || e.Verb == "rdma_init_qp_attr":
			questions++
		case e.Verb == "rdma_get_cm_event":
			name := event.Find(e.Out, "event").Str
			// The client may exit before it reads the event of its own disconnect.
			own := name == "DISCONNECTED" && steps[len(steps)-1] == "rdma_disconnect"
			if !own && name != "TIMEWAIT_EXIT" {
				steps = append(steps, name)
			}
		case e.Kind == event.CM:
			at := len(steps)
			// Another thread may read the event before the command returns.
			if at > 0 && steps[at-1] == answers[e.Verb] {
				at--
			}
			steps = slices.Insert(steps, at, e.Verb)
		}
	}
	return steps, questions
}
