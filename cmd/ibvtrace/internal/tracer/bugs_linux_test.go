//go:build amd64 || arm64

package tracer

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/uapi"
)

// role is the variable of the environment that makes this program another one, which is traced.
const role = "GOVERBS_TRACED"

func TestMain(m *testing.M) {
	if IsStarter() {
		Starter()
	}
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "program":
		os.Exit(callVerbs())
	case "child":
		if _, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			os.Exit(1)
		}
	}
	os.Exit(0)
}

const verbsCalled = 5

// callVerbs calls verbs on a file that has none, and starts a child with CLONE_UNTRACED, whose
// opens fail if it is not traced.
func callVerbs() int {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 1
	}
	m := struct {
		hdr  uapi.IbUverbsIoctlHdr
		attr uapi.IbUverbsAttr
	}{attr: uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, Data: 7}}
	m.hdr = uapi.IbUverbsIoctlHdr{
		Length: uint16(unsafe.Sizeof(m)), ObjectId: uapi.UVERBS_OBJECT_PD, MethodId: uapi.UVERBS_METHOD_PD_DESTROY,
		NumAttrs: 1, DriverId: uint32(uapi.RDMA_DRIVER_RXE),
	}
	for range verbsCalled {
		// The kernel uses the pointer during the call only.
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uapi.RDMA_VERBS_IOCTL, uintptr(unsafe.Pointer(&m))); e != unix.ENOTTY {
			return 2
		}
	}
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), role+"=child")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_UNTRACED}
	if child.Run() != nil {
		return 3
	}
	return 7
}

// A failing is a sink that has a bug. It shows it for the first events, and keeps the others.
type failing struct {
	first int
	events
}

func (s *failing) Event(e *event.Event) error {
	if s.first > 0 {
		s.first--
		panic("a bug")
	}
	return s.events.Event(e)
}

// TestBugs: whichever part of ibvtrace has a bug, the traced program goes on to its end. The
// first call that can't be decoded or shown is shown without its arguments. After a second bug
// nothing more is shown.
func TestBugs(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(*tracer)
		fails   int // the events for which the sink fails
		verb    string
		shown   int
		ends    bool // nothing more is shown
	}{
		{"none", func(*tracer) {}, 0, "", verbsCalled, false},
		{"at the entry", func(tr *tracer) { tr.calls = nil }, 0, "syscall_", 1, true},
		{"showing one", func(*tracer) {}, 1, "dealloc_pd", verbsCalled, false},
		{"showing all", func(*tracer) {}, 1 << 30, "", 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			t.Setenv(role, "program")
			said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer func(f *os.File) { os.Stderr = f; said.Close() }(os.Stderr)
			os.Stderr = said
			sink := &failing{first: test.fails}
			tr := newTracer(Options{Command: []string{os.Args[0]}}, sink)
			test.prepare(tr)
			pidfd, err := tr.launch()
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pidfd)
			unix.Kill(tr.command, unix.SIGCONT)
			if end, err := tr.run(); err != nil || end != 7<<8 {
				t.Errorf("wait status %#x, %v, want exit status 7", uint32(end), err)
			}
			if len(sink.events) != test.shown {
				t.Errorf("%d events, want %d: %+v", len(sink.events), test.shown, sink.events)
			}
			for i, e := range sink.events {
				if bug := i == 0 && test.verb != ""; bug != strings.Contains(e.Problem, "bug in ibvtrace") || bug && !strings.HasPrefix(e.Verb, test.verb) {
					t.Errorf("event %d: %s, %q", i, e.Verb, e.Problem)
				}
				if !strings.HasPrefix(e.Verb, "syscall_") && (!e.Returned || e.Errno != "ENOTTY") {
					t.Errorf("event %d: %+v", i, e)
				}
			}
			b, err := os.ReadFile(said.Name())
			if err != nil {
				t.Fatal(err)
			}
			for words, want := range map[string]bool{"a bug in ibvtrace: ": test.name != "none", "goroutine ": test.name != "none", "nothing more is shown": test.ends} {
				if strings.Contains(string(b), words) != want {
					t.Errorf("ibvtrace says %q: %t, want %t:\n%s", words, !want, want, b)
				}
			}
		})
	}
}
