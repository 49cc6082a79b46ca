// Package interop tests ibv pingpong with rdma-core's ibv_rc_pingpong,
// ibv_uc_pingpong, ibv_ud_pingpong, ibv_srq_pingpong and ibv_xsrq_pingpong at the
// other end.
//
// It runs in the rig only, in one guest:
//
//	make build && tests/vm/run -d rxe -- go test ./tests/interop
//
// and in two, where it runs TestTwoGuests in place of all others:
//
//	tests/interop/two_guests
package interop

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var ibv string // the program

func TestMain(m *testing.M) {
	var err error
	if ibv, err = findProgram(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	choose, tests := "test.skip", "^TestTwoGuests$"
	if os.Getenv("VM_PEER") != "" {
		choose = "test.run"
	}
	if f := flag.Lookup(choose); f.Value.String() == "" {
		f.Value.Set(tests)
	}
	rdmatest.Main(m, "tests/interop")
}

// findProgram returns what $GOVERBS_BIN names, else the repository's bin/ibv,
// which must not be older than what it is made of.
func findProgram() (string, error) {
	if path := os.Getenv("GOVERBS_BIN"); path != "" {
		_, err := os.Stat(path)
		return path, err
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return "", fmt.Errorf("this is not in the repository: set GOVERBS_BIN to the path of ibv")
		}
		root = filepath.Dir(root)
	}
	path := filepath.Join(root, "bin", "ibv")
	binary, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w; on the host: make build", err)
	}
	source, changed, err := newest(root, "cmd/ibv", "verbs", "provider", "ioctl", "uapi")
	if err != nil {
		return "", err
	}
	if changed.After(binary.ModTime()) {
		return "", fmt.Errorf("%s is older than %s; on the host: make build", path, source)
	}
	return path, nil
}

// newest returns the source file below the directories that was changed last.
func newest(root string, dirs ...string) (name string, changed time.Time, err error) {
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			info, err := entry.Info()
			if err == nil && info.ModTime().After(changed) {
				name, changed = path, info.ModTime()
			}
			return err
		})
		if err != nil {
			return "", time.Time{}, err
		}
	}
	return name, changed, nil
}
