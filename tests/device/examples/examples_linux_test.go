// Package examples runs the programs in the folder examples, and checks their output.
package examples

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
}

// run runs a program on the first device: its command line, without the device.
func run(t *testing.T, line string) *rdmatest.Process {
	t.Helper()
	args := strings.Fields(line)
	return rdmatest.Start(t, append([]string{rdmatest.Program(t, args[0]), "-device", rdmatest.Device}, args[1:]...)...)
}

// prints runs programs that play both sides. The output of each must match the pattern.
func prints(t *testing.T, programs map[string]string) {
	for line, want := range programs {
		t.Run(line, func(t *testing.T) { printed(t, run(t, line), want) })
	}
}

func printed(t *testing.T, p *rdmatest.Process, want string) {
	t.Helper()
	if got := p.Succeeds(t); !regexp.MustCompile("^(?:" + want + ")$").MatchString(got) {
		t.Errorf("it prints\n%s, want\n%s", got, want)
	}
}

const (
	wrote    = "wrote 19 bytes\n"
	memory   = `memory: "written by the peer"` + "\n"
	answered = `"one" is answered with "ONE"` + "\n" + `"two" is answered with "TWO"` + "\n" + `"three" is answered with "THREE"` + "\n"
	// The active side may see the end first.
	disconnected = "(?:active: RDMA_CM_EVENT_DISCONNECTED\n)?"
	echoed       = "1000 messages of 4096 bytes came back\n"
)

func TestExamplesOfVerbs(t *testing.T) {
	prints(t, map[string]string{
		"kvcache":      "8 workers have put 32 blocks\n16 were got, and 16 had been evicted\n",
		"rdma_write":   wrote + memory + "|" + memory + wrote,
		"ud":           answered,
		"event_server": "served 12 messages of 4 clients\n",
		"pool":         "received 1024 messages in batches of 16\n",
		"verbs uc":     `received "sent", and "written" with 42` + "\n",
		"verbs srq":    `QP 0 received "from QP 0"` + "\n" + `QP 1 received "from QP 1"` + "\nSRQ_LIMIT_REACHED\n",
		"verbs rdma":   "read 5\nfetch-and-add 3: was 5\ncompare 8 and swap 100: was 8\ncompare 8 and swap 200: was 100\nthe peer has 100\n",
		"verbs mw":     `open: "\.{4}through the window\.{10}"` + "\nclosed: REM_ACCESS_ERR\n",
	})
}

var _ = rdmatest.Test(TestExamplesByAddress, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

func TestExamplesByAddress(t *testing.T) {
	prints(t, map[string]string{
		"cm_echo":          echoed,
		"kv":               "64 clients have written 64 values\n",
		"fetch":            "fetched 1048576 bytes over 1 connection\n",
		"https":            `GET: 200 OK, "hello over RDMA"` + "\n" + "POST: 200 OK, 1048576 bytes came back\n",
		"rdmacm events":    "active: RDMA_CM_EVENT_ADDR_RESOLVED\nactive: RDMA_CM_EVENT_ROUTE_RESOLVED\nactive: RDMA_CM_EVENT_ESTABLISHED\n" + disconnected + `received "hello"` + "\n" + disconnected,
		"rdmacm sync":      `received "hello"` + "\n",
		"rdmacm multicast": `received "to the group" from the group` + "\n",
		"verbs multicast":  "receiver 0: 3 messages\nreceiver 1: 3 messages\n",
	})
}

var _ = rdmatest.Test(TestThousandClients, rdmatest.OnRXE, rdmatest.Long)

// TestThousandClients: a user without rights serves a thousand clients from one region, with 64 MiB
// of locked memory for all.
func TestThousandClients(t *testing.T) {
	p := rdmatest.Start(t, "prlimit", "--memlock=67108864", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
		rdmatest.Program(t, "kv"), "-device", rdmatest.Device, "-clients", "1000")
	printed(t, p, "1000 clients have written 1000 values\n")
}

var _ = rdmatest.Test(TestExampleOfGRPC, rdmatest.OnRXE, rdmatest.OnMLX5Eth, rdmatest.Long)

func TestExampleOfGRPC(t *testing.T) {
	prints(t, map[string]string{"grpc": "Echo: 1048576 bytes came back\nStream: 100 messages came back\n"})
}

var _ = rdmatest.Test(TestExamplesOnMLX5, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)

func TestExamplesOnMLX5(t *testing.T) {
	programs := map[string]string{
		"verbs timestamps": `\d+ ticks of \d+ kHz between them; polled after .*` + "\nthe second request completed after the first one\nthe time is the system's\n",
		"verbs odp":        "prefetched 4096 of 1048576 bytes\nlast byte: 7\n",
		"verbs xrc":        `SRQ 0 received "for SRQ 0"` + "\n" + `SRQ 1 received "for SRQ 1"` + "\n",
		"share":            `read "registered once" from memory of the first process` + "\n",
		"s3":               "put 1048576 bytes, 1048576 by RDMA\ngot 1048576 bytes, 1048576 by RDMA\n",
		"verbs dc":         `target 0 received "for target 0"` + "\n" + `target 1 received "for target 1"` + "\n",
	}
	if _, err := os.Stat("/dev/udmabuf"); err == nil { // Debian's 6.1 has none
		programs["verbs dmabuf"] = `the dma-buf has "written by the device"` + "\n"
	}
	prints(t, programs)
}

var _ = rdmatest.Test(TestExampleOfRawPackets, rdmatest.OnMLX5Eth)

func TestExampleOfRawPackets(t *testing.T) {
	prints(t, map[string]string{"verbs raw " + rdmatest.Devices[1]: `received a frame of type 0x88b5: "raw"` + "\n"})
}

// The sides of an example are two processes.
func TestExamplesInTwoProcesses(t *testing.T) {
	for _, test := range []struct{ listener, prints, connector, answers string }{
		{"rdma_write", memory, "rdma_write", wrote},
		{"ud", "", "ud", answered},
		{"event_server -clients 1", "served 3 messages of 1 clients\n", "event_server", ""},
	} {
		t.Run(test.connector, func(t *testing.T) {
			listener := run(t, test.listener+" -listen localhost:7471")
			listener.Until(t, func() bool { return rdmatest.Listening(7471) })
			printed(t, run(t, test.connector+" -connect localhost:7471"), test.answers)
			printed(t, listener, test.prints)
		})
	}
}
