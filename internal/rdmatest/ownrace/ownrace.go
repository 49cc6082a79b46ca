// Package ownrace knows the races that C programs run with themselves, so that a test
// does not take one for a failure of what it tests.
package ownrace

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A race makes a program fail now and then after it has done all its work.
type race struct {
	program string
	role    string // an argument that it has
	status  int    // that it ends with
	work    string // how each line begins that says of one part of the work that it is done
	count   string // the argument before the number of these
	says    string // what else it says, all of it
	why     string
}

var races = []race{{
	program: "rping",
	role:    "-c",
	status:  255,
	work:    "ping data: ",
	count:   "-C",
	says:    "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n",
	why: "up to rdma-core 60 its main thread closes the event channel while another, which has handled the last event, " +
		"is about to wait for one more: that thread finds the descriptor gone and ends the process with exit(-1)",
}}

// Of reports whether a program failed by a race of its own, and which that is. It has to
// have said that all its work was done, for which rping needs -v, and nothing but what
// belongs to the race. The program may stand behind one that runs it.
func Of(command []string, status int, output string) (why string, is bool) {
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
