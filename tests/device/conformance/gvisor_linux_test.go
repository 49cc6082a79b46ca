package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/gvisor"
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/uapi"
)

var _ = rdmatest.Test(TestGVisor, rdmatest.OnMLX5, rdmatest.Long)

// TestGVisor runs the other tests of this package under ibvtrace, and checks each of their
// commands as gVisor's sandbox does, which forwards only some. testdata/gvisor-refused.txt
// lists exactly the refused parts. With testing.Short, only some tests run, and no others may
// be refused.
func TestGVisor(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	self := rdmatest.Must(os.Executable())(t)
	// A quick run has the same commands, and not this test. TestFailuresAsInC runs programs in C.
	c := exec.Command(rdmatest.Program(t, "ibvtrace"), "--how=ptrace", "--json", "--raw", "-o", trace, self, "-test.short", "-test.skip", "^TestFailuresAsInC$")
	few, least := testing.Short(), 1000
	if few {
		c.Args = append(c.Args, "-test.run", "^(TestExchanges|TestCQForms|TestConnect|TestODPSend|TestUDMulticast)$")
		least = 100
	}
	c.Env = append(os.Environ(), rdmatest.WholeVariable+"=")
	p := rdmatest.StartCmd(t, c)
	if !p.OK() {
		t.Fatal(p)
	}
	var refusals gvisor.Refusals
	for _, e := range rdmatest.ReadTrace(t, trace) {
		switch {
		case e.Kind != event.Control:
		case !strings.HasPrefix(filepath.Base(self), e.Comm): // a C program
		case e.Object == "DEVICE" && e.Method == "0xfff": // Open probes for the driver
		default:
			refusals.Look(commandOf(e))
		}
	}
	if refusals.Commands() < least {
		t.Errorf("ibvtrace saw only %d commands", refusals.Commands())
	}
	more, less, err := refusals.Compare("testdata/gvisor-refused.txt")
	rdmatest.Check(t, err)
	if few || os.Getenv(rdmatest.ProfileVariable) != "" {
		less = nil // an adapter may lack features of the rig's usual adapter
	}
	if more != nil || less != nil {
		t.Errorf("gVisor also refuses %q, and not %q", more, less)
	}
}

// commandOf returns the command of an event.
func commandOf(e *event.Event) gvisor.Command {
	c := gvisor.Command{Verb: strings.TrimPrefix(e.Verb, "ibv_")}
	if len(e.Raw) == 0 {
		return c // through write(2)
	}
	c.Method = e.Method
	for _, a := range e.Raw {
		c.Attrs = append(c.Attrs, gvisor.Attr{Name: a.Name, Len: a.Len})
		if a.Name == "UVERBS_ATTR_WRITE_CMD" {
			if w := uapi.LookupWriteCommand(uint32(a.Data)); w != nil {
				c.Write = w.CName
			}
		}
	}
	return c
}
