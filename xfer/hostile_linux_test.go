package xfer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// A rogue speaks the control connection's protocol with software of its own.
type rogue struct {
	t testing.TB
	net.Conn
}

func (m *machines) rogue(t testing.TB) rogue {
	t.Helper()
	c := rdmatest.Must(net.Dial("tcp", m.l.Addr().String()))(t)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(rdmatest.Patience))
	return rogue{t, c}
}

// send sends a message, however wrong.
func (r rogue) send(body string) {
	r.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

// receive returns the next message, or the error that ends the connection.
func (r rogue) receive() (m map[string]any, err error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return m, json.Unmarshal(b, &m)
}

// ask sends a request, and returns the answer.
func (r rogue) ask(body string) map[string]any {
	r.t.Helper()
	r.send(body)
	for {
		m, err := r.receive()
		if err != nil {
			r.t.Fatalf("%s: %v", body, err)
		}
		if m["kind"] == "answer" {
			return m
		}
	}
}

// A rogueDevice has what a rogue needs for queue pairs of its own, on the first device.
type rogueDevice struct {
	rogue
	pd    *verbs.PD
	cq    *verbs.CQ
	mr    *verbs.MR
	gid   verbs.GIDEntry
	links int
}

func (m *machines) rogueDevice(t testing.TB) *rogueDevice {
	dev := rdmatest.Must(verbs.Open("vt0"))(t)
	t.Cleanup(func() { rdmatest.Check(t, dev.Close()) })
	d := &rogueDevice{rogue: m.rogue(t)}
	d.pd = rdmatest.Must(dev.AllocPD())(t)
	d.cq = rdmatest.Must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 8}))(t)
	d.mr = rdmatest.Must(d.pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	d.gid = rdmatest.Must(dev.FindGID(verbs.GIDSelector{Port: 1}))(t)
	d.send(rogueHello)
	return d
}

// openRequest returns a queue pair, and the request to open a link to it.
func (d *rogueDevice) openRequest() (*verbs.QP, string) {
	d.t.Helper()
	qp := rdmatest.Must(d.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: d.cq, RecvCQ: d.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxInlineData: 64}}))(d.t)
	me := rdmatest.Must(json.Marshal(rdmatest.Must(qp.Endpoint(d.gid))(d.t)))(d.t)
	d.links++
	return qp, fmt.Sprintf(`{"kind":"open","id":1,"link":%d,"transport":"rc","endpoint":%s}`, d.links, me)
}

// try carries out a request over a new link, and returns its status. A send has the target's token.
func (d *rogueDevice) try(wr verbs.SendWR) verbs.WCStatus {
	d.t.Helper()
	qp, open := d.openRequest()
	defer qp.Close()
	var peer verbs.Endpoint
	answer := d.ask(open)
	rdmatest.Check(d.t, json.Unmarshal(rdmatest.Must(json.Marshal(answer["endpoint"]))(d.t), &peer))
	copy(wr.Inline, rdmatest.Must(base64.StdEncoding.DecodeString(answer["token"].(string)))(d.t))
	rdmatest.Check(d.t, qp.Connect(peer, verbs.ConnectOptions{AckTimeout: time.Millisecond}))
	wr.Flags = verbs.SendSignaled
	rdmatest.Must(qp.PostSend(wr))(d.t)
	wc := make([]verbs.WC, 1)
	rdmatest.Must(d.cq.PollWait(patient(d.t), wc))(d.t)
	return wc[0].Status
}

const rogueHello = `{"kind":"hello","version":2,"engine":"AAAAAAAAAAAAAAAAAAAAAQ==","rails":[{"name":"x","up":true}],"notifications":8}`

// However many strangers connect and are silent, peers can dial.
func TestSilentStrangers(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{Liveness: time.Hour})
	for range 150 {
		m.rogue(t)
	}
	peer := rdmatest.Must(m.a.Dial(patient(t), m.l.Addr().String()))(t)
	rdmatest.Check(t, peer.Close())
}

// Whatever a peer says, it is refused or ends its own connection, and others are served.
func TestRogueMessages(t *testing.T) {
	m := twoEngines(t, 2, quick)
	mine, theirs := memory(t, m.a, 1000, 1), memory(t, m.b, 1000, 2)
	g := grant(t, theirs.All(), xfer.Read)
	rdmatest.Check(t, m.peer.Read(patient(t), mine.All(), g.Remote()))
	for _, first := range []string{
		"", "{", "[]", "null", `{"kind":"hello"}`, strings.Replace(rogueHello, `"version":2`, `"version":1`, 1),
		strings.Replace(rogueHello, "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAA", 1), strings.Replace(rogueHello, `"notifications":8`, `"notifications":1e18`, 1),
		strings.Replace(rogueHello, `[{"name":"x","up":true}]`, "[]", 1), `{"kind":"bye"}`, `{"kind":"attach","id":1,"secret":"AAAAAAAAAAAAAAAAAAAAAQ=="}`, strings.Repeat("x", 70_000),
	} {
		r := m.rogue(t)
		r.send(first)
		for err := error(nil); err == nil; { // until it is closed
			_, err = r.receive()
		}
	}
	for _, second := range []string{
		rogueHello, `{"kind":"answer"}`, `{"kind":"attach"}`, `{"kind":"attach","id":1,"secret":"AA=="}`,
		`{"kind":"rail","rail":-1}`, `{"kind":"rail","rail":1000000}`, `{"kind":"credit","count":18446744073709551615}`, `{"kind":"skip","count":0}`,
		`{"kind":"skip","count":99999}`, `{"kind":"none"}`, `{"kind":"alive","more":1}`, `{"kind":"bye"}`, `{"kind":"close","id":1,"length":18446744073709551615}`,
	} {
		r := m.rogue(t)
		r.send(rogueHello)
		r.send(second)
		for err := error(nil); err == nil; {
			_, err = r.receive()
		}
	}
	// A torn message.
	r := m.rogue(t)
	r.send(rogueHello)
	r.Write([]byte{0, 0, 1, 0, '{'})
	r.Close()
	// What is not answered with an end.
	r = m.rogue(t)
	r.send(rogueHello)
	for _, request := range []string{
		`{"kind":"attach","id":1,"grant":1,"secret":"AAAAAAAAAAAAAAAAAAAAAQ=="}`, `{"kind":"attach","id":1,"grant":18446744073709551615,"secret":"AAAAAAAAAAAAAAAAAAAAAQ=="}`,
		`{"kind":"close","id":2,"link":7}`, `{"kind":"open","id":3,"link":1,"endpoint":{}}`, `{"kind":"open","id":3,"link":1,"transport":"rc"}`, `{"kind":"open","id":3,"link":1,"rail":9,"endpoint":{}}`, `{"kind":"open","id":3,"link":1,"rail":1,"transport":"rc","endpoint":{}}`,
		`{"kind":"open","id":4,"link":1,"rail":1,"transport":"rc","endpoint":{"qpn":4294967295,"psn":4294967295,"gid":"::","mtu":1,"max_rd_atomic":255}}`,
	} {
		if a := r.ask(request); a["text"] == nil {
			t.Errorf("%s is granted: %v", request, a)
		}
	}
	if a := r.ask(`{"kind":"revoke","id":5,"grant":3}`); a["text"] != nil { // of which it has nothing
		t.Errorf("revoke: %v", a)
	}
	rdmatest.Check(t, m.peer.Read(patient(t), mine.All(), g.Remote()))
	rdmatest.Check(t, r.Conn.Close())
	eventually(t, "the rogues are gone", func() bool { return len(m.b.Peers()) == 1 })
}

// What a peer calls its rails can't control the terminal on which an error is printed.
func TestRogueNames(t *testing.T) {
	m := &machines{net: verbstest.New(t)}
	m.a = m.engine(t, 0, 1, xfer.Options{Patience: 10 * time.Millisecond})
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			r := rogue{t, c}
			r.send(strings.Replace(rogueHello, `"x"`, `"\u001b[2J"`, 1))
			io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	peer := rdmatest.Must(m.a.Dial(patient(t), l.Addr().String()))(t)
	var remote xfer.Remote // the engine is that of rogueHello
	rdmatest.Check(t, json.Unmarshal([]byte(`{"engine":"00000000000000000000000000000001","grant":1,"secret":"00000000000000000000000000000000","access":"read","length":100}`), &remote))
	err := peer.Read(patient(t), memory(t, m.a, 100, 1).All(), remote)
	if !errors.Is(err, xfer.ErrNoRail) || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%q", err)
	}
}

// A rogue with queue pairs of its own reaches only what it was granted: not with another peer's keys,
// not beyond the range, not with other access, and not after the end.
func TestRogueRequests(t *testing.T) {
	m := twoEngines(t, 1, quick)
	mine, theirs, secret := memory(t, m.a, 1000, 1), memory(t, m.b, 4096, 2), memory(t, m.b, 4096, 3)
	g := grant(t, theirs.Slice(1024, 1024), xfer.Read)
	other := grant(t, secret.All(), xfer.Read|xfer.Write)
	rdmatest.Check(t, m.peer.Read(patient(t), mine.All(), other.Remote().Slice(0, 1000))) // so that there are keys
	remote := rdmatest.Must(g.Remote().MarshalBinary())(t)

	r := m.rogueDevice(t)
	mr := r.mr
	key := r.ask(`{"kind":"attach","id":1,"grant":1,"secret":"` + base64.StdEncoding.EncodeToString(remote[26:42]) + `"}`)
	address, rkey := uint64(key["address"].(float64)), uint32(key["keys"].([]any)[0].(float64))
	// close closes the last link.
	closeLink := func() { r.ask(fmt.Sprintf(`{"kind":"close","id":1,"link":%d}`, r.links)) }
	read := func(addr uint64, key uint32, n int) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{mr.SGE(0, n)}, Remote: verbs.Remote{Addr: addr, RKey: key}}
	}
	if s := r.try(read(address, rkey, 1024)); s != verbs.WCSuccess || !bytes.Equal(mr.Bytes()[:1024], theirs.Bytes()[1024:2048]) {
		t.Errorf("what was granted: %v", s)
	}
	closeLink()
	clear(mr.Bytes())
	for name, wr := range map[string]verbs.SendWR{
		"before the range": read(address-1, rkey, 10),
		"after the range":  read(address, rkey, 1025),
		"at the end":       read(^uint64(0)-4, rkey, 10),
		"a write":          {Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{mr.SGE(0, 10)}, Remote: verbs.Remote{Addr: address, RKey: rkey}},
		"an atomic":        {Opcode: verbs.OpFetchAdd, Add: 1, SGL: []verbs.SGE{mr.SGE(0, 8)}, Remote: verbs.Remote{Addr: address, RKey: rkey}},
	} {
		if s := r.try(wr); s != verbs.WCRemAccessErr {
			t.Errorf("%s: %v", name, s)
		}
		closeLink()
	}
	base := address - 1024 // of theirs; the address of the other memory isn't far from it
	for k := range uint32(200) {
		for _, addr := range []uint64{base, uint64(uintptr(unsafe.Pointer(&secret.Bytes()[0])))} {
			if k<<8 != rkey {
				if s := r.try(read(addr, k<<8, 10)); s == verbs.WCSuccess {
					t.Errorf("the guessed key %#x reaches %#x", k<<8, addr)
				}
				closeLink()
			}
		}
	}
	rdmatest.Check(t, m.peer.Read(patient(t), mine.All(), other.Remote().Slice(0, 1000)))
	// A flood of notifications, or a wrong one, ends the connection.
	if s := r.try(verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 24)}); s != verbs.WCSuccess {
		t.Errorf("a notification: %v", s)
	}
	for err := error(nil); err == nil; {
		_, err = r.receive()
	}
	eventually(t, "the rogue is gone", func() bool { return len(m.b.Peers()) == 1 })
	want := make([]byte, 4096)
	if fill(want, 3); !bytes.Equal(secret.Bytes(), want) || !bytes.Equal(mr.Bytes(), make([]byte, 4096)) {
		t.Error("bytes have changed, or were read")
	}
}

// A link that is closed while it is being opened isn't forgotten: all is closed when its peer is gone.
func TestRogueClosesWhileOpening(t *testing.T) {
	o, failures := quick, new(strings.Builder)
	o.Log = slog.New(slog.NewTextHandler(failures, &slog.HandlerOptions{Level: slog.LevelError}))
	m := twoEngines(t, 1, o)
	r := m.rogueDevice(t)
	_, open := r.openRequest()
	opening, goOn := make(chan bool), make(chan bool)
	var once atomic.Bool
	m.net.SetRefusal(func(command string) syscall.Errno {
		if command == "create_qp" && once.CompareAndSwap(false, true) {
			close(opening)
			<-goOn
		}
		return 0
	})
	r.send(open)
	<-opening
	if a := r.ask(`{"kind":"close","id":2,"link":1}`); a["text"] == nil {
		t.Errorf("a link that isn't open was closed: %v", a)
	}
	close(goOn)
	for m, err := r.receive(); m["id"] != 1.0; m, err = r.receive() { // until it is open
		rdmatest.Check(t, err)
	}
	rdmatest.Check(t, r.Conn.Close())
	eventually(t, "the rogue is gone", func() bool { return len(m.b.Peers()) == 1 })
	rdmatest.Check(t, m.b.Close())
	if failures.Len() > 0 {
		t.Error(failures)
	}
}

// What a peer has notified of comes also after it has gone, though a notification before it never
// will. Its place is free once the program knows.
func TestRogueLeavesNotifications(t *testing.T) {
	o := quick
	o.MaxPeers = 2
	m := twoEngines(t, 1, o)
	r := m.rogueDevice(t)
	note := make([]byte, 24)
	note[15], note[23] = 2, 77 // the second one, without the first
	if s := r.try(verbs.SendWR{Opcode: verbs.OpSend, Inline: note}); s != verbs.WCSuccess {
		t.Errorf("a notification: %v", s)
	}
	rdmatest.Check(t, r.Conn.Close())
	eventually(t, "the rogue is gone", func() bool { return len(m.b.Peers()) == 1 })
	first := func() map[string]any {
		r := m.rogue(t)
		r.send(rogueHello)
		return rdmatest.Must(r.receive())(t)
	}
	if a := first(); a["kind"] != "bye" || !strings.Contains(fmt.Sprint(a["text"]), "MaxPeers") {
		t.Errorf("with notifications that are not taken: %v", a)
	}
	if n := rdmatest.Must(m.b.Notified(patient(t)))(t); n.Tag != 77 {
		t.Errorf("notification %d", n.Tag)
	}
	if a := first(); a["kind"] != "hello" {
		t.Errorf("all notifications are taken: %v", a)
	}
}

// With TLS, both sides know each other, and others are refused. Admit refuses, too, and MaxPeers.
func TestAdmission(t *testing.T) {
	n := verbstest.New(t)
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	m := &machines{net: n}
	admitted := 0
	m.b = m.engine(t, 1, 1, xfer.Options{TLS: server.TLS, MaxPeers: 1, Liveness: time.Minute, Admit: func(p *xfer.Peer) error {
		if admitted++; admitted == 1 {
			return errors.New("not the first one")
		}
		if p.TLS() == nil {
			t.Error("no TLS")
		}
		return nil
	}})
	m.l = rdmatest.Must(m.b.Listen(t.Context(), "127.0.0.1:0"))(t)
	m.a = m.engine(t, 0, 1, xfer.Options{TLS: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"}})
	ctx, addr := patient(t), m.l.Addr().String()
	if _, err := m.a.Dial(ctx, addr); !errors.Is(err, xfer.ErrDenied) || !strings.Contains(err.Error(), "not the first one") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Admit refuses: %v", err)
	}
	peer := rdmatest.Must(m.a.Dial(ctx, addr))(t)
	if peer.TLS() == nil || len(peer.TLS().PeerCertificates) != 1 {
		t.Errorf("TLS: %+v", peer.TLS())
	}
	mine, theirs := memory(t, m.a, 1000, 1), memory(t, m.b, 1000, 2)
	rdmatest.Check(t, peer.Read(ctx, mine.All(), grant(t, theirs.All(), xfer.Read).Remote()))
	if _, err := m.a.Dial(ctx, addr); !errors.Is(err, xfer.ErrDenied) || !strings.Contains(err.Error(), "MaxPeers") {
		t.Errorf("one peer too many: %v", err)
	}
	rdmatest.Check(t, peer.Close())
	stranger := m.engine(t, 0, 1, xfer.Options{TLS: &tls.Config{ServerName: "example.com"}})
	if _, err := stranger.Dial(ctx, addr); err == nil {
		t.Error("an unknown certificate is trusted")
	}
	plain := m.engine(t, 0, 1, xfer.Options{})
	if _, err := plain.Dial(ctx, addr); err == nil {
		t.Error("a peer without TLS was taken")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.a.Dial(ended, addr); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
	silent := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	ended, cancel = context.WithCancel(ctx)
	go func() {
		if c, err := silent.Accept(); err == nil {
			defer c.Close()
			c.Read(make([]byte, 1)) // the hello begins
			cancel()
			io.Copy(io.Discard, c)
		}
	}()
	if _, err := plain.Dial(ended, silent.Addr().String()); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the context ends: %v", err)
	}
}
