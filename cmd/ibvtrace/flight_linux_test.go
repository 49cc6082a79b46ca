//go:build amd64 || arm64

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/tracing/event"
)

// TestFlightRecorder: a recorder writes a file when a verb fails, and at SIGUSR1. It keeps one of
// them. It answers dump, and ends as the program does.
func TestFlightRecorder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	socket := filepath.Join(dir, "socket")
	p := ibvtrace(t)
	p.Cmd = exec.CommandContext(t.Context(), bin.ibvtrace, "record", "--how=ptrace", "-d", dir, "--files", "1", "--socket", socket,
		"--", "sh", "-c", built(t, "verbs")+" all >/dev/null; echo $$; read x; exit 7")
	p.Stderr = &p.out
	_, _ = p.start()
	var files []string
	written := func(why string) []*event.Event {
		t.Helper()
		var events []*event.Event
		p.await("a file was written because of "+why, func() bool {
			files, _ = filepath.Glob(filepath.Join(dir, "ibvtrace-*.json"))
			if len(files) != 1 {
				return false
			}
			f, err := os.Open(files[0])
			if err != nil {
				return false // the next is there
			}
			defer f.Close()
			events = nil
			for r := event.NewReader(f); ; {
				e, err := r.Read()
				if err != nil {
					break
				}
				events = append(events, e)
			}
			return len(events) > 1 && strings.HasPrefix(events[0].Why, "written because of "+why)
		})
		return events
	}
	if e := written("ibv_dealloc_pd of "); e[len(e)-1].Errno != "ENOTTY" {
		t.Errorf("the file ends with %s %s", e[len(e)-1].Verb, e[len(e)-1].Errno)
	}
	p.Process.Signal(unix.SIGUSR1)
	if n := len(written("SIGUSR1")); n < 6 {
		t.Errorf("%d events, want more", n)
	}
	out, err := exec.Command(bin.ibvtrace, "dump", "--socket", socket).Output()
	if err != nil || bytes.Count(out, []byte("\n")) < 6 {
		t.Errorf("dump: %v, %q", err, out)
	}
	again, err := exec.Command(bin.ibvtrace, "record", "--how=ptrace", "--socket", socket, "true").CombinedOutput()
	if exitOf(err) != 1 || !strings.Contains(string(again), "another ibvtrace record listens") {
		t.Errorf("a second recorder: %v, %q", err, again)
	}
	p.stdin.Close()
	if err := p.Wait(); exitOf(err) != 7 {
		t.Errorf("%v, want status 7: %s", err, p.out.String())
	}
	out, err = exec.Command(bin.ibvtrace, "dump", "--socket", socket).CombinedOutput()
	if exitOf(err) != 1 || !strings.Contains(string(out), "no ibvtrace record listens on "+socket) {
		t.Errorf("dump without a recorder: %v, %q", err, out)
	}
}

// TestDefaultSocket: only root's socket is below /run, where others can't write.
func TestDefaultSocket(t *testing.T) {
	home := func() (string, error) { return "/home/u/.cache", nil }
	homeless := func() (string, error) { return "", errors.New("$HOME is not defined") }
	for _, test := range []struct {
		uid     int
		runtime string
		cache   func() (string, error)
		want    string
	}{
		{0, "/run/user/0", home, "/run/ibvtrace/socket"},
		{1000, "/run/user/1000", home, "/run/user/1000/ibvtrace/socket"},
		{1000, "", home, "/home/u/.cache/ibvtrace/socket"},
		{1000, "", homeless, "/run/ibvtrace/socket"},
	} {
		if got := defaultSocket(test.uid, test.runtime, test.cache); got != test.want {
			t.Errorf("user %d with %q: %s, want %s", test.uid, test.runtime, got, test.want)
		}
	}
}

// TestListen: a socket that nobody listens on is replaced, and any other file stays.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	socket, file, link := filepath.Join(dir, "socket"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, link} {
		if l, err := listen(name); err == nil || !strings.Contains(err.Error(), name+" is no socket") {
			t.Errorf("%s: %v, %v", name, l, err)
		}
		if b, err := os.ReadFile(name); err != nil || string(b) != "precious" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, name := range []string{"", "@abstract"} {
		if l, err := listen(name); err == nil || !strings.Contains(err.Error(), "names no file") {
			t.Errorf("%q: %v, %v", name, l, err)
		}
	}
	for range 2 {
		l, err := listen(socket)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false) // as if the recorder were killed
		l.Close()
	}
}

// TestStore: a recorder deletes its own oldest files only, and writes through no link.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	r := &recorder{o: &recordOptions{dir: dir, files: 2}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var names []string
	kept := func() {
		t.Helper()
		var got []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff(names, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	others := []string{"ibvtrace-client.json", "ibvtrace-server.json"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		name, err := r.store(bytes.NewBufferString("trace"), at.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Base(name))
	}
	names = append(names[2:], others...)
	kept()
	target := filepath.Join(dir, others[0])
	link := filepath.Join(dir, "ibvtrace-"+at.Format(fileTime)+".json.new")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store(bytes.NewBufferString("trace"), at); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if b, err := os.ReadFile(target); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
}

func TestRecordOptions(t *testing.T) {
	for line, want := range map[string]string{
		"--keep 0s true":     "--keep must be positive",
		"--size 0 true":      "--size must be from 1 to",
		"--files 0 true":     "--files must be positive",
		"--on often true":    `"often" is not one of none, failed, event`,
		"--all true":         "--all and COMMAND are mutually exclusive",
		"--all -e post_send": "posts and polls are seen with --how=ptrace only",
	} {
		if err := record(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}
