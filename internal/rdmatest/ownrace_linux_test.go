package rdmatest

import (
	"strings"
	"testing"
)

// TestRpingsOwnRace: only rping's own race is recognized, and only after all pings.
func TestRpingsOwnRace(t *testing.T) {
	const race = "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n"
	pings := func(n int) string { return strings.Repeat("ping data: rdma-ping-0: ABC\n", n) }
	client := strings.Fields("rping -c -v -a 192.168.77.1 -C 3")
	const serverRace = "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\nrdma_get_cm_event: Bad file descriptor\n"
	served := strings.Repeat("server ping data: rdma-ping-0: ABC\n", 3)
	server := strings.Fields("rping -s -v -a 192.168.77.1 -C 3")
	for _, test := range []struct {
		name    string
		command []string
		status  int
		output  string
		want    bool
	}{
		{"the race", client, 255, pings(3) + race, true},
		{"stderr before stdout", client, 255, race + pings(3), true},
		{"behind a tracer", strings.Fields("ibvtrace -o trace -- /usr/bin/rping -c -v -C 3"), 255, pings(3) + race, true},
		{"a ping is missing", client, 255, pings(2) + race, false},
		{"a ping too many", client, 255, pings(4) + race, false},
		{"no ping", client, 255, race, false},
		{"without a count", strings.Fields("rping -v -c"), 255, pings(3) + race, false},
		{"no number", strings.Fields("rping -v -c -C x"), 255, pings(3) + race, false},
		{"the count is cut off", strings.Fields("rping -v -c -C"), 255, race, false},
		{"before the disconnect", client, 255, pings(3) + "rdma_get_cm_event: Bad file descriptor\n", false},
		{"another error", client, 255, pings(3) + "client DISCONNECT EVENT...\nrdma_get_cm_event: Invalid argument\n", false},
		{"another message", client, 255, pings(3) + "cq completion failed status 12\n" + race, false},
		{"killed", client, -1, pings(3) + race, false},
		{"another status", client, 1, pings(3) + race, false},
		{"the server's race", server, 255, served + serverRace, true},
		{"the server's race, without all pings", server, 255, serverRace, false},
		{"the client's race in the server", server, 255, pings(3) + race, false},
		{"the server's race in the client", client, 255, served + serverRace, false},
		{"another program", strings.Fields("ibv rping2 -c -v -C 3"), 255, pings(3) + race, false},
	} {
		if why, is := ownRace(test.command, test.status, test.output); is != test.want || is != (why != "") {
			t.Errorf("%s: %v %q, want %v", test.name, is, why, test.want)
		}
	}
}
