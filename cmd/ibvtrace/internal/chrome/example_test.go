package chrome_test

import (
	"os"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/chrome"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

// The file has the thread's name, then its verbs.
func ExampleWriter() {
	w := chrome.NewWriter(os.Stdout)
	err := w.Event(&event.Event{
		Time: time.UnixMicro(1_000_000), Duration: 84 * time.Microsecond, Timed: true,
		PID: 7, TID: 8, Comm: "server", Kind: event.Control, Verb: "ibv_alloc_pd", Device: "rxe0",
		Returned: true,
	})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err)
	}
	// Output:
	// [
	// {"name":"thread_name","ph":"M","ts":0,"pid":7,"tid":8,"args":{"name":"server"}},
	// {"name":"ibv_alloc_pd","cat":"control","ph":"X","ts":3601000000,"dur":84,"pid":7,"tid":8,"args":{"device":"rxe0"}}
	// ]
}
