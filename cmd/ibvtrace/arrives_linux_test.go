//go:build amd64

package main

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// TestArrives: verbs and commands of the connection manager are shown, whichever way the
// descriptors came to the process: to a daemon, to a child of its parent's parent, by a message, or
// by pidfd_getfd. A child whose parent was killed in the fork goes on. The file is the one that was opened.
func TestArrives(t *testing.T) {
	needDevice(t)
	program := compiled(t, "arrives")
	const n = 40
	for _, how := range []string{"daemon", "parent", "killed", "recvmsg", "recvmmsg", "getfd", "vectors"} {
		for _, option := range []string{"", "--no-filter", "-p"} {
			t.Run(how+" "+option, func(t *testing.T) {
				args := []string{program, how, "/dev/null", "/dev/zero", fmt.Sprint(n)}
				tracer := onDevice(t, append([]string{option, "--"}, args...)...)
				tracee := tracer
				switch option {
				case "":
					tracer = onDevice(t, append([]string{"--"}, args...)...)
					tracee = tracer
				case "-p":
					tracee = &traced{Cmd: exec.CommandContext(t.Context(), args[0], args[1:]...), t: t}
				}
				pid, next := tracee.start()
				if tracer != tracee {
					tracer = onDevice(t, "-p", fmt.Sprint(pid))
					if err := tracer.Start(); err != nil {
						t.Fatal(err)
					}
					tracer.awaitTrace() // of its standard error, which is /dev/null
				}
				fmt.Fprint(tracee.stdin, "x")
				var users int
				if _, err := fmt.Sscan(next(), &users); err != nil {
					t.Fatal(err)
				}
				if err := tracee.Wait(); err != nil {
					t.Fatalf("%v\n%s", err, tracee.out.String())
				}
				if tracer != tracee {
					if err := tracer.Wait(); err != nil {
						t.Fatalf("%v\n%s", err, tracer.out.String())
					}
				}
				shown, files, processes := make(map[string]int), make(map[int]bool), make(map[int]bool)
				for _, e := range readEvents(t, tracer.file) {
					if e.Kind == event.Note || e.Kind == event.Exit {
						continue // of files that were open before, such as the standard error
					}
					shown[e.Verb]++
					files[e.File] = true
					if e.Verb == "ibv_dealloc_pd" {
						processes[e.PID] = true
					}
				}
				calls := n
				if how == "killed" {
					calls = users
				}
				if shown["open"] != 2 || shown["ibv_dealloc_pd"] != calls || shown["rdma_create_id"] != calls || len(files) != 2 {
					t.Errorf("files %v, events %v, want %d", files, shown, calls)
				}
				arrived, want := shown[how], 0
				switch how {
				case "recvmsg", "recvmmsg":
					want = 2
				case "getfd":
					arrived, want = shown["pidfd_getfd"], 2
				}
				if arrived != want || want > 0 && shown["close"] != 1 || len(processes) != users {
					t.Errorf("%d processes, want %d, %d descriptors arrived: %v", len(processes), users, arrived, shown)
				}
			})
		}
	}
}
