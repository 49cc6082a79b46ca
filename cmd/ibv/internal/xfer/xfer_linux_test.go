package xfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// machines makes two machines in this process, with two rails each: vt0 and vt1 are the server's, vt2 and vt3
// the client's.
func machines(t *testing.T) *verbstest.Network {
	var addrs []netip.Addr
	for i := range byte(4) {
		addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, 1 + i}))
	}
	return verbstest.New(t, addrs...)
}

const here = "127.0.0.1"

// start serves a folder, and returns the options of a client.
func start(t *testing.T, folder string) *options { return startSecure(t, folder, nil) }

// startSecure is start with TLS.
func startSecure(t *testing.T, folder string, config *tls.Config) *options {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := rdmatest.Must(newServer(ctx, folder, here, 0, []string{"vt0", "vt1"}, config))(t)
	ended := make(chan error)
	go func() { ended <- s.serve(ctx) }()
	t.Cleanup(func() {
		stop()
		rdmatest.Check(t, <-ended)
		rdmatest.Check(t, s.close())
	})
	o := newOptions()
	o.port, o.devices, o.output = s.door.Addr().(*net.TCPAddr).Port, "vt2,vt3", t.TempDir()
	return o
}

// tree makes files, of which each has a content and a time of its own.
func tree(t *testing.T, dir string, sizes map[string]int) {
	t.Helper()
	for name, n := range sizes {
		path := filepath.Join(dir, name)
		rdmatest.Check(t, os.MkdirAll(filepath.Dir(path), 0o777))
		rdmatest.Check(t, os.WriteFile(path, rdmatest.Pattern(n, len(name)), 0o640))
		changed := time.Unix(1_700_000_000, int64(n))
		rdmatest.Check(t, os.Chtimes(path, changed, changed))
	}
}

// same checks that a folder has what another one has.
func same(t *testing.T, a, b string) {
	t.Helper()
	describe := func(dir string) (all []string) {
		rdmatest.Check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			rdmatest.Check(t, err)
			info := rdmatest.Must(d.Info())(t)
			name := rdmatest.Must(filepath.Rel(dir, path))(t)
			if d.IsDir() {
				all = append(all, name+"/")
				return nil
			}
			all = append(all, fmt.Sprintf("%q %v %v %x", name, info.Mode(), info.ModTime().UnixNano(), sum(rdmatest.Must(os.ReadFile(path))(t))))
			return nil
		}))
		return all
	}
	if got, want := describe(a), describe(b); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func fetch(t *testing.T, o *options, paths ...string) *Fetched {
	t.Helper()
	r, err := o.fetched(t.Context(), here, paths)
	rdmatest.Check(t, err)
	return r
}

// TestFetch: a tree arrives as it is, and is not fetched twice.
func TestFetch(t *testing.T) {
	machines(t)
	served := t.TempDir()
	sizes := map[string]int{
		"empty": 0, "one": 1, "exact": slotBytes, "deep/er/long": 3*slotBytes + 17, "deep/b": 100, "with space\nand line": 5, "not \xff UTF-8": 6,
		"-": 3, strings.Repeat("n", 255): 4,
	}
	tree(t, served, sizes)
	rdmatest.Check(t, os.MkdirAll(filepath.Join(served, "void/of"), 0o777))
	o := start(t, served)
	r := fetch(t, o)
	same(t, o.output, served)
	if r.Files != len(sizes) || r.Bytes != 4*slotBytes+136 || r.Resumed+int64(r.Present)+int64(len(r.Failed)+len(r.LeftOut)) != 0 {
		t.Errorf("%+v", r)
	}
	if carried := r.Rails[0].Bytes + r.Rails[1].Bytes; carried != uint64(r.Bytes) {
		t.Errorf("the rails have carried %d bytes: %+v", carried, r)
	}
	if r = fetch(t, o, ".", "/deep/er"); r.Present != len(sizes) || r.Bytes+int64(r.Files) != 0 {
		t.Errorf("again: %+v", r)
	}
	o.output = t.TempDir()
	if r = fetch(t, o, "deep/b"); r.Files != 1 || r.Bytes != 100 {
		t.Errorf("one file: %+v", r)
	}
	rdmatest.Must(os.Stat(filepath.Join(o.output, "deep/b")))(t)
	if _, err := o.fetched(t.Context(), here, []string{"nosuch\x1b"}); err == nil || !strings.Contains(err.Error(), "nosuch : the server says: ") {
		t.Errorf("what isn't there: %v", err)
	}
}

// TestAllDevices: without -d, all devices are used. With a wrong one, no folder is made.
func TestAllDevices(t *testing.T) {
	machines(t)
	served := t.TempDir()
	tree(t, served, map[string]int{"file": 10})
	o := start(t, served)
	o.devices = ""
	if r := fetch(t, o); r.Files != 1 || len(r.Rails) != 4 {
		t.Errorf("%+v", r)
	}
	o.devices, o.output = "vt2/2", filepath.Join(t.TempDir(), "none")
	if _, err := o.fetched(t.Context(), here, nil); err == nil || !strings.Contains(err.Error(), `no port "2"`) {
		t.Errorf("a port that isn't there: %v", err)
	}
	if _, err := os.Stat(o.output); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a device, the folder was made: %v", err)
	}
	o.devices = ""
	o.Sizes, o.At, o.Time = []int{64}, []int{1}, time.Millisecond
	if r := rdmatest.Must(o.benched(t.Context(), here))(t); len(r.Rows) != 1 || len(r.Rows[0].Shares) != 4 {
		t.Errorf("%+v", r)
	}
	o.port = 1
	if err := o.bench(t.Context(), []string{here}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a server: %v", err)
	}
}

// TestServedOnly: what is not a file in the folder is named, and not served.
func TestServedOnly(t *testing.T) {
	machines(t)
	outside, served := t.TempDir(), t.TempDir()
	tree(t, outside, map[string]int{"secret": 10})
	tree(t, served, map[string]int{"in/file": 10, "half" + unfinished: 10})
	for name, to := range map[string]string{"out": outside, "direct": filepath.Join(outside, "secret"), "in/up": "../../..", "within": "in/file"} {
		rdmatest.Check(t, os.Symlink(to, filepath.Join(served, name)))
	}
	rdmatest.Must(net.Listen("unix", filepath.Join(served, "socket")))(t)
	o := start(t, served)
	r := fetch(t, o)
	if r.Files != 1 || len(r.LeftOut) != 6 || len(r.Failed) != 0 {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{"out/secret", "direct", "in/up", "out", "in/up/etc/passwd"} {
		o.output = t.TempDir()
		if r, err := o.fetched(t.Context(), here, []string{path}); err == nil || !strings.Contains(err.Error(), "path escapes") {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
	// A link that stays inside is followed if it is named.
	if r := fetch(t, o, "within"); r.Files != 1 {
		t.Errorf("%+v", r)
	}
}

// TestResume: of an unfinished file, what is right is kept, and the rest is fetched.
func TestResume(t *testing.T) {
	machines(t)
	served := t.TempDir()
	tree(t, served, map[string]int{"file": 4*slotBytes + 5, "short": 10})
	o := start(t, served)
	left := bytes.Clone(rdmatest.Must(os.ReadFile(filepath.Join(served, "file")))(t))[:3*slotBytes+100]
	left[slotBytes+7]++
	rdmatest.Check(t, os.WriteFile(filepath.Join(o.output, "file"+unfinished), left, 0o666))
	rdmatest.Check(t, os.WriteFile(filepath.Join(o.output, "short"+unfinished), left, 0o666)) // longer than it will be
	r := fetch(t, o)
	same(t, o.output, served)
	if r.Resumed != 2*slotBytes || r.Bytes != 2*slotBytes+5+10 {
		t.Errorf("%+v", r)
	}
}

// TestPrivate: others can't read a file that they may not read, while it is fetched either.
func TestPrivate(t *testing.T) {
	n := machines(t)
	served := t.TempDir()
	rdmatest.Check(t, os.WriteFile(filepath.Join(served, "key"), rdmatest.Pattern(100, 1), 0o400))
	o := start(t, served)
	looked := false
	n.SetFault(func(verbstest.Request) verbstest.Fault {
		if info, err := os.Stat(filepath.Join(o.output, "key"+unfinished)); err == nil {
			if looked = true; info.Mode() != 0o600 {
				t.Errorf("%v", info.Mode())
			}
		}
		return verbstest.Fault{}
	})
	fetch(t, o)
	n.SetFault(nil)
	same(t, o.output, served)
	if !looked {
		t.Error("there was no unfinished file")
	}
}

// TestInterrupted: what an interrupted fetch has left is continued.
func TestInterrupted(t *testing.T) {
	n := machines(t)
	served := t.TempDir()
	tree(t, served, map[string]int{"file": 64 * slotBytes})
	o := start(t, served)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reads := 0
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Opcode == verbs.OpRDMARead && r.Length == slotBytes {
			if reads++; reads == 40 {
				stop()
			}
		}
		return verbstest.Fault{}
	})
	if r, err := o.fetched(ctx, here, nil); err == nil || r.Files != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	r := fetch(t, o)
	same(t, o.output, served)
	if r.Resumed < (40-slots)*slotBytes || r.Resumed+r.Bytes != 64*slotBytes {
		t.Errorf("%+v", r)
	}
}

// TestRailsFlap: rails that go down and up do not disturb a fetch.
func TestRailsFlap(t *testing.T) {
	n := machines(t)
	served := t.TempDir()
	tree(t, served, map[string]int{"file": 16 * slotBytes})
	o := start(t, served)
	begun, quit := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	n.SetFault(func(verbstest.Request) verbstest.Fault {
		begin()
		return verbstest.Fault{}
	})
	var flaps sync.WaitGroup
	flaps.Go(func() {
		<-begun
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
			}
			d := n.Device(i % 4)
			d.SetPort(false)
			time.Sleep(time.Millisecond)
			d.SetPort(true)
			time.Sleep(time.Millisecond)
		}
	})
	fetch(t, o)
	close(quit)
	flaps.Wait()
	same(t, o.output, served)
}

// TestChanged: a file that changes while it is fetched fails, and others do not.
func TestChanged(t *testing.T) {
	machines(t)
	served := t.TempDir()
	tree(t, served, map[string]int{"a": 10, "b": 3 * slotBytes, "c": 20, "d": 30})
	o := start(t, served)
	c := rdmatest.Must(o.dial(t.Context(), here))(t)
	defer c.close()
	root := rdmatest.Must(os.OpenRoot(o.output))(t)
	defer root.Close()
	engine := rdmatest.Must(xfer.Open(xfer.Options{Devices: list(o.devices)}))(t)
	defer engine.Close()
	tr := &transfer{c: c, to: root, seen: make(map[string]bool), mine: rdmatest.Must(engine.Alloc(slots * slotBytes))(t)}
	rdmatest.Check(t, tr.list("."))
	rdmatest.Check(t, os.Truncate(filepath.Join(served, "b"), slotBytes))
	rdmatest.Check(t, os.Chtimes(filepath.Join(served, "c"), time.Now(), time.Now()))
	rdmatest.Check(t, os.Remove(filepath.Join(served, "d")))
	tr.peer = rdmatest.Must(engine.Dial(t.Context(), address(c.host, c.port)))(t)
	rdmatest.Check(t, tr.run(t.Context()))
	if r := tr.result; r.Files != 1 || len(r.Failed) != 3 || r.Failed[0].Why != errChanged.Error() || r.Failed[1].Why != errChanged.Error() ||
		!strings.Contains(r.Failed[2].Why, "no such file") {
		t.Errorf("%+v", r)
	}
}

// TestChangedWhileRead: the server tells the time of a change that comes just before it reads the file.
func TestChangedWhileRead(t *testing.T) {
	machines(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	served := t.TempDir()
	tree(t, served, map[string]int{"file": slotBytes})
	s := rdmatest.Must(newServer(t.Context(), served, here, 0, []string{"vt0"}, nil))(t)
	defer s.close()
	g := &guest{s: s, memory: rdmatest.Must(s.engine.Alloc(slots * slotBytes))(t)}
	defer g.shut()
	name := filepath.Join(served, "file")
	f := rdmatest.Must(os.OpenFile(name, os.O_WRONLY, 0))(t)
	defer f.Close()
	// Each change of the last byte has its number, and so has the time of the file, until the next one.
	change := func(number int64) error {
		_, err := f.WriteAt([]byte{byte(number)}, slotBytes-1)
		return errors.Join(err, os.Chtimes(name, time.Time{}, time.Unix(0, number)))
	}
	rdmatest.Check(t, change(0))
	quit := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for number := int64(1); ; number++ {
			select {
			case <-quit:
				return
			default:
				if err := change(number); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 3000 {
		listed := rdmatest.Must(os.Stat(name))(t).ModTime().UnixNano()
		var a reply
		rdmatest.Check(t, g.get(&a, "file", &request{N: slotBytes}))
		if last := g.memory.Bytes()[slotBytes-1]; a.Time == listed && listed < 1e9 && last != byte(listed) {
			t.Errorf("the last byte is of another time: %d at %d", last, listed)
			break
		}
	}
	close(quit)
	changes.Wait()
}

// TestBench: each combination is measured, and the result is a table, JSON and a picture.
func TestBench(t *testing.T) {
	machines(t)
	o := start(t, "")
	for _, op := range []string{"write", "read"} {
		o.Op, o.Sizes, o.At, o.Time, o.Each = op, []int{64, slots * slotBytes}, []int{1, 3}, time.Millisecond, true
		r := rdmatest.Must(o.benched(t.Context(), here))(t)
		if len(r.Rows) != 3*2*2 {
			t.Fatalf("%+v", r)
		}
		for i, rails := range []string{"vt2/1,vt3/1", "vt2/1", "vt3/1"} {
			for _, row := range r.Rows[4*i : 4*i+4] {
				carried := uint64(0)
				for _, s := range row.Shares {
					carried += s.Bytes
				}
				if row.Rails != rails || row.Operations < uint64(row.At) || row.Gbits <= 0 || row.Latency.P99 < row.Latency.Median || carried != row.Operations*uint64(row.Bytes) {
					t.Errorf("%+v", row)
				}
			}
		}
		var b bytes.Buffer
		r.print(&b)
		if got := b.String(); strings.Count(got, "over ") != 3 || strings.Count(got, "\n") != 1+3*2+12 {
			t.Error(got)
		}
		var back Result
		rdmatest.Check(t, json.Unmarshal(rdmatest.Must(json.Marshal(r))(t), &back))
		picture := filepath.Join(t.TempDir(), "xfer.svg")
		rdmatest.Check(t, r.draw().WriteFile(picture))
		if svg := string(rdmatest.Must(os.ReadFile(picture))(t)); !strings.Contains(svg, "vt3/1, 3 at a time") || !strings.Contains(svg, "16 MiB") {
			t.Error(svg)
		}
	}
	if _, err := o.fetched(t.Context(), here, nil); err == nil || !strings.Contains(err.Error(), errNoFiles.Error()) {
		t.Error(err)
	}
}

// TestBenchInterrupted: what was measured before an interrupt is not lost.
func TestBenchInterrupted(t *testing.T) {
	n := machines(t)
	o := start(t, "")
	o.Sizes, o.At, o.Time, o.picture = []int{64, 4096}, []int{1}, time.Millisecond, filepath.Join(t.TempDir(), "so-far.svg")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	n.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Length == 4096 {
			interrupt()
		}
		return verbstest.Fault{}
	})
	if err := o.bench(ctx, []string{here}); err == nil || err.Error() != "interrupted" {
		t.Errorf("%v", err)
	}
	if svg := string(rdmatest.Must(os.ReadFile(o.picture))(t)); !strings.Contains(svg, "64 B") || strings.Contains(svg, "4 KiB") {
		t.Error(svg)
	}
}

// TestProgress: the line shows each rail's speed since the last one.
func TestProgress(t *testing.T) {
	done, stats := int64(0), xfer.PeerStats{Lanes: []xfer.LaneStats{{Rail: "a/1", Class: "small"}, {Rail: "a/1", Class: "bulk"}, {Rail: "b/1", Class: "bulk"}}}
	p := &progress{total: 4e9, done: func() int64 { return done }, stats: func() xfer.PeerStats { return stats }}
	for i, step := range []struct {
		n    int64
		a, b uint64
		want string
	}{
		{0, 0, 0, "  0 % [                    ] 0 B of 4 GB  a/1 0 b/s  b/1 0 b/s"},
		{1e9, 7.5e8, 2.5e8, " 25 % [=====               ] 1 GB of 4 GB  a/1 6 Gb/s  b/1 2 Gb/s  6s left"},
		{2e9, 1.5e9, 5e8, " 50 % [==========          ] 2 GB of 4 GB  a/1 6 Gb/s  b/1 2 Gb/s  3s left"},
		{4e9, 3e9, 1e9, "100 % [====================] 4 GB of 4 GB  a/1 12 Gb/s  b/1 4 Gb/s"},
	} {
		done, stats.Lanes[1].Read, stats.Lanes[2].Read = step.n, step.a, step.b
		if got := p.text(time.Duration(i+1) * time.Second); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
}

// TestWrongUsage: wrong command lines are refused.
func TestWrongUsage(t *testing.T) {
	for _, line := range []string{"", "what", "serve a b", "fetch", "bench", "bench h g", "bench h -s 0", "bench h -s ,", "bench h -c 5000", "bench h --op atomic", "bench h --plot x.png", "serve -o x", "bench -t 0 h"} {
		if status := Xfer().Main("ibv xfer", strings.Fields(line)); status != cli.Wrong {
			t.Errorf("%q: status %d", line, status)
		}
	}
	// As when a script's variable isn't set.
	for _, args := range [][]string{
		{"serve", ""}, {"serve", "-b", ""}, {"serve", "--tls-cert=", "--tls-key=", "--tls-ca="}, {"serve", "--tls-ca", ""}, {"serve", "-d", ""}, {"serve", "-d", ","},
		{"fetch", ""}, {"fetch", "h", ""}, {"fetch", "h", "-o", ""}, {"bench", ""},
	} {
		if status := Xfer().Main("ibv xfer", args); status != cli.Wrong {
			t.Errorf("%q: status %d", args, status)
		}
	}
}
