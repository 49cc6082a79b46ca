package event_test

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// The example prints the verbs of a trace that failed.
func ExampleReader() {
	trace := `{"v":"1.0","ts":"2026-01-02T03:04:05Z","pid":7,"tid":7,"comm":"server","kind":"control","verb":"ibv_alloc_pd","out":{"pd":1},"types":{"out.pd":"pd#1"},"ret":0}
{"v":"1.0","ts":"2026-01-02T03:04:06Z","pid":7,"tid":7,"comm":"server","kind":"control","verb":"ibv_reg_mr","args":{"pd":1,"length":4096},"types":{"args.pd":"pd#1"},"ret":-1,"errno":"ENOMEM"}
`
	r := event.NewReader(strings.NewReader(trace))
	for {
		e, err := r.Read()
		if err != nil { // io.EOF at the end
			break
		}
		if e.Failed() {
			fmt.Println(e.Verb, e.Errno, "length", event.Find(e.Args, "length").Num)
		}
	}
	// Output: ibv_reg_mr ENOMEM length 4096
}
