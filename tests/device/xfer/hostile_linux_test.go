package xfer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/xfer"
)

// A rogue speaks the control connection's protocol with software and queue pairs of its own, on the first device.
type rogue struct {
	t testing.TB
	net.Conn
	pd    *verbs.PD
	cq    *verbs.CQ
	mr    *verbs.MR
	gid   verbs.GIDEntry
	links int
}

func newRogue(t testing.TB, l *xfer.Listener) *rogue {
	t.Helper()
	r := &rogue{t: t, Conn: rdmatest.Must(net.Dial("tcp", l.Addr().String()))(t)}
	t.Cleanup(func() { r.Close() })
	rdmatest.Check(t, r.SetDeadline(time.Now().Add(rdmatest.Patience)))
	dev := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
	t.Cleanup(func() { rdmatest.Close(t, dev) })
	r.pd = rdmatest.Must(dev.AllocPD())(t)
	r.cq = rdmatest.Must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 8}))(t)
	r.mr = rdmatest.Must(r.pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))(t)
	r.gid = rdmatest.Must(dev.FindGID(verbs.GIDSelector{Port: 1}))(t)
	r.send(`{"kind":"hello","version":2,"engine":"AAAAAAAAAAAAAAAAAAAAAQ==","rails":[{"name":"x","up":true}],"notifications":8}`)
	return r
}

// send sends a message, however wrong.
func (r *rogue) send(body string) {
	_, _ = r.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

// receive returns the next message, or the error that ends the connection.
func (r *rogue) receive() (m map[string]any, err error) {
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
func (r *rogue) ask(body string) map[string]any {
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

// try carries out a request over a new link, and returns its status.
func (r *rogue) try(wr verbs.SendWR) verbs.WCStatus {
	r.t.Helper()
	qp := rdmatest.Must(r.pd.CreateQP(verbs.QPOptions{
		Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1, MaxInlineData: 64},
	}))(r.t)
	me := rdmatest.Must(json.Marshal(rdmatest.Must(qp.Endpoint(r.gid))(r.t)))(r.t)
	r.links++
	var peer verbs.Endpoint
	answer := r.ask(fmt.Sprintf(`{"kind":"open","id":1,"link":%d,"transport":"rc","endpoint":%s}`, r.links, me))
	rdmatest.Check(r.t, json.Unmarshal(rdmatest.Must(json.Marshal(answer["endpoint"]))(r.t), &peer))
	rdmatest.Check(r.t, qp.Connect(peer, verbs.ConnectOptions{}))
	wr.Flags = verbs.SendSignaled
	rdmatest.Must(qp.PostSend(wr))(r.t)
	wc := rdmatest.Poll(r.t, r.cq, 1)
	rdmatest.Check(r.t, qp.Close())
	r.ask(fmt.Sprintf(`{"kind":"close","id":1,"link":%d}`, r.links))
	return wc[0].Status
}

// TestXferHostilePeer: a peer with queue pairs of its own reaches what it was granted, and nothing else: neither beyond the
// range, nor with other access, nor with keys that it guesses. Others are served meanwhile.
func TestXferHostilePeer(t *testing.T) {
	p := newPair(t, small)
	ctx := limited(t)
	mine, theirs, secret := memory(t, p.a, 1000, 1), memory(t, p.b, 4096, 2), memory(t, p.b, 4096, 3)
	granted := grant(t, theirs.Slice(1024, 1024), xfer.Read)
	other := grant(t, secret.All(), xfer.Read|xfer.Write)
	rdmatest.Check(t, p.peer.Read(ctx, mine.All(), other.Slice(0, 1000))) // so that there are keys
	binaryForm := rdmatest.Must(granted.MarshalBinary())(t)

	r := newRogue(t, p.l)
	key := r.ask(`{"kind":"attach","id":1,"grant":1,"secret":"` + base64.StdEncoding.EncodeToString(binaryForm[26:42]) + `"}`)
	if key["keys"] == nil {
		t.Fatalf("%v", key)
	}
	address, rkey := uint64(key["address"].(float64)), uint32(key["keys"].([]any)[0].(float64))
	read := func(addr uint64, key uint32, n int) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{r.mr.SGE(0, n)}, Remote: verbs.Remote{Addr: addr, RKey: key}}
	}
	if s := r.try(read(address, rkey, 1024)); s != verbs.WCSuccess {
		t.Errorf("what was granted: %v", s)
	}
	same(t, "what was granted", r.mr.Bytes()[:1024], theirs.Bytes()[1024:2048])
	clear(r.mr.Bytes())
	for name, wr := range map[string]verbs.SendWR{
		"before the range": read(address-1, rkey, 10),
		"after the range":  read(address, rkey, 1025),
		"a write":          {Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{r.mr.SGE(0, 10)}, Remote: verbs.Remote{Addr: address, RKey: rkey}},
		"an atomic":        {Opcode: verbs.OpFetchAdd, Add: 1, SGL: []verbs.SGE{r.mr.SGE(0, 8)}, Remote: verbs.Remote{Addr: address, RKey: rkey}},
	} {
		if s := r.try(wr); s == verbs.WCSuccess {
			t.Errorf("%s succeeds", name)
		}
	}
	guesses := 16
	if nightly() {
		guesses = 2000
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range guesses { // keys are numbered; the memory granted to the other peer is not far from this
		guess := rkey + uint32(i/2-guesses/4)<<8 + uint32(rnd.IntN(3)-1)
		addr := []uint64{address - 1024, address - 1024 + 1<<20*rnd.Uint64N(4), uint64(rnd.IntN(1 << 20))}[rnd.IntN(3)]
		if guess == rkey {
			continue
		}
		if s := r.try(read(addr, guess, 10)); s == verbs.WCSuccess {
			t.Errorf("the guessed key %#x reaches %#x", guess, addr)
		}
	}
	same(t, "the rogue's memory", r.mr.Bytes(), make([]byte, 4096))
	rdmatest.Check(t, p.peer.Read(ctx, mine.All(), other.Slice(0, 1000)))

	for _, says := range []string{ // torn, huge and wrong messages end only their own connection
		strings.Repeat("x", 70_000), `{"kind":"credit","count":18446744073709551615}`, `{"kind":"rail","rail":-1}`, `{"kind":"attach","id":1}`, "{",
	} {
		r := newRogue(t, p.l)
		r.send(says)
		for err := error(nil); err == nil; {
			_, err = r.receive()
		}
	}
	rdmatest.Check(t, r.Close())
	eventually(t, "the rogues are gone", func() bool { return len(p.b.Peers()) == 1 })
	rdmatest.Check(t, p.peer.Read(ctx, mine.All(), other.Slice(0, 1000)))
	same(t, "after all", mine.Bytes(), rdmatest.Pattern(4096, 3)[:1000])
	same(t, "theirs", theirs.Bytes(), rdmatest.Pattern(4096, 2))
}
