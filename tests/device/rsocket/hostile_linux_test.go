package rsocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// A rogue is a peer that posts arbitrary requests, with package verbs.
type rogue struct {
	id *rdmacm.SyncID
	mr *verbs.MR // the list of targets, then a ring, and over iWARP memory for a message

	list, ring verbs.Remote  // the other side's
	refused    chan struct{} // closed when the other side has ended the connection
}

const rogueRing = 16 << 10

func overIWARP() bool { return rdmatest.KindOf() == rdmatest.SIW }

// privateData returns the private data of a peer with this memory.
func privateData(mr *verbs.MR, credits uint16) []byte {
	b := []byte{1, 2}
	b = binary.BigEndian.AppendUint16(b, credits)
	b = binary.BigEndian.AppendUint32(b, 0)
	for _, part := range []struct {
		off    uint64
		length uint32
	}{{0, 2}, {64, rogueRing}} {
		b = binary.BigEndian.AppendUint64(b, mr.Addr()+part.off)
		b = binary.BigEndian.AppendUint32(b, mr.RKey())
		b = binary.BigEndian.AppendUint32(b, part.length)
	}
	return b
}

// newRogue makes a rogue that has not yet connected. It has a number of receives, up to 64.
func newRogue(t testing.TB, to net.Addr, receives int) *rogue {
	t.Helper()
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	r := &rogue{id: id}
	t.Cleanup(func() {
		rdmatest.Check(t, id.DestroyQP())
		if r.mr != nil {
			rdmatest.Close(t, r.mr)
		}
		rdmatest.Close(t, id)
	})
	addr := to.(*net.TCPAddr).AddrPort()
	rdmatest.Check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, addr, time.Minute))
	rdmatest.Check(t, id.ResolveRoute(t.Context(), time.Minute))
	if overIWARP() && receives > 0 {
		receives += 32 // over iWARP, a message without a receive ends the connection: receives for messages that need no credit
	}
	// Over iWARP a message is two requests.
	caps := verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 96, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}
	rdmatest.Must(id.CreateQP(nil, verbs.QPOptions{Cap: caps}))(t)
	r.mr = rdmatest.Must(id.PD().AllocMR(64+rogueRing+4, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))(t)
	r.receive(t, receives)
	return r
}

// receive posts receives.
func (r *rogue) receive(t testing.TB, n int) {
	t.Helper()
	wr := verbs.RecvWR{}
	if overIWARP() {
		wr.SGL = []verbs.SGE{r.mr.SGE(64+rogueRing, 4)}
	}
	for range n {
		rdmatest.Must(r.id.QP().PostRecv(wr))(t)
	}
}

// connect connects with this private data, and learns the other side's memory.
func (r *rogue) connect(t testing.TB, private []byte) error {
	t.Helper()
	e, err := r.id.Connect(t.Context(), &rdmacm.ConnParam{PrivateData: private})
	if err != nil {
		return err
	}
	b := e.PrivateData()
	r.list = verbs.Remote{Addr: binary.BigEndian.Uint64(b[8:]), RKey: binary.BigEndian.Uint32(b[16:])}
	r.ring = verbs.Remote{Addr: binary.BigEndian.Uint64(b[24:]), RKey: binary.BigEndian.Uint32(b[32:])}
	return nil
}

// post posts a write with an immediate, which over iWARP is a write and a send.
func (r *rogue) post(t testing.TB, wr verbs.SendWR) {
	t.Helper()
	wr.Opcode, wr.Flags = verbs.OpRDMAWriteImm, verbs.SendSignaled
	if overIWARP() {
		if wr.Inline != nil || wr.SGL != nil {
			write := wr
			write.Opcode, write.Flags = verbs.OpRDMAWrite, 0
			rdmatest.Must(r.id.QP().PostSend(write))(t)
		}
		wr = verbs.SendWR{Opcode: verbs.OpSend, Flags: wr.Flags, Inline: binary.NativeEndian.AppendUint32(nil, wr.Imm)}
	}
	rdmatest.Must(r.id.QP().PostSend(wr))(t)
}

// write writes n bytes of the ring with an immediate.
func (r *rogue) write(t testing.TB, to verbs.Remote, imm uint32, n int) {
	t.Helper()
	wr := verbs.SendWR{Imm: imm, Remote: to}
	if n > 0 {
		wr.SGL = []verbs.SGE{r.mr.SGE(64, n)}
	}
	r.post(t, wr)
}

// publish writes an entry of the list of targets.
func (r *rogue) publish(t testing.TB, entry int, addr uint64, key, length uint32) {
	t.Helper()
	b := binary.NativeEndian.AppendUint64(nil, addr)
	b = binary.NativeEndian.AppendUint32(b, key)
	b = binary.NativeEndian.AppendUint32(b, length)
	r.post(t, verbs.SendWR{Imm: 4<<29 | 64, Inline: b, Remote: r.list.At(uint64(16 * entry))})
}

// next waits for the next message of the other side, and returns its immediate.
func (r *rogue) next(t testing.TB) uint32 {
	t.Helper()
	imm, ok := r.nextIn(t, rdmatest.Patience)
	if !ok {
		t.Fatal("there is no message")
	}
	return imm
}

// nextIn is like next, but returns false if there is no message in time.
func (r *rogue) nextIn(t testing.TB, limit time.Duration) (imm uint32, ok bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var wcs [1]verbs.WC
		if rdmatest.Must(r.id.RecvCQ().Poll(wcs[:]))(t) == 0 {
			continue
		}
		if wcs[0].Status != verbs.WCSuccess {
			return 0, false
		}
		if overIWARP() { // the next one comes later
			return binary.NativeEndian.Uint32(r.mr.Bytes()[64+rogueRing:]), true
		}
		imm, _ := wcs[0].Imm()
		return imm, true
	}
	return 0, false
}

// TestHostilePeers: each message that violates the protocol ends the connection with an
// error. Earlier data can still be read.
func TestHostilePeers(t *testing.T) {
	checkLeaks(t)
	const window, ring = 16, 8 << 10 // of the honest side
	const half = ring / 2
	attacks := map[string]func(t *testing.T, r *rogue){
		"type 1":              func(t *testing.T, r *rogue) { r.write(t, r.ring, 1<<29|10, 10) },
		"type 2":              func(t *testing.T, r *rogue) { r.write(t, r.ring, 2<<29|10, 10) },
		"type 3":              func(t *testing.T, r *rogue) { r.write(t, r.ring, 3<<29|10, 10) },
		"type 5":              func(t *testing.T, r *rogue) { r.write(t, r.ring, 5<<29, 0) },
		"the largest mapping": func(t *testing.T, r *rogue) { r.write(t, r.ring, 7<<29-1, 0) },
		"mapping 1 of 1": func(t *testing.T, r *rogue) {
			r.map1(t, 0, r.mr.Addr(), 100)
			r.map1(t, 1, r.mr.Addr(), 100)
		},
		"a mapping beyond the address space": func(t *testing.T, r *rogue) { r.map1(t, 0, math.MaxUint64-10, 100) },
		"more mappings than credits": func(t *testing.T, r *rogue) {
			r.flood(t, func() { r.map1(t, 0, r.mr.Addr(), 100) })
		},
		"control message 3":          func(t *testing.T, r *rogue) { r.write(t, r.ring, 7<<29|3, 0) },
		"nothing written":            func(t *testing.T, r *rogue) { r.write(t, r.ring, 100, 0) },
		"less written":               func(t *testing.T, r *rogue) { r.write(t, r.ring, 100, 99) },
		"more written":               func(t *testing.T, r *rogue) { r.write(t, r.ring, 99, 100) },
		"no data":                    func(t *testing.T, r *rogue) { r.write(t, r.ring, 0, 0) },
		"the largest length":         func(t *testing.T, r *rogue) { r.write(t, r.ring, 1<<29-1, 0) },
		"more than half of the ring": func(t *testing.T, r *rogue) { r.write(t, r.ring, half+1, half+1) },
		"more than the ring, in pieces": func(t *testing.T, r *rogue) {
			for range 3 { // two halves are published
				r.write(t, r.ring, half, half)
			}
		},
		"more messages than credits": func(t *testing.T, r *rogue) {
			r.flood(t, func() { r.write(t, r.ring, 1, 1) })
		},
		"data after the end": func(t *testing.T, r *rogue) {
			r.write(t, r.ring, 7<<29|2, 0)
			r.write(t, r.ring, 10, 10)
		},
		"credits taken back":   func(t *testing.T, r *rogue) { r.write(t, r.ring, 4<<29|63, 0) },
		"credits out of thin":  func(t *testing.T, r *rogue) { r.write(t, r.ring, 4<<29|129, 0) }, // 64 may have been used
		"the largest credit":   func(t *testing.T, r *rogue) { r.write(t, r.ring, 4<<29|0xffff, 0) },
		"a message by send":    func(t *testing.T, r *rogue) { r.send(t, verbs.OpSend) },
		"a send with the type": func(t *testing.T, r *rogue) { r.send(t, verbs.OpSendImm) },
	}
	if overIWARP() {
		// The device doesn't say how much was written, and has no immediate data.
		for _, unseen := range []string{"nothing written", "less written", "more written", "a send with the type"} {
			delete(attacks, unseen)
		}
		attacks["a message of 3 bytes"] = func(t *testing.T, r *rogue) {
			rdmatest.Must(r.id.QP().PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 3)}))(t)
		}
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			l := listen(t, rsocket.Options{RecvBuffer: ring, RecvQueue: window, Mappings: 1})
			r := newRogue(t, l.Addr(), 64)
			rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
			c := accept(t, l)
			rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
			r.write(t, r.ring, 3, 3)
			rdmatest.Must(io.ReadFull(c, make([]byte, 3)))(t)
			r.ring.Addr += 3
			var failed error
			r.refused = make(chan struct{})
			go func() {
				defer close(r.refused)
				for failed == nil {
					_, failed = c.Write([]byte("honest"))
				}
			}()
			attack(t, r)
			<-r.refused
			want := rsocket.ErrProtocol
			if overIWARP() && strings.HasSuffix(name, "than credits") && !errors.Is(failed, want) {
				want = syscall.ECONNRESET // the device may find no receive for a message, and ends the connection
			}
			wantError(t, failed, want)
			if _, err := io.Copy(io.Discard, c); name != "data after the end" {
				wantError(t, err, want)
			}
			rdmatest.Check(t, c.Close())
		})
	}
}

// map1 announces a mapping, and writes it to the first entry of the list, behind the list of targets.
func (r *rogue) map1(t testing.TB, entry uint32, addr uint64, length uint32) {
	t.Helper()
	b := binary.NativeEndian.AppendUint64(make([]byte, 8), addr)
	b = binary.NativeEndian.AppendUint32(b, r.mr.RKey())
	b = binary.NativeEndian.AppendUint32(b, length)
	r.post(t, verbs.SendWR{Imm: 6<<29 | entry, Inline: b, Remote: r.list.At(32)})
}

// flood posts messages until the other side refuses one. That side gives credits as fast as
// it receives messages, so only the last of many messages may lack a credit.
func (r *rogue) flood(t testing.TB, post func()) {
	t.Helper()
	for places := 32; ; {
		for ; places > 0; places-- {
			post()
		}
		select {
		case <-r.refused:
			return
		default:
		}
		var wcs [32]verbs.WC
		places = rdmatest.Must(r.id.SendCQ().Poll(wcs[:]))(t)
	}
}

func (r *rogue) send(t testing.TB, op verbs.Opcode) {
	t.Helper()
	rdmatest.Must(r.id.QP().PostSend(verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled}))(t)
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(b []byte) (int, error) { return f(b) }

// TestReadStays: the peer can't change bytes after Read has returned them, although it can
// write to the ring that they came from. Otherwise a program could store other bytes than it
// has verified.
func TestReadStays(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{})
	r := newRogue(t, l.Addr(), 64)
	rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
	c := accept(t, l)
	defer closed(t, c)
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	const said, forged = "amount=10 to=alice", "amount=99 to=mallo"
	copy(r.mr.Bytes()[64:], said)
	r.write(t, r.ring, uint32(len(said)), len(said))
	rdmatest.Poll(t, r.id.SendCQ(), 1)
	copy(r.mr.Bytes()[64:], forged)
	var checked, stored bytes.Buffer
	check := writeFunc(func(b []byte) (int, error) {
		rdmatest.Must(r.id.QP().PostSend(verbs.SendWR{
			Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{r.mr.SGE(64, len(forged))}, Remote: r.ring,
		}))(t)
		rdmatest.Poll(t, r.id.SendCQ(), 1)
		r.write(t, r.ring, 7<<29|2, 0) // the end
		return checked.Write(b)
	})
	store := writeFunc(func(b []byte) (int, error) { return stored.Write(b) })
	if _, err := io.Copy(io.MultiWriter(check, store), c); err != nil {
		t.Error(err)
	}
	if checked.String() != said || stored.String() != said {
		t.Errorf("checked %q, stored %q; the peer sent %q", checked.String(), stored.String(), said)
	}
}

// TestHostileTargets publishes impossible targets.
func TestHostileTargets(t *testing.T) {
	checkLeaks(t)
	for name, test := range map[string]struct {
		addr   uint64 // 0 is the rogue's own
		key    uint32 // to xor
		length uint32
		want   error
	}{
		"beyond the address space": {addr: math.MaxUint64 - 10, length: 100, want: rsocket.ErrProtocol},
		"of nobody":                {key: 0xffff00, length: 100, want: syscall.ECONNRESET},
		"beyond the memory":        {length: math.MaxUint32, want: syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, rsocket.Options{})
			r := newRogue(t, l.Addr(), 64)
			rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
			c := accept(t, l)
			rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
			addr := test.addr
			if addr == 0 {
				addr = r.mr.Addr()
			}
			r.publish(t, 1, addr, r.mr.RKey()^test.key, test.length)
			var err error
			for err == nil {
				_, err = c.Write(make([]byte, 1000))
			}
			wantError(t, err, test.want)
			_, err = c.Read(make([]byte, 1))
			wantError(t, err, test.want)
			rdmatest.Check(t, c.Close())
		})
	}
}

// TestHostileHandshakes: private data that is not rsocket's is rejected, by a listener and by Dial.
func TestHostileHandshakes(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{})
	for name, spoil := range map[string]func([]byte) []byte{
		"none":       func([]byte) []byte { return nil },
		"version 2":  func(b []byte) []byte { b[0] = 2; return b },
		"one target": func(b []byte) []byte { b[23] = 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRogue(t, l.Addr(), 64)
			err := r.connect(t, spoil(privateData(r.mr, 64)))
			wantError(t, err, rdmacm.ErrRejected)
		})
		t.Run("answer of "+name, func(t *testing.T) {
			server := rdmatest.Must(rdmacm.Listen(t.Context(), "tcp", host+":0", &rdmacm.Options{
				Messages: -1, Param: &rdmacm.ConnParam{PrivateData: spoil(make([]byte, 40))},
			}))(t)
			defer rdmatest.Close(t, server)
			c, err := rsocket.Dial("tcp", server.Addr().String())
			if err == nil {
				c.Close()
			}
			wantError(t, err, rsocket.ErrProtocol)
		})
	}
}

// TestPeerDies: a waiting read notices that the peer's process has ended, or that its queue
// pair was destroyed.
func TestPeerDies(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{})
	r := newRogue(t, l.Addr(), 64)
	rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
	c := accept(t, l)
	defer rdmatest.Close(t, c)
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	r.write(t, r.ring, 3, 3)
	rdmatest.Poll(t, r.id.SendCQ(), 1) // the end flushes what hasn't been sent
	rdmatest.Check(t, r.id.Disconnect(t.Context()))
	if n, err := io.ReadFull(c, make([]byte, 3)); n != 3 {
		t.Errorf("read %d bytes of those before the end: %v", n, err)
	}
	_, err := c.Read(make([]byte, 1))
	wantError(t, err, syscall.ECONNRESET)
	if errors.Is(err, rsocket.ErrProtocol) {
		t.Error(err)
	}
}

// TestOwedCredits: a peer has no receives for a while, so that the maximum number of messages
// with credits wait. The peer gets the credits that have become due meanwhile, even without
// another call.
func TestOwedCredits(t *testing.T) {
	checkLeaks(t)
	const window = 16
	l := listen(t, rsocket.Options{RecvQueue: window})
	r := newRogue(t, l.Addr(), 0)
	rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
	c := accept(t, l)
	defer closed(t, c)
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	const half, places = window / 2, 4
	b := make([]byte, half)
	for range places { // the first message publishes a half of the ring, the others come after half of the credits
		for range half {
			r.write(t, r.ring, 1, 1)
		}
		rdmatest.Must(io.ReadFull(c, b))(t)
	}
	r.receive(t, 64)
	var granted []uint32
	for len(granted) <= places {
		granted = append(granted, r.next(t))
	}
	for i, imm := range granted {
		if want := uint32(4<<29 | i*half + window); imm != want {
			t.Errorf("message %d is %#x, want %#x", i, imm, want)
		}
	}
}

// TestFirstCredits: the accepting side publishes the other half of its ring without a call,
// even where it may not send before it has received a message.
func TestFirstCredits(t *testing.T) {
	checkLeaks(t)
	l := listen(t, rsocket.Options{})
	r := newRogue(t, l.Addr(), 64)
	rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
	c := accept(t, l)
	defer closed(t, c)
	r.write(t, r.ring, 3, 3)
	if imm := r.next(t); imm>>29 != 4 {
		t.Errorf("the first message is %#x, want one with credits", imm)
	}
}

// TestLastMessages: this side notifies a peer that has closed first that this side has
// closed, too. librdmacm waits for this message, or for an acknowledgement, which Soft-RoCE
// sends only while the queue pair exists.
func TestLastMessages(t *testing.T) {
	checkLeaks(t)
	const disconnect = 7 << 29
	l := listen(t, rsocket.Options{})
	// The device has a few milliseconds for the message, which may be too few on a busy machine.
	for range 20 {
		r := newRogue(t, l.Addr(), 64)
		rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
		c := accept(t, l)
		r.write(t, r.ring, disconnect, 0)
		rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%d, %v, want the end", n, err)
		}
		rdmatest.Check(t, c.Close())
		imm, ok := r.nextIn(t, time.Second)
		for ok && imm>>29 == 4 { // credits
			imm, ok = r.nextIn(t, time.Second)
		}
		if ok && imm == disconnect {
			return
		}
		if ok {
			t.Fatalf("message %#x", imm)
		}
	}
	t.Error("the peer is never told")
}

// TestFewMessages: at the end of the send buffer a message is short, and the next message
// begins at the buffer's start.
func TestFewMessages(t *testing.T) {
	checkLeaks(t)
	const buffer, end, more = 8 << 10, 16, 1000
	l := listen(t, rsocket.Options{SendBuffer: buffer})
	r := newRogue(t, l.Addr(), 64)
	rdmatest.Check(t, r.connect(t, privateData(r.mr, 64)))
	c := accept(t, l)
	defer closed(t, c)
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	for _, step := range []struct{ bytes, messages int }{{buffer - end, 3}, {more, 2}} {
		rdmatest.Must(c.Write(make([]byte, step.bytes)))(t)
		var sizes []uint32
		for left := step.bytes; left > 0; {
			sizes = append(sizes, r.next(t)) // the immediate of data is its size
			left -= int(sizes[len(sizes)-1])
		}
		if len(sizes) > step.messages {
			t.Errorf("%d bytes went in messages of %d, want %d messages", step.bytes, sizes, step.messages)
		}
	}
}
