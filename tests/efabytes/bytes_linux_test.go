// Package efabytes compares, byte for byte, the descriptors of sends and receives and the
// doorbells that this library and libefa write for an EFA device. It also compares the
// completions that both report. Both play the same scripts on the device of tests/fakeefa,
// which needs neither a VM nor root:
//
//	go test ./tests/efabytes
//	go test ./tests/efabytes -libefa "$(tests/efabytes/libefa)"    # with Debian's newest
//
// Debian 12's libefa has neither RDMA writes nor requests of 128 bytes.
//
// Package provider/efa lists the intended differences. The numbers of requests are left out:
// they have a meaning for the driver only.
package efabytes

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var newer = flag.String("libefa", "", "the `folder` with another libefa and what it needs, as the script libefa makes it")

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnHost) }

// A script is the list of commands that both players execute.
type script struct {
	strings.Builder
	rnd *rand.Rand
	options

	sends, recvs []int // outstanding
	kinds        []int // of all sends
	posted       int   // receives
	unpolled     []int // completions: 0 of sends, 1 of receives
}

// Options are the properties of a script.
type options struct {
	typ    string
	events int
	writes int      // RDMA writes
	inline int      // the queue's maximum
	steps  int      // 1000 if 0
	device []string // flags of fakeefa
}

// The values of writes.
const (
	plainWrites  = 1
	inlineWrites = 2 // RDMA writes may have inline data
)

func (o options) srd() bool { return o.typ == "SRD" }

const queue = 8

func (s *script) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// buffers returns n buffers. The buffers are shorter than 64 KiB: old libefas keep only the
// lower 16 bits of a length.
func (s *script) buffers(n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, " %d %d %d", s.rnd.Uint64()>>8, s.rnd.Uint32N(1<<16), s.rnd.Uint32N(1<<24))
	}
	return b.String()
}

// The operations, by their opcodes.
const (
	opWrite    = 0
	opWriteImm = 1
	opSend     = 2
	opSendImm  = 3
	opRead     = 4
)

func (s *script) send() {
	n := min(1+s.rnd.IntN(5), queue-len(s.sends)-s.waiting(0))
	if n <= 0 {
		return
	}
	s.line("s %d", n)
	for range n {
		op, inline, buffers := opSend+s.rnd.IntN(2), 0, s.rnd.IntN(3)
		if s.writes > 0 && s.rnd.IntN(2) == 0 {
			op, buffers = opWrite+s.rnd.IntN(2), s.rnd.IntN(2)
		} else if s.srd() && s.rnd.IntN(3) == 0 {
			op, buffers = opRead, 1
		}
		if (op >= opSend || s.writes == inlineWrites) && op != opRead && s.rnd.IntN(3) == 0 {
			inline, buffers = 1+s.rnd.IntN(s.inline+1), 0
		}
		s.line("%d %d %d %d %d %d %d %d %d%s", len(s.kinds), op, s.rnd.Uint32(), s.rnd.Uint32N(1<<16), s.rnd.Uint32(), s.rnd.Uint64(), s.rnd.Uint32(),
			inline, buffers, s.buffers(buffers))
		s.sends = append(s.sends, len(s.kinds))
		s.kinds = append(s.kinds, op)
	}
	s.line("z")
}

func (s *script) recv() {
	if len(s.recvs)+s.waiting(1) >= queue {
		return
	}
	n := 1 + s.rnd.IntN(2)
	s.line("r %d %d%s", 1_000_000+s.posted, n, s.buffers(n))
	s.recvs = append(s.recvs, s.posted)
	s.posted++
	s.line("z")
}

// statuses are the errors that all libefas translate in the same way.
var statuses = []int{1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13}

// complete completes one of the outstanding requests, in any order.
func (s *script) complete() {
	status := 0
	if s.rnd.IntN(4) == 0 {
		status = statuses[s.rnd.IntN(len(statuses))]
	}
	from, recv := &s.sends, 0
	if s.rnd.IntN(2) == 0 {
		from, recv = &s.recvs, 1
	}
	if len(*from) == 0 {
		return
	}
	i := s.rnd.IntN(len(*from))
	op, imm, limit := 0, uint32(0), 1<<16 // op is as in a completion
	if recv == 0 {
		switch s.kinds[(*from)[i]] {
		case opRead:
			op = 1
		case opWrite, opWriteImm:
			op = 2
		}
	}
	if recv == 1 && s.rnd.IntN(2) == 0 {
		imm = 1 + s.rnd.Uint32N(1<<31)
		if s.writes > 0 && s.rnd.IntN(2) == 0 {
			op, limit = 2, 1<<30
		}
	}
	s.line("c %d %d %d %d %d %d %d", recv, (*from)[i], status, op, imm, s.rnd.IntN(limit), s.rnd.IntN(255))
	*from = slices.Delete(*from, i, i+1)
	s.unpolled = append(s.unpolled, recv)
}

// waiting returns how many completions of a queue have not been polled.
func (s *script) waiting(recv int) (n int) {
	for _, of := range s.unpolled {
		if of == recv {
			n++
		}
	}
	return n
}

// poll polls as many completions as the players poll at a time.
func (s *script) poll() {
	s.line("p")
	s.unpolled = s.unpolled[min(8, len(s.unpolled)):]
}

func newScript(seed uint64, o options) *script {
	if o.inline == 0 {
		o.inline = 32
	}
	if o.steps == 0 {
		o.steps = 1000
	}
	s := &script{rnd: rand.New(rand.NewPCG(seed, 1)), options: o}
	s.line("q %s %d %d 2 %d 2 %d %d", o.typ, o.events, queue, queue, o.inline, o.writes)
	for range s.steps {
		switch s.rnd.IntN(6) {
		case 0:
			s.send()
		case 1:
			s.recv()
		case 2, 3, 4:
			s.complete()
		default:
			s.poll()
			if s.events == 1 && s.rnd.IntN(3) == 0 {
				s.line("a")
			}
		}
	}
	return s
}

// dependencies tells go test which other files the result depends on, so that it doesn't use a
// cached result. It must be called in a test, because go test records only these.
func dependencies(t *testing.T) {
	t.Helper()
	for _, sources := range []string{"../../verbs", "../../provider", "../../ioctl", "../../uapi", "../../internal", "../internal/fakedev", "../fakeefa", "c", "efaplay"} {
		rdmatest.Check(t, filepath.WalkDir(sources, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		}))
	}
}

// play runs a program on a script and returns the lines of its output.
func play(t *testing.T, s *script, program ...string) []string {
	t.Helper()
	cmd := exec.Command(rdmatest.Program(t, "fakeefa"), slices.Concat(s.device, program)...)
	cmd.Stdin = strings.NewReader(s.String())
	return strings.Split(rdmatest.StartCmd(t, cmd).Succeeds(t), "\n")
}

// libefas returns the command that plays a script with libefa, and its version.
func libefas(t *testing.T) []string {
	t.Helper()
	program := rdmatest.CProgram(t, "c/play.c")
	if *newer == "" {
		return []string{program}
	}
	// The newer libefa needs the loader of its own C library, and the libraries of that
	// folder.
	libraries := filepath.Join(*newer, "usr/lib/x86_64-linux-gnu")
	return []string{filepath.Join(*newer, "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", libraries, program}
}

func TestBytes(t *testing.T) {
	dependencies(t)
	theirs, ours := libefas(t), rdmatest.Program(t, "efaplay")
	scripts := map[string]*script{
		"UD":                newScript(1, options{typ: "UD"}),
		"SRD":               newScript(2, options{typ: "SRD"}),
		"SRD with events":   newScript(3, options{typ: "SRD", events: 1}),
		"UD in batches":     newScript(4, options{typ: "UD", steps: 500, device: []string{"-max-tx-batch", "3"}}),
		"SRD in batches":    newScript(5, options{typ: "SRD", events: 1, steps: 500, device: []string{"-max-tx-batch", "2", "-min-sq-wr", "8"}}),
		"SRD, a long queue": newScript(6, options{typ: "SRD", steps: 500, device: []string{"-min-sq-wr", "64"}}),
	}
	if *newer != "" {
		long := []string{"-inline", "80"}
		scripts["writes"] = newScript(7, options{typ: "SRD", writes: plainWrites})
		scripts["writes with events"] = newScript(8, options{typ: "SRD", writes: plainWrites, events: 1})
		scripts["writes in batches"] = newScript(9, options{typ: "SRD", writes: plainWrites, device: []string{"-max-tx-batch", "3", "-min-sq-wr", "16"}})
		scripts["inline writes"] = newScript(10, options{typ: "SRD", writes: inlineWrites})
		scripts["inline writes of 80 bytes"] = newScript(11, options{typ: "SRD", writes: inlineWrites, inline: 80, device: long})
		scripts["128 bytes, UD"] = newScript(12, options{typ: "UD", inline: 80, device: long})
		scripts["128 bytes, SRD"] = newScript(13, options{typ: "SRD", inline: 33, writes: plainWrites, device: long})
		scripts["128 bytes in batches"] = newScript(14, options{typ: "SRD", inline: 64, writes: inlineWrites, events: 1, device: append(long, "-max-tx-batch", "5", "-min-sq-wr", "8")})
	}
	for name, s := range scripts {
		t.Run(name, func(t *testing.T) { compare(t, s, play(t, s, theirs...), play(t, s, ours)) })
	}
}

// compare compares two players' outputs.
func compare(t *testing.T, s *script, want, got []string) {
	t.Helper()
	reads, writes, completions, bytes := 0, 0, 0, 0
	for i := range want {
		if i >= len(got) {
			t.Fatalf("libefa goes on with %q", want[i])
		}
		line := got[i]
		var id, status, opcode int
		if n, _ := fmt.Sscanf(line, "wc %d status %d opcode %d", &id, &status, &opcode); n == 3 {
			completions++
			if id < len(s.kinds) {
				switch s.kinds[id] {
				case opRead:
					// libefa reports a send.
					if line = strings.Replace(line, "opcode 2 ", "opcode 0 ", 1); line == got[i] {
						t.Errorf("line %d: the completion of a read is %q", i, line)
					}
					reads++
				case opWrite, opWriteImm:
					writes++
				}
			}
		}
		if strings.HasPrefix(line, "sq ") || strings.HasPrefix(line, "rq ") {
			bytes++
		}
		if line != want[i] {
			t.Fatalf("line %d is\n%s\nlibefa's is\n%s", i, line, want[i])
		}
	}
	if len(got) != len(want) || completions < 20 || bytes < 100 || s.srd() != (reads > 0) || (s.writes > 0) != (writes > 0) {
		t.Errorf("%d lines, libefa has %d; %d completions, %d of them of reads and %d of writes; %d descriptors",
			len(got), len(want), completions, reads, writes, bytes)
	}
}
