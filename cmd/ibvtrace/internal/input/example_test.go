package input_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/input"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// The example merges the traces of both sides by time.
func ExampleEach() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	files := []string{filepath.Join(dir, "server.json"), filepath.Join(dir, "client.json")}
	os.WriteFile(files[0], []byte(`{"v":"1.0","ts":"2026-01-02T03:04:05Z","pid":7,"tid":7,"comm":"server","kind":"cm","verb":"rdma_listen","ret":0}
{"v":"1.0","ts":"2026-01-02T03:04:07Z","pid":7,"tid":7,"comm":"server","kind":"cm","verb":"rdma_accept","ret":0}
`), 0o644)
	os.WriteFile(files[1], []byte(`{"v":"1.0","ts":"2026-01-02T03:04:06Z","pid":8,"tid":8,"comm":"client","kind":"cm","verb":"rdma_connect","ret":0}
`), 0o644)

	complain := func(err error) { fmt.Println(err) }
	err = input.Each(files, complain, func(source int, e *event.Event) error {
		fmt.Println(e.Comm, e.Verb)
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output:
	// server rdma_listen
	// client rdma_connect
	// server rdma_accept
}
