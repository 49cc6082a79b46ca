package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// writeAtSignal makes the recorder write a file at each SIGUSR1.
func writeAtSignal(r *recorder) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
			r.write("SIGUSR1", time.Now())
		}
	}()
}

// listen listens where dump asks. A socket that nobody listens on is that of a recorder that was
// killed.
func listen(name string) (net.Listener, error) {
	if name == "" || name[0] == '@' { // package net takes it for a socket without a file, to which all users may connect
		return nil, fmt.Errorf("--socket=%s names no file", name)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	// Nobody listens on another kind of file, either.
	if is, err := os.Lstat(name); err == nil && is.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s is no socket; --socket chooses another place", name)
	}
	if c, err := net.Dial("unix", name); err == nil {
		c.Close()
		return nil, fmt.Errorf("another ibvtrace record listens on %s; --socket chooses another", name)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		os.Remove(name)
	}
	old := syscall.Umask(0o177) // only this user may connect
	defer syscall.Umask(old)
	return net.Listen("unix", name)
}
