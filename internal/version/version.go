// Package version returns the version of a program of this module, as the go command recorded
// it.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Module returns the module's version, such as "v0.1.0" or, for a build in a checkout, "(devel)" with
// the commit. It is "unknown" if the go command recorded none.
func Module() string {
	b, ok := debug.ReadBuildInfo()
	if !ok || b.Main.Version == "" {
		return "unknown"
	}
	v := b.Main.Version
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v
}

// Of returns the line that a program's option --version prints.
func Of(program string) string {
	return fmt.Sprintf("%s %s, %s, %s/%s", program, Module(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
