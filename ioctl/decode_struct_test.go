package ioctl

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// A struct is decoded as far as its bytes reach, and bytes beyond it are shown.
func TestDecodeStructs(t *testing.T) {
	u16 := uapi.Type{Kind: uapi.TypeUint, Size: 2}
	closed := &uapi.Struct{CName: "closed", Size: 6, Fields: []uapi.Field{
		{CName: "a", Offset: 0, Size: 2, Type: u16},
		{CName: "reserved", Offset: 2, Size: 2, Type: u16},
		{CName: "b", Offset: 4, Size: 2, Type: u16},
	}}
	open := &uapi.Struct{CName: "open", Size: 2, Fields: []uapi.Field{
		{CName: "n", Offset: 0, Size: 2, Type: u16},
		{CName: "list", Offset: 2, Type: uapi.Type{Kind: uapi.TypeArray, Len: -1, Elem: &u16}},
	}}
	three := uapi.Type{Kind: uapi.TypeArray, Size: 6, Len: 3, Elem: &u16}
	pair := &uapi.Struct{CName: "pair", Size: 6, Fields: []uapi.Field{{CName: "x", Size: 6, Type: three}}}
	for _, x := range []struct {
		name string
		s    *uapi.Struct
		b    []byte
		want fields
	}{
		{"whole", closed, []byte{1, 0, 0, 0, 2, 1}, fields{"a": 1, "b": 0x102}},
		{"what is reserved, set", closed, []byte{1, 0, 7, 0, 2, 0}, fields{"a": 1, "reserved": 7, "b": 2}},
		{"a byte short", closed, []byte{1, 0, 0, 0, 2}, fields{"a": 1}},
		{"nothing", closed, nil, fields{}},
		{"more", closed, []byte{1, 0, 0, 0, 2, 0, 'x', 'y'}, fields{"a": 1, "b": 2, "beyond_closed": "xy"}},
		{"a list", open, []byte{9, 0, 1, 0, 2, 0}, fields{"n": 9, "list": []any{1, 2}}},
		{"an empty list", open, []byte{9, 0}, fields{"n": 9}},
		{"a list with half an element", open, []byte{9, 0, 1, 0, 2}, fields{"n": 9, "list": []any{1}}},
		{"an array", pair, []byte{1, 0, 2, 0, 3, 0}, fields{"x": []any{1, 2, 3}}},
	} {
		// The bytes after it are not part of the struct.
		b := append(slices.Clone(x.b), 0xee, 0xee, 0xee)[:len(x.b)]
		check(t, x.name, DecodeStruct(x.s, b), x.want)
	}
}

// Each bit of a modify_qp's mask shows its fields, and no others. Bits as enum
// ib_qp_attr_mask has them.
func TestSelectedQPAttrs(t *testing.T) {
	all := func() []NamedValue {
		return decodeFields(uapi.StructIbUverbsExModifyQp, slices.Repeat([]byte{1}, uapi.StructIbUverbsExModifyQp.Size))
	}
	for bit, want := range map[int][]string{
		0: {"qp_state"}, 1: {"cur_qp_state"}, 2: {"en_sqd_async_notify"}, 3: {"qp_access_flags"}, 4: {"pkey_index"},
		5: {"port_num"}, 6: {"qkey"}, 7: {"dest"}, 8: {"path_mtu"}, 9: {"timeout"}, 10: {"retry_cnt"}, 11: {"rnr_retry"},
		12: {"rq_psn"}, 13: {"max_rd_atomic"}, 14: {"alt_dest", "alt_pkey_index", "alt_port_num", "alt_timeout"},
		15: {"min_rnr_timer"}, 16: {"sq_psn"}, 17: {"max_dest_rd_atomic"}, 18: {"path_mig_state"}, 19: nil,
		20: {"dest_qp_num"}, 25: {"rate_limit"},
	} {
		values := inlineBase(all())
		for i := range values {
			if values[i].Name == "attr_mask" {
				values[i].Value.Num = 1 << bit
			}
		}
		var got []string
		for _, f := range selectedQPAttrs(values) {
			switch f.Name {
			case "qp", "attr_mask", "reserved":
			default:
				got = append(got, f.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("bit %d shows %v, want %v", bit, got, want)
		}
	}
}

// Mandatory outputs are read even if the kernel didn't mark them, other outputs only if it
// did.
func TestDecodeMarkedOutputs(t *testing.T) {
	for _, marked := range []bool{false, true} {
		m := newImage(uapi.RDMA_DRIVER_MLX5, uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE,
			uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM},
			uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_OUT})
		m.payload(0, uint32(5))
		m.payload(1, uint32(17))
		c := decode(t, m)
		want := fields{"qp_num": 5}
		if marked {
			m.set(1, uapi.UVERBS_ATTR_F_VALID_OUTPUT, 0)
			want["driver"] = fields{"bfreg_index": 17}
		}
		c.DecodeResults(m.read)
		check(t, "outputs", c.Results(), want)
	}
}

// The minimum and the maximum lengths of a write command.
func TestDecodeWriteBounds(t *testing.T) {
	m := image([]byte{18, 0, 0, 0, 2, 0, 0, 0}) // CREATE_CQ, all of it a header
	if c, err := DecodeWrite(imageBase, 8, uapi.RDMA_DRIVER_RXE, m.read); err != nil || c.Verb() != "create_cq" {
		t.Errorf("a header alone: %v", err)
	}
	m = append(m, make([]byte, 1<<17)...)
	c, err := DecodeWrite(imageBase, 1<<16+8, uapi.RDMA_DRIVER_RXE, m.read)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Attrs {
		if a.Raw.AttrId == uapi.UVERBS_ATTR_UHW_IN && a.Raw.Len != 1<<16-32 {
			t.Errorf("driver's part of %d bytes, want %d", a.Raw.Len, 1<<16-32)
		}
	}
	m[3] = 0x12 // an unknown command, all of which counts as the core's
	if c, err = DecodeWrite(imageBase, 1<<16+8, uapi.RDMA_DRIVER_RXE, m.read); err != nil || c.Attrs[1].Raw.Len != 1<<16-1 {
		t.Errorf("64 KiB: %+v, %v", c.Attrs[1].Raw, err)
	}
}
