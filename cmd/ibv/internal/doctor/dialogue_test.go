package doctor

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"
)

// across examines two hosts that are made up, over TCP.
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
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r, err := ExaminePeer(here.host(t), o, gid, peerGID, "node1", c)
	c.Close()
	l.Close()
	<-done
	return r, err
}

// Both hosts are examined. What is wrong with the peer has its name.
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
		if r, err := ExaminePeer(roce().host(t), o, -1, -1, "node1", mine); err == nil || !strings.Contains(err.Error(), "node1") {
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
