package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// across examines two fictitious hosts, over TCP.
func across(t *testing.T, here, there *bed, gid, peerGID int) (*Report, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Sleep: func(time.Duration) {}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = Serve(there.host(t), o, -1, l, func(string) {}) // ends with the listener
	}()
	r, err := ExaminePeer(here.host(t), o, gid, peerGID, "node1", func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
	l.Close()
	<-done
	return r, err
}

// Both hosts are examined. Findings about the peer have its name.
func TestAcross(t *testing.T) {
	there := infiniBand()
	there.remove("/sys/class/misc/rdma_cm")
	r, err := across(t, roce(), there, -1, -1)
	if err != nil {
		t.Fatal(err)
	}
	complete(t, r)
	if got := strings.Join(ids(r, false), " "); got != "peer-link-layer rdma-cm-missing" || r.Healthy() {
		t.Fatalf("found %s: %+v", got, r.Findings)
	}
	for _, f := range r.Findings {
		if want := map[string]string{"rdma-cm-missing": "node1", "port-spare": "node1"}[f.ID]; f.Host != want {
			t.Errorf("%s is about %q, want %q", f.ID, f.Host, want)
		}
	}
	if p := r.Peer; p.Host != "node1" || p.Here.LinkLayer != "Ethernet" || p.There.LinkLayer != "InfiniBand" {
		t.Errorf("%+v", p)
	}
	var text strings.Builder
	r.Text(&text)
	for _, want := range []string{"there:  mlx5_0 port 1, InfiniBand", "FINDING: node1: the module rdma_ucm isn't loaded [rdma-cm-missing]", "2 findings"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in %s", want, text.String())
		}
	}
}

// The user's choice of GIDs.
func TestAcrossGIDs(t *testing.T) {
	r, err := across(t, roce(), roce(), 2, 5)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ids(r, false), " "); got != "peer-gid-type" || r.Peer.Here.GIDIndex != 2 || r.Peer.There.GIDIndex != 5 {
		t.Errorf("found %s: %+v", got, r.Peer)
	}
	if _, err := across(t, roce(), roce(), -1, 77); err == nil || !strings.Contains(err.Error(), "GID index 77") {
		t.Errorf("a GID that the peer hasn't: %v", err)
	}
}

// If no port can be used, the findings say why.
func TestAcrossDown(t *testing.T) {
	there := roce()
	there.set(map[string]string{ib0 + "/state": "1: DOWN", eth + "/carrier": "0"})
	r, err := across(t, roce(), there, -1, -1)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ids(r, false), " "); got != "no-carrier" || r.Findings[0].Host != "node1" {
		t.Errorf("found %s: %+v", got, r.Findings)
	}
}

// A peer that isn't ibv, or another version.
func TestStrangePeer(t *testing.T) {
	for _, reply := range []string{"SSH-2.0-OpenSSH_9.2p1\n", "", `{"error":"the ends' versions of ibv differ: 2 and 1"}` + "\n"} {
		mine, theirs := net.Pipe()
		go func() {
			_ = json.NewDecoder(theirs).Decode(new(question))
			_, _ = theirs.Write([]byte(reply))
			theirs.Close()
		}()
		o := Options{Sleep: func(time.Duration) {}}
		if r, err := ExaminePeer(roce().host(t), o, -1, -1, "node1", func() (net.Conn, error) { return mine, nil }); err == nil || !strings.Contains(err.Error(), "node1") {
			t.Errorf("%q: %+v, %v", reply, r, err)
		}
		mine.Close()
	}
	e := &end{host: roce().host(t), gid: -1}
	for _, q := range []question{{Do: "hello", Version: 99}, {Do: "fire"}, {Do: "format"}, {}} {
		if a := e.answer(q); a.Error == "" {
			t.Errorf("%+v is answered with %+v", q, a)
		}
	}
}

// TestWaits: no question occupies the server for long.
func TestWaits(t *testing.T) {
	for _, wait := range []int{-1, 60_001, 9_000_000_000} {
		if a := new(end).answer(question{Do: "arrived", Wait: wait}); !strings.Contains(a.Error, "1m0s is the most") {
			t.Errorf("a wait of %d ms is answered with %+v", wait, a)
		}
	}
}

// TestStrangers: the server answers its clients, whatever strangers send to its port, seeded and many
// times.
func TestStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Sleep: func(time.Duration) {}}
	var said []string
	served := make(chan error)
	go func() {
		served <- Serve(infiniBand().host(t), o, -1, l, func(text string) { said = append(said, text) })
	}()
	dial := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rounds := uint64(0)
	rdmatest.Rounds(t, 12, 20, func(random *rand.Rand) {
		rounds++
		var strangers sync.WaitGroup
		for range 20 {
			kind, n := random.IntN(len(strangeClients)), random.IntN(1<<16)
			strangers.Go(func() {
				c, err := dial()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				strangeClients[kind](c, n)
			})
		}
		strangers.Wait()
		r, err := ExaminePeer(roce().host(t), o, -1, -1, "node1", dial)
		if err != nil || strings.Join(ids(r, false), " ") != "peer-link-layer" {
			t.Fatalf("%+v, %v", r, err)
		}
	})
	l.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > rounds*20<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
	if text := strings.Join(said, ""); strings.ContainsAny(text, "\x1b\n") || strings.Contains(text, "evil") {
		t.Errorf("%q", text)
	}
}

// strangeClients come to the server's port.
var strangeClients = []func(c net.Conn, n int){
	func(net.Conn, int) {},
	func(c net.Conn, n int) { // torn
		text := `{"do":"hello","version":2}` + "\n" + `{"do":"facts"}` + "\n"
		_, _ = io.WriteString(c, text[:n%len(text)])
	},
	func(c net.Conn, _ int) { // endless
		more := make([]byte, 1<<14)
		for _, err := io.WriteString(c, `{"do":"`); err == nil; {
			_, err = c.Write(more)
		}
	},
	func(c net.Conn, _ int) { // endless, and later
		more := make([]byte, 1<<14)
		_, err := io.WriteString(c, `{"do":"hello","version":2}`+"\n")
		for err == nil {
			_, err = c.Write(more)
		}
	},
	func(c net.Conn, n int) { // strange questions, of which some have no answer
		w := stranger.NewWire(c, mostAnswer)
		_ = w.Tell(question{Do: "hello", Version: version}, time.Minute)
		for _, q := range []question{
			{Do: "arrived", Wait: n << 40}, {Do: "arrived", Wait: -n}, {Do: "fire", Size: n << 40}, {Do: "\x1b]0;evil\x07"},
			{Do: "facts", GID: n << 40}, {Do: "open", GID: -n}, {Do: "meet"}, {Do: "fire UDP"}, {Do: "send", Size: -1},
		} {
			if w.Hear(new(answer), time.Minute) != nil || w.Tell(q, time.Minute) != nil {
				return
			}
		}
	},
	func(c net.Conn, _ int) { _, _ = io.WriteString(c, "SSH-2.0-evil\x1b[2J\r\n") },
	func(c net.Conn, _ int) { _, _ = fmt.Fprintln(c, strings.Repeat("[", 4000)) },
}

// TestSilentClients: the server answers the next client in spite of as many silent clients as can be served, and
// more that haven't sent anything.
func TestSilentClients(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Sleep: func(time.Duration) {}}
	served := make(chan error)
	go func() { served <- Serve(infiniBand().host(t), o, -1, l, func(string) {}) }()
	dial := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	var silent []net.Conn
	for i := range 4 * mostClients {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 1 && i < 4*(mostClients-1) {
			_ = stranger.NewWire(c, mostAnswer).Tell(question{Do: "hello", Version: version}, time.Minute)
		}
		silent = append(silent, c)
	}
	if r, err := ExaminePeer(roce().host(t), o, -1, -1, "node1", dial); err != nil || r.Healthy() {
		t.Errorf("%+v, %v", r, err)
	}
	for _, c := range silent {
		c.Close()
	}
	l.Close()
	<-served
}

// TestHostileServer: whatever the peer answers, the examination ends with an error, or with a report
// that can be printed and whose commands have nothing of the peer's but names.
func TestHostileServer(t *testing.T) {
	facts := func(change func(*Facts)) string {
		f := ends().There
		f.ActiveMTU = 1024
		change(&f)
		b, err := json.Marshal(answer{Facts: &f})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	good := map[string]string{
		"hello": `{}`, "facts": facts(func(*Facts) {}), "examine": `{"report":{"findings":[{"id":"x","what":"a\u001b[2J\nhealthy","mend":["m\u001b]0;evil\u0007\n  mend      sh"]}]}}`,
	}
	for _, test := range []struct{ do, reply, want string }{
		{"", "", "not known here"}, // a correct answer, but no device can be opened here
		{"hello", "SSH-2.0\n", "invalid character"},
		{"hello", `{"error":"` + strings.Repeat("a", 2<<20), "longer than"},
		{"facts", `{}`, "no answer"},
		{"facts", `{"facts":null}`, "no answer"},
		{"facts", facts(func(f *Facts) { f.NetDev = "eth0; evil" }), "not the name of a device"},
		{"facts", facts(func(f *Facts) { f.NetDev = "-eth0" }), "not the name of a device"},
		{"facts", facts(func(f *Facts) { f.Device = "$(evil)" }), "not the name of a device"},
		{"facts", facts(func(f *Facts) { f.GID = "evil" }), "not a GID"},
		{"facts", facts(func(f *Facts) { f.ActiveMTU = 1 << 40 }), "the MTU"},
		{"facts", facts(func(f *Facts) { f.GIDs = make([]int, mostGIDs+1) }), "GIDs"},
		{"facts", facts(func(f *Facts) { f.GIDs = []int{1 << 40} }), "doesn't exist"},
		{"facts", facts(func(f *Facts) { f.LinkLayer = "\x1b" }), "link layer"},
		{"examine", `{}`, "no answer"},
		{"examine", ``, "the peer node1: examine"},
	} {
		mine, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			d := json.NewDecoder(theirs)
			for {
				var q question
				if d.Decode(&q) != nil {
					return
				}
				reply := good[q.Do]
				if q.Do == test.do {
					reply = test.reply
				}
				if reply == "" {
					return
				}
				if _, err := io.WriteString(theirs, reply+"\n"); err != nil {
					return
				}
			}
		}()
		r, err := ExaminePeer(roce().host(t), Options{Sleep: func(time.Duration) {}}, -1, -1, "node1", func() (net.Conn, error) { return mine, nil })
		mine.Close()
		if test.do == "" {
			if err == nil {
				var text strings.Builder
				r.Text(&text)
				err = errors.New(text.String())
			}
			if strings.ContainsAny(err.Error(), "\x1b\x07") || strings.Contains(err.Error(), "\nhealthy") || strings.Contains(err.Error(), "\n  mend      sh") {
				t.Errorf("%q", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\x1b\x07\n") {
			t.Errorf("%s: %.60q gives %v, want %q", test.do, test.reply, err, test.want)
		}
	}
	for _, test := range []struct {
		q question
		a answer
	}{
		{question{Do: "open"}, answer{}}, {question{Do: "arrived"}, answer{Arrived: shots + 1}}, {question{Do: "arrived UDP"}, answer{Arrived: -1}},
		{question{Do: "send"}, answer{}}, {question{Do: "send"}, answer{Status: strings.Repeat("a", 101)}},
	} {
		if err := test.a.check(test.q); err == nil {
			t.Errorf("%+v is an answer to %+v", test.a, test.q)
		}
	}
}
