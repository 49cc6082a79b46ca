package rsocket

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/internal/netconn"
)

// An end is one end of a stream without a device: TestFlow plays the device.
type end struct {
	in   inbound
	out  outbound
	ring []byte
	list [entries]sge // what the peer has published
}

const testWindow = 16

func newEnd(half int) *end {
	e := &end{ring: make([]byte, 2*half)}
	e.in.init(half, testWindow)
	return e
}

// takeTarget takes a target as Conn.takeTarget does.
func (e *end) takeTarget() {
	if next := &e.list[e.out.next]; e.out.target.length == 0 && next.length != 0 {
		e.out.target, *next = *next, sge{}
		e.out.next = (e.out.next + 1) % entries
	}
}

// TestFlow sends a stream in random pieces, to a reader that reads random pieces. The counters of
// both sides wrap around.
func TestFlow(t *testing.T) {
	const half, total = 1000, 20 << 20
	rnd := rand.New(rand.NewPCG(1, 2))
	from, to := newEnd(half), newEnd(half)
	from.out.init(&connData{credits: testWindow, ring: sge{length: half}})
	entry, messages := 1, 0
	next := func(i int) byte { return byte(i ^ i>>8) }
	sent, read := 0, 0
	var mu netconn.Mutex
	for read < total {
		from.takeTarget()
		if n := min(from.out.room(), 1+rnd.IntN(400), total-sent); n > 0 && rnd.IntN(3) > 0 {
			addr, _ := from.out.write(n)
			for i := range n {
				to.ring[int(addr)+i] = next(sent + i)
			}
			if err := to.in.data(uint32(n), uint32(n)); err != nil {
				t.Fatalf("after %d bytes: %v", sent, err)
			}
			sent += n
			messages++
		}
		if rnd.IntN(4) == 0 && to.in.Unread > 0 {
			got := make([]byte, 1+rnd.IntN(to.in.Unread))
			mu.Lock()
			to.in.Read(&mu, got, to.ring)
			mu.Unlock()
			for i := range got {
				if got[i] != next(read+i) {
					t.Fatalf("read something else at %d", read+i)
				}
			}
			read += len(got)
		}
		for to.in.due() {
			value, at := to.in.grant()
			if at >= 0 {
				from.list[entry] = sge{addr: uint64(at), length: half}
				entry = (entry + 1) % entries
			}
			if err := from.out.credit(value); err != nil {
				t.Fatalf("after %d bytes: %v", sent, err)
			}
		}
	}
	if messages < 1<<16 {
		t.Errorf("%d messages: the counters have not wrapped around", messages)
	}
}

func TestInboundRefuses(t *testing.T) {
	const half = 100
	for name, f := range map[string]func(in *inbound) error{
		"more than written":  func(in *inbound) error { return in.data(10, 9) },
		"less than written":  func(in *inbound) error { return in.data(10, 11) },
		"nothing":            func(in *inbound) error { return in.data(0, 0) },
		"more than the half": func(in *inbound) error { return in.data(half+1, half+1) },
		"more than is left": func(in *inbound) error {
			return errors.Join(must(t, in.data(60, 60)), in.data(41, 41))
		},
		"across the halves": func(in *inbound) error {
			in.grant()
			return errors.Join(must(t, in.data(60, 60)), in.data(41, 41))
		},
		"a half that was not read": func(in *inbound) error {
			in.grant()
			return errors.Join(must(t, in.data(half, half)), must(t, in.data(half, half)), in.data(1, 1))
		},
		"without a credit": func(in *inbound) error {
			for range testWindow {
				must(t, in.data(1, 1))
			}
			return in.data(1, 1)
		},
	} {
		var in inbound
		in.init(half, testWindow)
		before := in
		if err := f(&in); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		if in.Unread > 2*half || in.Target() < 0 {
			t.Errorf("%s: %+v became %+v", name, before, in)
		}
	}
}

func must(t *testing.T, err error) error {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return nil
}

func TestCredits(t *testing.T) {
	start := func() outbound {
		var out outbound
		out.init(&connData{credits: testWindow, ring: sge{length: 1000}})
		for range 3 {
			out.write(1)
		}
		return out
	}
	for value, ok := range map[uint32]bool{
		testWindow:           true, // none new
		testWindow + 1:       true,
		testWindow + 3:       true,
		testWindow + 4:       false, // for a message that was not sent
		testWindow - 1:       false, // taken back
		2:                    false, // for a message that was sent
		0xffff:               false,
		1<<16 | testWindow:   true, // C adds two numbers of 16 bits
		1<<16 | testWindow*2: false,
	} {
		out := start()
		if err := out.credit(value); (err == nil) != ok || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("credit %#x: %v", value, err)
		}
	}
	out := start()
	for range testWindow - 3 {
		if out.room() == 0 {
			t.Fatalf("no room with %+v", out)
		}
		out.write(1)
	}
	if n := out.room(); n != 0 {
		t.Errorf("room for %d bytes without credits", n)
	}
}
