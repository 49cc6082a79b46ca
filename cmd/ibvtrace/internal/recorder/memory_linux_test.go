package recorder

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

func newMemory(t *testing.T) *Memory {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	m, err := NewMemory(fd, uapi.RDMA_DRIVER_RXE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := unix.Ftruncate(fd, 4096); err != unix.EPERM {
		t.Errorf("truncating the sealed file: %v, want EPERM", err)
	}
	return m
}

// write writes the record of an mmap into a slot, as the recorder does.
func (m *Memory) write(i int, thread, phase uint32, order uint64) {
	*m.slot(i) = slot{call: callMmap, order: order, args: [6]uint64{5: order}}
	*m.state(i) = thread<<phaseShift | phase
	if phase == phaseEnded {
		m.control().ended++
	}
}

func TestTake(t *testing.T) {
	m := newMemory(t)
	m.control().next = 9
	m.write(3, 7, phaseEnded, 2)
	m.write(0, 8, phaseEnded, 1)
	m.write(slots-1, 7, phaseEnded, 0)
	m.write(5, 7, phaseCalling, 0)
	var got []uint64
	m.Take(func(r *Record) { got = append(got, r.Args[5]) })
	m.Take(func(r *Record) { t.Errorf("again: %+v", r) })
	if !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("order: %v", got)
	}
	for i, want := range map[int]uint32{0: 0, 3: 0, slots - 1: 0, 5: 7<<phaseShift | phaseCalling} {
		if got := *m.state(i); got != want {
			t.Errorf("slot %d is in state %#x, want %#x", i, got, want)
		}
	}
	if m.control().next != 9 {
		t.Error("next was reset while a slot was in use")
	}
	m.write(5, 7, phaseEnded, 3)
	m.Take(func(*Record) {})
	if m.control().next != 0 {
		t.Error("next was not reset when all slots were free")
	}
}

// Take sees one record that finishes while it looks, but not the one that finished before that.
func TestTakeWhileRecording(t *testing.T) {
	m := newMemory(t)
	m.write(0, 7, phaseEnded, 0)
	m.write(1, 7, phaseCalling, 1)
	m.write(2, 7, phaseEnded, 2)
	m.control().ended-- // as it was when Take began
	var got []uint64
	take := func(r *Record) { got = append(got, r.Args[5]) }
	m.Take(take)
	if !slices.Equal(got, []uint64{0}) {
		t.Fatalf("took %v", got)
	}
	m.write(1, 7, phaseEnded, 1)
	m.control().ended++
	m.Take(take)
	if !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("order: %v", got)
	}
}

func TestUnfinished(t *testing.T) {
	m := newMemory(t)
	m.write(0, 7, phaseTaken, 0)
	m.write(1, 7, phaseCalling, 1)
	m.write(2, 8, phaseCalling, 2)
	var got []*Record
	m.Unfinished(func(tid int) bool { return tid == 7 }, func(r *Record) { got = append(got, r) })
	if len(got) != 1 || got[0].Thread != 7 || got[0].Returned || got[0].Args[5] != 1 {
		t.Errorf("%+v", got)
	}
	if *m.state(0) != 0 || *m.state(1) != 0 || *m.state(2) == 0 {
		t.Errorf("states: %#x %#x %#x", *m.state(0), *m.state(1), *m.state(2))
	}
}

func TestAllow(t *testing.T) {
	m := newMemory(t)
	for _, fd := range []int{-1, maxFDs, 1 << 30} { // ignored
		m.Allow(fd, true)
	}
	m.Allow(33, true)
	m.Allow(34, true)
	m.Allow(34, false)
	if got := m.control().fds; got != [maxFDs / 32]uint32{1: 2} {
		t.Errorf("%x", got)
	}
	m.Reset()
	if got := m.control().fds; got != [maxFDs / 32]uint32{} {
		t.Errorf("after Reset: %x", got)
	}
}

// TestControl: the data that the recorder reads is where it reads it: the methods of the driver,
// and a bit for each descriptor.
func TestControl(t *testing.T) {
	m := newMemory(t)
	c := m.control()
	if want := table(uapi.RDMA_DRIVER_RXE); len(want) == 0 || !slices.Equal(c.methods[:len(want)], want) || c.driver != uint32(uapi.RDMA_DRIVER_RXE) {
		t.Errorf("the recorder doesn't have the methods of driver %d", c.driver)
	}
	for _, fd := range []int{0, 1, 31, 32, 33, 34, 63, 64, 1000, maxFDs - 1} {
		m.Allow(fd, true)
		for i, word := range c.fds {
			want := uint32(0)
			if i == fd>>5 {
				want = 1 << (fd & 31)
			}
			if word != want {
				t.Errorf("descriptor %d: word %d is %#x, want %#x", fd, i, word, want)
			}
		}
		m.Allow(fd, false)
	}
	m.Allow(-1, true)
	m.Allow(maxFDs, true)
	if slices.ContainsFunc(c.fds[:], func(word uint32) bool { return word != 0 }) {
		t.Error("descriptors are recorded that no bit is for")
	}
}

// A slot's record is copied before the slot is free, because a thread of the program may fill it at
// once. Nothing else can see this order, so the test looks at the source.
func TestCopiedBeforeFree(t *testing.T) {
	source, err := os.ReadFile("memory_linux.go")
	if err != nil {
		t.Fatal(err)
	}
	_, free, _ := strings.Cut(string(source), "\nfunc (m *Memory) free(")
	copies, frees := strings.Index(free, "copy("), strings.Index(free, "atomic.StoreUint32(m.state(i), 0)")
	reads := strings.LastIndex(free, "m.b[slotsAt")
	if copies < 0 || copies > frees || reads < 0 || reads > frees {
		t.Errorf("a slot is free before it is copied: %d, %d, %d", copies, reads, frees)
	}
}
