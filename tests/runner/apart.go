//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An apart suite runs the rig's own tests, or Debian's programs on the rig's adapters, and no code of the
// library. It can only fail after a change to these programs or the rig. A run of all suites therefore skips it as long as
// the file apartFile has their hash: then the suite has passed with the present state.
type apart struct {
	script   string
	host     bool     // it boots no guest, and runs none of Debian's programs
	kernel   string   // "": the kernel of the run
	programs []string // of the rig's module, which emulate the adapters or run in the guest
	folders  []string // with everything else that it runs, besides the rig's scripts
}

const apartFile = "tests/runner/apart"

// debian are the packages whose programs and libraries such a suite runs.
var debian = regexp.MustCompile(`(?m)^(gcc-[0-9]+|ibverbs-providers|ibverbs-utils|iproute2|libibverbs1|librdmacm1|perftest|qemu-system-x86|rdmacm-utils)(:\S+)?\s+\S+$`)

func (a apart) run(r *runner, s suite) {
	hash, err := a.hash(r)
	if err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
		return
	}
	if !r.named && r.count == 0 && slices.Contains(lines(apartFile), s.name+" "+hash) {
		r.add(result{suite: s.name, passed: 1, cached: 1})
		return
	}
	before := len(r.results)
	script(a.script)(r, s)
	if r.profile != "" || r.kernel != defaultKernel || r.stopped() || !slices.ContainsFunc(r.results[before:], func(res result) bool { return res.suite == s.name && res.ok() }) {
		return
	}
	if err := note(apartFile, s.name, hash); err != nil {
		r.add(result{suite: s.name, why: err.Error(), again: r.again(s)})
	}
}

// hash returns the hash of everything that the suite runs.
func (a apart) hash(r *runner) (string, error) {
	var list []string
	if len(a.programs) > 0 {
		var err error
		if list, err = sources(a.programs...); err != nil {
			return "", err
		}
	}
	more, err := trees(a.folders...)
	if err != nil {
		return "", err
	}
	if a.host {
		return hashOf(a.script, r.cache.files.hashAll(slices.Concat(list, more))), nil
	}
	ours, err := scripts()
	if err != nil {
		return "", err
	}
	kernel := a.kernel
	if kernel == "" {
		kernel = r.kernel
	}
	release, err := exec.Command("rig/kernel", kernel).Output()
	if err != nil {
		return "", fmt.Errorf("rig/kernel %s: %w", kernel, err)
	}
	here, err := exec.Command("dpkg-query", "-W").Output()
	if err != nil {
		return "", fmt.Errorf("dpkg-query: %w", err)
	}
	tree, err := exec.Command("rig/tree").Output()
	if err != nil {
		return "", fmt.Errorf("rig/tree: %w", err)
	}
	there, err := exec.Command("dpkg-query", "--admindir", filepath.Join(strings.TrimSpace(string(tree)), "var/lib/dpkg"), "-W").Output()
	if err != nil {
		return "", fmt.Errorf("dpkg-query: %w", err)
	}
	return hashOf(a.script, filepath.Base(strings.TrimSpace(string(release))), r.cache.files.hashAll(slices.Concat(list, more, ours)),
		debian.FindAllString(string(here), -1), debian.FindAllString(string(there), -1)), nil
}

func lines(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// note writes a suite's hash to the file, for a person to commit.
func note(file, suite, hash string) error {
	list := slices.DeleteFunc(lines(file), func(l string) bool { return strings.HasPrefix(l, suite+" ") })
	list = append(list, suite+" "+hash)
	slices.Sort(list) // lines that begin with # come first
	fmt.Printf("   %s has %s's new hash: commit it\n", file, suite)
	return os.WriteFile(file, []byte(strings.Join(list, "\n")+"\n"), 0o644)
}
