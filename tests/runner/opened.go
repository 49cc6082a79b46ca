//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// opened records the files in some folders that any process opens.
type opened struct {
	queue   int
	folders map[int32]string
	lost    bool // events were lost, because the queue was too short
	buffer  [1 << 16]byte
}

// watch begins to record files that are opened directly in folders, without the folders below.
func watch(folders []string) (*opened, error) {
	// A compiler opens many files at once. If the limit can't be raised, more of them are lost.
	_ = os.WriteFile("/proc/sys/fs/inotify/max_queued_events", []byte("1000000"), 0)
	queue, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	o := &opened{queue: queue, folders: make(map[int32]string)}
	for _, folder := range folders {
		number, err := unix.InotifyAddWatch(queue, folder, unix.IN_OPEN|unix.IN_ONLYDIR)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", folder, err)
		}
		o.folders[int32(number)] = folder
	}
	return o, nil
}

// folders returns a folder and the folders below it, except those whose names begin with a dot.
func folders(root string) (list []string, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			if path != root && strings.HasPrefix(e.Name(), ".") {
				return filepath.SkipDir
			}
			list = append(list, path)
		}
		return err
	})
	return list, err
}

// since returns the files and folders that were opened since the last call.
func (o *opened) since() (paths []string) {
	for {
		n, err := unix.Read(o.queue, o.buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			slices.Sort(paths)
			return slices.Compact(paths)
		}
		for rest := o.buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			folder := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			length := binary.NativeEndian.Uint32(rest[12:])
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:][:length], []byte{0})
			rest = rest[unix.SizeofInotifyEvent+length:]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				o.lost = true
			} else if dir, ok := o.folders[folder]; ok {
				paths = append(paths, filepath.Join(dir, string(name)))
			}
		}
	}
}

// A record has the files that each test of a job opens. Files opened outside of tests, such
// as in TestMain, count for each test.
type record struct {
	mu      sync.Mutex
	opened  *opened // nil once the record has ended
	current string  // the running test
	byTest  map[string][]string
}

// line processes a line of a test binary's output. When the binary prints that a test begins or has ended,
// all files opened before are in the queue, and perhaps files that it opened after the line. So files
// opened since the previous line count for the test before this line and for the test after it.
func (r *record) line(text string) {
	marked, ok := strings.CutPrefix(text, mark)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok || r.opened == nil {
		return
	}
	if name, ok := strings.CutPrefix(marked, "=== RUN   "); ok && !strings.Contains(name, "/") {
		paths := r.opened.since()
		r.add(r.current, paths)
		r.current = strings.TrimSpace(name)
		r.add(r.current, paths)
	}
}

func (r *record) add(test string, paths []string) {
	r.byTest[test] = append(r.byTest[test], paths...)
}

// end returns what each test has opened, or nil if that isn't known.
func (r *record) end() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.opened
	r.opened = nil // processes that a test left behind may still print
	r.add(r.current, o.since())
	if o.lost {
		return nil
	}
	for test, paths := range r.byTest {
		slices.Sort(paths)
		r.byTest[test] = slices.Compact(paths)
	}
	return r.byTest
}
