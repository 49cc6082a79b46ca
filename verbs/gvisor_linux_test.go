package verbs

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest/gvisor"
	"github.com/goverbs/goverbs/ioctl"
)

// refusedByGVisor collects what gVisor refuses of the commands in this package's tests. TestGVisor of
// tests/device/conformance does the same for programs on real devices.
var refusedByGVisor gvisor.Refusals

// TestMain runs the tests and then, unless only some of them were to run, compares what gVisor
// refuses with testdata/gvisor-refused.txt. Both more and less is a failure.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	for _, some := range []string{"test.run", "test.skip", "test.list", "test.fuzz", "test.bench"} {
		if f := flag.Lookup(some); f != nil && f.Value.String() != "" {
			os.Exit(code)
		}
	}
	if refusedByGVisor.Commands() > 0 { // 0 under emulators of one program: see tryFake
		more, less, err := refusedByGVisor.Compare("testdata/gvisor-refused.txt")
		if err != nil || more != nil || less != nil {
			fmt.Printf("gVisor also refuses %q, and not %q: %v\nFAIL\n", more, less, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// gvisorSees checks a command as gVisor does.
func gvisorSees(c *ioctl.Call) {
	x := gvisor.Command{Verb: c.Verb(), Method: c.Method.CName}
	for i := range c.Attrs {
		x.Attrs = append(x.Attrs, gvisor.Attr{Name: c.Attrs[i].Spec.CName, Len: c.Attrs[i].Raw.Len})
	}
	if c.Write != nil {
		x.Write = c.Write.CName
	}
	refusedByGVisor.Look(x)
}
