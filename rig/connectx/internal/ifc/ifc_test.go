package ifc

import (
	"fmt"
	"testing"
)

// Sizes and offsets known from the hardware's interface, not from the table.
func TestKnown(t *testing.T) {
	for name, bytes := range map[string]int{
		"cmd_hca_cap": 0x100, "qpc": 232, "cqc": 64, "eqc": 64, "mkc": 64, "srqc": 64,
		"cmd_queue_entry": 64, "cmd_if_box": 576, "ads": 44, "enable_hca_in": 16,
		"create_cq_in": 272, "create_cq_out": 16, "create_mkey_in": 272,
	} {
		if got := Of(name).Size(); got != bytes {
			t.Errorf("%s has %d bytes, want %d", name, got, bytes)
		}
	}
	for _, want := range []struct {
		layout, path string
		offset       int
		width        int
	}{
		{"create_qp_in", "opcode", 0, 16},
		{"create_qp_out", "qpn", 0x48, 24},
		{"create_qp_in", "qpc.state", 24 * 8, 4},
		{"create_qp_in", "qpc.st", 24*8 + 8, 8},
		{"qpc", "primary_address_path.rgid_rip", 0xc0 + 0x80, 8},
		{"cmd_queue_entry", "ownership", 63*8 + 7, 1},
		{"cmd_hca_cap", "log_max_qp", 0x9b, 5},
		{"mkc", "len", 0xc0, 64},
	} {
		f := Of(want.layout).Field(want.path)
		if f.Offset != want.offset || f.Width != want.width {
			t.Errorf("%s.%s is at %#x, %d bits wide; want %#x, %d", want.layout, want.path, f.Offset, f.Width, want.offset, want.width)
		}
	}
}

// Fields lie within their layout, do not cross a word, and overlap only in unions.
func TestWellFormed(t *testing.T) {
	// The only unions with fields of their own, and the layouts that contain them.
	unions := map[string]bool{
		"modify_field_select_resize_field_select_auto": true, "modify_cq_in": true,
		"page_fault_resume_in_page_fault_info_auto": true, "page_fault_resume_in": true,
		"flow_table_context": true, "create_flow_table_in": true, "modify_flow_table_in": true,
		"dest_format_flow_counter_list_auto": true,
	}
	for name, l := range layouts {
		if l.Bits%8 != 0 {
			t.Errorf("%s has %d bits, no whole number of bytes", name, l.Bits)
		}
		owner := make([]string, l.Bits)
		for path, f := range l.paths {
			end := f.Offset + f.Width*f.Count
			if end > l.Bits {
				t.Errorf("%s.%s ends at bit %d of %d", name, path, end, l.Bits)
				continue
			}
			if f.layout != "" {
				if layouts[f.layout] == nil {
					t.Errorf("%s.%s has the unknown layout %s", name, path, f.layout)
				}
				continue
			}
			if f.Width < 32 && f.Offset%32+f.Width > 32 || f.Width > 64 && f.Width%32 != 0 {
				t.Errorf("%s.%s: %d bits at %#x", name, path, f.Width, f.Offset)
			}
			for bit := f.Offset; bit < end; bit++ {
				if owner[bit] != "" && !unions[name] {
					t.Errorf("%s: %s and %s overlap", name, owner[bit], path)
					break
				}
				owner[bit] = path
			}
		}
	}
}

// Get returns what Set has set, and nothing else changes.
func TestSetGet(t *testing.T) {
	for name, l := range layouts {
		for path, f := range l.paths {
			if f.layout != "" || f.Count == 0 || f.Width > 64 || l.Size() < f.Offset/8+8 {
				continue
			}
			v := Make(name)
			v.Set(path, 1<<63|1<<31|0x5a5a5a5a)
			want := uint64(1<<63|1<<31|0x5a5a5a5a) & (1<<f.Width - 1)
			if got := v.Get(path); got != want {
				t.Fatalf("%s.%s: set %#x, got %#x", name, path, want, got)
			}
			v.Set(path, 0)
			for _, b := range v.Data {
				if b != 0 {
					t.Fatalf("%s.%s: setting it to 0 left % x", name, path, v.Data)
				}
			}
		}
	}
}

// A hostile driver's short inbox reads as zeros, and ignores what is set.
func TestShort(t *testing.T) {
	v := On("create_qp_in", make([]byte, 16))
	v.Set("qpc.state", 15)
	if got := v.Get("qpc.state"); got != 0 {
		t.Errorf("beyond the end: %d", got)
	}
	if v.Bytes("qpc") != nil || len(v.Sub("qpc").Data) != 0 || v.Bytes("pas") != nil {
		t.Error("there is memory beyond the end")
	}
}

func Example() {
	in := Make("create_qp_in")
	in.Set("opcode", 0x500)
	in.Set("qpc.log_sq_size", 7)
	fmt.Printf("%#x %d\n", in.Get("opcode"), in.Sub("qpc").Get("log_sq_size"))
	// Output: 0x500 7
}
