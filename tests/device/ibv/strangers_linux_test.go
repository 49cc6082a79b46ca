package ibv

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestMeshHostileRoot, rdmatest.OnRXE)

// TestMeshHostileRoot: a rank refuses what rank 0 must not order of its device, and goes on.
func TestMeshHostileRoot(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	rank := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "mesh", "--rank", "1", "--size", "2", "--root", "127.0.0.1",
		"--port", fmt.Sprint(l.Addr().(*net.TCPAddr).Port), "-d", rdmatest.Devices[0])
	// A root that proves nothing isn't obeyed.
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

// ask sends a line, and returns the one that comes back.
func ask(t *testing.T, c net.Conn, in *bufio.Reader, line string) string {
	t.Helper()
	rdmatest.Must(io.WriteString(c, line+"\n"))(t)
	return rdmatest.Must(in.ReadString('\n'))(t)
}

// meshProof is what one says that has an empty key.
func meshProof(who, theirs, mine string) []byte {
	h := hmac.New(sha256.New, nil)
	fmt.Fprintf(h, "%s %q %q", who, theirs, mine)
	return h.Sum(nil)
}
