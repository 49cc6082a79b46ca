package xfer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// mappings returns how often the process has mapped a file.
func mappings(t *testing.T, file string) int {
	return bytes.Count(rdmatest.Must(os.ReadFile("/proc/self/maps"))(t), []byte(file))
}

// A file is served from its mapping, and another one is written to. Close unmaps them.
func TestRegisterFile(t *testing.T) {
	m := twoEngines(t, 2, quick)
	want := make([]byte, 3*os.Getpagesize()+77)
	fill(want, 4)
	name := filepath.Join(t.TempDir(), "served")
	rdmatest.Check(t, os.WriteFile(name, want, 0o600))
	f := rdmatest.Must(os.Open(name))(t)
	if _, err := m.b.RegisterFile(f, 0, len(want), false); !errors.Is(err, syscall.EACCES) {
		t.Errorf("a file that is open for reading only: %v", err)
	}
	if _, err := m.b.RegisterFile(f, 1, 10, true); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an offset within a page: %v", err)
	}
	if _, err := m.b.RegisterFile(f, 0, 0, true); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("no bytes: %v", err)
	}
	served := rdmatest.Must(m.b.RegisterFile(f, int64(os.Getpagesize()), len(want)-os.Getpagesize(), true))(t)
	rdmatest.Check(t, f.Close())
	want = want[os.Getpagesize():]
	if _, err := served.All().Grant(xfer.GrantOptions{Access: xfer.Write}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a grant to write to it: %v", err)
	}

	fd := rdmatest.Must(unix.MemfdCreate("fetched-by-xfer", 0))(t)
	fetched := os.NewFile(uintptr(fd), "fetched")
	defer fetched.Close()
	rdmatest.Check(t, fetched.Truncate(int64(len(want))))
	into := rdmatest.Must(m.a.RegisterFile(fetched, 0, len(want), false))(t)
	rdmatest.Check(t, m.peer.Read(patient(t), into.All(), grant(t, served.All(), xfer.Read).Remote()))
	got := make([]byte, len(want))
	rdmatest.Must(fetched.ReadAt(got, 0))(t)
	if !bytes.Equal(got, want) {
		t.Error("the file has wrong bytes")
	}
	if mappings(t, name) != 1 || mappings(t, "fetched-by-xfer") != 1 {
		t.Error("the files are not mapped once")
	}
	rdmatest.Check(t, errors.Join(into.Close(), served.Close()))
	if mappings(t, name) != 0 || mappings(t, "fetched-by-xfer") != 0 {
		t.Error("the files are still mapped")
	}
}

func TestAllocWith(t *testing.T) {
	m := twoEngines(t, 1, quick)
	for _, o := range []xfer.AllocOptions{{}, {Near: "vt0/1"}} {
		mine, theirs := rdmatest.Must(m.a.AllocWith(100_000, o))(t), memory(t, m.b, 100_000, 3)
		rdmatest.Check(t, m.peer.Read(patient(t), mine.All(), grant(t, theirs.All(), xfer.Read).Remote()))
		if !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
			t.Errorf("%+v: wrong bytes", o)
		}
		rdmatest.Check(t, mine.Close())
	}
	for _, o := range []xfer.AllocOptions{{Near: "vt9/1"}, {HugePages: 3 << 20}, {HugePages: -1}} {
		if _, err := m.a.AllocWith(10, o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	// Without free huge pages there is an error, and nothing is mapped.
	const huge = 2 << 20
	mem, err := m.a.AllocWith(100, xfer.AllocOptions{HugePages: huge})
	switch {
	case err == nil:
		if mem.Len() != 100 || len(mem.Bytes()) != 100 {
			t.Errorf("%d bytes", mem.Len())
		}
		rdmatest.Check(t, mem.Close())
	case !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.EINVAL):
		t.Errorf("in huge pages: %v", err)
	}
}

// A device without dma-bufs refuses, and no file stays open.
func TestRegisterDmabufRefused(t *testing.T) {
	m := twoEngines(t, 1, quick)
	f := rdmatest.Must(os.Open("/dev/null"))(t)
	defer f.Close()
	before := len(rdmatest.Must(os.ReadDir("/proc/self/fd"))(t))
	if _, err := m.a.RegisterDmabuf(int(f.Fd()), 0, 4096, false); err == nil {
		t.Error("a file that is no dma-buf is registered")
	}
	if _, err := m.a.RegisterDmabuf(-1, 0, 4096, false); !errors.Is(err, syscall.EBADF) {
		t.Errorf("no file: %v", err)
	}
	if after := len(rdmatest.Must(os.ReadDir("/proc/self/fd"))(t)); after != before {
		t.Errorf("%d files, and %d before", after, before)
	}
}

// Memory that is being closed is not given back to the program by another Close before all devices have forgotten it.
func TestCloseMemoryTwice(t *testing.T) {
	m := twoEngines(t, 2, quick)
	mem := rdmatest.Must(m.a.Alloc(8192))(t)
	var commands atomic.Int32
	other := make(chan error, 1)
	m.net.SetRefusal(func(command string) syscall.Errno {
		if command != "dereg_mr" || commands.Add(1) != 1 {
			return 0
		}
		go func() { other <- mem.Close() }()
		for range 10_000 { // the other one has time to go too far
			runtime.Gosched()
		}
		if len(other) > 0 || commands.Load() > 1 {
			t.Errorf("%d of 2 regions are being deregistered, %d calls of Close have returned", commands.Load(), len(other))
		}
		return 0
	})
	rdmatest.Check(t, mem.Close())
	rdmatest.Check(t, <-other)
}

// A batch that is being started, though its peer is gone, doesn't keep an engine from being closed.
func TestCloseWhileStarting(t *testing.T) {
	starting, goOn := make(chan bool), make(chan bool)
	o := quick
	o.Trace = func(x xfer.Trace) {
		if x.Kind == xfer.TraceStart {
			close(starting)
			<-goOn
		}
	}
	m := twoEngines(t, 1, o)
	var b xfer.Batch
	b.Read(memory(t, m.a, 1000, 1).All(), grant(t, memory(t, m.b, 1000, 2).All(), xfer.Read).Remote())
	rdmatest.Check(t, m.peer.Close())
	started := make(chan error)
	go func() { started <- m.peer.Start(&b) }()
	<-starting
	err := m.a.Close()
	close(goOn)
	rdmatest.Check(t, err)
	rdmatest.Check(t, <-started)
	if err := b.Wait(patient(t)); !errors.Is(err, xfer.ErrPeerLost) {
		t.Errorf("the batch: %v", err)
	}
}

// Close may be called while batches on the memory begin and end: the error has the number of one moment.
func TestCloseBeside(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{SliceBytes: 4096, SmallBytes: 100, Window: 1})
	const n = 4096
	mine, theirs := memory(t, m.a, n, 1), memory(t, m.b, n, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	m.net.SetFault(func(verbstest.Request) verbstest.Fault { return verbstest.Hold() })
	var held xfer.Batch
	held.Write(remote, mine.All())
	rdmatest.Check(t, m.peer.Start(&held))
	done := make(chan bool)
	go func() {
		defer close(done)
		var b xfer.Batch
		b.Write(remote, mine.All())
		for range 100 {
			if err := m.peer.Start(&b); err != nil {
				t.Error(err)
				return
			}
			b.Cancel() // the held batch has the window
			if err := b.Wait(ctx); !errors.Is(err, xfer.ErrCanceled) {
				t.Errorf("canceled: %v", err)
				return
			}
		}
	}()
	for over := false; !over; runtime.Gosched() {
		if err := mine.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("closed under a batch: %v", err)
		}
		select {
		case <-done:
			over = true
		default:
		}
	}
	m.net.SetFault(nil)
	rdmatest.Check(t, held.Wait(ctx))
}
