package mlx5bytes

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var update = flag.Bool("update", false, "write the file transactions")

// A cost is the PCIe traffic that one call causes, and the processor's part in it.
type cost struct {
	rings         int // registers' buffers written to
	registerBytes int // that were stored there
	wqeBytes      int // of the requests in the queue, up to their ends
	fetched       int // cache lines of the queue that the adapter must read: none of a request that was copied to the register
	records       int // words of doorbell records written
	cqes          int // completions read, of a cache line each
}

const (
	cacheLine  = 64
	recvStride = 64 // with three elements, of a QP or an SRQ
)

// costOf counts a step's writes by the memory's contents after it: a store that changed
// nothing isn't counted.
func costOf(s *step) (c cost) {
	words, blocks := 0, 0
	lines := map[int]bool{}
	for _, what := range s.order {
		b := s.bytes[what]
		var at int
		switch kind, number, _ := strings.Cut(what, " "); kind {
		case "sq":
			if c.fetched++; blocks == 0 {
				segments := int(b[7] & 0x3f)
				c.wqeBytes += segments * 16
				blocks = (segments + 3) / 4
			}
			blocks--
		case "rq":
			fmt.Sscanf(number, "%x", &at)
			for from := at * recvStride; from < (at+1)*recvStride; from += 16 {
				lines[from/cacheLine] = true
			}
			c.wqeBytes += len(b)
		case "register":
			words++
		}
	}
	c.fetched += len(lines)
	switch {
	case words == 1:
		c.rings, c.registerBytes = 1, 8
	case words > 1:
		c.rings, c.registerBytes, c.fetched = 1, c.fetched*cacheLine, 0
	}
	for _, line := range s.text {
		if strings.Contains(line, " doorbell ") {
			c.records++
		}
		if strings.HasPrefix(line, "wc ") {
			c.cqes++
		}
	}
	return c
}

func (c cost) String() string {
	return fmt.Sprintf("%d | %d | %d | %d | %d | %d", c.rings, c.registerBytes, c.wqeBytes, c.fetched, c.records, c.cqes)
}

// TestTransactions counts the cost of each call of the fast path for an adapter, here and in
// libmlx5, and compares the counts with the committed table. No call may cost more here.
func TestTransactions(t *testing.T) {
	dependencies(t)
	base := config{typ: verbs.RC, sends: 64, recvs: 64, sendSGEs: 4, recvSGEs: 3, inline: 64}
	ud, dci, srq, built := base, base, base, base
	ud.typ, srq.withSRQ, built.built = verbs.UD, true, true
	dci.typ, dci.recvs, dci.recvSGEs = verbs.DCI, 0, 0
	one := func(op verbs.Opcode, sges int) func(*maker) send {
		return func(m *maker) send { return m.scattered(m.send(op, verbs.SendSignaled), sges) }
	}
	inline := func(n uint32) func(*maker) send {
		return func(m *maker) send {
			w := m.send(verbs.OpRDMAWrite, verbs.SendSignaled)
			w.inline, w.sges = true, []verbs.SGE{{Length: n}}
			return w
		}
	}
	var table strings.Builder
	fmt.Fprintln(&table, "What one call costs an mlx5 adapter: go test ./tests/mlx5bytes -run TestTransactions -update writes this file.")
	fmt.Fprintln(&table, "\n| call | of | rings | register bytes | WQE bytes | lines fetched | records | CQEs |\n|---|---|---|---|---|---|---|---|")
	// tell adds the costs of the last command of a script to the table.
	tell := func(name string, s *script, command string, cqes int) {
		t.Helper()
		var costs [2]cost
		for i, program := range []string{theirs(t), ours(t)} {
			steps := play(t, program, poisonA, s)
			last := &steps[len(steps)-1]
			if last.command != command {
				t.Errorf("%s: the last step is %q", name, last.command)
			}
			costs[i] = costOf(last)
		}
		c, g := costs[0], costs[1]
		fmt.Fprintf(&table, "| %s | libmlx5 | %v |\n| | goverbs | %v |\n", name, c, g)
		if g.rings > c.rings || g.registerBytes > c.registerBytes || g.wqeBytes > c.wqeBytes || g.fetched > c.fetched || g.records > c.records {
			t.Errorf("%s costs more than with libmlx5: %v, there %v", name, g, c)
		}
		if c == (cost{}) || g.cqes != cqes {
			t.Errorf("%s: %v, libmlx5 %v: not what the step does", name, g, c)
		}
	}
	for _, row := range []struct {
		name   string
		config config
		n      int
		send   func(*maker) send // nil for receives
		poll   int               // how many completions are polled at once; 0 to count the post
	}{
		{"RC write, inline 28 B", base, 1, inline(28), 0},
		{"RC write, inline 64 B", base, 1, inline(64), 0},
		{"RC send, 1 SGE", base, 1, one(verbs.OpSend, 1), 0},
		{"RC write, 1 SGE", base, 1, one(verbs.OpRDMAWrite, 1), 0},
		{"RC write, 3 SGEs", base, 1, one(verbs.OpRDMAWrite, 3), 0},
		{"RC read, 1 SGE", base, 1, one(verbs.OpRDMARead, 1), 0},
		{"RC compare and swap", base, 1, func(m *maker) send { return m.atomic(m.send(verbs.OpCompareSwap, verbs.SendSignaled)) }, 0},
		{"RC fetch and add", base, 1, func(m *maker) send { return m.atomic(m.send(verbs.OpFetchAdd, verbs.SendSignaled)) }, 0},
		{"list of 16 RC writes", base, 16, one(verbs.OpRDMAWrite, 1), 0},
		{"batch of 1 RC write", built, 1, one(verbs.OpRDMAWrite, 1), 0},
		{"batch of 16 RC writes", built, 16, one(verbs.OpRDMAWrite, 1), 0},
		{"UD send, 1 SGE", ud, 1, one(verbs.OpSend, 1), 0},
		{"list of 16 UD sends", ud, 16, one(verbs.OpSend, 1), 0},
		{"DC send, 1 SGE", dci, 1, one(verbs.OpSend, 1), 0},
		{"DC write, 1 SGE", dci, 1, one(verbs.OpRDMAWrite, 1), 0},
		{"receive, 1 SGE", base, 1, nil, 0},
		{"list of 16 receives", base, 16, nil, 0},
		{"SRQ's receive, 1 SGE", srq, 1, nil, 0},
		{"list of 16 SRQ's receives", srq, 16, nil, 0},
		{"poll of 1", base, 1, one(verbs.OpSend, 1), 1},
		{"poll of 16", base, 16, one(verbs.OpSend, 1), 16},
		{"poll of 64", base, 64, one(verbs.OpSend, 1), 64},
	} {
		m, s := random(3, row.config), newScript(row.config)
		command := "postrecv"
		for range row.n {
			if row.send == nil {
				s.recv(m.Uint64(), m.scattered(send{}, 1).sges)
			} else {
				s.send(row.send(m))
			}
		}
		if row.send == nil {
			s.add(command)
		} else {
			s.post(row.config)
			if command = "post"; row.config.built {
				command = "build"
			}
		}
		if row.poll > 0 {
			s.add("complete", 0)
			command = fmt.Sprintf("poll %x", row.poll)
			s.add("poll", row.poll)
		}
		tell(row.name, s, command, row.poll)
	}
	for _, row := range []struct{ name, command string }{
		{"poll of none", "idle 10"},
		{"arm a CQ", "arm 0"},
		{"arm a CQ for solicited messages", "arm 1"},
		{"poll of none, arm, poll of none: before sleeping", "sleep 10"},
	} {
		s := newScript(base)
		s.WriteString(row.command + "\n")
		tell(row.name, s, row.command, 0)
	}
	const golden = "transactions.md"
	if *update {
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if held := string(rdmatest.Must(os.ReadFile(golden))(t)); held != table.String() {
		t.Errorf("the costs are now\n%s\nthe file %s has\n%s", table.String(), golden, held)
	}
}
