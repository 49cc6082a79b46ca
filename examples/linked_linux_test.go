// Package examples has a test of what is linked into the examples.
package examples

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnusedVerbs: the linker leaves out of a program the verbs that it doesn't use.
func TestUnusedVerbs(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ud")
	if out, err := exec.Command("go", "build", "-o", program, "./ud").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	linked := make(map[string]bool)
	for _, s := range symbols {
		if name, ok := strings.CutPrefix(s.Name, "github.com/goverbs/goverbs/"); ok {
			linked[name] = true
		}
	}
	for _, name := range []string{"verbs.(*QP).PostSend", "verbs.(*PD).CreateAH", "provider/mlx5.(*qp).PostSend", "provider/rxe.(*qp).PostSend"} {
		if !linked[name] {
			t.Errorf("%s, which it uses, is not there", name)
		}
	}
	for _, name := range []string{
		"verbs.ImportDevice",
		"verbs.(*Device).AllocDM", "verbs.(*Device).AllocDMAH", "verbs.(*Device).CreateCompCounter", "verbs.(*Device).CreateCounters",
		"verbs.(*Device).CreateIndirectionTable", "verbs.(*Device).Events", "verbs.(*Device).OpenXRCD",
		"verbs.(*PD).AdviseMR", "verbs.(*PD).AllocMW", "verbs.(*PD).AllocNullMR", "verbs.(*PD).CreateRSSQP", "verbs.(*PD).CreateSRQ",
		"verbs.(*PD).CreateWQ", "verbs.(*PD).NewBufferPool", "verbs.(*PD).RegDmabufMR", "verbs.(*PD).RegImplicitMR",
		"verbs.(*QP).AttachCompCounter", "verbs.(*QP).Connect", "verbs.(*QP).CreateFlow", "verbs.(*QP).DataOrder", "verbs.(*QP).LimitRate",
		"verbs.(*QP).Sends", "verbs.(*QP).SetECE", "verbs.(*SRQ).PostTagOps",
	} {
		if linked[name] {
			t.Errorf("%s, which it doesn't use, is there", name)
		}
	}
	for name := range linked {
		for _, p := range []string{"mlx5dv.", "efadv.", "rdmacm.", "rsocket.", "provider/efa.", "provider/siw."} {
			if strings.HasPrefix(name, p) {
				t.Errorf("%s, of a package that it doesn't use, is there", name)
			}
		}
	}
}
