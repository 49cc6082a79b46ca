//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A workplace is a folder for compiled programs. It is kept, so that the next run links only changed
// programs. It isn't in the home folder, because programs also run as other users.
type workplace struct {
	dir  string
	lock *os.File // nil if the folder is removed at the end
}

// newWorkplace returns the repository's folder or, if another run uses it, a new folder.
func newWorkplace(root string) (workplace, error) {
	w := workplace{dir: filepath.Join(os.TempDir(), fmt.Sprintf("goverbs-tests-%d-%s", os.Getuid(), hashOf(root)[:8]))}
	if err := os.Mkdir(w.dir, 0o755); err == nil || os.IsExist(err) {
		if w.lock, err = lockFolder(w.dir); err != nil {
			return w, err
		} else if w.lock != nil {
			return w, nil
		}
	}
	var err error
	if w.dir, err = os.MkdirTemp("", "goverbs-tests"); err != nil {
		return w, err
	}
	return w, os.Chmod(w.dir, 0o755)
}

// lockFolder locks a folder of this user. It returns nil if the folder belongs to another user or is locked.
func lockFolder(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil // not a folder
	}
	f := os.NewFile(uintptr(fd), dir)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, fmt.Errorf("stat %s: %w", dir, err)
	}
	if int(st.Uid) != os.Getuid() || st.Mode&0o022 != 0 || unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		f.Close()
		return nil, nil
	}
	return f, nil
}

func (w workplace) close() {
	if w.lock == nil {
		os.RemoveAll(w.dir)
		return
	}
	w.lock.Close()
}
