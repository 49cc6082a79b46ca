package perftest

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

// fails checks that a side ends with a sentence.
func fails(t *testing.T, p *rdmatest.Process, says string) {
	t.Helper()
	if p.Wait().ExitCode() != 1 || !strings.Contains(p.Stderr(), says) {
		t.Errorf("want %q: %v", says, p)
	}
}

// TestMeasureMismatch: sides with different options report the difference. The last server is
// perftest's, which reports nothing and receives no message.
func TestMeasureMismatch(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, test := range []struct {
		server, client run
		serves, asks   string // the sides' messages
	}{
		{run{tool: "send_bw"}, run{tool: "write_lat"}, "runs write_lat", "runs send_bw"},
		{run{tool: "send_bw", args: "-s 64"}, run{tool: "send_bw", args: "-s 128"}, "has -s 128", "has -s 64"},
		{run{tool: "read_bw", args: "-s 64"}, run{tool: "read_bw", args: "-s 128"}, "has -s 128", "has -s 64"},
		{run{tool: "send_lat", args: "-c UC"}, run{tool: "send_lat"}, "has -c RC", "has -c UC"},
	} {
		lastPort++
		server := start(t, ours, test.server, false)
		listens(t, server, test.server)
		client := start(t, ours, test.client, true)
		fails(t, client, test.asks)
		fails(t, server, test.serves)
	}
	lastPort++
	server := start(t, theirs, run{tool: "write_bw"}, false)
	listens(t, server, run{})
	fails(t, start(t, ours, run{tool: "send_bw", args: "-n 20 -s 64 --patience 3"}, true), "nothing has come or gone for 3 s")
	server.Kill()
}

// TestMeasureSilent: strangers that connect and send nothing, or send other data, don't keep
// the server from its client. The error of a port in use names it.
func TestMeasureSilent(t *testing.T) {
	lastPort++
	server := start(t, ours, run{tool: "send_bw"}, false)
	listens(t, server, run{})
	fails(t, start(t, ours, run{tool: "send_bw"}, false), "address already in use")
	conn := rdmatest.Must(net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lastPort))))(t)
	defer conn.Close()
	other := rdmatest.Must(net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lastPort))))(t)
	rdmatest.Must(io.WriteString(other, "SSH-2.0-OpenSSH_9.2p1\r\n"))(t)
	other.Close()
	if client := start(t, ours, run{tool: "send_bw"}, true); !client.Wait().Success() || !server.Wait().Success() {
		t.Errorf("%v\n%v", client, server)
	}
}

var _ = rdmatest.Test(TestMeasureSilentCM, rdmatest.OnRXE)

// TestMeasureSilentCM is like TestMeasureSilent, with the connection manager.
func TestMeasureSilentCM(t *testing.T) {
	rdmatest.CheckLeaks(t)
	lastPort++
	byCM := run{tool: "send_bw", args: "-R --patience 5"}
	server := start(t, ours, byCM, false)
	listens(t, server, byCM)
	silent := rdmatest.Must(rdmacm.Dial(t.Context(), "tcp", net.JoinHostPort("192.168.77.1", strconv.Itoa(lastPort)), &rdmacm.Options{Messages: 4, MessageSize: 512}))(t)
	defer silent.Close()
	server.Until(t, func() bool {
		return strings.Contains(server.Stderr(), "is no client: the other side has been silent for 5s")
	})
	if client := start(t, ours, byCM, true); !client.Wait().Success() || !server.Wait().Success() {
		t.Errorf("%v\n%v", client, server)
	}
}

// moves waits until the client's device has sent enough packets that the client has polled
// completions: more requests than its queue takes, with as many acknowledgements.
func moves(t *testing.T, client *rdmatest.Process) {
	t.Helper()
	sent := func() int {
		for _, file := range []string{"hw_counters/sent_pkts", "counters/port_xmit_packets"} {
			if b, err := os.ReadFile("/sys/class/infiniband/" + device(true) + "/ports/1/" + file); err == nil {
				return rdmatest.Must(strconv.Atoi(strings.TrimSpace(string(b))))(t)
			}
		}
		t.Fatalf("%s counts no packets", device(true))
		return 0
	}
	before := sent()
	client.Until(t, func() bool { return sent() > before+400 })
}

// TestMeasureInterrupted: on SIGINT a side prints its results so far.
func TestMeasureInterrupted(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, r := range []run{
		{tool: "send_bw", args: "-n 100000000 -s 64"},
		{tool: "write_bw", args: "-D 600 -f 0 -s 64"},
		{tool: "read_lat", args: "-n 100000000 -s 64"},
		{tool: "send_lat", args: "-D 600 -f 0 -s 64"},
		{tool: "write_lat", args: "-n 100000000"},
	} {
		t.Run(r.String(), func(t *testing.T) {
			lastPort++
			server := start(t, ours, r, false)
			listens(t, server, r)
			client := start(t, ours, r, true)
			client.Until(t, func() bool { return slices.Contains(strings.Fields(client.Stdout()), "#bytes") })
			moves(t, client)
			client.Signal(syscall.SIGINT)
			fails(t, client, "interrupted: the last result is that of the messages so far")
			if all := rows(t, client); len(all) != 1 || all[0][1] <= 0 {
				t.Error(client)
			}
			fails(t, server, "has ended")
		})
	}
	t.Run("json", func(t *testing.T) {
		lastPort++
		r := run{tool: "send_lat", args: "-n 100000000 -s 64"}
		server := start(t, ours, r, false)
		listens(t, server, r)
		r.args += " --json"
		client := start(t, ours, r, true)
		moves(t, client)
		client.Signal(syscall.SIGINT)
		fails(t, client, "interrupted")
		var got result
		if err := json.Unmarshal([]byte(client.Stdout()), &got); err != nil || len(got.Sizes) != 1 || got.Sizes[0].Latency == nil {
			t.Errorf("%v, %v", err, client)
		}
	})
}

// TestMeasureDead: what a run has measured is printed, also if the other side is gone in the middle.
func TestMeasureDead(t *testing.T) {
	for _, args := range []string{"-a -n 100000000", "-D 600 -f 0 -s 2"} {
		lastPort++
		r := run{tool: "write_lat", args: args}
		server := start(t, ours, r, false)
		listens(t, server, r)
		r.args += " --json"
		client := start(t, ours, r, true)
		moves(t, client)
		server.Kill()
		fails(t, client, "the last result is that of the messages so far")
		var got result
		if err := json.Unmarshal([]byte(client.Stdout()), &got); err != nil || len(got.Sizes) != 1 || got.Sizes[0].Latency == nil {
			t.Errorf("%v, %v", err, client)
		}
	}
}

// TestMeasureOnTerminal: on a terminal, the line that shows the progress never shares one with a row,
// also if the run is interrupted.
func TestMeasureOnTerminal(t *testing.T) {
	for _, r := range []run{{tool: "write_bw", args: "-D 600 -f 0 -s 64"}, {tool: "send_lat", args: "-n 100000000 -s 64"}} {
		t.Run(r.String(), func(t *testing.T) {
			lastPort++
			server := start(t, ours, r, false)
			listens(t, server, r)
			line := command(t, ours, r, true)
			client := exec.Command(line[0], line[1:]...)
			terminal, slave := rdmatest.Terminal(t, client)
			rdmatest.Check(t, client.Start())
			slave.Close()
			text := ""
			rdmatest.InTime(func() {
				b := make([]byte, 4096)
				for interrupted := false; ; {
					n, err := terminal.Read(b)
					if text += string(b[:n]); err != nil {
						return // the client has ended
					}
					if !interrupted && strings.Contains(text, " messages  ") {
						interrupted = true
						rdmatest.Must(terminal.WriteString("\x03"))(t)
					}
				}
			})
			rows := 0
			for line := range strings.Lines(text) {
				if fields := strings.Fields(line); len(fields) >= 5 && fields[0] == "64" && strings.Trim(fields[1], "0123456789") == "" {
					rows++
				}
			}
			if err := client.Wait(); err == nil || rows != 1 {
				t.Errorf("%v, %d rows in\n%q", err, rows, text)
			}
		})
	}
}
