package monitor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/umad"
)

// host returns a Host with these files in its sysfs.
func host(t *testing.T, files map[string]string) Host {
	t.Helper()
	h := Host{Sysfs: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(h.Sysfs, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

const (
	mlx = "class/infiniband/mlx5_0/"
	rxe = "class/infiniband/rxe0/"
	siw = "class/infiniband/siw0/"
)

func three(t *testing.T) Host {
	return host(t, map[string]string{
		mlx + "node_type": "1: CA", mlx + "ports/1/state": "4: ACTIVE", mlx + "ports/1/phys_state": "5: LinkUp",
		mlx + "ports/1/rate": "100 Gb/sec (4X EDR)", mlx + "ports/1/lid": "0x1b", mlx + "ports/1/sm_lid": "0x1", mlx + "ports/1/link_layer": "InfiniBand",
		mlx + "ports/2/state": "2: INIT", mlx + "ports/2/phys_state": "4: PortConfigurationTraining", mlx + "ports/2/rate": "2.5 Gb/sec (1X SDR)",
		mlx + "ports/2/lid": "0xffff", mlx + "ports/2/sm_lid": "0x0", mlx + "ports/2/link_layer": "InfiniBand",
		mlx + "ports/1/counters/port_xmit_data": "250", mlx + "ports/1/counters/port_rcv_packets": "7", mlx + "ports/1/counters/symbol_error": "3",
		mlx + "ports/1/counters/port_xmit_wait": "9", mlx + "ports/1/counters/link_downed": "N/A (no PMA)",
		mlx + "ports/1/hw_counters/lifespan": "10", mlx + "ports/1/hw_counters/out_of_buffer": "12", mlx + "ports/1/hw_counters/np_cnp_sent": "0",
		rxe + "node_type": "1: CA", rxe + "parent": "eth0", rxe + "ports/1/state": "1: DOWN", rxe + "ports/1/phys_state": "3: Disabled",
		rxe + "ports/1/rate": "2.5 Gb/sec (1X SDR)", rxe + "ports/1/lid": "0x0", rxe + "ports/1/sm_lid": "0x0", rxe + "ports/1/link_layer": "Ethernet",
		rxe + "ports/1/hw_counters/sent_pkts": "5", "class/net/eth0/mtu": "1103",
		siw + "node_type": "4: RNIC", siw + "ports/1/state": "4: ACTIVE", siw + "ports/1/phys_state": "5: LinkUp", siw + "ports/1/lid": "0x1",
		siw + "ports/1/sm_lid": "0x0", siw + "ports/1/link_layer": "Ethernet", siw + "ports/1/gid_attrs/ndevs/0": "eth0",
	})
}

func TestPorts(t *testing.T) {
	ports, err := three(t).Ports(t.Context())
	want := []Port{
		{Device: "mlx5_0", Number: 1, State: ib.PortActive, PhysState: ib.PhysLinkUp, LinkLayer: ib.LinkLayerInfiniBand, Rate: 100e9, Width: ib.Width4X, Speed: ib.SpeedEDR, LID: 27, SMLID: 1},
		{Device: "mlx5_0", Number: 2, State: ib.PortInit, PhysState: ib.PhysTraining, LinkLayer: ib.LinkLayerInfiniBand, Rate: 25e8, Width: ib.Width1X, Speed: ib.SpeedSDR, LID: 0xffff},
		{Device: "rxe0", Number: 1, State: ib.PortDown, PhysState: ib.PhysDisabled, LinkLayer: ib.LinkLayerEthernet, Rate: 25e8, Width: ib.Width1X, Speed: ib.SpeedSDR, MTU: ib.MTU512, Netdev: "eth0"},
		{Device: "siw0", Number: 1, State: ib.PortActive, PhysState: ib.PhysLinkUp, LinkLayer: ib.LinkLayerEthernet, Netdev: "eth0"},
	}
	if diff := cmp.Diff(want, ports); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	none, err := host(t, nil).Ports(t.Context())
	if len(none) != 0 || err != nil {
		t.Errorf("without devices there are %v, %v", none, err)
	}
	why := errors.New("no time")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := three(t).Ports(ctx); !errors.Is(err, why) {
		t.Errorf("a context that has ended: %v", err)
	}
	for _, p := range []Port{{Device: "mlx5_0", Number: 3}, {Device: "mlx5_1", Number: 1}, {Device: "../infiniband/mlx5_0", Number: 1}, {Number: 1}} {
		_, err := three(t).Port(t.Context(), p.Device, p.Number)
		_, err2 := three(t).Counters(t.Context(), p.Device, p.Number)
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err2, fs.ErrNotExist) {
			t.Errorf("%v: %v, %v", p, err, err2)
		}
	}
	strange := host(t, map[string]string{mlx + "ports/1/state": "what?", mlx + "ports/1/phys_state": "1", mlx + "ports/1/lid": "0", mlx + "ports/1/sm_lid": "0", mlx + "ports/1/link_layer": "new"})
	if p, err := strange.Ports(t.Context()); err == nil {
		t.Errorf("a state that is no number: %v", p)
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]struct {
		rate  uint64
		width ib.Width
		speed ib.Speed
	}{
		"2.5 Gb/sec (1X)":      {25e8, ib.Width1X, ib.SpeedSDR},
		"56 Gb/sec (4X FDR)":   {56e9, ib.Width4X, ib.SpeedFDR},
		"40 Gb/sec (4X FDR10)": {40e9, ib.Width4X, ib.SpeedFDR10},
		"800 Gb/sec (4X XDR)":  {800e9, ib.Width4X, ib.SpeedXDR},
		"1600 Gb/sec (8X new)": {1600e9, ib.Width8X, 0},
		"-1 Gb/sec (3X SDR)":   {0, 0, 0},
		"":                     {0, 0, 0},
	} {
		if rate, width, speed := parseRate(text); rate != want.rate || width != want.width || speed != want.speed {
			t.Errorf("%q: %d, %v, %v", text, rate, width, speed)
		}
	}
}

func TestCounters(t *testing.T) {
	h := three(t)
	for device, want := range map[string][]Counter{
		"mlx5_0": {
			{"port_rcv_packets", 7, UnitPackets, false, SourceSysfs}, {"port_xmit_data", 1000, UnitBytes, false, SourceSysfs},
			{"port_xmit_wait", 9, UnitTicks, false, SourceSysfs}, {"symbol_error", 3, UnitCount, false, SourceSysfs},
			{"np_cnp_sent", 0, UnitCount, false, SourceHWSysfs}, {"out_of_buffer", 12, UnitCount, false, SourceHWSysfs},
		},
		"rxe0": {{"sent_pkts", 5, UnitPackets, false, SourceHWSysfs}},
		"siw0": nil,
	} {
		got, err := h.Counters(t.Context(), device, 1)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", device, err, diff)
		}
	}
	for name, want := range map[string]Counter{
		"active_qps": {Gauge: true}, "Active QPs": {Gauge: true}, "watermark_mrs": {Gauge: true}, "rx_bytes": {Unit: UnitBytes},
		"ip4InOctets": {Unit: UnitBytes}, "np_ecn_marked_roce_packets": {Unit: UnitPackets}, "retry_exceeded_err": {},
	} {
		if got := newCounter(name, 5, 0); got.Gauge != want.Gauge || got.Unit != want.Unit || got.Value != 5 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if UnitBytes.String() != "bytes" || Unit(9).String() != "unknown(9)" || SourcePMA.String() != "PMA" || Source(0).String() != "unknown(0)" {
		t.Error("names of units and sources")
	}
}

// fake is the agent of a port, which answers with attributes.
type fake struct {
	attrs map[PMAAttribute][]byte
	asked []byte
	short bool
	other bool
}

func (f *fake) Close() error { return nil }

func (f *fake) Do(_ context.Context, m umad.Message) (umad.Message, error) {
	f.asked = bytes.Clone(m.MAD)
	attr := PMAAttribute(binary.BigEndian.Uint16(m.MAD[16:]))
	data, ok := f.attrs[attr]
	switch {
	case m.Addr != umad.Addr{LID: 9, QPN: 1, QKey: umad.GeneralQKey} || m.Timeout != time.Second || m.Retries != 2 || m.MAD[dataOffset+1] != 3:
		return umad.Message{}, errors.New("a request that goes elsewhere")
	case !ok:
		return umad.Message{}, umad.Status(0xc)
	case f.short:
		return umad.Message{MAD: m.MAD[:100]}, nil
	}
	if f.other {
		m.MAD[17]++
	}
	copy(m.MAD[dataOffset:], data)
	return umad.Message{MAD: m.MAD}, nil
}

// put writes a counter.
func put(data []byte, attr PMAAttribute, name string, v uint64) {
	for _, f := range attr.Fields() {
		if f.Name == name {
			for i := f.Offset + f.Bits - 1; i >= f.Offset; i, v = i-1, v>>1 {
				data[i/8] = data[i/8]&^(0x80>>(i%8)) | byte(v&1)<<(7-i%8)
			}
		}
	}
}

// TestPMA: each counter comes from the attribute with more bits for it, and counters that the
// port lacks are left out.
func TestPMA(t *testing.T) {
	basic, extended, class := make([]byte, 192), make([]byte, 192), make([]byte, 192)
	put(basic, PMACounters, "LocalLinkIntegrityErrors", 5)
	put(basic, PMACounters, "ExcessiveBufferOverrunErrors", 6)
	put(basic, PMACounters, "PortXmitData", math.MaxUint32)
	put(basic, PMACounters, "PortXmitWait", 8)
	put(basic, PMACounters, "SymbolErrorCounter", 0xffff)
	put(extended, PMAExtendedCounters, "PortXmitData", 1<<40)
	put(extended, PMAExtendedCounters, "SymbolErrorCounter", 1<<20)
	put(extended, PMAExtendedCounters, "PortUnicastRcvPkts", 11)
	f := &fake{attrs: map[PMAAttribute][]byte{attrClassPortInfo: class, PMACounters: basic, PMAExtendedCounters: extended}}
	p := &PMA{f, PMAOptions{Timeout: time.Second, Retries: 2}}
	values := func(caps PMACapabilities) map[string]Counter {
		t.Helper()
		binary.BigEndian.PutUint16(class[2:], uint16(caps))
		binary.BigEndian.PutUint32(class[4:], uint32(caps>>16)<<5|31)
		if got, err := p.Capabilities(t.Context(), 9, 3); got != caps || err != nil {
			t.Errorf("the capabilities are %#x, %v, want %#x", got, err, caps)
		}
		all, err := p.Counters(t.Context(), 9, 3)
		if err != nil {
			t.Fatal(err)
		}
		m := make(map[string]Counter)
		for _, c := range all {
			if _, twice := m[c.Name]; twice || c.Source != SourcePMA || c.Gauge {
				t.Errorf("%+v, twice %t", c, twice)
			}
			m[c.Name] = c
		}
		return m
	}
	for _, c := range []struct {
		caps PMACapabilities
		want map[string]uint64
		none []string
	}{
		{0, map[string]uint64{"port_xmit_data": 4 * math.MaxUint32, "symbol_error": 0xffff, "local_link_integrity_errors": 5, "excessive_buffer_overrun_errors": 6},
			[]string{"port_xmit_wait", "qp1_dropped", "unicast_rcv_packets"}},
		{PMATransmitWait | PMAQP1Dropped, map[string]uint64{"port_xmit_wait": 8, "qp1_dropped": 0}, []string{"unicast_rcv_packets"}},
		{PMAExtendedNoIETF, map[string]uint64{"port_xmit_data": 4 << 40, "symbol_error": 0xffff}, []string{"unicast_rcv_packets"}},
		{PMAExtended | PMAErrorCounters, map[string]uint64{"port_xmit_data": 4 << 40, "symbol_error": 1 << 20, "unicast_rcv_packets": 11, "port_xmit_wait": 0}, nil},
	} {
		got := values(c.caps)
		for name, v := range c.want {
			if got[name].Value != v {
				t.Errorf("%#x: %s is %+v, want %d", c.caps, name, got[name], v)
			}
		}
		for _, name := range c.none {
			if v, ok := got[name]; ok {
				t.Errorf("%#x: %+v", c.caps, v)
			}
		}
		if got["port_xmit_data"].Unit != UnitBytes || got["port_rcv_packets"].Unit != UnitPackets {
			t.Errorf("units: %+v", got)
		}
	}
	for attr, mask := range map[PMAAttribute][2]int{PMACounters: {18, 1}, PMAExtendedCounters: {4, 4}} {
		if err := p.Reset(t.Context(), 9, 3, attr, 0x5a1234); err != nil {
			t.Error(err)
		}
		data := f.asked[dataOffset:]
		second := uint64(data[18])
		if attr == PMAExtendedCounters {
			second = uint64(binary.BigEndian.Uint32(data[mask[0]:]))
		}
		if f.asked[3] != byte(umad.MethodSet) || binary.BigEndian.Uint16(data[2:]) != 0x1234 || second != 0x5a {
			t.Errorf("resetting %#x: % x", attr, f.asked[:96])
		}
	}
	if _, err := p.Read(t.Context(), 9, 3, PMAReceiveLevels); !errors.Is(err, umad.Status(0xc)) {
		t.Errorf("an attribute that the port hasn't: %v", err)
	}
	f.other = true
	if _, err := p.Counters(t.Context(), 9, 3); !errors.Is(err, umad.ErrMalformed) {
		t.Errorf("an answer about something else: %v", err)
	}
	f.short = true
	if _, err := p.Counters(t.Context(), 9, 3); !errors.Is(err, umad.ErrMalformed) {
		t.Errorf("a short answer: %v", err)
	}
}

// TestFields: no two counters of an attribute have the same bits, and their names are different.
func TestFields(t *testing.T) {
	for attr := range pmaFields {
		taken, names := make([]byte, 192), make(map[string]bool)
		for _, f := range attr.Fields() {
			most := uint64(math.MaxUint64) >> (64 - f.Bits)
			if f.Value(taken) != 0 || names[f.Name] {
				t.Errorf("%#x: %s is there before", attr, f.Name)
			}
			put(taken, attr, f.Name, most)
			names[f.Name] = true
			if f.Value(taken) != most || f.Value(nil) != 0 {
				t.Errorf("%#x: %s is %#x", attr, f.Name, f.Value(taken))
			}
		}
	}
}
