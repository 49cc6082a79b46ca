//go:build linux

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The rig imports nothing of the library, and the library nothing of the rig. Therefore the rig judges the library
// independently, and suites that run only the rig's code need not run after a change of the library.
func TestRigStandsAlone(t *testing.T) {
	t.Chdir("../..")
	const rig = "github.com/goverbs/goverbs/rig"
	of := func(path, module string) bool { return path == module || strings.HasPrefix(path, module+"/") }
	imports := func(folder string) []string {
		t.Helper()
		out, err := exec.Command("go", "list", "-C", folder, "-deps", "-test", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./...").Output()
		if err != nil {
			t.Fatalf("go list -C %s: %v", folder, err)
		}
		return strings.Fields(string(out))
	}
	for _, path := range imports("rig") {
		if !of(path, rig) && !of(path, "golang.org/x/sys") && !strings.HasPrefix(path, "[") {
			t.Errorf("the rig imports %s", path)
		}
	}
	for _, path := range imports(".") {
		if of(path, rig) {
			t.Errorf("the library or its tests import %s", path)
		}
	}
}
