package mlx5bytes

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// A logLine is a line of the rig's HCAs' log. rig/connectx/README.md describes it.
type logLine struct {
	HCA       int
	Event     string
	Name, In  string
	Address   uint64
	QPN, SRQN uint32
	Index     uint16
	Bytes     string
}

// A logFile is read while it grows.
type logFile struct {
	path   string
	offset int64
}

// until returns the new lines, up to those at which both programs' queue pairs have been
// destroyed.
func (f *logFile) until(t *testing.T, sides [2]*side) []logLine {
	t.Helper()
	var lines []logLine
	for deadline := time.Now().Add(rdmatest.Patience); ; time.Sleep(20 * time.Millisecond) {
		text := rdmatest.Must(os.ReadFile(f.path))(t)
		text = text[f.offset:]
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		f.offset += int64(len(text))
		for line := range bytes.Lines(text) {
			var l logLine
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			lines = append(lines, l)
		}
		gone := 0
		for i, s := range sides {
			if slices.ContainsFunc(lines, func(l logLine) bool {
				return l.HCA == i && l.Name == "destroy_qp" && len(l.In) >= 24 && l.In[18:24] == fmt.Sprintf("%06x", s.qpn)
			}) {
				gone++
			}
		}
		if gone == len(sides) {
			return lines
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d lines of the log, and %d queue pairs are gone", len(lines), gone)
		}
	}
}

// A side is a program that played a script on its own HCA, and the HCA's log of its queue
// pair.
type side struct {
	out       []string // its output, without the HCA's numbers
	qpn, peer uint32
	dest, lid uint32 // the QP, DCT or SRQ number in requests, and its LID
	blocks    int    // of the send queue
	mac, ip   string // over RoCE, the ends of the device's addresses
	keys      []uint32

	sends, binds, receives, rings, turns []string
}

func playOn(t *testing.T, program, device string, s *script) *side {
	t.Helper()
	cmd := exec.Command(program, device)
	cmd.Stdin = strings.NewReader(s.String())
	player := rdmatest.StartCmd(t, cmd)
	if !player.OK() {
		t.Error(player)
		return nil
	}
	p := new(side)
	if rdmatest.RoCE {
		p.mac, p.ip = ends(t, device)
	}
	for line := range strings.Lines(player.Stdout()) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, " ")
		n, _ := strconv.ParseUint(value, 16, 32)
		switch name {
		case "key":
			p.keys = append(p.keys, uint32(n))
		case "dest":
			p.dest = uint32(n)
		case "blocks":
			p.blocks = int(n)
		case "lid":
			p.lid = uint32(n)
		case "qpn":
			p.qpn = uint32(n)
		case "peer":
			p.peer = uint32(n)
		default:
			if strings.Contains(line, " status ") && !strings.HasSuffix(line, " status 0") {
				t.Errorf("%q: %s", cmd.Args, line)
			}
			p.out = append(p.out, line)
		}
	}
	return p
}

// ends returns the last two bytes of a port's Ethernet address and the last four bytes of
// its GID, which are an IPv4 address.
func ends(t *testing.T, device string) (mac, ip string) {
	i := rdmatest.Must(net.InterfaceByName(rdmatest.NetDev(device)))(t)
	gid := rdmatest.Must(os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/gids/1"))(t)
	groups := strings.Split(strings.TrimSpace(string(gid)), ":")
	return fmt.Sprintf("%x", []byte(i.HardwareAddr[4:])), groups[6] + groups[7]
}

// collect collects the log's lines about the side's queue pairs.
func (p *side) collect(t *testing.T, typ verbs.QPType, hca int, lines []logLine) {
	t.Helper()
	var ring []byte // the current doorbell's bytes so far; nil if it is another queue pair's
	var last uint64 // the last used buffer of the register
	end := func() {
		if p.cut(ring) {
			ring = ring[:8] // for such a WQE, this library rings the doorbell without a copy
		}
		if len(ring) > 8 {
			p.rings = append(p.rings, p.wqe(typ, ring))
		} else if ring != nil {
			w := words(ring)
			p.own(&w[1])
			p.rings = append(p.rings, fmt.Sprint(w))
		}
		ring = nil
	}
	for _, l := range lines {
		if l.HCA != hca {
			continue
		}
		b := rdmatest.Must(hex.DecodeString(l.Bytes))(t)
		switch l.Event {
		case "send":
			switch l.QPN {
			case p.qpn:
				p.sends = append(p.sends, fmt.Sprintf("%d: %s", l.Index, p.wqe(typ, b)))
			case p.peer:
				p.binds = append(p.binds, fmt.Sprintf("%d: %s", l.Index, p.wqe(typ, b)))
			}
		case "receive":
			if l.QPN == p.peer {
				p.receives = append(p.receives, p.receive(l.SRQN != 0, b))
			}
		case "doorbell":
			if l.Address%pageSize < blueFlame {
				continue // CQs and event queues are armed there
			}
			offset := int(l.Address % bufferSize)
			if offset == 0 {
				end()
				if len(b) >= 8 && binary.BigEndian.Uint32(b[4:])>>8 == p.qpn {
					ring = []byte{}
					p.turns = append(p.turns, fmt.Sprintf("other buffer %t", last != 0 && last != l.Address))
					last = l.Address
				}
			}
			if ring == nil {
				continue
			}
			if offset != len(ring) {
				t.Errorf("HCA %d: a WQE is copied to a register from byte %d to byte %d", hca, len(ring), offset)
			}
			ring = append(ring, b...)
		}
	}
	end()
}

// cut reports whether a WQE wraps at the ring's end.
func (p *side) cut(wqe []byte) bool {
	if len(wqe) < 8 {
		return false
	}
	at, blocks := int(binary.BigEndian.Uint16(wqe[1:]))&(p.blocks-1), (int(wqe[7]&0x3f)+3)/4
	return at+blocks > p.blocks
}

const pageSize = 4096

// words returns the words of a WQE. Names will replace an HCA's own numbers in them.
func words(b []byte) (w []string) {
	for ; len(b) >= 4; b = b[4:] {
		w = append(w, fmt.Sprintf("%08x", binary.BigEndian.Uint32(b)))
	}
	return w
}

// key replaces a memory key with a name. The kernel increments its lowest byte.
func (p *side) key(w *string) {
	for i, n := range p.keys {
		if (*w)[:6] == fmt.Sprintf("%06x", n>>8) {
			*w = fmt.Sprintf("<key %d>", i)
			return
		}
	}
}

// own replaces the queue pair's number, above another byte, with a name.
func (p *side) own(w *string) { name(w, fmt.Sprintf("%06x", p.qpn), "<QP>") }

func name(w *string, number, as string) {
	if i := strings.Index(*w, number); i >= 0 {
		*w = (*w)[:i] + as + (*w)[i+len(number):]
	}
}

// data replaces the keys in a scatter list with names, or formats inline data without the
// unused rest of the last segment, which both leave unwritten.
func (p *side) data(b []byte) []string {
	if len(b) >= 4 && b[0]&0x80 != 0 {
		n := int(binary.BigEndian.Uint32(b) & 0x7fffffff)
		return []string{fmt.Sprintf("%x", b[:min(len(b), 4+n)])}
	}
	w := words(b)
	for i := 1; i < len(w); i += 4 {
		p.key(&w[i])
	}
	return w
}

// wqe formats a WQE of the queue pair or its peer.
func (p *side) wqe(typ verbs.QPType, b []byte) string {
	const segment = 16
	if len(b) < segment {
		return fmt.Sprintf("%x", b)
	}
	n := int(b[7]&0x3f) * segment
	if n > len(b) || n < segment {
		return fmt.Sprintf("%d bytes of %x", n, b)
	}
	opcode := b[3]
	const (
		sendInv, write, writeImm, read   = 0x01, 0x08, 0x09, 0x10
		swap, add, maskedSwap, maskedAdd = 0x11, 0x12, 0x14, 0x15
		umr, nop                         = 0x25, 0
	)
	w, rest := words(b[:segment]), b[segment:n]
	p.own(&w[1])
	name(&w[1], fmt.Sprintf("%06x", p.peer), "<peer>")
	if opcode == umr || opcode == sendInv {
		p.key(&w[3])
	}
	take := func(segments int) []string {
		x := words(rest[:segments*segment])
		rest = rest[segments*segment:]
		w = append(w, x...)
		return w[len(w)-len(x):]
	}
	switch {
	case opcode == umr || opcode == nop: // they send nothing
	case typ == verbs.UD || typ == verbs.DCI:
		av := take(3)
		name(&av[2], fmt.Sprintf("80%06x", p.dest), "<dest>")
		if p.mac != "" {
			name(&av[6], p.mac, "<MAC>")
			name(&av[11], p.ip, "<IP>")
		} else {
			name(&av[3], fmt.Sprintf("%04x", p.lid), "<LID>")
		}
	case typ == verbs.XRCSend:
		name(&take(1)[0], fmt.Sprintf("%08x", p.dest), "<dest>")
	}
	switch opcode {
	case umr:
		take(3)
		mkey := take(4)
		mkey[1] = mkey[1][:6] // without the key's lowest byte
		p.own(&mkey[1])
		name(&mkey[1], fmt.Sprintf("%06x", p.peer), "<peer>")
	case write, writeImm, read, swap, add, maskedSwap, maskedAdd:
		p.key(&take(1)[2])
	}
	switch opcode {
	case swap, add, maskedAdd:
		take(1)
	case maskedSwap:
		take(2)
	}
	return fmt.Sprint(append(w, p.data(rest)...))
}

// receive formats a receive WQE up to the end of its list. The driver chooses its place in
// an SRQ, and thereby the link in its header, so these are omitted.
func (p *side) receive(shared bool, b []byte) string {
	const segment, end = 16, 0x100
	if shared {
		b = b[segment:]
	}
	for at := 0; at+segment <= len(b); at += segment {
		if binary.BigEndian.Uint64(b[at:]) == end {
			b = b[:at+segment]
		}
	}
	return fmt.Sprint(p.data(b))
}

// onDevice creates a script of requests that succeed on a device: each kind alone, then
// random lists, many times around the rings.
func onDevice(m *maker, c config) *script {
	s := newScript(c)
	bound := false // whether the first window is bound
	list := func(sends ...send) {
		signaled, recvs := 0, 0
		for i := range sends {
			w := &sends[i]
			if i == len(sends)-1 {
				w.flags |= verbs.SendSignaled
			}
			if w.flags&verbs.SendSignaled != 0 {
				signaled++
			}
			switch w.op {
			case verbs.OpSendInv:
				s.add("bindpeer", w.mw)
				fallthrough
			case verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWriteImm:
				recvs++
				s.recv(m.Uint64(), m.receives())
			case verbs.OpBindMW, verbs.OpLocalInv:
				bound = !bound
			}
		}
		if recvs > 0 {
			s.add("postrecv")
		}
		for _, w := range sends {
			s.send(w)
		}
		s.post(c)
		s.add("poll", signaled)
		if recvs > 0 {
			s.add("pollpeer", recvs)
		}
	}
	possible := slices.DeleteFunc(slices.Clone(ops[c.typ]), func(op verbs.Opcode) bool {
		// Here, only RC peers bind windows.
		return op == verbs.OpSendInv && c.typ != verbs.RC
	})
	if c.noVerb {
		possible = []verbs.Opcode{verbs.OpMaskedCompareSwap, verbs.OpMaskedFetchAdd, verbs.OpNop}
	}
	rounds := 1
	if c.noVerb {
		rounds = 10 // one round has all of their forms
	}
	for range rounds {
		for _, op := range possible {
			if op != verbs.OpBindMW && op != verbs.OpLocalInv {
				m.every(op, func(w send) { list(w) })
			}
		}
	}
	if c.noVerb {
		return s // libmlx5 posts raw WQEs one by one
	}
	for range 60 {
		var sends []send
		windows := 0
		for range 1 + m.IntN(min(4, c.sends)) {
			w := m.any()
			for w.op == verbs.OpBindMW && (bound || windows > 0) || w.op == verbs.OpLocalInv && (!bound || windows > 0) ||
				w.op == verbs.OpSendInv && windows > 0 || !slices.Contains(possible, w.op) {
				w = m.any()
			}
			if w.op == verbs.OpBindMW || w.op == verbs.OpLocalInv || w.op == verbs.OpSendInv {
				windows++
			}
			sends = append(sends, w)
		}
		list(sends...)
	}
	return s
}

// receives creates a scatter list for any message of a script.
func (m *maker) receives() (sges []verbs.SGE) {
	const longest = 4 << 10
	n := 1 + m.IntN(m.recvSGEs)
	for range n {
		sges = append(sges, verbs.SGE{Addr: dataAddr + receiveAt + m.Uint64N(4<<10), Length: uint32(longest/n + 1)})
	}
	return sges
}

var _ = rdmatest.Test(TestOnHCA, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Log)

// TestOnHCA plays with libmlx5 on the rig's first HCA and with this library on the second,
// and compares the HCAs' logs: each WQE's bytes, and each write to a register.
func TestOnHCA(t *testing.T) {
	log := &logFile{path: filepath.Join(os.Getenv("VM_OUT"), "hca.jsonl")}
	base := config{sends: 16, recvs: 16, sendSGEs: 4, recvSGEs: 3, inline: 28, onDevice: true}
	var configs []config
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.XRCSend, verbs.DCI} {
		for _, built := range []bool{false, true} {
			c := base
			c.typ, c.built = typ, built
			configs = append(configs, c)
		}
	}
	shared, masked := base, base
	shared.typ, shared.withSRQ = verbs.RC, true
	masked.typ, masked.built, masked.noVerb = verbs.RC, true, true
	for i, c := range append(configs, shared, masked) {
		name := c.String()
		if c.noVerb {
			name += ", no verb"
		}
		t.Run(name, func(t *testing.T) {
			script := onDevice(random(uint64(i), c), c)
			var sides [2]*side
			done := make(chan int)
			for hca, program := range []string{theirs(t), ours(t)} {
				go func() {
					sides[hca] = playOn(t, program, fmt.Sprintf("mlx5_%d", hca), script)
					done <- hca
				}()
			}
			<-done
			<-done
			if t.Failed() {
				t.FailNow()
			}
			lines := log.until(t, sides)
			sides[1].blocks = sides[0].blocks // only libmlx5's side prints it
			for hca, p := range sides {
				p.collect(t, c.typ, hca, lines)
			}
			c, g := sides[0], sides[1]
			for _, what := range []struct {
				name string
				c, g []string
			}{
				{"output", c.out, g.out}, {"WQEs", c.sends, g.sends}, {"the peer's WQEs", c.binds, g.binds},
				{"receives", c.receives, g.receives}, {"doorbells", c.rings, g.rings}, {"turns of the register's buffers", c.turns, g.turns},
			} {
				same(t, what.name, what.c, what.g)
			}
			if len(c.sends) < 100 || len(c.rings) < 100 {
				t.Errorf("only %d WQEs and %d doorbells were logged", len(c.sends), len(c.rings))
			}
			t.Logf("%d WQEs, %d of the peer, %d receives, %d doorbells", len(c.sends), len(c.binds), len(c.receives), len(c.rings))
		})
	}
}

func same(t *testing.T, what string, c, g []string) {
	t.Helper()
	if len(c) != len(g) {
		t.Errorf("%s: %d of libmlx5, %d of this library", what, len(c), len(g))
	}
	bad := 0
	for i := range min(len(c), len(g)) {
		if c[i] != g[i] {
			if bad++; bad <= 3 {
				t.Errorf("%s, the %d-th:\nlibmlx5      %s\nthis library %s", what, i, c[i], g[i])
			}
		}
	}
	if bad > 3 {
		t.Errorf("%s: %d differ", what, bad)
	}
}
