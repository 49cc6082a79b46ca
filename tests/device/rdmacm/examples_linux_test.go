package rdmacm_test

import (
	"io"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestCMExamples, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// The Examples of package rdmacm do what they say. example_test.go is a link to theirs.
func TestCMExamples(t *testing.T) {
	for _, test := range []struct {
		name    string
		example func()
		prints  string
	}{
		{"package", Example, "hello, verbs\n"},
		{"Conn.Post", ExampleConn_Post, "received 5000 bytes\n"},
		{"Transport", ExampleTransport, "before: 0\nbefore: 1\nbefore: 2\n"},
		{"Conn.SendBuffer", ExampleConn_SendBuffer, "5 bytes\n"},
		{"Conn.QP", ExampleConn_QP, "request 1: what the server has\n"},
		{"SyncID", ExampleSyncID, "received verbs\n"},
		{"SyncID.JoinMulticast", ExampleSyncID_JoinMulticast, "received to all\n"},
		{"EventChannel", ExampleEventChannel, "3 clients have come and gone\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := printed(t, test.example); got != test.prints {
				t.Errorf("it prints %q, want %q", got, test.prints)
			}
		})
	}
}

// printed returns what a function prints, which is less than a pipe holds.
func printed(t *testing.T, f func()) string {
	r, w, err := os.Pipe()
	rdmatest.Check(t, err)
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	f()
	rdmatest.Check(t, w.Close())
	return string(rdmatest.Must(io.ReadAll(r))(t))
}
