package rdmacm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// start starts ibv's command, or librdmacm's program of the same name.
func start(t testing.TB, maker, name, args string) *rdmatest.Process {
	t.Helper()
	line := append([]string{name}, strings.Fields(args)...)
	if maker == "go" {
		line = append([]string{rdmatest.Program(t, "ibv")}, line...)
	}
	return rdmatest.Start(t, line...)
}

// completes waits for the end of a program that must have exchanged its messages.
func completes(t testing.TB, p *rdmatest.Process) {
	t.Helper()
	if out := p.Succeeds(t); !strings.Contains(out, "data transfers complete") || !strings.Contains(out, "return status 0") {
		t.Error(p)
	}
}

var _ = rdmatest.Test(TestPrograms, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"))

// TestPrograms runs ibv ucmatose and ibv udaddy with themselves, and with librdmacm's
// programs.
func TestPrograms(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, who := range pairings {
		for _, args := range []string{"-c 3 -C 5 -S 2000", "-C 0"} {
			t.Run(fmt.Sprintf("ucmatose/%s-%s%s", who.server, who.client, strings.ReplaceAll(args, " ", "")), func(t *testing.T) {
				lastPort++
				server := start(t, who.server, "ucmatose", fmt.Sprintf("-b %s -p %d %s", host, lastPort, args))
				listens(t, server, rdmacm.PortSpaceTCP, lastPort)
				client := start(t, who.client, "ucmatose", fmt.Sprintf("-s %s -p %d %s", host, lastPort, args))
				for _, p := range []*rdmatest.Process{client, server} {
					if out := p.Succeeds(t); !strings.Contains(out, "return status 0") || strings.Contains(out, "data transfers complete") == (args == "-C 0") {
						t.Error(p)
					}
				}
			})
		}
		t.Run(fmt.Sprintf("udaddy/%s-%s", who.server, who.client), func(t *testing.T) {
			const args = " -c 2 -C 5 -S 500"
			server := start(t, who.server, "udaddy", "-b "+host+args)
			listens(t, server, rdmacm.PortSpaceUDP, udaddyAddr.Port())
			client := start(t, who.client, "udaddy", "-s "+host+args)
			completes(t, client)
			completes(t, server)
		})
	}
}

var _ = rdmatest.Test(TestMckeyPrograms, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.Long)

// TestMckeyPrograms runs ibv mckey with itself, and with librdmacm's mckey. The pairs run
// side by side, because each side waits for the subnet for 3 seconds.
func TestMckeyPrograms(t *testing.T) {
	rdmatest.CheckLeaks(t)
	var receivers, senders []*rdmatest.Process
	line := func(i int) string { return fmt.Sprintf("-m 239.7.8.%d -b %s -C 5", i, host) }
	for i, who := range pairings {
		receivers = append(receivers, start(t, who.server, "mckey", line(i)))
		// librdmacm's program writes to a pipe at its end, so only ibv says when it has joined.
		if who.server == "go" {
			receivers[i].Until(t, func() bool { return strings.Contains(receivers[i].Stdout(), "joined") })
		}
	}
	for i, who := range pairings {
		senders = append(senders, start(t, who.client, "mckey", line(i)+" -s"))
	}
	for i, who := range pairings {
		// librdmacm's sender doesn't wait until its messages are sent, and its receiver may join
		// late. Another sender sends the rest.
		for completes(t, senders[i]); who != pairings[0] && !receivers[i].Ended(); {
			completes(t, start(t, who.client, "mckey", line(i)+" -s"))
		}
		completes(t, receivers[i])
	}
}
