// Package mlx5bytes compares, byte for byte, the work queue elements, doorbell records and
// register writes of this library and of libmlx5 for an mlx5 device. It also compares the
// completions that both report. Both play the same scripts on the device of tests/fakemlx5,
// which needs neither a VM nor root:
//
//	go test ./tests/mlx5bytes
//
// In the rig, they play on its adapters instead, and the adapters' logs are compared.
//
// Package provider/mlx5 lists the intended differences.
package mlx5bytes

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnHost) }

// theirs and ours return the programs that play.
func theirs(t *testing.T) string { return rdmatest.CProgram(t, "c/play.c") }
func ours(t *testing.T) string   { return rdmatest.Program(t, "play") }

// dependencies tells go test which other files the result depends on, so that it doesn't
// use a cached result. It must be called in a test, because go test records only these.
func dependencies(t *testing.T) {
	t.Helper()
	for _, sources := range []string{"../../verbs", "../../provider", "../../ioctl", "../../uapi", "../../internal", "../fakemlx5", "c", "play"} {
		err := filepath.WalkDir(sources, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// play runs a program on a script and returns its output.
func play(t *testing.T, program string, poison byte, s *script) []step {
	t.Helper()
	cmd := exec.Command(rdmatest.Program(t, "fakemlx5"), append(s.device, program, fmt.Sprintf("%x", poison))...)
	cmd.Stdin = strings.NewReader(s.String())
	cmd.Env = append(os.Environ(), s.env...)
	return parse(t, rdmatest.StartCmd(t, cmd).Succeeds(t))
}

// A step is a command and its output: lines with bytes, by their names, and others.
type step struct {
	command string
	text    []string
	order   []string
	bytes   map[string][]byte // such as "sq 3", "register 8"
	buffer  int               // of the BlueFlame register, 0 for none
}

func parse(t *testing.T, out string) []step {
	t.Helper()
	steps := []step{{bytes: map[string][]byte{}}}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "> "); ok {
			steps = append(steps, step{command: command, bytes: map[string][]byte{}})
			continue
		}
		s := &steps[len(steps)-1]
		f := strings.Fields(line)
		switch f[0] {
		case "sq", "rq", "register":
			b, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			what := f[0] + " " + f[1]
			if f[0] == "register" {
				off, err := strconv.ParseUint(f[1], 16, 16)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if off >= blueFlame {
					s.buffer = int(off/bufferSize)%2 + 1
					what = fmt.Sprintf("register %x", off%bufferSize)
				}
			}
			s.order = append(s.order, what)
			s.bytes[what] = b
		default:
			s.text = append(s.text, line)
		}
	}
	return steps
}

// The offsets of BlueFlame registers in a page. Each register has two buffers, which are
// used alternately. A driver may choose any register, and begin with either buffer.
const (
	blueFlame  = 0x800
	bufferSize = 0x100
)

const (
	poisonA = 0xa5
	poisonB = 0x5a
)

// written returns the bytes that a program wrote, and which ones it left unwritten. Those
// differ between two runs with different poisons.
func written(a, b []byte) (value []byte, left []bool) {
	value, left = a, make([]bool, len(a))
	for i := range a {
		left[i] = b == nil || a[i] == poisonA && b[i] == poisonB
	}
	return value, left
}

// compare plays a script with both and fails the test where they differ. This library may
// only clear what libmlx5 leaves unwritten: the rest of a block after a WQE, the padding of
// inline data, the compare field of a fetch and add. For a WQE that wraps at the ring's
// end, this library rings the doorbell without a copy.
func compare(t *testing.T, s *script) {
	t.Helper()
	dependencies(t)
	cA, cB := play(t, theirs(t), poisonA, s), play(t, theirs(t), poisonB, s)
	gA, gB := play(t, ours(t), poisonA, s), play(t, ours(t), poisonB, s)
	if len(cA) != len(gA) {
		t.Fatalf("libmlx5 played %d steps, this library %d", len(cA), len(gA))
	}
	bad, cleared := 0, 0
	var turns [2]int
	for i := range cA {
		report := func(format string, args ...any) {
			if bad++; bad < 10 {
				t.Errorf("after %q: %s", cA[i].command, fmt.Sprintf(format, args...))
			}
		}
		if strings.HasPrefix(cA[i].command, "qp ") {
			turns = [2]int{}
		}
		if c, g := turn(&turns[0], cA[i].buffer), turn(&turns[1], gA[i].buffer); c != g {
			report("the register's other buffer: libmlx5 %t, this library %t", c, g)
		}
		if c, g := strings.Join(cA[i].text, "\n"), strings.Join(gA[i].text, "\n"); c != g {
			report("libmlx5:\n%s\nthis library:\n%s", c, g)
		}
		if cA[i].cut() {
			cA[i].ringAlone()
			cB[i].ringAlone()
		}
		for _, what := range union(cA[i].order, gA[i].order) {
			// A register word that isn't reported was not written.
			c, cLeft := orLeft(cA[i].bytes[what], cB[i].bytes[what])
			g, gLeft := orLeft(gA[i].bytes[what], gB[i].bytes[what])
			if c == nil {
				c, cLeft = make([]byte, len(g)), all(len(g))
			}
			if g == nil {
				g, gLeft = make([]byte, len(c)), all(len(c))
			}
			for j := range c {
				switch {
				case cLeft[j] && (gLeft[j] || g[j] == 0):
					if !gLeft[j] {
						cleared++
					}
					continue
				case !cLeft[j] && !gLeft[j] && c[j] == g[j]:
					continue
				}
				report("%s, byte %d:\nlibmlx5      %s\nthis library %s", what, j, show(c, cLeft), show(g, gLeft))
				break
			}
		}
	}
	if bad >= 10 {
		t.Errorf("and %d more", bad-9)
	}
	t.Logf("%d steps, %d bytes cleared that libmlx5 leaves as they were", len(cA), cleared)
}

// cut reports whether a single request was posted that wraps at the ring's end.
func (s *step) cut() bool {
	last := -1
	for _, what := range s.order {
		var at int
		if n, _ := fmt.Sscanf(what, "sq %x", &at); n == 0 {
			continue
		}
		if at < last {
			return s.text[0] == "posted 1"
		}
		last = at
	}
	return false
}

// ringAlone reduces a WQE that was copied to the register to its doorbell.
func (s *step) ringAlone() {
	copied := func(what string) bool { return strings.HasPrefix(what, "register ") && what != "register 0" }
	s.order = slices.DeleteFunc(s.order, copied)
	maps.DeleteFunc(s.bytes, func(what string, _ []byte) bool { return copied(what) })
}

// turn reports whether a different buffer than the last one is used.
func turn(last *int, buffer int) bool {
	if buffer == 0 {
		return false
	}
	other := *last != 0 && *last != buffer
	*last = buffer
	return other
}

func orLeft(a, b []byte) ([]byte, []bool) {
	if a == nil {
		return nil, nil
	}
	return written(a, b)
}

func all(n int) []bool {
	b := make([]bool, n)
	for i := range b {
		b[i] = true
	}
	return b
}

func show(b []byte, left []bool) string {
	var s strings.Builder
	for i := range b {
		if i > 0 && i%4 == 0 {
			s.WriteByte(' ')
		}
		if left[i] {
			s.WriteString("..")
		} else {
			fmt.Fprintf(&s, "%02x", b[i])
		}
	}
	return s.String()
}

func union(a, b []string) []string {
	seen := map[string]bool{}
	var u []string
	for _, s := range append(a[:len(a):len(a)], b...) {
		if !seen[s] {
			seen[s] = true
			u = append(u, s)
		}
	}
	return u
}

func random(seed uint64, c config) *maker {
	return &maker{Rand: rand.New(rand.NewPCG(seed, 77)), config: c}
}

var flagSets = []verbs.SendFlags{
	0, verbs.SendSignaled, verbs.SendSignaled | verbs.SendSolicited, verbs.SendSignaled | verbs.SendFence,
	verbs.SendSignaled | verbs.SendFence | verbs.SendSolicited,
}

// every creates requests of an operation with all numbers of SGEs and lengths of inline
// data, up to the maximum.
func (m *maker) every(op verbs.Opcode, one func(send)) {
	for _, flags := range flagSets {
		switch {
		case isAtomic(op):
			one(m.atomic(m.send(op, flags)))
		case takesData(op):
			for n := range m.sendSGEs + 1 {
				if m.typ == verbs.RawPacket && (n == 0 || flags&verbs.SendFence != 0) {
					continue // no packet, so nothing to wait for
				}
				one(m.scattered(m.send(op, flags), n))
			}
		default:
			one(m.send(op, flags))
		}
	}
	if takesInline(op) && m.typ != verbs.RawPacket {
		for n := range m.inline + 1 {
			one(m.inlined(m.send(op, verbs.SendSignaled), n))
		}
	}
}

// TestEveryRequest posts every operation with all numbers of SGEs and lengths of inline
// data, one at a time: with ibv_post_send and ibv_wr_*, with PostSend and a SendBuilder. Each
// operation has a QP of its own.
func TestEveryRequest(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.XRCSend, verbs.DCI, verbs.RawPacket} {
		c := config{typ: typ, sends: 64, recvs: 1, sendSGEs: 8, recvSGEs: 1, inline: 200}
		switch typ {
		case verbs.XRCSend, verbs.DCI:
			c.recvs, c.recvSGEs = 0, 0
		case verbs.RawPacket:
			c.tsoHeader = 70
		}
		for name, built := range map[string]bool{"post": false, "build": true} {
			c.built = built
			t.Run(fmt.Sprintf("%v/%s", typ, name), func(t *testing.T) {
				s := newScript(c)
				for _, op := range ops[typ] {
					if op == verbs.OpTSO && !built {
						continue // ibv_post_send requires an Ethernet port: see TestRawPackets
					}
					s.queues(c)
					m := random(1, c)
					m.every(op, func(w send) {
						s.send(w)
						s.post(c)
						s.finish(1)
					})
				}
				compare(t, s)
			})
		}
	}
}

// TestNoVerb posts operations for which libmlx5 has no verb, and compares them with WQEs
// that C builds from mlx5dv.h's structs. libmlx5 reports the completions of such raw WQEs
// with an opcode of its own, so they are only counted.
func TestNoVerb(t *testing.T) {
	masked := []verbs.Opcode{verbs.OpMaskedCompareSwap, verbs.OpMaskedFetchAdd, verbs.OpNop}
	for typ, ops := range map[verbs.QPType][]verbs.Opcode{
		verbs.RC: masked,
		verbs.UC: masked[2:], verbs.UD: masked[2:], verbs.XRCSend: masked[2:], verbs.DCI: masked[2:], verbs.RawPacket: masked[2:],
	} {
		t.Run(typ.String(), func(t *testing.T) {
			c := config{typ: typ, sends: 16, recvs: 1, sendSGEs: 2, recvSGEs: 1, inline: 100, built: true, noVerb: true}
			m, s := random(11, c), newScript(c)
			for range 20 {
				for _, op := range ops {
					m.every(op, func(w send) {
						s.send(w)
						s.post(c)
						s.add("complete", 0)
						s.add("drain", 2)
					})
				}
			}
			compare(t, s)
		})
	}
}

// TestRings goes around queues of many sizes with lists of random requests, so that each
// kind meets the ring's end at every position.
func TestRings(t *testing.T) {
	for i, c := range []config{
		{typ: verbs.RC, sends: 1, recvs: 1, sendSGEs: 1, recvSGEs: 1},
		{typ: verbs.RC, sends: 2, recvs: 1, sendSGEs: 1, recvSGEs: 1, inline: 32},
		{typ: verbs.RC, sends: 4, recvs: 1, sendSGEs: 3, recvSGEs: 1, inline: 100},
		{typ: verbs.RC, sends: 16, recvs: 1, sendSGEs: 4, recvSGEs: 1, inline: 64},
		{typ: verbs.RC, sends: 16, recvs: 1, sendSGEs: 16, recvSGEs: 1, inline: 400, signalAll: true},
		{typ: verbs.RC, sends: 50, recvs: 1, sendSGEs: 2, recvSGEs: 1, inline: 12},
		{typ: verbs.RC, sends: 4, recvs: 1, sendSGEs: 30, recvSGEs: 1, inline: 828}, // the maximum
		{typ: verbs.UD, sends: 4, recvs: 1, sendSGEs: 30, recvSGEs: 1, inline: 892},
		{typ: verbs.UC, sends: 16, recvs: 1, sendSGEs: 5, recvSGEs: 1, inline: 128},
		{typ: verbs.UD, sends: 1, recvs: 1, sendSGEs: 1, recvSGEs: 1},
		{typ: verbs.UD, sends: 16, recvs: 1, sendSGEs: 6, recvSGEs: 1, inline: 300},
		{typ: verbs.XRCSend, sends: 16, sendSGEs: 4, inline: 100},
		{typ: verbs.DCI, sends: 16, sendSGEs: 4, inline: 100},
		{typ: verbs.RC, sends: 4, recvs: 1, sendSGEs: 3, recvSGEs: 1, inline: 100, built: true},
		{typ: verbs.RC, sends: 16, recvs: 1, sendSGEs: 4, recvSGEs: 1, inline: 64, built: true},
		{typ: verbs.UC, sends: 16, recvs: 1, sendSGEs: 5, recvSGEs: 1, inline: 128, built: true},
		{typ: verbs.UD, sends: 16, recvs: 1, sendSGEs: 6, recvSGEs: 1, inline: 300, built: true},
		{typ: verbs.XRCSend, sends: 16, sendSGEs: 4, inline: 100, built: true},
		{typ: verbs.DCI, sends: 16, sendSGEs: 4, inline: 100, built: true},
	} {
		t.Run(c.String(), func(t *testing.T) {
			m, s := random(uint64(i), c), newScript(c)
			for range 600 {
				n := 1 + m.IntN(min(4, c.sends))
				binds := false // a second one in a list would need the key that the first one creates
				for i := range n {
					w := m.any()
					for binds && w.op == verbs.OpBindMW {
						w = m.any()
					}
					binds = binds || w.op == verbs.OpBindMW
					if c.built && i == n-1 {
						// libmlx5's builder posts nothing of a list that doesn't fit.
						w.flags |= verbs.SendSignaled
					}
					s.send(w)
				}
				s.post(c)
				s.finish(n)
			}
			compare(t, s)
		})
	}
}

// TestStaticRegisters doesn't use the registers on demand of Linux 5.7: the kernel
// allocates a set with the context, and assigns one of them to each QP.
func TestStaticRegisters(t *testing.T) {
	c := config{typ: verbs.RC, sends: 16, recvs: 1, sendSGEs: 4, recvSGEs: 1, inline: 64}
	m, s := random(3, c), newScript(c)
	s.device = []string{"-static-uars"}
	for range 20 { // QPs, which use up the registers
		for range 10 {
			s.send(m.any())
			s.add("post")
			s.finish(1)
		}
		s.queues(c)
	}
	compare(t, s)
}

// TestManyUARs uses pages of 16 UARs with consecutive numbers, as on a system with pages of
// 64 KiB: its kernel's MLX5_UARS_IN_PAGE is 16. Each QP has more than one page's registers
// behind it, and rings that of the UAR that it was created with.
func TestManyUARs(t *testing.T) {
	c := config{typ: verbs.RC, sends: 16, recvs: 1, sendSGEs: 4, recvSGEs: 1, inline: 64}
	for name, device := range map[string][]string{
		"16":                   {"-uars-per-page", "16"},
		"16 without BlueFlame": {"-uars-per-page", "16", "-bf-reg-size", "0"},
		"4":                    {"-uars-per-page", "4"},
		"1":                    nil,
	} {
		t.Run(name, func(t *testing.T) {
			m, s := random(3, c), newScript(c)
			s.device = device
			for range 70 { // QPs: two pages of 16 UARs have 64 registers
				for range 3 {
					s.send(m.any())
					s.add("post")
					s.finish(1)
				}
				s.queues(c)
			}
			compare(t, s)
			rang := 0
			for _, step := range play(t, ours(t), poisonA, s) {
				for what := range step.bytes {
					if strings.HasPrefix(what, "register ") {
						rang++
					}
				}
				for _, line := range step.text {
					if strings.HasPrefix(line, "stray ") {
						t.Fatalf("after %q: wrote to another's UAR: %s", step.command, line)
					}
				}
			}
			if rang < 3*70 {
				t.Errorf("rang %d times", rang)
			}
		})
	}
}

// TestWithoutBlueFlame rings doorbells without copies: because the device has no BlueFlame
// registers, or because of the environment.
func TestWithoutBlueFlame(t *testing.T) {
	c := config{typ: verbs.RC, sends: 16, recvs: 1, sendSGEs: 4, recvSGEs: 1, inline: 64}
	with := func(device, env []string) *script {
		m, s := random(13, c), newScript(c)
		s.device, s.env = device, env
		for range 3 {
			for range 20 {
				s.send(m.any())
				s.add("post")
				s.finish(1)
			}
			s.queues(c)
		}
		return s
	}
	shutUp := []string{"MLX5_SHUT_UP_BF=1"}
	for name, s := range map[string]*script{
		"dynamic":              with([]string{"-bf-reg-size", "0"}, nil),
		"static":               with([]string{"-bf-reg-size", "0", "-static-uars"}, nil),
		"environment":          with(nil, shutUp),
		"register of 256":      with([]string{"-bf-reg-size", "256"}, shutUp),
		"environment says not": with(nil, []string{"MLX5_SHUT_UP_BF=0"}),
	} {
		t.Run(name, func(t *testing.T) { compare(t, s) })
	}
	// libmlx5 writes beyond the page with the first one. With the second one it alternates
	// between two doorbell addresses, which makes no difference.
	for name, s := range map[string]*script{
		"register of half a page": with([]string{"-bf-reg-size", "2048"}, nil),
		"static, environment":     with([]string{"-static-uars"}, shutUp),
	} {
		t.Run(name, func(t *testing.T) {
			rang := 0
			for _, step := range play(t, ours(t), poisonA, s) {
				for _, what := range step.order {
					if what == "register 0" {
						rang++
					} else if strings.HasPrefix(what, "register ") {
						t.Errorf("after %q: wrote %s", step.command, what)
					}
				}
			}
			if rang != 60 {
				t.Errorf("rang %d times, want 60", rang)
			}
		})
	}
}

// TestSigned uses WQEs with signatures. All of them have the same number of blocks, so that
// none wraps: libmlx5 computes a wrong signature for a WQE that wraps, because it reads
// beyond the ring's end.
func TestSigned(t *testing.T) {
	for _, c := range []config{
		{typ: verbs.RC, sends: 16, recvs: 16, sendSGEs: 2, recvSGEs: 3, inline: 28, signed: true}, // one block
		{typ: verbs.UD, sends: 16, recvs: 16, sendSGEs: 4, recvSGEs: 3, inline: 60, signed: true}, // two blocks
	} {
		t.Run(c.typ.String(), func(t *testing.T) {
			m, s := random(4, c), newScript(c)
			s.env = []string{"MLX5_QP_SIGNATURE=1"}
			for range 200 {
				w := m.any()
				for !takesData(w.op) || w.size() == 0 {
					w = m.any()
				}
				s.send(w)
				s.add("post")
				s.recv(m.Uint64(), m.scattered(send{}, m.IntN(c.recvSGEs+1)).sges)
				s.add("postrecv")
				s.add("complete", 64)
				s.add("poll", 3)
			}
			compare(t, s)
		})
	}
}

// TestPostsRefused posts requests that are too long, and more requests than fit.
func TestPostsRefused(t *testing.T) {
	for _, c := range []config{
		{typ: verbs.RC, sends: 8, recvs: 8, sendSGEs: 2, recvSGEs: 2, inline: 40},
		{typ: verbs.UD, sends: 8, recvs: 8, sendSGEs: 2, recvSGEs: 2, inline: 40},
	} {
		t.Run(c.typ.String(), func(t *testing.T) {
			m, s := random(5, c), newScript(c)
			for _, n := range []int{3, 5, 20} {
				s.send(m.scattered(m.send(verbs.OpSend, 0), 1))
				s.send(m.scattered(m.send(verbs.OpSend, 0), n))
				s.send(m.scattered(m.send(verbs.OpSend, 0), 1))
				s.add("post")
			}
			for _, n := range []int{41, 60, 64, 200, 1000} {
				s.send(m.inlined(m.send(verbs.OpSend, verbs.SendSignaled), 1))
				s.send(m.inlined(m.send(verbs.OpSend, 0), n))
				s.add("post")
			}
			for range 60 {
				s.send(m.scattered(m.send(verbs.OpSend, verbs.SendSignaled), 1))
			}
			s.add("post")
			s.finish(60)
			for range 20 {
				s.recv(m.Uint64(), nil)
			}
			s.add("postrecv")
			s.recv(1, m.scattered(send{}, 1).sges)
			s.add("postrecv")
			s.add("complete", 64)
			s.add("poll", 40)
			s.recv(2, m.scattered(send{}, 3).sges)
			s.recv(3, m.scattered(send{}, 5).sges)
			s.add("postrecv")
			compare(t, s)
		})
	}
}

// TestAddressesRefused: a port can require global addresses, but two of a script's
// addresses aren't global.
func TestAddressesRefused(t *testing.T) {
	c := config{typ: verbs.UD, sends: 16, recvs: 1, sendSGEs: 1, recvSGEs: 1}
	m, s := random(14, c), newScript(c)
	s.device = []string{"-grh-required"}
	for range 10 {
		w := m.scattered(m.send(verbs.OpSend, verbs.SendSignaled), 1)
		w.ah = 2
		s.send(w)
		s.post(c)
		s.finish(1)
	}
	compare(t, s)
	refused := 0
	for _, step := range play(t, ours(t), poisonA, s) {
		refused += strings.Count(strings.Join(step.text, "\n"), "refused")
	}
	if refused != 2 {
		t.Errorf("%d addresses were refused, want 2", refused)
	}
}

// wantedHeader is how many bytes of a raw packet the device requires inline in the WQE.
const wantedHeader = 18

// TestRawPackets requests the offloads of raw packets within and beyond the device's
// capabilities: checksums and segmentation.
func TestRawPackets(t *testing.T) {
	for name, device := range map[string][]string{
		"all":                   nil,
		"no header in the WQE":  {"-no-inline-headers"},
		"no checksums":          {"-no-checksums"},
		"nothing to be cut":     {"-max-tso", "0"},
		"little that can be":    {"-max-tso", "1500"},
		"none of it, no header": {"-no-inline-headers", "-no-checksums", "-max-tso", "0"},
	} {
		for _, built := range []bool{false, true} {
			c := config{typ: verbs.RawPacket, sends: 32, recvs: 1, sendSGEs: 4, recvSGEs: 1, inline: 100, built: built, tsoHeader: 70}
			how := "post"
			if built {
				how = "build"
			}
			t.Run(name+"/"+how, func(t *testing.T) {
				m, s := random(15, c), new(script)
				s.device = append([]string{"-ethernet"}, device...)
				s.add("mw")
				s.add("mw")
				s.queues(c)
				one := func(w send) {
					s.add("wipe")
					s.send(w)
					s.post(c)
					s.finish(1)
				}
				for _, flags := range []verbs.SendFlags{verbs.SendSignaled, verbs.SendSignaled | verbs.SendIPChecksum} {
					for range 3 {
						for n := range c.sendSGEs + 1 {
							if n > 0 || !built { // libmlx5's builder accepts what its post refuses
								one(m.scattered(m.send(verbs.OpSend, flags), n))
							}
						}
						for n := 1; n <= c.inline; n++ {
							if n == wantedHeader && built {
								continue // libmlx5's builder also uses the old header as data
							}
							one(m.inlined(m.send(verbs.OpSend, flags), n))
						}
					}
				}
				if built {
					compare(t, s) // the builder doesn't check the length
					return
				}
				s.queues(c) // libmlx5 puts the data in a wrong place if a header wraps at the ring's end
				for range 3 {
					for n := 1; n <= c.sendSGEs; n++ {
						one(m.scattered(m.send(verbs.OpTSO, verbs.SendSignaled), n))
						one(m.scattered(m.send(verbs.OpTSO, verbs.SendSignaled|verbs.SendIPChecksum), n))
					}
				}
				compare(t, s)
			})
		}
	}
}

// TestAtomics posts atomic operations to devices that support none, or not all.
func TestAtomics(t *testing.T) {
	c := config{typ: verbs.RC, sends: 16, recvs: 1, sendSGEs: 1, recvSGEs: 1}
	posted := func(device []string, op verbs.Opcode) (posted string) {
		m, s := random(16, c), newScript(c)
		s.device = device
		s.send(m.atomic(m.send(op, verbs.SendSignaled)))
		s.add("post")
		if op == verbs.OpCompareSwap || op == verbs.OpFetchAdd {
			compare(t, s)
		}
		steps := play(t, ours(t), poisonA, s)
		return steps[len(steps)-1].text[0]
	}
	for _, tt := range []struct {
		device []string
		want   map[verbs.Opcode]string
	}{
		{nil, map[verbs.Opcode]string{
			verbs.OpCompareSwap: "posted 1", verbs.OpFetchAdd: "posted 1", verbs.OpMaskedCompareSwap: "posted 1", verbs.OpMaskedFetchAdd: "posted 1",
		}},
		{[]string{"-atomic-ops", "3"}, map[verbs.Opcode]string{
			verbs.OpCompareSwap: "posted 1", verbs.OpFetchAdd: "posted 1", verbs.OpMaskedCompareSwap: "posted 0", verbs.OpMaskedFetchAdd: "posted 0",
		}},
		{[]string{"-atomic-ops", "7"}, map[verbs.Opcode]string{
			verbs.OpCompareSwap: "posted 1", verbs.OpFetchAdd: "posted 1", verbs.OpMaskedCompareSwap: "posted 1", verbs.OpMaskedFetchAdd: "posted 0",
		}},
		{[]string{"-no-atomics"}, map[verbs.Opcode]string{
			verbs.OpCompareSwap: "posted 0", verbs.OpFetchAdd: "posted 0", verbs.OpMaskedCompareSwap: "posted 0", verbs.OpMaskedFetchAdd: "posted 0",
		}},
	} {
		for op, want := range tt.want {
			if got := posted(tt.device, op); got != want {
				t.Errorf("%v, %v: %s, want %s", tt.device, op, got, want)
			}
		}
	}
}

// TestLimits requests larger and larger queues until both refuse. Only this library refuses
// WQEs with more segments than the control segment can express (63). For UD and raw packet
// queues, libmlx5 grants a few bytes more.
func TestLimits(t *testing.T) {
	const maxSegments = 63
	for typ, front := range map[verbs.QPType]int{ // the minimum of segments before the data
		verbs.RC: 1, verbs.UC: 1, verbs.UD: 4, verbs.XRCSend: 2, verbs.DCI: 4, verbs.RawPacket: 3,
	} {
		t.Run(typ.String(), func(t *testing.T) {
			base := config{typ: typ, sends: 1, recvs: 1, sendSGEs: 1, recvSGEs: 1}
			s := newScript(base)
			var asked []config
			ask := func(c config) {
				asked = append(asked, c)
				s.describe("try", c)
			}
			for n := range 1100 {
				c := base
				c.inline = n
				ask(c)
			}
			for n := 1; n <= 65; n++ { // here 0 stands for 1
				c := base
				c.sendSGEs = n
				ask(c)
				c.inline = 100
				ask(c)
				c = base
				c.recvSGEs = n
				ask(c)
				for typ == verbs.RawPacket && c.tsoHeader < 300 {
					c.tsoHeader += 15
					c.sendSGEs, c.recvSGEs = n, 1
					ask(c)
				}
			}
			for _, n := range []int{0, 1, 2, 3, 100, 1 << 12, 1<<12 + 1, 1 << 13, 1<<13 + 1, 1 << 14, 1<<14 + 1, 1 << 15, 1<<15 + 1} {
				c := base
				c.sends = n
				ask(c)
				c = base
				c.recvs = n
				ask(c)
			}
			dependencies(t)
			theirs, ours := play(t, theirs(t), poisonA, s), play(t, ours(t), poisonA, s)
			theirs, ours = theirs[len(theirs)-len(asked):], ours[len(ours)-len(asked):]
			refused, less, bad := 0, 0, 0
			for i, c := range asked {
				want, got := theirs[i].text[0], ours[i].text[0]
				maxInline := (maxSegments-front)*16 - 4
				var caps [5]int
				if _, err := fmt.Sscanf(want, "cap %x %x %x %x %x", &caps[0], &caps[1], &caps[2], &caps[3], &caps[4]); err != nil {
					refused++
				} else if front+c.sendSGEs+(c.tsoHeader+15)/16 > maxSegments || c.inline > maxInline {
					want = "refused"
					less++
				} else if caps[4] > maxInline {
					want = fmt.Sprintf("cap %x %x %x %x %x", caps[0], caps[1], caps[2], caps[3], maxInline)
					less++
				}
				if got != want && bad < 10 {
					bad++
					t.Errorf("%v, TSO headers of %d: %s, libmlx5 %s, want %s", c, c.tsoHeader, got, theirs[i].text[0], want)
				}
			}
			if refused == 0 || less > 0 && typ != verbs.UD && typ != verbs.RawPacket {
				t.Errorf("libmlx5 refused %d, and this library %d more", refused, less)
			}
			t.Logf("%d asked, %d refused by libmlx5, %d times less granted", len(asked), refused, less)
		})
	}
}

// TestTimed: CreateCQ informs the kernel which clock a CQ with timestamps uses.
func TestTimed(t *testing.T) {
	s := new(script)
	s.add("cq", 0)
	s.add("cq", 1)
	compare(t, s)
	if steps := play(t, ours(t), poisonA, s); steps[1].text[0] != "flags 0" || steps[2].text[0] != "flags 1" {
		t.Errorf("%q and %q", steps[1].text, steps[2].text)
	}
}

// TestArm arms a CQ, with another consumer index each time.
func TestArm(t *testing.T) {
	c := config{typ: verbs.RC, sends: 64, recvs: 64, sendSGEs: 1, recvSGEs: 1}
	m, s := random(4, c), newScript(c)
	for i := range 5 {
		s.add("arm", i%2)
		s.add("arm", 0)
		for range 60 {
			s.send(m.scattered(m.send(verbs.OpSend, verbs.SendSignaled), 1))
		}
		s.post(c)
		s.finish(60)
	}
	compare(t, s)
}

// TestReceives goes around receive queues of QPs and SRQs.
func TestReceives(t *testing.T) {
	for i, c := range []config{
		{recvs: 1, recvSGEs: 1}, {recvs: 2, recvSGEs: 1}, {recvs: 16, recvSGEs: 3}, {recvs: 60, recvSGEs: 16},
	} {
		c.typ, c.sends, c.sendSGEs = verbs.RC, 1, 1
		t.Run(c.String(), func(t *testing.T) {
			m, s := random(uint64(i), c), newScript(c)
			for range 200 {
				n := 1 + m.IntN(min(5, c.recvs))
				for range n {
					s.recv(m.Uint64(), m.scattered(send{}, m.IntN(c.recvSGEs+1)).sges)
				}
				s.add("postrecv")
				s.add("complete", m.Uint32())
				s.add("poll", n+1)
			}
			compare(t, s)
		})
		c.withSRQ = true
		t.Run(c.String(), func(t *testing.T) {
			m, s := random(uint64(i), c), newScript(c)
			for range 40 {
				s.recv(m.Uint64(), m.scattered(send{}, m.IntN(c.recvSGEs+1)).sges)
				s.add("postrecv")
			}
			compare(t, s)
		})
	}
}

// TestCounters posts so many requests that each 16-bit counter wraps. The upper bits of a
// doorbell record stay 0.
func TestCounters(t *testing.T) {
	for i, shared := range []bool{false, true, false, true} {
		version := i / 2 // of completion queue entries
		c := config{typ: verbs.RC, sends: 16, recvs: 16, sendSGEs: 1, recvSGEs: 1, withSRQ: shared}
		t.Run(fmt.Sprintf("%v, version %d", c, version), func(t *testing.T) {
			m, s := random(12, c), newScript(c)
			s.device = []string{"-cqe-version", strconv.Itoa(version)}
			s.send(m.scattered(m.send(verbs.OpSend, verbs.SendSignaled), 1))
			s.recv(m.Uint64(), m.scattered(send{}, 1).sges)
			s.add("around", 70_000)
			compare(t, s)
		})
	}
}

// cqe returns a completion queue entry as a device writes it, with the offsets of struct
// mlx5_cqe64.
func cqe(m *maker, op byte) [64]byte {
	var e [64]byte
	for i := range e {
		e[i] = byte(m.Uint32())
	}
	copy(e[32:36], []byte{0xff, 0xff, 0xff, 0xff})
	copy(e[57:60], []byte{0xff, 0xff, 0xff})
	e[60], e[61] = 0, 0
	e[63] = op << 4
	return e
}

func (s *script) cqe(e [64]byte) {
	numbers := make([]any, len(e))
	for i := range e {
		numbers[i] = e[i]
	}
	s.add("cqe", numbers...)
}

// TestCompletions makes both read the same entries: random entries of each kind, and errors
// with each syndrome.
func TestCompletions(t *testing.T) {
	for _, tt := range []struct {
		typ     verbs.QPType
		version int
	}{{verbs.RC, 0}, {verbs.RC, 1}, {verbs.UD, 0}, {verbs.UD, 1}} {
		c := config{typ: tt.typ, sends: 16, recvs: 16, sendSGEs: 1, recvSGEs: 1}
		t.Run(fmt.Sprintf("%v/version %d", tt.typ, tt.version), func(t *testing.T) {
			m, s := random(9, c), newScript(c)
			s.device = []string{"-cqe-version", strconv.Itoa(tt.version)}
			sendOne := func() {
				s.send(m.scattered(m.send(verbs.OpSend, verbs.SendSignaled), 1))
				s.add("post")
			}
			recvOne := func() {
				s.recv(m.Uint64(), m.scattered(send{}, 1).sges)
				s.add("postrecv")
			}
			entry := func(fill func(e *[64]byte)) {
				s.queues(c)
				sendOne()
				recvOne()
				e := cqe(m, 0)
				fill(&e)
				s.cqe(e)
				s.add("poll", 2)
			}
			// Without masked atomics, 0x14 and 0x15, which libmlx5 doesn't know.
			for _, wqeOp := range []byte{0x01, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x10, 0x11, 0x12, 0x25} {
				entry(func(e *[64]byte) { e[56] = wqeOp })
			}
			for op := byte(1); op <= 4; op++ { // receives, with and without immediate data or key
				for range 8 {
					entry(func(e *[64]byte) { e[63] = op << 4 })
				}
			}
			for _, op := range []byte{13, 14} { // errors of the requester, of the responder
				for syndrome := range 0x30 {
					entry(func(e *[64]byte) {
						e[55], e[63] = byte(syndrome), op<<4
					})
				}
			}
			// Completions that can't be reported: without a request, and of an unknown QP.
			for _, op := range []byte{6, 12} {
				entry(func(e *[64]byte) { e[40], e[63] = 0, op<<4 })
			}
			for _, op := range []byte{0, 1, 2, 3, 4, 13, 14} {
				entry(func(e *[64]byte) {
					e[33], e[34], e[57], e[63] = 0x12, 0x34, 0x12, op<<4
				})
			}
			compare(t, s)
		})
	}
}
