//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTestsOn(t *testing.T) {
	for _, c := range []struct {
		device, file string
		want         []string
	}{
		{"mlx5", "provider/mlx5/wqe/av.go", []string{"conformance", "misuse", "mlx5dv", "faults", "stress"}},
		{"rxe", "provider/mlx5/wqe/av.go", nil},
		{"rxe", "provider/rxe/qp.go", []string{"conformance", "misuse", "stress"}},
		{"mlx5", "cmd/ibvtrace/internal/tracer/call_x.go", []string{"ibvtrace"}},
		{"rxe", "internal/mmio/barrier_amd64.go", nil},
	} {
		if got := testsOn(c.device, c.file); !slices.Equal(got, c.want) {
			t.Errorf("%s on %s: %v, want %v", c.file, c.device, got, c.want)
		}
	}
	for _, by := range inRig {
		if _, err := os.Stat(filepath.Join("../..", by.folder)); err != nil {
			t.Error(err)
		}
		for _, on := range by.on {
			if !slices.Contains(devices, on.device) {
				t.Errorf("%s is not booted", on.device)
			}
			for _, folder := range on.folders {
				if _, err := os.Stat(filepath.Join("../device", folder)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestGuest runs a guest whose tests fail according to a mutant's number.
func TestGuest(t *testing.T) {
	for _, c := range []struct {
		name    string
		numbers []int
		want    []report
	}{
		{"killed", []int{1, 2}, []report{{}, {Outcome: survived}, {}, {Outcome: killed, By: "TestTwo/sub"}}},
		{"without a name", []int{3, 1}, []report{{}, {Outcome: hung, By: "tests/device/b"}, {}, {Outcome: survived}}},
		{"fails once", []int{4}, []report{{}, {Outcome: survived}}},
		{"fails once, and another always", []int{5}, []report{{}, {Outcome: killed, By: "TestFive"}}},
		{"fails beside others only", []int{7}, []report{{}, {Outcome: survived}}},
		{"spoils the guest", []int{1, 6, 2}, []report{{}, {Outcome: survived}, {}, {Outcome: killed, By: "TestSix, then without the mutant too", Spoiled: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said []report
			limits := make(map[string]time.Duration)
			spoiled, fourth := false, true
			g := guest{say: func(r report) {
				r.Seconds = 0
				if r.Folder == "" {
					said = append(said, r)
				} else {
					limits[r.Folder] = r.Limit
				}
			}}
			g.run = func(b build, folder string, limit time.Duration, more ...string) (outcome, string) {
				if (limit == 0) != (limits[folder] == 0) || limit != limits[folder] {
					t.Errorf("%s with the limit %v, not %v", folder, limit, limits[folder])
				}
				only := strings.Join(more, " ")
				switch {
				case spoiled:
					return killed, "TestSix"
				case folder == "a":
				case b.Number == 2 && (only == "" || only == "-test.run ^TestTwo$"):
					return killed, "TestTwo/sub"
				case b.Number == 3 && only == "":
					return hung, ""
				case (b.Number == 4 || b.Number == 5) && only == "" && fourth:
					fourth = false
					return killed, "TestOnce"
				case b.Number == 5 && (only == "" || only == "-test.run ^TestFive$"):
					return killed, "TestFive"
				case b.Number == 7 && only == "":
					return killed, "TestSeven"
				case b.Number == 6:
					spoiled = true
					return killed, "TestSix"
				}
				return survived, ""
			}
			for _, n := range c.numbers {
				g.Runs = append(g.Runs, planned{build{Number: n}, []string{"a", "b"}})
			}
			g.all()
			if diff := cmp.Diff(c.want, said); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if len(limits) != 2 {
				t.Errorf("limits %v", limits)
			}
		})
	}

	// Tests that fail without a mutant show nothing about a mutant.
	var said []report
	g := guest{say: func(r report) { said = append(said, r) }}
	g.Runs = []planned{{build{Number: 1}, []string{"a"}}}
	g.run = func(build, string, time.Duration, ...string) (outcome, string) { return killed, "TestA" }
	g.all()
	want := []report{{Error: "the tests of tests/device/a fail without a mutant: TestA"}}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOnDevice replaces the rig by a program that prints each guest's reports.
func TestOnDevice(t *testing.T) {
	lines := func(reports ...report) string {
		var text strings.Builder
		for _, r := range reports {
			line, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&text, "a test's output\n%s%s\n", reportMark, line)
		}
		return text.String()
	}
	ready := report{Folder: "conformance", Limit: time.Minute}
	lives, dies := report{Outcome: survived}, report{Outcome: killed, By: "TestA"}
	spoils := report{Outcome: killed, By: "TestB", Spoiled: true}
	for _, c := range []struct {
		name   string
		guests []string // the output of each guest, after its exit status if there is one
		killed map[string]string
		left   []string
		err    string
	}{
		{"all in one", []string{lines(ready, report{}, lives, report{}, dies, report{}, lives)},
			map[string]string{"2": "TestA"}, []string{"1", "3", "elsewhere"}, ""},
		{"an earlier one spoils it", []string{lines(ready, report{}, lives, report{}, spoils), lines(report{}, lives, report{}, dies)},
			map[string]string{"3": "TestA"}, []string{"1", "2", "elsewhere"}, ""},
		{"one spoils it", []string{lines(ready, report{}, spoils), lines(report{}, lives, report{}, lives)},
			map[string]string{"1": "TestB"}, []string{"2", "3", "elsewhere"}, ""},
		{"one ends it", []string{"1" + lines(ready, report{}, lives, report{}), "1" + lines(report{}), lines(report{}, dies)},
			map[string]string{"2": "the guest ended", "3": "TestA"}, []string{"1", "elsewhere"}, ""},
		{"a kernel that complains at the end", []string{"1" + lines(ready, report{}, lives, report{}, lives, report{}, lives)},
			nil, []string{"1", "2", "3", "elsewhere"}, ""},
		{"no boot", []string{"1"}, nil, nil, "no test has run on rxe: exit status 1"},
		{"tests that fail", []string{lines(report{Error: "TestA fails"})}, nil, nil, "TestA fails"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for i, text := range c.guests {
				status := "0"
				if strings.HasPrefix(text, "1") {
					status, text = "1", text[1:]
				}
				for name, text := range map[string]string{"out": text, "status": status} {
					if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(name, i)), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			r := &runner{dir: dir, vm: filepath.Join(dir, "vm")}
			// Each guest stores its plan.
			script := "#!/bin/bash\ncd ${0%/*}; i=$(cat n); echo $((i+1)) >n; cp \"${@: -1}\" plan$i; cat out$i; exit $(cat status$i)\n"
			for name, text := range map[string]string{"vm": script, "n": "0"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			mutants := []mutant{{After: "1"}, {After: "2"}, {After: "3"}}
			for i := range mutants {
				mutants[i].File, mutants[i].build.Number = "provider/rxe/qp.go", i+1
			}
			mutants = append(mutants, mutant{File: "provider/mlx5/qp.go", After: "elsewhere"})
			dead := make(map[string]string)
			left, err := r.onDevice(t.Context(), "rxe", mutants, func(m mutant) error {
				if m.Outcome != killed {
					t.Errorf("%s became %s", m.After, m.Outcome)
				}
				dead[m.After] = m.By
				return nil
			})
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("%v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(dead) != len(c.killed) || len(dead) > 0 && cmp.Diff(dead, c.killed) != "" {
				t.Errorf("killed %v, want %v", dead, c.killed)
			}
			var names []string
			for _, m := range left {
				names = append(names, m.After)
			}
			slices.Sort(names)
			if !slices.Equal(names, c.left) {
				t.Errorf("left %v, want %v", names, c.left)
			}
			for i := range c.guests {
				var p plan
				text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("plan", i)))
				if err == nil {
					err = json.Unmarshal(text, &p)
				}
				if err != nil {
					t.Fatalf("guest %d: %v", i, err)
				}
				if last := p.Runs[len(p.Runs)-1]; last.Build.Number != 3 || last.Folders[0] != "conformance" || (p.Limits["conformance"] == time.Minute) != (i > 0) {
					t.Errorf("the plan of guest %d: %+v", i, p)
				}
			}
		})
	}
}
