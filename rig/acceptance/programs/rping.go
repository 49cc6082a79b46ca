//go:build linux

package main

import (
	"slices"
	"strconv"
	"strings"
)

// rpingRace reports whether a client of rping failed only by its own race. Up to rdma-core 60,
// rping's main thread closes the event channel while another thread, which has handled the last event,
// is about to wait for the next. That thread finds the descriptor closed and calls exit(-1). All work
// is done by then: with -v, the output has a line for each of the -C pings, and only the race's messages
// beside them.
func rpingRace(command []string, status int, output string) bool {
	count := slices.Index(command, "-C") + 1
	if command[0] != "rping" || status != 255 || !slices.Contains(command, "-c") || count == 0 || count == len(command) {
		return false
	}
	pings, rest := 0, ""
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "ping data: ") {
			pings++
		} else {
			rest += line
		}
	}
	return strconv.Itoa(pings) == command[count] && rest == "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n"
}
