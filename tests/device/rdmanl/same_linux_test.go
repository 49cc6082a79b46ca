// Package rdmanl tests package rdmanl and the commands of ibv that use it, on a device. It
// compares their output with that of rdma(8).
package rdmanl

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var device = rdmatest.Devices[0]

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5) }

// run runs a program that must succeed, and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		stderr := ""
		if e, ok := err.(*exec.ExitError); ok {
			stderr = string(e.Stderr)
		}
		t.Fatalf("%s %q: %v\n%s", name, args, err, stderr)
	}
	return string(out)
}

// rdma runs rdma(8), and returns its output. Its release is that of the kernel: a newer
// release invents values that the kernel doesn't report, and an older one leaves out values
// that it does.
func rdma(t *testing.T, args ...string) string {
	t.Helper()
	if !rdmatest.Kernel(t).AtLeast(7, 0) {
		return run(t, "rdma", args...)
	}
	return run(t, rdmatest.Must(filepath.Abs("../../../rig/in-tree"))(t), append([]string{"rdma"}, args...)...)
}

// fails runs ibv, which must fail, and returns its message.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(rdmatest.Program(t, "ibv"), args...).CombinedOutput()
	if err == nil {
		t.Fatalf("ibv %q succeeded:\n%s", args, out)
	}
	return string(out)
}

// newer are the fields that rdma(8) of iproute2 6.1 doesn't print.
var newer = []string{"protocol", "type", "parent", "privileged-qkey", "monitor", "subtype"}

// same compares the objects and the lines that rdma and ibv print. It returns the objects.
func same(t *testing.T, words ...string) []map[string]any {
	t.Helper()
	all := sameObjects(t, words, words)
	sameLines(t, words)
	return all
}

// agree calls compare with the output of rdma and of ibv, which returns the difference. It
// repeats this if rdma's output has changed meanwhile: QP 1 counts management datagrams,
// which come and go.
func agree(t *testing.T, theirs []string, compare func(rdma string) (diff string)) {
	t.Helper()
	diff := ""
	for range 10 {
		printed := rdma(t, theirs...)
		if diff = compare(printed); diff == "" || rdma(t, theirs...) == printed {
			break
		}
	}
	if diff != "" {
		t.Errorf("%q (-rdma +ibv):\n%s", theirs, diff)
	}
}

// sameObjects compares the objects that rdma and ibv print, and returns them.
func sameObjects(t *testing.T, theirs, ours []string) (want []map[string]any) {
	t.Helper()
	ibv := rdmatest.Program(t, "ibv")
	agree(t, append([]string{"-j", "-d"}, theirs...), func(rdma string) string {
		want = objects(t, rdma)
		got := objects(t, run(t, ibv, append(slices.Clone(ours), "-d", "--json")...))
		if len(want) != len(got) {
			return fmt.Sprintf("rdma has %d objects, ibv %d", len(want), len(got))
		}
		for i := range want {
			if want[i]["srqn"] != nil && want[i]["lqpn"] != nil {
				// rdma writes the numbers of the QPs over the name of the process.
				delete(want[i], "comm")
				delete(got[i], "comm")
			}
			for _, key := range newer {
				if _, ok := want[i][key]; !ok {
					delete(got[i], key)
				}
			}
		}
		return cmp.Diff(want, got)
	})
	return want
}

// sameLines compares the lines that rdma and ibv print.
func sameLines(t *testing.T, words []string) {
	t.Helper()
	ibv := rdmatest.Program(t, "ibv")
	for _, d := range []string{"", "-d"} {
		agree(t, strings.Fields(d+" "+strings.Join(words, " ")), func(rdma string) string {
			lines := strings.Split(rdma, "\n")
			lines2 := strings.Split(run(t, ibv, strings.Fields(strings.Join(words, " ")+" "+d)...), "\n")
			for i := range lines2 {
				if i < len(lines) {
					lines[i], lines2[i] = fields(lines[i], lines2[i])
				}
			}
			return cmp.Diff(lines, lines2)
		})
	}
}

// fields returns two lines without insignificant spaces, and the second without the newer
// fields that the first lacks.
func fields(theirs, ours string) (string, string) {
	a, b := strings.Fields(theirs), strings.Fields(ours)
	for _, key := range newer {
		if i := slices.Index(b, key); i >= 0 && !slices.Contains(a, key) {
			b = slices.Delete(b, i, i+2)
		}
	}
	if slices.Contains(b, "srqn") && slices.Contains(b, "lqpn") { // see sameObjects
		a[slices.Index(a, "comm")+1] = b[slices.Index(b, "comm")+1]
	}
	return strings.Join(a, " "), strings.Join(b, " ")
}

func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return all
}

// TestDevicesAndLinks: ibv dev, link and system print the same as rdma.
func TestDevicesAndLinks(t *testing.T) {
	for _, words := range [][]string{{"dev"}, {"dev", "show", device}, {"link"}, {"link", "show", device + "/1"}} {
		if all := same(t, words...); len(all) == 0 {
			t.Errorf("%q is empty", words)
		}
	}
	sameLines(t, []string{"system"}) // rdma of iproute2 6.1 ignores -j here
	if all := objects(t, run(t, rdmatest.Program(t, "ibv"), "system", "--json")); len(all) != 1 || all[0]["netns"] != "shared" || all[0]["copy-on-fork"] != true {
		t.Errorf("the system is %v", all)
	}
	if out := fails(t, "link", "show", device+"/9"); !strings.Contains(out, device+" has 1 ports") {
		t.Errorf("port 9: %s", out)
	}
	if out := fails(t, "dev", "show", "none9"); !strings.Contains(out, "find device none9: no such RDMA device") {
		t.Errorf("no device: %s", out)
	}
}

var _ = rdmatest.Test(TestDevicesAndLinks, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnEFA)
