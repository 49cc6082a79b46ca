//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Disk space that a run from an empty cache takes, in bytes: compiled packages and test
// binaries; kernels and the folders of their C programs. Both were measured.
const (
	quickSpace = 4 << 30
	wholeSpace = 8 << 30
)

// lowOnSpace returns a sentence about each folder whose disk may become full. On a full disk,
// compilers and guests fail in many ways.
func lowOnSpace(o options) (sentences []string) {
	need := uint64(wholeSpace)
	if o.short {
		need = quickSpace
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return nil // the next step reports the error
	}
	seen := make(map[unix.Fsid]bool)
	for _, dir := range []string{strings.TrimSpace(string(cache)), os.TempDir()} {
		var s unix.Statfs_t
		if unix.Statfs(dir, &s) != nil || seen[s.Fsid] {
			continue
		}
		seen[s.Fsid] = true
		if free := s.Bavail * uint64(s.Bsize); free < need {
			sentences = append(sentences, fmt.Sprintf("%.1f GB are free for %s, and a run from an empty cache needs up to %d: \"go clean -cache\" empties the compiler's",
				float64(free)/(1<<30), dir, need>>30))
		}
	}
	return sentences
}
