//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// hashOf returns the hash of values, in JSON.
func hashOf(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // all values can be encoded
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:32]
}

// files has the hashes of files, each computed once.
type files struct {
	mu    sync.Mutex
	known map[string]hashed
}

type hashed struct {
	hash    string
	changed time.Time
}

// missing is the hash of a file that doesn't exist.
const missing = "missing"

// hash returns the hash of a file's bytes, or of a folder's names, and the time of its last change.
func (f *files) hash(path string) (string, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h, ok := f.known[path]; ok {
		return h.hash, h.changed
	}
	h := hashed{hash: missing}
	if info, err := os.Stat(path); err == nil {
		h.changed = info.ModTime()
		if h.hash, err = contents(path, info); err != nil {
			h.hash = missing
		}
	}
	if f.known == nil {
		f.known = make(map[string]hashed)
	}
	f.known[path] = h
	return h.hash, h.changed
}

func contents(path string, info fs.FileInfo) (string, error) {
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return "", err
		}
		names := []string{}
		for _, e := range entries {
			if e.Name() != ".git" { // each git command changes it
				names = append(names, e.Name())
			}
		}
		return hashOf(names), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:32], nil
}

// trees returns the files below folders and the files that are named, in order, without pages of documentation.
func trees(roots ...string) (list []string, err error) {
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() && filepath.Ext(path) != ".md" {
				list = append(list, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(list)
	return list, nil
}

// scripts returns the rig's scripts and the table that they read, in order. They have no extensions.
func scripts() (list []string, err error) {
	entries, err := os.ReadDir("rig")
	for _, e := range entries {
		if e.Type().IsRegular() && filepath.Ext(e.Name()) == "" {
			list = append(list, filepath.Join("rig", e.Name()))
		}
	}
	return list, err
}

// sources returns the files that these packages of the rig's module are compiled from, in order.
func sources(packages ...string) ([]string, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	const format = `{{if not .Standard}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .SFiles}}{{$dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{end}}`
	out, err := exec.Command("go", append([]string{"list", "-C", "rig", "-deps", "-f", format}, packages...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	list := []string{"rig/go.mod", "rig/go.sum"} // with the other modules' versions
	for line := range strings.Lines(string(out)) {
		if name, err := filepath.Rel(root, strings.TrimSpace(line)); err == nil && filepath.IsLocal(name) && name != "." {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// hashAll returns the hash of files with their names.
func (f *files) hashAll(list []string) string {
	all := make([][2]string, len(list))
	for i, name := range list {
		hash, _ := f.hash(name)
		all[i] = [2]string{name, hash}
	}
	return hashOf(all)
}

// A rig has the hashes of everything that guests run on: the scripts of rig, the programs
// that emulate the adapters and join the guests, and Debian's programs.
type rig struct {
	Scripts, Go, Programs string            // hashes
	Adapters              map[string]string // by the beginning of the device's name
}

// adapters are the rig's programs that emulate adapters, by the beginning of the device's name.
var adapters = map[string]string{"mlx5": "./connectx", "efa": "./efa"}

func (f *files) rig() (*rig, error) {
	list, err := scripts()
	if err != nil {
		return nil, err
	}
	wire, err := sources("./wire")
	if err != nil {
		return nil, err
	}
	g := rig{Scripts: f.hashAll(slices.Concat(list, wire)), Adapters: make(map[string]string)}
	for device, program := range adapters {
		list, err := sources(program)
		if err != nil {
			return nil, err
		}
		g.Adapters[device] = f.hashAll(list)
	}
	version, err := exec.Command("go", "version").Output()
	if err != nil {
		return nil, fmt.Errorf("go version: %w", err)
	}
	programs, err := exec.Command("dpkg-query", "-W").Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-query: %w", err)
	}
	g.Go, g.Programs = string(version), hashOf(string(programs), f.hashAll(otherDebians()))
	return &g, nil
}

// hash returns the hash of a test's environment: the setting, the kernel's release, the variables and the rig.
// It doesn't cover the test's binary nor the files that it opens.
func (g *rig) hash(s rdmatest.Setting, release string, environment []string) string {
	s.Short = false // Short selects tests, and has no effect on a selected test
	device, _, _ := strings.Cut(s.Device, "-")
	return hashOf(s, release, environment, g.Scripts, g.Go, g.Programs, g.Adapters[device])
}

// otherDebians returns the lists of packages of the folders that rig/tree and rig/peers make.
func otherDebians() (lists []string) {
	for _, folder := range []string{"*", "*/*"} {
		found, err := filepath.Glob(filepath.Join(cacheFolder("vm"), folder, "var/lib/dpkg/status"))
		if err != nil {
			panic(err) // the pattern is valid
		}
		lists = append(lists, found...)
	}
	return lists
}

// cacheFolder returns a folder for files that the tests keep from run to run.
func cacheFolder(name string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = filepath.Join(os.TempDir(), "cache")
	}
	return filepath.Join(dir, "goverbs", name)
}
