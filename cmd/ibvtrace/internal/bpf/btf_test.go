package bpf

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// A builder makes type information.
type builder struct{ types, names []byte }

func (b *builder) name(s string) uint32 {
	if s == "" {
		return 0
	}
	b.names = append(b.names, s+"\x00"...)
	return uint32(len(b.names) - len(s) - 1)
}

func (b *builder) add(name string, info uint32, more ...uint32) {
	for _, v := range append([]uint32{b.name(name), info, 0}, more...) {
		b.types = binary.LittleEndian.AppendUint32(b.types, v)
	}
}

func (b *builder) bytes() []byte {
	out := binary.LittleEndian.AppendUint16(nil, btfMagic)
	out = append(out, 1, 0)
	for _, v := range []int{24, 0, len(b.types), len(b.types), len(b.names)} {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return append(append(out, b.types...), b.names...)
}

func someBTF() []byte {
	b := &builder{names: []byte{0}}
	b.add("int", kindInt<<24, 0x20)                        // 1
	b.add("", kindArray<<24, 1, 1, 3)                      // 2
	b.add("e", kindEnum<<24|2, 0, 0, 0, 1)                 // 3
	b.add("", kindStruct<<24|1, b.name("inner"), 1, 32)    // 4
	b.add("", kindUnion<<24|2, b.name("x"), 1, 0, 0, 4, 0) // 5
	b.add("s", kindStruct<<24|3, b.name("a"), 1, 0, 0, 5, 64, b.name("z"), 1, 128)
	b.add("bits", 1<<31|kindStruct<<24|2, b.name("f"), 1, 3<<24|40, b.name("g"), 1, 64)
	b.add("loop", kindStruct<<24|1, 0, 8, 0) // 8: contains itself
	b.add("s", kindUnion<<24|1, b.name("a"), 1, 800)
	return b.bytes()
}

// offsets parses type information, and looks up fields.
func offsets(info []byte, fields ...string) (map[string]int, error) {
	t, err := ParseBTF(info)
	if err != nil {
		return nil, err
	}
	return t.Offsets(fields...)
}

func TestOffsets(t *testing.T) {
	got, err := offsets(someBTF(), "s.a", "s.x", "s.inner", "s.z", "bits.f", "bits.g")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"s.a": 0, "s.x": 8, "s.inner": 12, "s.z": 16, "bits.f": 5, "bits.g": 8} {
		if got[name] != want {
			t.Errorf("%s is at %d, want %d", name, got[name], want)
		}
	}
	for _, name := range []string{"s.b", "t.a", "loop.a"} {
		if _, err := offsets(someBTF(), "s.a", name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFunction: the IDs and names of a module follow those of the kernel.
func TestFunction(t *testing.T) {
	b := &builder{names: []byte{0}}
	b.add("int", kindInt<<24, 0x20)
	b.add("", kindFuncProto<<24)
	b.add("start", kindFunc<<24)
	shared := uint32(len(b.names))
	b.name("shared")
	kernel, err := ParseBTF(b.bytes())
	if err != nil {
		t.Fatal(err)
	}
	own := &builder{}
	n := uint32(len(b.names))
	for _, name := range []uint32{n + own.name("first"), shared} {
		for _, v := range []uint32{name, kindFunc << 24, 2} {
			own.types = binary.LittleEndian.AppendUint32(own.types, v)
		}
	}
	module, err := kernel.Module(own.bytes())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"first": 4, "shared": 5, "start": 0} {
		if got, err := module.Function(name); got != want || errors.Is(err, fs.ErrNotExist) != (want == 0) {
			t.Errorf("the module's %s has the ID %d, %v, want %d", name, got, err, want)
		}
	}
	if got, err := kernel.Function("start"); got != 3 || err != nil {
		t.Errorf("the kernel's function has the ID %d, %v", got, err)
	}
}

// Information that is cut off is an error.
func TestShortBTF(t *testing.T) {
	whole := someBTF()
	for n := range whole {
		if _, err := offsets(whole[:n], "s.z"); err == nil {
			t.Errorf("%d of %d bytes are valid", n, len(whole))
		}
	}
}

// TestKernelBTF reads this kernel's information.
func TestKernelBTF(t *testing.T) {
	info, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if os.IsNotExist(err) {
		return // the tests with devices have it
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := offsets(info, "list_head.next", "list_head.prev", "vm_area_struct.vm_start", "inode.i_rdev")
	if err != nil || got["list_head.next"] != 0 || got["list_head.prev"] != 8 {
		t.Errorf("%v, %v", got, err)
	}
}
