//go:build linux

package main

import (
	"slices"
	"strconv"
	"strings"
)

// rpingRace reports whether a side of rping failed only by its own race. Up to rdma-core 60,
// rping's main thread closes the event channel while another thread, which has handled the last event,
// is about to wait for the next. That thread finds the descriptor closed and calls exit(-1). All work
// is done by then: with -v, the output has a line for each of the -C pings, and only the race's messages
// beside them.
func rpingRace(command []string, status int, output string) bool {
	count := slices.Index(command, "-C") + 1
	if command[0] != "rping" || status != 255 || count == 0 || count == len(command) {
		return false
	}
	ping, race := "ping data: ", "client DISCONNECT EVENT...\n"
	if slices.Contains(command, "-s") {
		ping, race = "server ping data: ", "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\n"
	}
	pings, rest := 0, ""
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, ping) {
			pings++
		} else {
			rest += line
		}
	}
	return strconv.Itoa(pings) == command[count] && rest == race+"rdma_get_cm_event: Bad file descriptor\n"
}
