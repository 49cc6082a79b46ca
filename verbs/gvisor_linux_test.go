package verbs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/ioctl"
)

// A sandbox in gVisor sees an RDMA device through a proxy, which forwards the commands that it
// knows and refuses the others (testdata/gvisor.txt). gvisor collects what it refuses of all
// that the tests of this package send.
var gvisor struct {
	sync.Mutex
	methods map[string][]string // the attributes of each method
	writes  map[string]bool
	refused map[string]bool
	calls   int
}

// TestMain runs the tests and then, unless only some of them were to run, compares what gVisor
// refuses with testdata/gvisor-refused.txt. Both more and less is a failure.
func TestMain(m *testing.M) {
	flag.Parse()
	readGVisor()
	code := m.Run()
	for _, some := range []string{"test.run", "test.skip", "test.list", "test.fuzz", "test.bench"} {
		if f := flag.Lookup(some); f != nil && f.Value.String() != "" {
			os.Exit(code)
		}
	}
	b, err := os.ReadFile("testdata/gvisor-refused.txt")
	if err != nil {
		panic(err)
	}
	var want []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			want = append(want, line)
		}
	}
	got := slices.Sorted(maps.Keys(gvisor.refused))
	switch {
	case gvisor.calls == 0: // emulators of one program: see tryFake
	case !slices.Equal(got, want):
		fmt.Printf("gVisor refuses\n%s\ntestdata/gvisor-refused.txt has\n%s\nFAIL\n", strings.Join(got, "\n"), strings.Join(want, "\n"))
		code = max(code, 1)
	}
	os.Exit(code)
}

func readGVisor() {
	b, err := os.ReadFile("testdata/gvisor.txt")
	if err != nil {
		panic(err)
	}
	gvisor.methods, gvisor.writes, gvisor.refused = make(map[string][]string), make(map[string]bool), make(map[string]bool)
	for line := range strings.Lines(string(b)) {
		switch f := strings.Fields(line); {
		case len(f) > 1 && f[0] == "method":
			gvisor.methods[f[1]] = f[2:]
		case len(f) == 2 && f[0] == "write":
			gvisor.writes[f[1]] = true
		}
	}
}

// gvisorSees looks at a command as gVisor does.
func gvisorSees(c *ioctl.Call) {
	gvisor.Lock()
	defer gvisor.Unlock()
	gvisor.calls++
	known, ok := gvisor.methods[c.Method.CName]
	if !ok {
		gvisor.refused[c.Verb()+": "+c.Method.CName] = true
		return
	}
	for i := range c.Attrs {
		name := c.Attrs[i].Spec.CName
		short := strings.TrimPrefix(strings.TrimPrefix(name, "UVERBS_ATTR_"), "MLX5_IB_ATTR_")
		if !slices.Contains(known, short) {
			gvisor.refused[c.Verb()+": "+name] = true
		}
	}
	if c.Write != nil && !gvisor.writes[c.Write.CName] {
		gvisor.refused[c.Verb()+": "+c.Write.CName] = true
	}
}
