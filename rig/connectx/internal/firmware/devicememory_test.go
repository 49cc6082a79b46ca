package firmware

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/mkey"
)

// TestDeviceMemory: what is allocated of the device's memory can be written and read through
// the BAR, and a key leads to the same bytes.
func TestDeviceMemory(t *testing.T) {
	d := started(t)
	h := d.h
	bar := h.caps.current[capDeviceMem].Get("memic_bar_start_addr")
	if bar != 64*PageSize || h.caps.current[capDeviceMem].Get("memic_bar_size") != DeviceMemory {
		t.Fatalf("the memory is at %#x of the BAR", bar)
	}
	alloc := func(start uint64, span, size, align int) uint64 {
		return d.do(0x205, set("range_start_addr", int(start), "range_size", span, "memic_size", size, "log_memic_addr_alignment", align)).Get("memic_start_addr")
	}
	at := alloc(bar, 2*PageSize, PageSize+192, 0)
	if at != bar+PageSize-192 {
		t.Errorf("allocated at %#x", at)
	}
	whole := alloc(bar+2*PageSize, PageSize, 64, logMaxMemicAlign)
	if whole != bar+2*PageSize {
		t.Errorf("with the largest alignment: at %#x", whole)
	}
	for name, in := range map[string][]any{
		"nothing":               {"range_start_addr", int(bar) + 4*PageSize, "range_size", PageSize, "memic_size", 0},
		"a bit":                 {"range_start_addr", int(bar) + 4*PageSize, "range_size", PageSize, "memic_size", 65},
		"too much":              {"range_start_addr", int(bar) + 4*PageSize, "range_size", DeviceMemory / 2, "memic_size", DeviceMemory/2 + 64},
		"longer than its range": {"range_start_addr", int(bar) + 4*PageSize, "range_size", PageSize, "memic_size", PageSize + 64},
		"alignment":             {"range_start_addr", int(bar) + 4*PageSize, "range_size", PageSize, "memic_size", 64, "log_memic_addr_alignment", logMaxMemicAlign + 1},
		"before the BAR's":      {"range_start_addr", int(bar) - PageSize, "range_size", PageSize, "memic_size", 64},
		"after the BAR's":       {"range_start_addr", int(bar) + DeviceMemory, "range_size", PageSize, "memic_size", 64},
		"half a page":           {"range_start_addr", int(bar) + 64, "range_size", PageSize, "memic_size", 64},
	} {
		t.Run(name, func(t *testing.T) { d.refused(BadParam, 0x205, set(in...)) })
	}
	d.refused(NoRes, 0x205, set("range_start_addr", int(bar), "range_size", 2*PageSize, "memic_size", 64))

	want := []byte("memory of the device")
	h.Write(at+8, want)
	got := make([]byte, len(want))
	h.Read(at+8, got)
	if !bytes.Equal(got, want) {
		t.Errorf("read %q, wrote %q", got, want)
	}
	h.Write(bar+8*PageSize, want) // nobody's
	h.Read(bar+8*PageSize, got)
	if !bytes.Equal(got, make([]byte, len(got))) {
		t.Errorf("memory that nobody has reads %q", got)
	}
	pd := d.do(0x800, nil).Get("pd")
	const entry = "memory_key_mkey_entry."
	key := func(start uint64, n int) []any {
		return []any{entry + "access_mode_1_0", 1, entry + "access_mode_4_2", 1, entry + "start_addr", int(start), entry + "len", n,
			entry + "pd", int(pd), entry + "qpn", mkey.AnyQP, entry + "lr", 1, entry + "lw", 1}
	}
	index := d.do(0x200, set(key(at+8, 16)...)).Get("mkey_index")
	d.refused(BadParam, 0x200, set(key(bar-8, 16)...))
	d.refused(BadParam, 0x200, set(key(bar+DeviceMemory-8, 16)...))
	for _, tt := range []struct {
		addr uint64
		n    int
		f    mkey.Fault
	}{{0, 16, mkey.FaultNone}, {3, 5, mkey.FaultNone}, {1, 16, mkey.FaultBounds}, {17, 1, mkey.FaultBounds}, {at + 8, 1, mkey.FaultBounds}} {
		parts, f := h.keys.Resolve(nil, uint32(index)<<8, uint32(pd), 1, tt.addr, tt.n, mkey.LocalWrite)
		if f != tt.f || f == mkey.FaultNone && !bytes.Equal(bytes.Join(parts, nil), want[tt.addr:int(tt.addr)+tt.n]) {
			t.Errorf("[%#x, +%d): %q, fault %d, want %d", tt.addr, tt.n, parts, f, tt.f)
		}
	}
	d.hostile = true
	d.refused(BadParam, 0x206, set("memic_start_addr", int(at), "memic_size", 64))
	d.refused(BadParam, 0x206, set("memic_start_addr", int(at)+64, "memic_size", PageSize))
	d.do(0x206, set("memic_start_addr", int(at), "memic_size", PageSize+192))
	if len(d.violations) != 1 {
		t.Errorf("freed memory that a key leads to: %v", d.violations)
	}
	d.do(0x202, set("mkey_index", int(index)))
	h.Read(at+8, got)
	if !bytes.Equal(got, make([]byte, len(got))) {
		t.Errorf("freed memory reads %q", got)
	}
	d.do(0x206, set("memic_start_addr", int(whole), "memic_size", 64))
	if again := alloc(bar, 2*PageSize, PageSize+192, 0); again != at || len(d.violations) != 1 {
		t.Errorf("allocated again at %#x, violations %v", again, d.violations)
	}
}

// TestDeviceMemoryAfterReload: the next driver finds the memory where the first one did.
func TestDeviceMemoryAfterReload(t *testing.T) {
	d := started(t)
	d.do(0x103, nil) // TEARDOWN_HCA
	d.do(0x105, nil) // DISABLE_HCA
	d.do(0x104, nil) // ENABLE_HCA
	if bar := d.h.caps.current[capDeviceMem].Get("memic_bar_start_addr"); bar != 64*PageSize {
		t.Errorf("the memory is at %#x of the BAR", bar)
	}
}
