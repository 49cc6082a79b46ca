package fabric

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

const switchGUID = 0x5000

// smp is a subnet management datagram on its way.
func smp(class, method byte, attr uint16, modifier uint32, path ...byte) []byte {
	b := make([]byte, smpOffset+smpLength)
	m := b[smpOffset:]
	m[0], m[smpClass], m[2], m[smpMethod] = 1, class, 1, method
	binary.BigEndian.PutUint16(m[smpAttr:], attr)
	binary.BigEndian.PutUint32(m[smpModifier:], modifier)
	if class == directed {
		m[smpHopPointer], m[smpHopCount] = 1, byte(len(path))
		copy(m[smpPath+1:], path)
	}
	return b
}

// put puts switches between the ports.
func (s *subnet) put(t *testing.T, of ...[]int) {
	t.Helper()
	if err := s.SetSwitches(switchGUID, of); err != nil {
		t.Fatal(err)
	}
}

// ask sends a datagram from port 1 of the switch, and returns the answer's MAD.
func (s *subnet) ask(t *testing.T, dlid uint16, b []byte) []byte {
	t.Helper()
	s.send(0, dlid, GID{}, string(b))
	if len(s.got[0]) != 1 {
		t.Fatalf("%d answers", len(s.got[0]))
	}
	m := []byte(s.got[0][0])[smpOffset:]
	s.got[0] = nil
	return m
}

// A subnet manager finds the switch and what is behind it by directed routes.
func TestSwitchRoutes(t *testing.T) {
	s := newSubnet(3, 0)
	s.put(t, []int{0, 1, 2})
	s.send(0, s.ports[1].LID(), GID{}, "too early")
	if got := s.take(); got != "[[] [] []]" {
		t.Errorf("without tables: %s", got)
	}
	m := s.ask(t, PermissiveLID, smp(directed, 1, 0x11, 0, 1))
	if status := binary.BigEndian.Uint16(m[smpStatus:]); status != returning<<8 || m[smpMethod] != methodResponse || m[smpHopPointer] != 1 ||
		m[smpData+2] != 2 || m[smpData+3] != 3 || m[smpData+36] != 1 || binary.BigEndian.Uint64(m[smpData+12:]) != switchGUID {
		t.Errorf("NodeInfo: status %#x, %x", status, m[smpData:][:40])
	}
	// Two hops lead to the third adapter, which sees the way back, and answers.
	s.send(0, PermissiveLID, GID{}, string(smp(directed, 1, 0x11, 0, 1, 3)))
	if len(s.got[2]) != 1 {
		t.Fatalf("%s arrived", s.take())
	}
	b := []byte(s.got[2][0])
	m = b[smpOffset:]
	if m[smpHopPointer] != 2 || m[smpReturnPath+1] != 1 {
		t.Errorf("hop %d, the way back is %d", m[smpHopPointer], m[smpReturnPath:][:3])
	}
	s.take()
	m[smpStatus] |= returning
	s.send(2, PermissiveLID, GID{}, string(b))
	if len(s.got[0]) != 1 || s.got[0][0][smpOffset+smpHopPointer] != 1 {
		t.Errorf("the answer: %.80q", s.got)
	}
	s.take()
	// What leads nowhere is dropped, and so is what is malformed.
	for name, b := range map[string][]byte{
		"no such port": smp(directed, 1, 0x11, 0, 1, 4), "port 0": smp(directed, 1, 0x11, 0, 1, 0), "no hops": smp(directed, 1, 0x11, 0),
		"too many hops": smp(directed, 1, 0x11, 0, bytes.Repeat([]byte{1}, 64)...), "short": smp(directed, 1, 0x11, 0, 1)[:100],
		"by LID": smp(1, 1, 0x11, 0),
	} {
		s.send(0, PermissiveLID, GID{}, string(b))
		if got := s.take(); got != "[[] [] []]" {
			t.Errorf("%s: %.80s", name, got)
		}
	}
}

// set changes an attribute of a switch, which is some hops from port 1.
func (s *subnet) set(t *testing.T, attr uint16, modifier uint32, change func(data []byte), path ...byte) (status uint16, data []byte) {
	t.Helper()
	now := s.ask(t, PermissiveLID, smp(directed, methodGet, attr, modifier, path...))[smpData:][:smpSize]
	b := smp(directed, methodSet, attr, modifier, path...)
	copy(b[smpOffset+smpData:], now)
	change(b[smpOffset+smpData:][:smpSize])
	m := s.ask(t, PermissiveLID, b)
	return binary.BigEndian.Uint16(m[smpStatus:]) &^ (returning << 8), m[smpData:][:smpSize]
}

// activate brings a switch's ports up, as a subnet manager does.
func (s *subnet) activate(t *testing.T, ports []uint32, path ...byte) {
	t.Helper()
	for _, n := range ports {
		for _, state := range []byte{stateArmed, stateActive} {
			if status, _ := s.set(t, 0x15, n, func(d []byte) { d[infoState] = state }, path...); status != 0 {
				t.Fatalf("port %d of the switch at %d to state %d: status %#x", n, path, state, status)
			}
		}
	}
}

// A subnet manager gives the switch a LID, brings its ports up, and sets its tables.
func TestSwitchTables(t *testing.T) {
	s := newSubnet(3, 0)
	s.put(t, []int{0, 1, 2})
	set := func(attr uint16, modifier uint32, change func(data []byte)) (status uint16, data []byte) {
		t.Helper()
		return s.set(t, attr, modifier, change, 1)
	}
	const switchLID = 7
	if status, data := set(0x15, 0, func(d []byte) { binary.BigEndian.PutUint16(d[infoLID:], switchLID) }); status != 0 || data[infoLID+1] != switchLID {
		t.Errorf("LID: status %#x, %x", status, data)
	}
	for _, c := range []struct{ to, status, state byte }{
		{stateActive, badValue, stateInit}, {stateArmed, 0, stateArmed}, {stateActive, 0, stateActive}, {stateDown, 0, stateInit},
	} {
		if status, data := set(0x15, 2, func(d []byte) { d[infoState] = c.to }); status != uint16(c.status) || data[infoState]&0xf != c.state {
			t.Errorf("to state %d: status %#x, state %d", c.to, status, data[infoState]&0xf)
		}
	}
	// LIDs 100 and 101 are behind ports 2 and 3, and 0x1234 is the switch's.
	if status, _ := set(0x19, 1, func(d []byte) { d[100-64], d[101-64] = 2, 3 }); status != 0 {
		t.Errorf("table: status %#x", status)
	}
	s.send(0, 100, GID{}, "before the ports are armed")
	if got := s.take(); got != "[[] [] []]" {
		t.Errorf("through a port in the state Init: %s", got)
	}
	s.activate(t, []uint32{1, 2, 3}, 1)
	for lid, want := range map[uint16]string{100: "[[] [x] []]", 101: "[[] [] [x]]", 102: "[[] [] []]", s.ports[0].LID(): "[[x] [] []]"} {
		s.send(0, lid, GID{}, "x")
		if got := s.take(); got != want {
			t.Errorf("to LID %d: %s, want %s", lid, got, want)
		}
	}
	// The switch answers at its LID, too, by its table.
	own := s.ports[0].LID()
	set(0x19, 0, func(d []byte) { d[own] = 1 })
	if m := s.ask(t, switchLID, smp(1, 1, 0x10, 0)); string(m[smpData:][:6]) != "switch" || binary.BigEndian.Uint16(m[smpStatus:]) != 0 {
		t.Errorf("by LID: % x", m[:smpData+8])
	}
	group := GID{0xff, 0x12, 15: 1}
	for _, p := range s.ports {
		p.Join(group)
	}
	set(0x1b, 0, func(d []byte) { d[2*5+1] = 1<<1 | 1<<3 })
	s.send(0, FirstMulticastLID+5, group, "m")
	if got := s.take(); got != "[[m] [] [m]]" {
		t.Errorf("to a group: %s", got)
	}
	// A cable that is pulled is told until the subnet manager knows.
	changed := func() bool {
		return s.ask(t, PermissiveLID, smp(directed, 1, 0x12, 0, 1))[smpData+11]&4 != 0
	}
	if changed() {
		t.Error("a change from the start")
	}
	set(0x15, 0, func(d []byte) { binary.BigEndian.PutUint16(d[infoSMLID:], own) })
	s.ports[1].SetUp(false)
	if len(s.got[0]) != 1 {
		t.Fatalf("%d traps", len(s.got[0]))
	}
	trap := []byte(s.got[0][0])[smpOffset:]
	if trap[smpMethod] != methodTrap || trap[smpAttr+1] != 2 || trap[smpData+5] != 128 || trap[smpData+11] != switchLID {
		t.Errorf("the trap: % x", trap[:smpData+12])
	}
	const repress = 7
	s.got[0] = nil
	s.send(0, switchLID, GID{}, string(smp(byLID, repress, 2, 0)))
	if got := s.take(); got != "[[] [] []]" {
		t.Errorf("the subnet manager knows, and the switch answers %s", got)
	}
	s.send(0, 100, GID{}, "into the void")
	if got := s.take(); got != "[[] [] []]" {
		t.Errorf("without a cable: %s", got)
	}
	if m := s.ask(t, PermissiveLID, smp(directed, 1, 0x15, 2, 1)); !changed() || m[smpData+infoState]&0xf != stateDown {
		t.Errorf("a cable is pulled: PortInfo % x", m[smpData:][:40])
	}
	set(0x12, 0, func(d []byte) { d[11] |= 4 })
	if changed() {
		t.Error("the change is not forgotten")
	}
	for attr, modifier := range map[uint16]uint32{0x15: 4, 0x16: 4 << 16, 0x19: 768, 0x1b: 32, 0x20: 0} {
		if status, _ := set(attr, modifier, func([]byte) {}); status == 0 {
			t.Errorf("attribute %#x, modifier %#x is accepted", attr, modifier)
		}
	}
	s.put(t)
	s.send(0, s.ports[2].LID(), GID{}, "x")
	if got := s.take(); got != "[[] [] [x]]" {
		t.Errorf("without the switch: %s", got)
	}
}

// Packets follow the tables of each switch on their way, and go nowhere else.
func TestTwoSwitches(t *testing.T) {
	s := newSubnet(4, 0)
	s.put(t, []int{0, 1}, []int{2, 3})
	// Switch 0 has the trunk at port 3, and so does switch 1.
	for i, path := range [][]byte{{1}, {1, 3}} {
		m := s.ask(t, PermissiveLID, smp(directed, methodGet, 0x11, 0, path...))
		if m[smpData+3] != 3 || m[smpData+36] != byte(2*i+1) || binary.BigEndian.Uint64(m[smpData+12:]) != switchGUID+uint64(i) {
			t.Errorf("the switch at %d: % x", path, m[smpData:][:40])
		}
		s.activate(t, []uint32{1, 2, 3}, path...)
	}
	const far = 100 // is behind port 2 of switch 1
	table := func(lid int, port byte, path ...byte) {
		t.Helper()
		if status, _ := s.set(t, 0x19, uint32(lid/64), func(d []byte) { d[lid%64] = port }, path...); status != 0 {
			t.Errorf("the table of the switch at %d: status %#x", path, status)
		}
	}
	expect := func(what, want string, lid uint16, group GID) {
		t.Helper()
		s.send(0, lid, group, "x")
		if got := s.take(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	table(far, 3, 1)
	expect("without the second table", "[[] [] [] []]", far, GID{})
	table(far, 2, 1, 3)
	expect("by both tables", "[[] [] [] [x]]", far, GID{})
	table(far, 3, 1, 3)
	expect("to and fro between the switches", "[[] [] [] []]", far, GID{})
	table(far, 2, 1, 3)

	// A route may begin at a switch that is asked by its LID: there and back it is by LID as far as that switch.
	const first, second = 7, 8
	for i, path := range [][]byte{{1}, {1, 3}} {
		s.set(t, 0x15, 0, func(d []byte) { binary.BigEndian.PutUint16(d[infoLID:], uint16(first+i)) }, path...)
	}
	own := s.ports[0].LID()
	table(second, 3, 1)
	table(int(own), 1, 1)
	table(int(own), 3, 1, 3)
	fromLID := func(path ...byte) []byte {
		b := smp(directed, methodGet, 0x11, 0, path...)
		m := b[smpOffset:]
		m[smpHopPointer] = 0
		binary.BigEndian.PutUint16(m[smpSourceLID:], own)
		binary.BigEndian.PutUint16(m[smpSourceLID+2:], PermissiveLID)
		return b
	}
	if m := s.ask(t, first, fromLID(3)); m[smpHopPointer] != 0 || binary.BigEndian.Uint64(m[smpData+12:]) != switchGUID+1 {
		t.Errorf("the second switch, from the first one's LID on: % x", m[:smpData+40])
	}
	s.send(0, second, GID{}, string(fromLID(2)))
	if len(s.got[3]) != 1 {
		t.Fatalf("an adapter, from the second switch's LID on: %s", s.take())
	}
	back := []byte(s.got[3][0])
	s.take()
	back[smpOffset+smpStatus] |= returning
	s.send(3, PermissiveLID, GID{}, string(back))
	if len(s.got[0]) != 1 || s.got[0][0][smpOffset+smpHopPointer] != 0 {
		t.Errorf("its answer: %.80q", s.got)
	}
	s.take()
	s.send(0, first, GID{}, string(fromLID()))
	expect("a route of no hops from a LID on", "[[] [] [] [x]]", far, GID{})

	group := GID{0xff, 0x12, 15: 1}
	for _, p := range s.ports {
		p.Join(group)
	}
	masks := func(mask byte, path ...byte) {
		t.Helper()
		s.set(t, 0x1b, 0, func(d []byte) { d[2*5+1] = mask }, path...)
	}
	masks(1<<1|1<<3, 1)
	expect("the second switch doesn't know the group", "[[x] [] [] []]", FirstMulticastLID+5, group)
	masks(1<<1|1<<2|1<<3, 1, 3)
	expect("through the trunk", "[[x] [] [x] [x]]", FirstMulticastLID+5, group)

	if err := s.SetTrunk(0, false); err != nil {
		t.Fatal(err)
	}
	expect("without the trunk", "[[] [] [] []]", far, GID{})
	expect("a group, without the trunk", "[[x] [] [] []]", FirstMulticastLID+5, group)
	if m := s.ask(t, PermissiveLID, smp(directed, methodGet, 0x15, 3, 1)); m[smpData+infoState]&0xf != stateDown {
		t.Errorf("the trunk's port: % x", m[smpData:][:40])
	}
	if err := s.SetTrunk(0, true); err != nil {
		t.Fatal(err)
	}
	expect("the trunk before it is armed again", "[[] [] [] []]", far, GID{})
	s.activate(t, []uint32{3}, 1)
	expect("the trunk, armed at one end", "[[] [] [] []]", far, GID{})
	s.activate(t, []uint32{3}, 1, 3)
	expect("the trunk, active again", "[[] [] [] [x]]", far, GID{})

	for _, of := range [][][]int{{{4}}, {{-1}}, {{0}, {0}}, {make([]int, 14)}} {
		if s.SetSwitches(switchGUID, of) == nil {
			t.Errorf("switches with the ports %v are accepted", of)
		}
	}
	if s.SetTrunk(1, false) == nil || s.SetTrunk(-1, false) == nil {
		t.Error("there are two trunks")
	}
}

// No datagram makes the switch fail, or send it somewhere that isn't.
func FuzzSwitch(f *testing.F) {
	f.Add(smp(directed, methodSet, 0x15, 2, 1)[smpOffset:], uint16(PermissiveLID))
	f.Add(smp(1, methodSet, 0x19, 767)[smpOffset:], uint16(7))
	f.Fuzz(func(t *testing.T, mad []byte, dlid uint16) {
		s := newSubnet(3, 0)
		s.put(t, []int{0, 1}, []int{2})
		s.send(0, dlid, GID{}, string(append(make([]byte, smpOffset), mad...)))
		if got := fmt.Sprint(len(s.got[0]) + len(s.got[1]) + len(s.got[2])); got != "0" && got != "1" {
			t.Errorf("%s packets", got)
		}
	})
}
