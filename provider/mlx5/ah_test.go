package mlx5

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestAddresses compares address vectors, in the layout of struct mlx5_wqe_av, with
// libmlx5's of the same attributes. Over InfiniBand no command reaches the kernel.
func TestAddresses(t *testing.T) {
	gid := [16]byte{0xfe, 0x80, 15: 9}
	global := func(flow uint32) uapi.IbUverbsAhAttr {
		return uapi.IbUverbsAhAttr{
			IsGlobal: 1, Sl: 5, StaticRate: 3,
			Grh: uapi.IbUverbsGlobalRoute{Dgid: gid, FlowLabel: flow, SgidIndex: 7, HopLimit: 0x40, TrafficClass: 0x20},
		}
	}
	const mac, grhBit = "\x02\x03\x04\x05\x06\x07", 1 << 30
	for _, tt := range []struct {
		name         string
		attr         uapi.IbUverbsAhAttr
		ethernet, v2 bool
		rateAndSL    byte
		rlid         uint16
		mac          string
		route        uint32
	}{
		{name: "LID", attr: uapi.IbUverbsAhAttr{Dlid: 0x1234, Sl: 5, SrcPathBits: 3}, rateAndSL: 5, rlid: 0x1234},
		{name: "GID", attr: global(0xabcde), rateAndSL: 8<<4 | 5, route: grhBit | 7<<20 | 0xabcde},
		{name: "RoCE", attr: global(0xabcde), ethernet: true, rateAndSL: 8<<4 | 5<<1, mac: mac, route: 7<<20 | 0xabcde},
		// The port of this flow: 0xabcde folds to 0x3cde ^ 0x2a.
		{name: "RoCE v2", attr: global(0xabcde), ethernet: true, v2: true, rateAndSL: 8<<4 | 5<<1, rlid: 0xfcf4, mac: mac, route: 7<<20 | 0xabcde},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := ioctl.NewWriteCreateAh()
			defer cmd.Release()
			c := &context{ahInKernel: true}
			p, err := c.NewAH(cmd, provider.AHInit{Attr: tt.attr, Link: func() (provider.Link, error) { return provider.Link{Ethernet: tt.ethernet, RoCEV2: tt.v2}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			if a := p.(*ah); a.resp != nil {
				copy(a.resp.Dmac[:], mac)
			}
			if p.Local() == tt.ethernet {
				t.Errorf("local: %t", p.Local())
			}
			var ref provider.AHRef
			if err := p.Adopt(&ref); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 0, 48)
			for _, word := range ref.Vector {
				b = binary.LittleEndian.AppendUint64(b, word)
			}
			if b[12] != tt.rateAndSL || binary.BigEndian.Uint16(b[14:]) != tt.rlid || binary.BigEndian.Uint32(b[28:]) != tt.route {
				t.Errorf("%x: rate and SL %#x, LID or port %#x, route %#x; want %#x, %#x, %#x", b,
					b[12], binary.BigEndian.Uint16(b[14:]), binary.BigEndian.Uint32(b[28:]), tt.rateAndSL, tt.rlid, tt.route)
			}
			if got := string(b[20:26]); tt.mac != "" && got != tt.mac {
				t.Errorf("MAC %x, want %x", got, tt.mac)
			}
			if tt.attr.IsGlobal != 0 && (b[26] != 0x20 || b[27] != 0x40 || [16]byte(b[32:]) != gid) {
				t.Errorf("traffic class %#x, hop limit %#x, GID %x", b[26], b[27], b[32:])
			}
		})
	}
	if port := sourcePort(0); port < 0xc000 {
		t.Errorf("port %#x for no flow", port)
	}
}

// TestGRHRequired: an InfiniBand port can require global addresses.
func TestGRHRequired(t *testing.T) {
	for _, global := range []uint8{0, 1} {
		cmd := ioctl.NewWriteCreateAh()
		_, err := new(context).NewAH(cmd, provider.AHInit{
			Attr: uapi.IbUverbsAhAttr{IsGlobal: global},
			Link: func() (provider.Link, error) { return provider.Link{GRHRequired: true}, nil },
		})
		if (err == nil) != (global == 1) {
			t.Errorf("global %d: %v", global, err)
		}
		cmd.Release()
	}
}

func TestAddressesRefused(t *testing.T) {
	lost := errors.New("lost")
	for name, tt := range map[string]struct {
		global   uint8
		inKernel bool
		link     error
		want     error
	}{
		"not global":          {0, true, nil, errNotGlobal},
		"an old kernel":       {1, false, nil, nil},
		"a port that is gone": {1, true, lost, lost},
	} {
		cmd := ioctl.NewWriteCreateAh()
		c := &context{ahInKernel: tt.inKernel}
		_, err := c.NewAH(cmd, provider.AHInit{
			Attr: uapi.IbUverbsAhAttr{IsGlobal: tt.global},
			Link: func() (provider.Link, error) { return provider.Link{Ethernet: true, RoCEV2: true}, tt.link },
		})
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		cmd.Release()
	}
}
