//go:build linux

package main

import (
	"strings"
	"testing"
)

// A failure counts as rping's own race only after all pings, and with no other message.
func TestRPingRace(t *testing.T) {
	const race = "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n"
	pings := strings.Repeat("ping data: rdma-ping-0: ABC\n", 3)
	const serverRace = "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\nrdma_get_cm_event: Bad file descriptor\n"
	served := strings.Repeat("server ping data: rdma-ping-0: ABC\n", 3)
	for _, test := range []struct {
		name, command string
		status        int
		output        string
		want          bool
	}{
		{"the race", "rping -c -v -a 192.168.77.1 -C 3 -V", 255, pings + race, true},
		{"stderr before stdout", "rping -c -v -C 3", 255, race + pings, true},
		{"a ping is missing", "rping -c -v -C 4", 255, pings + race, false},
		{"a ping too many", "rping -c -v -C 2", 255, pings + race, false},
		{"without a count", "rping -c -v", 255, pings + race, false},
		{"the count is cut off", "rping -c -v -C", 255, race, false},
		{"before the disconnect", "rping -c -v -C 3", 255, pings + "rdma_get_cm_event: Bad file descriptor\n", false},
		{"another message", "rping -c -v -C 3", 255, pings + "cq completion failed status 12\n" + race, false},
		{"killed", "rping -c -v -C 3", -1, pings + race, false},
		{"the server's race", "rping -s -v -C 3", 255, served + serverRace, true},
		{"the server's race, without all pings", "rping -s -v -C 4", 255, served + serverRace, false},
		{"the client's race in the server", "rping -s -v -C 3", 255, pings + race, false},
		{"another program", "ucmatose -c -C 3", 255, pings + race, false},
	} {
		if got := rpingRace(strings.Fields(test.command), test.status, test.output); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
