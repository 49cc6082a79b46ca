package fabric

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// subnet is a fabric of n ports that record the packets that they receive.
type subnet struct {
	*Fabric
	now   time.Duration
	ports []*Port
	got   [][]string
	ups   []bool
	wakes int
}

func newSubnet(n int, seed uint64) *subnet {
	s := &subnet{got: make([][]string, n)}
	s.Fabric = New(Config{Seed: seed, Clock: func() time.Duration { return s.now }, Wake: func() { s.wakes++ }})
	for i := range n {
		s.ports = append(s.ports, s.Attach(PortConfig{
			GUID:    uint64(0x100 + i),
			Receive: func(p *Packet) { s.got[i] = append(s.got[i], string(p.Data)); p.Free() },
			Changed: func(up bool) { s.ups = append(s.ups, up) },
		}))
	}
	return s
}

func (s *subnet) send(from int, dlid uint16, dgid GID, data string) {
	p := NewPacket()
	p.SLID, p.DLID = s.ports[from].LID(), dlid
	if dgid != (GID{}) {
		p.HasGRH = true
		copy(p.GRH[24:], dgid[:])
	}
	p.Data = append(p.Data, data...)
	s.ports[from].Send(p)
}

// take returns what each port received since the last call.
func (s *subnet) take() string {
	r := fmt.Sprint(s.got)
	for i := range s.got {
		s.got[i] = nil
	}
	return r
}

func TestRoutes(t *testing.T) {
	s := newSubnet(3, 0)
	group := GID{0xff, 0x12, 15: 1}
	s.ports[0].Join(group)
	s.ports[2].Join(group)
	s.ports[2].Join(group)
	s.ports[2].Leave(group)
	for _, c := range []struct {
		dlid uint16
		dgid GID
		want string
	}{
		{s.ports[1].LID(), GID{}, "[[] [x] []]"},
		{s.ports[0].LID(), GID{}, "[[x] [] []]"},
		{PermissiveLID, GID{}, "[[] [] []]"},
		{0x77, GID{}, "[[] [] []]"},
		{0, s.ports[2].GID(), "[[] [] [x]]"},
		{0x77, GID{0xfe, 0x80, 15: 9}, "[[] [] []]"},
		{FirstMulticastLID, group, "[[x] [] [x]]"},
		{FirstMulticastLID, GID{0xff, 0x12, 15: 2}, "[[] [] []]"},
	} {
		s.send(0, c.dlid, c.dgid, "x")
		if got := s.take(); got != c.want {
			t.Errorf("to LID %#x, GID %x: %s, want %s", c.dlid, c.dgid, got, c.want)
		}
	}
	if x := s.Stats(); x.Sent != 8 || x.Delivered != 5 || x.Unroutable != 4 {
		t.Errorf("%+v", x)
	}
}

func TestFramesGoEverywhere(t *testing.T) {
	s := newSubnet(3, 0)
	p := NewPacket()
	p.Ethernet = true
	p.Data = append(p.Data, "frame"...)
	s.ports[1].Send(p)
	if got := s.take(); got != "[[frame] [] [frame]]" {
		t.Error(got)
	}
}

func TestPortsDown(t *testing.T) {
	s := newSubnet(2, 0)
	s.ports[1].SetUp(false)
	s.ports[1].SetUp(false)
	s.send(0, s.ports[1].LID(), GID{}, "into the void")
	s.send(1, s.ports[0].LID(), GID{}, "from the void")
	s.ports[1].SetUp(true)
	s.send(0, s.ports[1].LID(), GID{}, "again")
	if got := s.take(); got != "[[] [again]]" {
		t.Error(got)
	}
	if !slices.Equal(s.ups, []bool{false, true}) {
		t.Errorf("changes %v", s.ups)
	}
	lid := s.ports[1].LID()
	s.ports[1].Detach()
	s.send(0, lid, GID{}, "gone")
	if p := s.Attach(PortConfig{GUID: 7}); p.LID() == lid || p.LID() == s.ports[0].LID() {
		t.Errorf("LID %d again, at once", p.LID())
	}
}

func TestDelay(t *testing.T) {
	s := newSubnet(2, 0)
	to := s.ports[1].LID()
	s.SetFaults(Faults{Delay: 10 * time.Microsecond})
	s.send(0, to, GID{}, "a")
	s.now += time.Microsecond
	s.send(0, to, GID{}, "b")
	s.SetFaults(Faults{Hook: func(_ *Port, p *Packet) Verdict {
		return map[string]Verdict{"late": Reorder, "lost": Drop, "twice": Duplicate}[string(p.Data)]
	}})
	for _, x := range []string{"late", "lost", "twice", "c"} {
		s.send(0, to, GID{}, x)
	}
	if got := s.take(); got != "[[] [twice twice c]]" || s.wakes != 3 {
		t.Errorf("at once: %s, %d wakes", got, s.wakes)
	}
	for _, c := range []struct {
		at, next time.Duration
		want     string
	}{
		{9 * time.Microsecond, 10 * time.Microsecond, "[[] []]"},
		{10 * time.Microsecond, 11 * time.Microsecond, "[[] [a]]"},
		{50 * time.Microsecond, 51 * time.Microsecond, "[[] [b]]"},
		{time.Second, 0, "[[] [late]]"},
	} {
		s.now = c.at
		next := s.Deliver()
		if got := s.take(); got != c.want || next != c.next {
			t.Errorf("after %v: %s, next at %v; want %s, %v", c.at, got, next, c.want, c.next)
		}
	}
	if x := s.Stats(); x.Dropped != 1 || x.Duplicated != 1 || x.Reordered != 1 || x.Delivered != 6 {
		t.Errorf("%+v", x)
	}
}

func TestSeedsRepeat(t *testing.T) {
	play := func(seed uint64) string {
		s := newSubnet(2, seed)
		s.SetFaults(Faults{Drop: 0.2, Duplicate: 0.2, Reorder: 0.2, Jitter: time.Microsecond})
		for i := range 200 {
			s.send(0, s.ports[1].LID(), GID{}, fmt.Sprint(i))
		}
		s.now = time.Second
		s.Deliver()
		return s.take()
	}
	first := play(1)
	if again := play(1); again != first {
		t.Error("the same seed, another order")
	}
	if play(2) == first {
		t.Error("another seed, the same order")
	}
}

// A receiver may send, and query its port, from within Receive.
func TestReceiverSends(t *testing.T) {
	f := New(Config{Clock: func() time.Duration { return 0 }})
	var ports [2]*Port
	hops := 0
	for i := range ports {
		ports[i] = f.Attach(PortConfig{GUID: uint64(i), Receive: func(p *Packet) {
			if hops++; hops < 10 {
				p.DLID = ports[1-i].LID()
				ports[i].Send(p)
				return
			}
			p.Free()
		}})
	}
	p := NewPacket()
	p.DLID = ports[1].LID()
	ports[0].Send(p)
	if hops != 10 {
		t.Errorf("%d hops", hops)
	}
}

func ExampleFabric() {
	f := New(Config{Clock: func() time.Duration { return 0 }})
	a := f.Attach(PortConfig{GUID: 1, Receive: func(*Packet) {}})
	b := f.Attach(PortConfig{GUID: 2, Receive: func(p *Packet) {
		fmt.Printf("port 2: %s\n", p.Data)
		p.Free()
	}})
	p := NewPacket()
	p.DLID = b.LID()
	p.Data = append(p.Data, "hello"...)
	a.Send(p)
	// Output: port 2: hello
}
