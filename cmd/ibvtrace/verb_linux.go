//go:build amd64 || arm64

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
)

// A verb is one call of the verbs' ioctl.
type verb struct {
	start  time.Time
	pid    int
	tid    int
	thread string // its name
	fd     int
	device string // "" if fd is not an RDMA device
	path   string // then what it is

	call       *ioctl.Call
	unreadable error // why call is nil

	resumed  time.Time // when the kernel began with it
	returned bool      // else the fields below say nothing
	duration time.Duration
	ret      int64
	errno    unix.Errno
}

func (v *verb) name() string {
	if v.call == nil {
		return "rdma_verbs_ioctl"
	}
	return v.call.Verb()
}

// errnoName returns the name of an error, also of those with which the kernel
// only tells itself to call again after a signal (<linux/errno.h>).
func errnoName(e unix.Errno) string {
	if e == 0 {
		return ""
	}
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	switch e {
	case 512:
		return "ERESTARTSYS"
	case 513:
		return "ERESTARTNOINTR"
	case 514:
		return "ERESTARTNOHAND"
	case 516:
		return "ERESTART_RESTARTBLOCK"
	}
	return fmt.Sprintf("E%d", int(e))
}

// errnoText returns the words for an error as libc has them.
func errnoText(e unix.Errno) string {
	s := e.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}

// A printer writes verbs, one line and one write each.
type printer struct {
	w    *os.File
	json bool
	err  error // the first, after which nothing is written
}

func (p *printer) print(v *verb) {
	if p.err != nil {
		return
	}
	var line []byte
	if p.json {
		line = v.appendJSON(nil)
	} else {
		line = v.appendText(nil)
	}
	if _, err := p.w.Write(append(line, '\n')); err != nil {
		p.err = fmt.Errorf("write trace: %w", err)
	}
}

// clean keeps a name that a program chose from breaking the line.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
