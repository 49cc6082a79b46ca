//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A cache records the tests that have passed in guests, as the go command does for tests
// on the host. A test's key is the hash of its binary, its arguments and
// environment, the kernel, the device and the rig. The test need not run again while the files that
// it and its programs opened are unchanged.
type cache struct {
	dir   string // "": the cache is off
	files files
	roots map[string]string // folders, by their names in entries
}

// An entry is the record of a test that has passed.
type entry struct {
	Opened  map[string]string // the files that were opened, and their hashes
	Seconds float64
}

// unused is how long an entry is kept that no run reads.
const unused = 30 * 24 * time.Hour

// open removes entries that no run has read for long.
func (c *cache) open() error {
	if c.dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.Remove(filepath.Join(c.dir, e.Name()))
		}
	}
	return nil
}

// passed returns the entry of a test, and whether it has passed with the present files.
func (c *cache) passed(key string) (entry, bool) {
	var e entry
	if c.dir == "" {
		return e, false
	}
	path := filepath.Join(c.dir, key)
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &e) != nil {
		return entry{}, false
	}
	for name, want := range e.Opened {
		if hash, _ := c.files.hash(c.path(name)); hash != want {
			return e, false
		}
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now)
	return e, true
}

// keep records that a test has passed. It does nothing if a file that the test has opened was
// changed after the run began: the test may have read either version.
func (c *cache) keep(key string, opened []string, began time.Time, took time.Duration) error {
	if c.dir == "" {
		return nil
	}
	e := entry{Opened: make(map[string]string, len(opened)), Seconds: took.Seconds()}
	for _, path := range opened {
		name, ok := c.name(path)
		if !ok {
			continue
		}
		info, err := os.Stat(path) // the hash of a changed file may be outdated
		if err != nil {
			continue // the guest made it
		}
		if info.ModTime().After(began) {
			return nil
		}
		hash, _ := c.files.hash(path)
		e.Opened[name] = hash
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(c.dir, "new")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(c.dir, key))
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// name returns the name of a file in an entry, which doesn't depend on the folders' locations.
func (c *cache) name(path string) (string, bool) {
	for root, dir := range c.roots {
		if rest, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rest) {
			return root + "/" + rest, true
		}
	}
	return "", false
}

func (c *cache) path(name string) string {
	root, rest, _ := strings.Cut(name, "/")
	return filepath.Join(c.roots[root], rest)
}
