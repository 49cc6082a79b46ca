// Package umad tests package umad and the commands of ibv that use it, on an InfiniBand subnet of
// two ports. It compares their output with that of infiniband-diags' programs.
package umad

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnMLX5)
}

// load loads the module, which nothing else in the rig needs, and returns the LIDs of both ports.
func load(t *testing.T) (own, other string) {
	t.Helper()
	rdmatest.Command(t, "modprobe ib_umad")
	lid := func(device string) string {
		text := string(rdmatest.Must(os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/lid"))(t))
		return fmt.Sprint(rdmatest.Must(strconv.ParseUint(strings.TrimSpace(text), 0, 16))(t))
	}
	return lid(rdmatest.Devices[0]), lid(rdmatest.Devices[1])
}

// outcome runs a program and returns its output, and whether it succeeded.
func outcome(t *testing.T, command ...string) (stdout string, ok bool) {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	var out, errors bytes.Buffer
	c.Stdout, c.Stderr = &out, &errors
	err := c.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	if err != nil && errors.Len() == 0 && out.Len() == 0 {
		t.Errorf("%q fails and says nothing", command)
	}
	return out.String(), err == nil
}

// newer are fields that infiniband-diags 44 doesn't print.
var newer = regexp.MustCompile(`(?m)^\t*LinkSpeedExt(Active|Supported|Enabled)2:.*\n`)

// same runs a program of infiniband-diags and ibv with the same arguments. Their output must
// be the same, and same returns it.
func same(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	from := []string{"-C", rdmatest.Device}
	want, wantOK := outcome(t, append(slices.Clone(words), from...)...)
	got, ok := outcome(t, append([]string{rdmatest.Program(t, "ibv")}, append(words, from...)...)...)
	if ok != wantOK {
		t.Errorf("%s: ibv succeeds: %t, the other: %t; they print %q and %q", line, ok, wantOK, got, want)
	}
	if !ok {
		return ""
	}
	if !newer.MatchString(want) {
		got = newer.ReplaceAllString(got, "")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-infiniband-diags +ibv):\n%s", line, diff)
	}
	return got
}

var _ = rdmatest.Test(TestIbaddr, rdmatest.Long)

// TestIbaddr: ibaddr prints the same addresses, by LID and by route.
func TestIbaddr(t *testing.T) {
	own, other := load(t)
	for _, line := range []string{"ibaddr", "ibaddr -g", "ibaddr -l " + other, "ibaddr -L " + other, "ibaddr -D 0", "ibaddr -D 0,1 1", "ibaddr -gL " + own} {
		if same(t, line) == "" {
			t.Errorf("%s prints nothing", line)
		}
	}
}

var _ = rdmatest.Test(TestSmpquery, rdmatest.Long)

// TestSmpquery: both smpquery programs print the same attributes, by LID and by route, of
// this node and of the node at the other end of the link, and the same refusals.
func TestSmpquery(t *testing.T) {
	own, other := load(t)
	file := "/sys/class/infiniband/" + rdmatest.Devices[1] + "/node_desc"
	before := rdmatest.Must(os.ReadFile(file))(t)
	rdmatest.Check(t, os.WriteFile(file, []byte("the other end"), 0))
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0) })
	if got := same(t, "smpquery nodedesc "+other); !strings.Contains(got, "...the other end") {
		t.Errorf("the node's description: %s", got)
	}
	for _, operation := range []string{"nodeinfo", "PI", "PKeyTable", "sl2vl", "VLArb", "guidinfo"} {
		for _, target := range []string{own, other, "-D 0", "-D 0,1"} {
			if same(t, "smpquery "+operation+" "+target) == "" {
				t.Errorf("%s of %s is empty", operation, target)
			}
		}
	}
	for _, line := range []string{"portinfo %s 1", "-x portinfo %s", "-K portinfo %s 1", "-y 0x1 nodeinfo %s", "pkeys %s 1"} {
		same(t, "smpquery "+fmt.Sprintf(line, other))
	}
	for _, line := range []string{"switchinfo %s", "portinfo %s 2", "pie %s", "nothing %s", "-t 50 nodeinfo 99", "-t 50 -D nodeinfo 0,2"} {
		if strings.Contains(line, "%") {
			line = fmt.Sprintf(line, other)
		}
		if got := same(t, "smpquery "+line); got != "" {
			t.Errorf("smpquery %s prints %q", line, got)
		}
	}
}

var value = regexp.MustCompile(`(?m)^((?:Port|LinkDowned|VL15)\w+:\.+)(\d+)$`)

var _ = rdmatest.Test(TestPerfquery, rdmatest.Long)

// TestPerfquery: both perfquery programs print the same counters. The counters that
// perfquery's own MADs increment are not less than infiniband-diags has printed before, and
// not more than it prints afterwards.
func TestPerfquery(t *testing.T) {
	_, other := load(t)
	ibv := rdmatest.Program(t, "ibv")
	numbers := func(text string) (all []uint64) {
		for _, m := range value.FindAllStringSubmatch(text, -1) {
			all = append(all, rdmatest.Must(strconv.ParseUint(m[2], 10, 64))(t))
		}
		return all
	}
	for _, line := range []string{"", "%s 1", "-x %s 1", "-a %s", "-x -a %s", "-l -a %s", "-l %s 1", "-x"} {
		if strings.Contains(line, "%") {
			line = fmt.Sprintf(line, other)
		}
		words := append(strings.Fields("perfquery "+line), "-C", rdmatest.Device)
		read := func(command ...string) string {
			t.Helper()
			out, ok := outcome(t, command...)
			if !ok {
				t.Fatalf("%q fails: %s", command, out)
			}
			return out
		}
		before, between, after := read(words...), read(append([]string{ibv}, words...)...), read(words...)
		text := func(s string) []string { return strings.Split(value.ReplaceAllString(s, "${1}N"), "\n") }
		if diff := cmp.Diff(text(before), text(between)); diff != "" {
			t.Errorf("perfquery %s (-infiniband-diags +ibv):\n%s", line, diff)
		}
		low, got, high := numbers(before), numbers(between), numbers(after)
		if len(low) < 4 || len(low) != len(got) || len(low) != len(high) {
			t.Fatalf("perfquery %s has %d counters, %d, %d:\n%s", line, len(low), len(got), len(high), between)
		}
		for i := range low {
			if got[i] < low[i] || got[i] > high[i] {
				t.Errorf("perfquery %s: counter %d is %d, and before %d, after %d", line, i, got[i], low[i], high[i])
			}
		}
	}
	// A reset by either program affects the other's output.
	sent := regexp.MustCompile(`PortXmitPkts:\.+(\d+)`)
	count := func(command ...string) int {
		t.Helper()
		out, _ := outcome(t, append(command, other, "1", "-C", rdmatest.Device)...)
		m := sent.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("%q prints no PortXmitPkts: %s", command, out)
		}
		return rdmatest.Must(strconv.Atoi(m[1]))(t)
	}
	few := 8 // answers to the requests of one perfquery
	for range few {
		count("perfquery")
	}
	for _, c := range []struct{ reset, read []string }{
		{[]string{ibv, "perfquery", "-R"}, []string{"perfquery"}},
		{[]string{"perfquery", "-R"}, []string{ibv, "perfquery"}},
		{[]string{ibv, "perfquery", "-x", "-R"}, []string{"perfquery", "-x"}},
	} {
		if _, ok := outcome(t, append(c.reset, other, "1", "-C", rdmatest.Device)...); !ok {
			t.Errorf("%q fails", c.reset)
		}
		if n := count(c.read...); n == 0 || n > few {
			t.Errorf("after %q, %q counts %d packets", c.reset, c.read, n)
		}
	}
	for _, line := range []string{"-X %s 1", "-D %s 1", "%s 2", "-t 50 99 1"} {
		if strings.Contains(line, "%") {
			line = fmt.Sprintf(line, other)
		}
		same(t, "perfquery "+line)
	}
}
