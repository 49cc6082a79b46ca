package rdmatest

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A race is a race condition in a C program, which makes the program fail occasionally after
// it has done all its work.
type race struct {
	program string
	role    string // an argument of the program
	status  int    // the exit status
	work    string // the beginning of the line that the program prints for each unit of work
	count   string // the argument before the number of units
	says    string // the rest of the output
	why     string
}

const rpingCloses = "up to rdma-core 60 the main thread closes the event channel while another thread, which has handled the last event, " +
	"is about to wait for the next: that thread finds the descriptor closed and calls exit(-1)"

var races = []race{
	{
		program: "rping", role: "-c", status: 255, work: "ping data: ", count: "-C",
		says: "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n",
		why:  rpingCloses,
	},
	{
		program: "rping", role: "-s", status: 255, work: "server ping data: ", count: "-C",
		says: "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\nrdma_get_cm_event: Bad file descriptor\n",
		why:  rpingCloses,
	},
}

// ownRace reports whether a program failed by its own race, and explains the race. The output
// must show that all work was done, for which rping needs -v, and must contain nothing else but
// the race's messages. In command, the program may follow another program that starts it.
func ownRace(command []string, status int, output string) (why string, is bool) {
	for _, r := range races {
		at := slices.IndexFunc(command, func(s string) bool { return filepath.Base(s) == r.program })
		if at < 0 || status != r.status || !slices.Contains(command[at:], r.role) {
			continue
		}
		i := slices.Index(command[at:], r.count)
		if i < 0 || at+i+1 == len(command) {
			continue
		}
		want, err := strconv.Atoi(command[at+i+1])
		if err != nil || want < 1 {
			continue
		}
		done, says := 0, ""
		for line := range strings.Lines(output) {
			if strings.HasPrefix(line, r.work) {
				done++
			} else {
				says += line
			}
		}
		if done == want && says == r.says {
			return r.program + ": " + r.why, true
		}
	}
	return "", false
}
