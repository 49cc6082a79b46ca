package ioctl

import (
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// TestDecodeWrite decodes a command in write(2)'s form, with a driver's part on both
// sides.
func TestDecodeWrite(t *testing.T) {
	const response = 0x200
	req := uapi.IbUverbsCreateCq{Response: imageBase + response, UserHandle: 0x1234, Cqe: 64, CompVector: 1, CompChannel: -1}
	body := append(encode(req), encode(uapi.Mlx5IbCreateCq{BufAddr: 0x7000, DbAddr: 0x8000, CqeSize: 64})...)
	m := image(encode(uapi.IbUverbsCmdHdr{
		Command: uapi.IB_USER_VERBS_CMD_CREATE_CQ, InWords: uint16(8+len(body)) / 4, OutWords: (8 + 8) / 4,
	}))
	m = append(m, body...)
	n := uint64(len(m))
	m = append(m, make([]byte, response-len(m))...)
	m = append(m, encode(uapi.IbUverbsCreateCqResp{CqHandle: 5, Cqe: 127})...)
	m = append(m, encode(uapi.Mlx5IbCreateCqResp{Cqn: 0x42})...)

	c, err := DecodeWrite(imageBase, n, uapi.RDMA_DRIVER_MLX5, m.read)
	if err != nil || c.Err != nil {
		t.Fatal(err, c.Err)
	}
	if c.Verb() != "create_cq" || !c.Written() {
		t.Errorf("decoded as %s, written %v", c.Verb(), c.Written())
	}
	args := plainFields(c.Args())
	if args["cqe"] != 64 || args["comp_channel"] != -1 || args["user_handle"] != 0x1234 || args["response"] != nil {
		t.Errorf("arguments: %v", args)
	}
	if d, _ := args["driver"].(fields); d["buf_addr"] != 0x7000 || d["cqe_size"] != 64 {
		t.Errorf("the driver's arguments: %v", args["driver"])
	}
	c.DecodeResults(m.read)
	out := plainFields(c.Results())
	if d, _ := out["driver"].(fields); out["cq"] != 5 || out["cqe"] != 127 || d["cqn"] != 0x42 {
		t.Errorf("results: %v", out)
	}
}

// TestDecodeWriteExtended decodes a command with the second header, which has the
// response's address.
func TestDecodeWriteExtended(t *testing.T) {
	const response = 0x100
	m := image(encode(uapi.IbUverbsCmdHdr{
		Command: uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED | uapi.IB_USER_VERBS_EX_CMD_CREATE_CQ, InWords: 4, OutWords: 2,
	}))
	m = append(m, encode(uapi.IbUverbsExCmdHdr{Response: imageBase + response})...)
	m = append(m, encode(uapi.IbUverbsExCreateCq{UserHandle: 1, Cqe: 9, CompChannel: -1})...)
	n := uint64(len(m))
	m = append(m, make([]byte, response-len(m))...)
	m = append(m, encode(uapi.IbUverbsExCreateCqResp{Base: uapi.IbUverbsCreateCqResp{CqHandle: 3, Cqe: 15}, ResponseLength: 16})...)
	c, err := DecodeWrite(imageBase, n, uapi.RDMA_DRIVER_RXE, m.read)
	if err != nil || c.Err != nil {
		t.Fatal(err, c.Err)
	}
	c.DecodeResults(m.read)
	if args, out := plainFields(c.Args()), plainFields(c.Results()); c.Verb() != "create_cq_ex" || args["cqe"] != 9 || out["cq"] != 3 {
		t.Errorf("%s(%v) = %v", c.Verb(), args, out)
	}
}

// TestWordsOfAWrite: an extended header counts in words of eight bytes, the other in
// words of four. Bytes as in struct ib_uverbs_cmd_hdr and ib_uverbs_ex_cmd_hdr.
func TestWordsOfAWrite(t *testing.T) {
	type part struct {
		id   uint16
		n    uint16
		data uint64
	}
	response := []byte{0, 2, 1, 0, 0, 0, 0, 0} // imageBase + 0x200
	const at = imageBase + 0x200
	for _, x := range []struct {
		name  string
		bytes []byte
		want  []part
	}{
		{"extended", slices.Concat(
			[]byte{18, 0, 0, 0x80, 4, 0, 2, 0},       // CREATE_CQ, 4 words of request, 2 of response
			response, []byte{1, 0, 3, 0, 0, 0, 0, 0}, // the driver's: 1 and 3
			make([]byte, 32+8),
		), []part{
			{uapi.UVERBS_ATTR_CORE_IN, 32, imageBase + 24}, {uapi.UVERBS_ATTR_UHW_IN, 8, imageBase + 56},
			{uapi.UVERBS_ATTR_CORE_OUT, 16, at}, {uapi.UVERBS_ATTR_UHW_OUT, 24, at + 16},
		}},
		{"plain", slices.Concat(
			[]byte{18, 0, 0, 0, 12, 0, 5, 0}, // CREATE_CQ, 12 words of all, 5 of response
			response, make([]byte, 24+8),
		), []part{
			{uapi.UVERBS_ATTR_CORE_IN, 32, imageBase + 8}, {uapi.UVERBS_ATTR_UHW_IN, 8, imageBase + 40},
			{uapi.UVERBS_ATTR_CORE_OUT, 8, at}, {uapi.UVERBS_ATTR_UHW_OUT, 12, at + 8},
		}},
		{"without a response", slices.Concat(
			[]byte{18, 0, 0, 0x80, 4, 0, 0, 0}, make([]byte, 16), make([]byte, 32),
		), []part{{uapi.UVERBS_ATTR_CORE_IN, 32, imageBase + 24}}},
		{"less than it says", slices.Concat(
			[]byte{18, 0, 0, 0x80, 4, 0, 0, 0}, make([]byte, 8), []byte{2, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 40),
		), []part{{uapi.UVERBS_ATTR_CORE_IN, 32, imageBase + 24}, {uapi.UVERBS_ATTR_UHW_IN, 8, imageBase + 56}}},
	} {
		m := image(x.bytes)
		n := uint64(len(m))
		m = append(m, make([]byte, 0x400)...)
		c, err := DecodeWrite(imageBase, n, uapi.RDMA_DRIVER_MLX5, m.read)
		if err != nil || c.Err != nil {
			t.Fatal(x.name, err, c.Err)
		}
		var got []part
		for _, a := range c.Attrs[1:] {
			got = append(got, part{a.Raw.AttrId, a.Raw.Len, a.Raw.Data})
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %+v, want %+v", x.name, got, x.want)
		}
	}
}

// TestDecodeWriteLies decodes commands with a wrong header or length.
func TestDecodeWriteLies(t *testing.T) {
	m := image(encode(uapi.IbUverbsCmdHdr{Command: 0x1234, InWords: 0xffff, OutWords: 0xffff}))
	m = append(m, "some bytes"...)
	c, err := DecodeWrite(imageBase, uint64(len(m)), uapi.RDMA_DRIVER_RXE, m.read)
	if err != nil {
		t.Fatal(err)
	}
	if got := plainFields(c.Args()); got["core_in"] != "some bytes" {
		t.Errorf("an unknown command: %v", got)
	}
	if _, err := DecodeWrite(imageBase, 7, uapi.RDMA_DRIVER_RXE, m.read); err == nil || !strings.Contains(err.Error(), "7 bytes") {
		t.Errorf("a command without a header: %v", err)
	}
	if _, err := DecodeWrite(16, 64, uapi.RDMA_DRIVER_RXE, m.read); err == nil {
		t.Error("a command at a bad address is no error")
	}
	// The header claims more than there is: only the bytes passed to write(2) are decoded.
	c, err = DecodeWrite(imageBase, 1<<40, uapi.RDMA_DRIVER_RXE, m.read)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Attrs {
		if a.Raw.AttrId == uapi.UVERBS_ATTR_CORE_IN && a.In.Err == nil {
			t.Errorf("read %d bytes of %d", len(a.In.Bytes), len(m))
		}
	}
}

func FuzzDecodeWrite(f *testing.F) {
	f.Add(encode(uapi.IbUverbsCmdHdr{Command: uapi.IB_USER_VERBS_CMD_CREATE_CQ, InWords: 12, OutWords: 4}), uint64(48))
	f.Add(encode(uapi.IbUverbsCmdHdr{Command: uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED | uapi.IB_USER_VERBS_EX_CMD_CREATE_QP, InWords: 1}), uint64(32))
	f.Fuzz(func(t *testing.T, b []byte, n uint64) {
		m := image(b)
		for _, d := range []uapi.RdmaDriverId{uapi.RDMA_DRIVER_RXE, uapi.RDMA_DRIVER_MLX5} {
			c, err := DecodeWrite(imageBase, n, d, m.read)
			if err != nil {
				continue
			}
			c.DecodeResults(m.read)
			size := 0
			for _, v := range append(c.Args(), c.Results()...) {
				size += walk(&v.Value)
			}
			// Every byte is shown at most a few times.
			if size > 4096+64*len(b) {
				t.Errorf("%d values of %d bytes", size, len(b))
			}
		}
	})
}
