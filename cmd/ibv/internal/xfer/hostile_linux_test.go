package xfer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/strangertest"
	"github.com/goverbs/goverbs/xfer"
)

// A liar is a server that says what it wants.
type liar struct {
	entries []entry
	reply   func(r *request, a *reply) // changes the answer to a get
	memory  *xfer.Memory
}

// serve serves one client, and returns the options of it.
func (l *liar) serve(t *testing.T) *options {
	t.Helper()
	engine := rdmatest.Must(xfer.Open(xfer.Options{Devices: []string{"vt0", "vt1"}}))(t)
	inner := rdmatest.Must(engine.Listen(t.Context(), here+":0"))(t)
	l.memory = rdmatest.Must(engine.Alloc(slots * slotBytes))(t)
	grant := rdmatest.Must(l.memory.All().Grant(xfer.GrantOptions{Access: xfer.Read}))(t)
	door := rdmatest.Must(net.Listen("tcp", here+":0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := door.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		w := stranger.NewWire(conn, maxMessage)
		_ = w.Hear(new(hello), patience)
		_ = w.Tell(welcome{Port: inner.Addr().(*net.TCPAddr).Port, Memory: grant.Remote()}, patience)
		for {
			var r request
			if w.Hear(&r, patience) != nil {
				return
			}
			if r.Do == "list" {
				for i := range l.entries {
					_ = w.Tell(reply{Entry: &l.entries[i]}, patience)
				}
				_ = w.Tell(reply{}, patience)
				continue
			}
			slot := l.memory.Slice(r.Slot*slotBytes, max(0, min(r.N, slotBytes))).Bytes()
			for i := range slot {
				slot[i] = 'x'
			}
			a := reply{Size: 5, N: r.N, Sum: sum(slot)}
			if l.reply != nil {
				l.reply(&r, &a)
			}
			if a.N == -7 {
				return
			}
			_ = w.Tell(a, patience)
		}
	}()
	t.Cleanup(func() {
		door.Close()
		<-done
		rdmatest.Check(t, engine.Close())
	})
	o := newOptions()
	o.port, o.devices, o.output = door.Addr().(*net.TCPAddr).Port, "vt2,vt3", filepath.Join(t.TempDir(), "target")
	return o
}

// TestHostileNames: whatever a server calls its files, the client writes below its folder only.
func TestHostileNames(t *testing.T) {
	machines(t)
	l := &liar{}
	for _, name := range []string{
		"../up", "/tmp/ibv-absolute", "a/../../up", "..", "", ".", "a//b", "a/./b", "./a", "a/", "nul\x00", "link/out", "direct", "loop/x",
		"fine" + unfinished, strings.Repeat("l", 300), strings.Repeat("d/", 50) + "e", "good", "good", "good/below", "esc\x1b[2J",
	} {
		l.entries = append(l.entries, entry{Path: []byte(name), Size: 5})
	}
	l.entries = append(l.entries,
		entry{Path: []byte("../folder"), Folder: true}, entry{Path: []byte("link/folder"), Folder: true}, entry{Path: []byte("negative"), Size: -1},
		entry{Path: []byte("odd"), LeftOut: "\x1b[2Jevil"}, entry{Path: []byte("locked"), LeftOut: "\x1b[2Jevil", Unread: true}, entry{Path: []byte("setuid"), Size: 5, Mode: math.MaxUint32},
	)
	o := l.serve(t)
	outside := filepath.Dir(o.output)
	rdmatest.Check(t, os.MkdirAll(o.output, 0o777))
	tree(t, outside, map[string]int{"secret": 3, "away/x": 1})
	for name, to := range map[string]string{"link": "../away", "direct": "../secret", "loop": "loop"} {
		rdmatest.Check(t, os.Symlink(to, filepath.Join(o.output, name)))
	}
	before := t.TempDir()
	tree(t, before, map[string]int{"secret": 3, "away/x": 1})
	r := fetch(t, o)
	// The server's wish for permissions is limited by the user's mask.
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	if info := rdmatest.Must(os.Stat(filepath.Join(o.output, "setuid")))(t); int(info.Mode().Perm()) != 0o777&^mask || info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0 {
		t.Errorf("%v, with a mask of %o", info.Mode(), mask)
	}
	rdmatest.Check(t, os.Rename(o.output, filepath.Join(t.TempDir(), "moved")))
	same(t, outside, before)
	if _, err := os.Lstat("/tmp/ibv-absolute"); err == nil {
		t.Error("an absolute path was written")
	}
	// Over a link to elsewhere, a new file takes the link's place.
	if !slices.ContainsFunc(r.Failed, func(i Issue) bool { return i.Path == "locked" }) || len(r.LeftOut) != 1 {
		t.Errorf("what could not be read has not failed: %+v", r)
	}
	if r.Files != 5 { // direct, the deep one, good/below, esc and setuid
		t.Errorf("%+v", r)
	}
	strangertest.Harmless(t, strings.ReplaceAll(string(rdmatest.Must(json.Marshal(r))(t)), "evil", ""))
}

// TestHostileContents: wrong answers and damaged bytes fail their files, and leave none that looks whole.
func TestHostileContents(t *testing.T) {
	for name, reply := range map[string]func(r *request, a *reply){
		"sum":     func(r *request, a *reply) { a.Sum++ },
		"short":   func(r *request, a *reply) { a.N-- },
		"long":    func(r *request, a *reply) { a.N = math.MaxInt },
		"changed": func(r *request, a *reply) { a.Size = math.MaxInt64 },
		"error":   func(r *request, a *reply) { a.Error = strangertest.Escapes },
		"leaves":  func(r *request, a *reply) { a.N = -7 },
	} {
		t.Run(name, func(t *testing.T) {
			machines(t)
			l := &liar{entries: []entry{{Path: []byte("a"), Size: 5}, {Path: []byte("b"), Size: 5}}, reply: reply}
			o := l.serve(t)
			r, err := o.fetched(t.Context(), here, nil)
			if r == nil || r.Files != 0 || (name == "leaves") != (err != nil) || err == nil && len(r.Failed) != 2 {
				t.Fatalf("%+v, %v", r, err)
			}
			for _, e := range rdmatest.Must(os.ReadDir(o.output))(t) {
				if !strings.HasSuffix(e.Name(), unfinished) {
					t.Errorf("there is %s", e.Name())
				}
			}
		})
	}
}

// TestTwoFetches: of two fetches of a file into a folder, one waits for nothing and fails, and the other one's copy is
// not touched.
func TestTwoFetches(t *testing.T) {
	machines(t)
	served := t.TempDir()
	tree(t, served, map[string]int{"a": 5, "b": 5})
	second := start(t, served)
	l := &liar{entries: []entry{{Path: []byte("a"), Size: 5, Mode: 0o600}}}
	o := l.serve(t)
	second.output = o.output
	l.reply = func(*request, *reply) { // the first fetch is under way
		r, err := second.fetched(t.Context(), here, nil)
		if err != nil || r.Files != 1 || len(r.Failed) != 1 || r.Failed[0] != (Issue{"a", errTaken.Error()}) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if r := fetch(t, o); r.Files != 1 {
		t.Errorf("%+v", r)
	}
	copied := filepath.Join(o.output, "a")
	if b := rdmatest.Must(os.ReadFile(copied))(t); string(b) != "xxxxx" {
		t.Errorf("%q", b)
	}
	if at := rdmatest.Must(os.Stat(copied))(t).ModTime(); !at.Equal(time.Unix(0, 0)) {
		t.Errorf("its time is %v", at)
	}
	if r := fetch(t, second); r.Files != 1 || r.Present != 1 {
		t.Errorf("afterwards: %+v", r)
	}
	same(t, o.output, served)
}

// TestHostileLists: a list without end, or too large, is an error.
func TestHostileLists(t *testing.T) {
	tr := &transfer{seen: make(map[string]bool), to: rdmatest.Must(os.OpenRoot(t.TempDir()))(t)}
	defer tr.to.Close()
	rdmatest.Check(t, tr.add(&entry{Path: []byte("a"), Size: math.MaxInt64}))
	if err := tr.add(&entry{Path: []byte("b"), Size: 1}); err == nil {
		t.Error("more than 2^63 bytes")
	}
	tr.names = maxNames
	if err := tr.add(&entry{Path: []byte("c"), Size: 1}); err == nil {
		t.Error("too many names")
	}
	machines(t)
	door := rdmatest.Must(net.Listen("tcp", here+":0"))(t)
	defer door.Close()
	o := newOptions()
	o.port, o.output = door.Addr().(*net.TCPAddr).Port, t.TempDir()
	for _, says := range []string{"", "{", "null\n", "SSH-2.0\n", strings.Repeat("x", 1<<20), `{"error":"` + `\u001b]0;no"}` + "\n", `{"port":1}` + "\n", `{"port":70000}` + "\n", `{"memory":{"engine":"00"}}` + "\n"} {
		go func() {
			if conn, err := door.Accept(); err == nil {
				_, _ = io.WriteString(conn, says)
				_, _ = conn.Read(make([]byte, 100)) // the hello: else it may be lost
				conn.Close()
			}
		}()
		if _, err := o.fetched(t.Context(), here, nil); err == nil {
			t.Errorf("%.40q is a welcome", says)
		} else if want := map[string]string{"": "is it ibv xfer serve?", "SSH-2.0\n": "is not ibv xfer serve"}[says]; !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", says, err)
		} else {
			strangertest.Harmless(t, err.Error())
		}
	}
}

// TestStrangersRounds: whatever clients do, the server serves its folder to others, and nothing else to anybody.
func TestStrangersRounds(t *testing.T) {
	machines(t)
	outside, served := t.TempDir(), t.TempDir()
	tree(t, outside, map[string]int{"secret": 10})
	tree(t, served, map[string]int{"a/file": 2000, "b": 10})
	rdmatest.Check(t, os.Symlink(outside, filepath.Join(served, "out")))
	o := start(t, served)
	fetch(t, o)
	strangertest.Unharmed(t, func() {
		rdmatest.Rounds(t, 10, 8, func(rnd *rand.Rand) {
			var there []net.Conn
			for range 8 {
				conn := rdmatest.Must(net.Dial("tcp", address(here, o.port)))(t)
				there = append(there, conn)
				intrude(t, rnd, conn)
			}
			for _, conn := range there {
				conn.Close()
			}
			o.output = t.TempDir()
			r, err := o.fetched(t.Context(), here, nil)
			for err != nil && strings.Contains(err.Error(), "too many others") { // the strangers have not gone yet
				r, err = o.fetched(t.Context(), here, nil)
			}
			rdmatest.Check(t, err)
			if r.Files != 2 || len(r.LeftOut) != 1 {
				t.Errorf("%+v", r)
			}
		})
	})
}

// intrude is a client that misbehaves.
func intrude(t *testing.T, rnd *rand.Rand, conn net.Conn) {
	rdmatest.Check(t, conn.SetDeadline(time.Now().Add(rdmatest.Patience)))
	say := func(v any) {
		b := rdmatest.Must(json.Marshal(v))(t)
		_, _ = conn.Write(append(b, '\n'))
	}
	if rnd.IntN(4) == 0 {
		_, _ = conn.Write(bytes.Repeat([]byte(strangertest.Escapes), 1000)[:1+rnd.IntN(9000)])
		return
	}
	say(hello{protocol + rnd.IntN(4)/3})
	names := []string{"b", "a/file", "..", "/etc/passwd", "../secret", "out/secret", "out", "a", "", ".", "nosuch", "a/../b", strings.Repeat("x", 5000), "\x00", strangertest.Escapes}
	numbers := []int{0, 1, 10, -1, slotBytes, slotBytes + 1, math.MaxInt, math.MinInt}
	number := func() int { return numbers[rnd.IntN(len(numbers))] }
	asked := 0
	for range rnd.IntN(20) {
		switch rnd.IntN(8) {
		case 0:
			say(map[string]any{"do": []string{"list", "", "put", "alive"}[rnd.IntN(4)], "path": 7})
		case 1:
			say(request{Do: "list", Path: []byte(names[rnd.IntN(len(names))])})
		case 2: // torn
			_, _ = conn.Write([]byte(`{"do":"get"`))
			return
		default:
			say(request{Do: "get", Path: []byte(names[rnd.IntN(len(names))]), Off: int64(number()), N: number(), Slot: number()})
			asked++
		}
	}
	if rnd.IntN(2) == 0 {
		return // without reading
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(conn) // up to a reset
	said := string(b)
	for _, secret := range []string{outsideSum, "root:"} {
		if strings.Contains(said, secret) {
			t.Errorf("the server says %s", said)
		}
	}
}

// outsideSum is in the answer to a get of the secret.
var outsideSum = fmt.Sprintf(`"sum":%d`, sum(rdmatest.Pattern(10, len("secret"))))

// TestForeignEngine: an engine whose address no client has is not admitted, and neither are more of them than clients
// have.
func TestForeignEngine(t *testing.T) {
	machines(t)
	o := start(t, t.TempDir())
	engine := rdmatest.Must(xfer.Open(xfer.Options{Devices: list(o.devices)}))(t)
	defer engine.Close()
	c := rdmatest.Must(o.dial(t.Context(), here))(t)
	var peers []*xfer.Peer
	for {
		p, err := engine.Dial(t.Context(), address(here, c.port))
		if err != nil {
			break
		}
		peers = append(peers, p)
	}
	if len(peers) != 2 {
		t.Errorf("%d engines of one client are admitted", len(peers))
	}
	c.close()
	for _, p := range peers {
		<-p.Done() // the server ends them
	}
	if _, err := engine.Dial(t.Context(), address(here, c.port)); err == nil {
		t.Error("an engine without a client is admitted")
	}
}
