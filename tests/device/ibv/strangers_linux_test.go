package ibv

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
)

var (
	_ = rdmatest.Test(TestMeshHostileRoot, rdmatest.OnRXE)
	_ = rdmatest.Test(TestUdpongStrangers, rdmatest.OnRXE)
	_ = rdmatest.Test(TestRpingStrangers, rdmatest.OnRXE)
)

// TestMeshHostileRoot: a rank refuses orders that rank 0 must not give, and continues.
func TestMeshHostileRoot(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	rank := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "mesh", "--rank", "1", "--size", "2", "--root", "127.0.0.1",
		"--port", fmt.Sprint(l.Addr().(*net.TCPAddr).Port), "-d", rdmatest.Devices[0])
	// A rank doesn't obey a root without proof.
	stranger := rdmatest.Must(l.Accept())(t)
	in := bufio.NewReader(stranger)
	ask(t, stranger, in, `{"nonce":"a"}`)
	rdmatest.Must(io.WriteString(stranger, `{"do":"welcome"}`+"\n"))(t)
	if line, err := in.ReadString('\n'); err == nil {
		t.Fatalf("it answers %q", line)
	}
	stranger.Close()
	// The proof without a key is no secret.
	root := rdmatest.Must(l.Accept())(t)
	defer root.Close()
	in = bufio.NewReader(root)
	var hello struct{ Nonce string }
	rdmatest.Check(t, json.Unmarshal([]byte(ask(t, root, in, `{"nonce":"a"}`)), &hello))
	proof := rdmatest.Must(json.Marshal(meshProof("rank 0", hello.Nonce, "a")))(t)
	rdmatest.Must(fmt.Fprintf(root, `{"do":"welcome","proof":%s}`+"\n", proof))(t)
	for _, test := range []struct{ order, says string }{
		{`{"do":"latency","ms":10}`, "no connected queue pair"},
		{`{"do":"open","bytes":3}`, "writes of 3 bytes"},
		{`{"do":"latency","ms":10}`, "no connected queue pair"},
		{`{"do":"open","bytes":4611686018427387904}`, "writes of"},
		{`{"do":"bandwidth","ms":10}`, "no connected queue pair"},
		{`{"do":"open","bytes":0}`, "writes of 0 bytes"},
		{`{"do":"open","bytes":8,"rail":7}`, "no rail 7"},
		{`{"do":"open","bytes":8,"rail":-1}`, "no rail -1"},
		{`{"do":"open","bytes":4096}`, ""},
		{`{"do":"bandwidth","ms":10}`, "no connected queue pair"},
		{`{"do":"connect"}`, "which queue pair"},
		{`{"do":"connect","peer":{"qpn":4294967295}}`, "connect"},
		{`{"do":"latency","ms":10}`, "no connected queue pair"},
		{`{"do":"close"}`, ""},
	} {
		var answer struct{ Error string }
		rdmatest.Check(t, json.Unmarshal([]byte(ask(t, root, in, test.order)), &answer))
		if !strings.Contains(answer.Error, test.says) || (answer.Error == "") != (test.says == "") {
			t.Errorf("%s: %q, want %q", test.order, answer.Error, test.says)
		}
	}
	rdmatest.Must(io.WriteString(root, `{"do":"end"}`+"\n"))(t)
	rank.Succeeds(t)
}

// ask sends a line, and returns the reply.
func ask(t *testing.T, c net.Conn, in *bufio.Reader, line string) string {
	t.Helper()
	rdmatest.Must(io.WriteString(c, line+"\n"))(t)
	return rdmatest.Must(in.ReadString('\n'))(t)
}

// meshProof returns the proof of a process with an empty key.
func meshProof(who, theirs, mine string) []byte {
	h := hmac.New(sha256.New, nil)
	fmt.Fprintf(h, "%s %q %q", who, theirs, mine)
	return h.Sum(nil)
}

// TestUdpongStrangers: a client is served after a message that gets no answer because it is
// longer than the MTU, and after more strangers than the server keeps, to each of which it
// has resolved a path.
func TestUdpongStrangers(t *testing.T) {
	rdmatest.CheckLeaks(t)
	server := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "udpong", "-b", "192.168.77.1", "-T", "b")
	server.Until(t, func() bool {
		table, err := os.ReadFile("/proc/net/udp")
		return err == nil && strings.Contains(string(table), ":1C06 ")
	})
	// A greeting: its tag, IP version, kind and length, then the queue pair and the sender.
	greeting := []byte{0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0, 0, 1, 192, 168, 77, 1}
	for i := range 1100 {
		c := rdmatest.Must(net.Dial("udp", "192.168.77.1:7174"))(t)
		size := 16
		if i%100 == 0 {
			size = 2048
		}
		rdmatest.Must(c.Write(append(greeting, make([]byte, size)...)))(t)
		if i%100 == 0 {
			// The answer shows that the server has processed all messages before.
			rdmatest.Check(t, c.SetReadDeadline(time.Now().Add(rdmatest.Patience)))
			rdmatest.Must(c.Read(make([]byte, 1<<12)))(t)
		}
		c.Close()
	}
	rdmatest.Start(t, rdmatest.Program(t, "ibv"), "udpong", "-s", "192.168.77.1", "-S", "64", "-C", "20", "-T", "e").Succeeds(t)
	server.Kill()
}

// TestRpingStrangers: a client that connects and leaves without a ping isn't the client that
// rping waits for.
func TestRpingStrangers(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const at = "192.168.77.1"
	server := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "rping", "-s", "-a", at, "-p", "20199")
	server.Until(t, func() bool { return rdmatest.ListeningCM(t, "TCP", 20199) })
	for range 3 {
		c := rdmatest.Must(rdmacm.Dial(t.Context(), "tcp", at+":20199", nil))(t)
		rdmatest.Check(t, c.Close())
	}
	rdmatest.Start(t, rdmatest.Program(t, "ibv"), "rping", "-c", "-a", at, "-p", "20199", "-C", "3", "-v", "-V").Succeeds(t)
	if said := server.Succeeds(t); said != "" {
		t.Errorf("%q", said)
	}
}
