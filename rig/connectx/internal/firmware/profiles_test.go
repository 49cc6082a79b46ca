package firmware

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

func profile(t *testing.T, name string) Profile {
	t.Helper()
	p, ok := ProfileOf(name)
	if !ok {
		t.Fatalf("no profile %s", name)
	}
	return p
}

// capability queries a current capability.
func (d *driver) capability(kind int, field string) uint64 {
	d.t.Helper()
	out := d.doWith(0x100, 0, ifc.Of(capabilityLayouts[uint16(kind)]).Size(), set("op_mod", kind<<1|1))
	return ifc.On(capabilityLayouts[uint16(kind)], out.Data[16:]).Get(field)
}

// An HCA of each profile reports the profile's properties, also after a reset.
func TestProfiles(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Profiles {
		if seen[p.Name] || p.Device>>12 != 1 || p.Major < 14 || p.About == "" {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
		for _, ethernet := range []bool{true, false} {
			if p.Ethernet && !ethernet {
				continue
			}
			d := startedAs(t, ethernet, p)
			for kind, fields := range p.Capabilities {
				for field, want := range fields {
					if !ethernet && promises[kind] == nil {
						want = 0
					}
					if got := d.capability(int(kind), field); got != want {
						t.Errorf("%s: %s is %d, want %d", p.Name, field, got, want)
					}
				}
			}
			if got := d.read(segFirmware) & 0xffff; got != uint32(p.Major) {
				t.Errorf("%s: firmware version %d", p.Name, got)
			}
			if got := hasBit(d.doWith(0x100, 0, 256, set("op_mod", 1)).Data[16:], 0x62); got == p.Unordered {
				t.Errorf("%s: data in order: %t", p.Name, got)
			}
			if got := d.do(0x762, nil).Flag("hca_vport_context.grh_required"); got != p.GRHRequired {
				t.Errorf("%s: GRH required: %t", p.Name, got)
			}
		}
	}
	if _, ok := ProfileOf("connectx1"); ok {
		t.Error("there is a ConnectX-1")
	}
}

// The supported ECE options are returned.
func TestECE(t *testing.T) {
	for name, want := range map[string]int{"connectx6": 0, "connectx7": 0x10000002} {
		d := startedAs(t, false, profile(t, name))
		s := d.setup()
		create := d.qp(s, serviceRC)
		out := d.doWith(0x500, 8, 0, func(in ifc.View) {
			create(in)
			in.Set("ece", 0xf0000002)
		})
		qpn := int(out.Get("qpn"))
		if got := int(out.Get("ece")); got != want {
			t.Errorf("%s: created with %#x", name, got)
		}
		init := d.do(0x502, set("qpn", qpn, "qpc.primary_address_path.vhca_port_num", 1))
		if got := int(init.Get("ece")); got != want {
			t.Errorf("%s: initialized with %#x", name, got)
		}
		rtr := d.do(0x503, set("qpn", qpn, "qpc.mtu", 3, "qpc.log_msg_max", 30, "ece", 0x10000001))
		if got, want := int(rtr.Get("ece")), want&^2|want>>28; got != want {
			t.Errorf("%s: ready to receive with %#x, want %#x", name, got, want)
		}
		if got, want := int(d.do(0x50b, set("qpn", qpn)).Get("ece")), want&^2|want>>28; got != want {
			t.Errorf("%s: queried %#x", name, got)
		}
	}
}

// Queues get the supported kinds of timestamps.
func TestTimestampFormats(t *testing.T) {
	for _, c := range []struct {
		promised, format uint64
		realTime, ok     bool
	}{
		{stampsFree, formatFree, false, true}, {stampsFree, formatDefault, false, true}, {stampsFree, formatRealTime, true, false},
		{stampsRealTime, formatFree, false, false}, {stampsRealTime, formatDefault, true, true}, {stampsRealTime, formatRealTime, true, true},
		{stampsBoth, formatFree, false, true}, {stampsBoth, formatDefault, false, true}, {stampsBoth, formatRealTime, true, true},
		{stampsBoth, 3, false, false},
	} {
		realTime, ok := stamps(c.promised, c.format)
		if ok != c.ok || ok && realTime != c.realTime {
			t.Errorf("of %d, %d gets %t, %t", c.promised, c.format, realTime, ok)
		}
	}
	for name, want := range map[string][3]bool{ // whether QPs can be created with each format
		"connectx5": {true, true, false}, "connectx7": {true, true, true}, "realtime": {false, true, true},
	} {
		d := startedAs(t, true, profile(t, name))
		s := d.setup()
		for format, ok := range want {
			create := d.qp(s, serviceRC)
			out, status := d.try(0x500, 8, 0, func(in ifc.View) {
				create(in)
				in.Set("qpc.ts_format", uint64(format))
			})
			if (status == OK) != ok {
				t.Errorf("%s: format %d: status %#x", name, format, status)
			}
			if status == OK {
				q, _ := d.h.engine.QueryQP(uint32(out.Get("qpn")))
				if q.RealTime != (format == formatRealTime || name == "realtime") {
					t.Errorf("%s: format %d: real time %t", name, format, q.RealTime)
				}
			}
		}
	}
	d := started(t)
	free := d.h.timestamp(false)
	d.h.c.Start = time.Unix(7, 0)
	if real := d.h.timestamp(true); real>>32 != 7 || real&0xffffffff <= free {
		t.Errorf("%d ticks, then %#x", free, real)
	}
}

// HCAs without offloads refuse them for raw packets, and only the older HCAs require an
// inline header.
func TestOffloads(t *testing.T) {
	frame := make([]byte, 100)
	without := profile(t, "connectx5")
	without.Name = "without"
	without.Capabilities = with(without.Capabilities, capEthernet, map[string]uint64{"csum_cap": 0})
	for name, want := range map[string]struct{ checks, bare bool }{
		"connectx6": {true, false}, "connectx4lx": {true, false}, "connectx5": {true, true}, "without": {false, true},
	} {
		sent := func(checks byte, inline int) bool {
			p := without
			if name != "without" {
				p = profile(t, name)
			}
			d := startedAs(t, true, p)
			q := d.raw(int(d.do(0x816, nil).Get("transport_domain")), false)
			q.sendInline(frame, checks, inline)
			cqe := q.next()
			return cqe != nil && cqe[63]>>4 == 0
		}
		if !sent(0, 18) {
			t.Errorf("%s: a frame is not sent", name)
		}
		if got := sent(1<<6|1<<7, 18); got != want.checks {
			t.Errorf("%s: with checksums a frame is sent: %t", name, got)
		}
		if got := sent(0, 0); got != want.bare {
			t.Errorf("%s: without anything inline a frame is sent: %t", name, got)
		}
	}
}

// Large sends are limited by the capability.
func TestLargestSend(t *testing.T) {
	for name, limit := range map[string]int{"connectx6": 1 << 18, "tso64k": 1 << 16} {
		for length, ok := range map[int]bool{limit: true, limit + 1: false} {
			d := startedAs(t, true, profile(t, name))
			q := d.raw(int(d.do(0x816, nil).Get("transport_domain")), false)
			at := d.pages((length + PageSize - 1) / PageSize)
			wqe := q.sq[:64]
			const large = 0x0e
			binary.BigEndian.PutUint32(wqe, large)
			binary.BigEndian.PutUint32(wqe[4:], uint32(q.sqn)<<8|4)
			wqe[11] = 8
			binary.BigEndian.PutUint16(wqe[22:], 1000) // of each frame
			binary.BigEndian.PutUint16(wqe[28:], 18)
			binary.BigEndian.PutUint32(wqe[48:], uint32(length))
			binary.BigEndian.PutUint32(wqe[52:], q.lkey)
			binary.BigEndian.PutUint64(wqe[56:], at)
			bus.Store32(q.sdbr[4:], 1)
			d.h.Write(uint64(q.uar)*PageSize+uarSend, wqe[:8])
			d.settle()
			if cqe := q.next(); cqe == nil || (cqe[63]>>4 == 0) != ok {
				t.Errorf("%s: %d bytes: completion %x", name, length, cqe)
			}
		}
	}
}

// An HCA that doesn't support the host's byte order has big-endian atomics, and no command
// changes that.
func TestBigEndianAtomics(t *testing.T) {
	d := newDriverAs(t, false, profile(t, "bigendian"))
	d.do(0x104, nil)
	body := ifc.Of("atomic_caps").Size()
	for mode, want := range []Status{OK, BadParam} {
		_, status := d.try(0x109, body, 0, func(in ifc.View) {
			in.Set("op_mod", capAtomic<<1)
			ifc.On("atomic_caps", in.Data[16:]).Set("atomic_req_8B_endianness_mode", uint64(mode))
		})
		if status != want {
			t.Errorf("mode %d: status %#x, want %#x", mode, status, want)
		}
	}
}

// Commands can name a bond's ports if the profile supports bonding. There is no bond.
func TestPortAffinity(t *testing.T) {
	for name, ports := range map[string]int{"connectx5": 0, "connectx6dx": 2} {
		d := startedAs(t, true, profile(t, name))
		out, status := d.try(0x842, 0, 0, nil)
		if (status == OK) != (ports > 0) || status == OK && out.Get("ctx.lag_state") != 0 {
			t.Errorf("%s: the bond's state: status %#x", name, status)
		}
		domain := int(d.do(0x816, nil).Get("transport_domain"))
		for port := range 4 {
			want := BadParam
			if port <= ports {
				want = OK
			}
			if _, status := d.try(0x912, 0, 0, set("ctx.transport_domain", domain, "ctx.lag_tx_port_affinity", port)); status != want {
				t.Errorf("%s: a TIS for port %d: status %#x", name, port, status)
			}
		}
		tisn := int(d.do(0x912, set("ctx.transport_domain", domain)).Get("tisn"))
		_, status = d.try(0x913, 0, 0, set("tisn", tisn, "bitmask.lag_tx_port_affinity", 1, "ctx.lag_tx_port_affinity", 2))
		got := d.do(0x915, set("tisn", tisn)).Get("tis_context.lag_tx_port_affinity")
		if (status == OK) != (ports == 2) || (got == 2) != (ports == 2) {
			t.Errorf("%s: port 2: status %#x, then %d", name, status, got)
		}
		d.refused(BadParam, 0x913, set("tisn", tisn, "bitmask.lag_tx_port_affinity", 1, "ctx.lag_tx_port_affinity", 3))
	}
}

// Queues are as short, and objects as few, as a profile says.
func TestLimits(t *testing.T) {
	d := startedAs(t, false, profile(t, "taken"))
	s := d.setup()
	at := d.pages(2)
	srq := func(logSize int) func(in ifc.View) {
		return func(in ifc.View) {
			context := in.Sub("srq_context_entry")
			context.Set("log_srq_size", uint64(logSize))
			context.Set("log_rq_stride", 1)
			context.Set("pd", uint64(s.pd))
			context.Set("dbr_addr", at+PageSize)
			in.SetAt("pas", 0, at)
		}
	}
	for i, want := range []Status{OK, OK, NoRes} {
		if _, status := d.try(0x700, 8, 0, srq(4)); status != want {
			t.Errorf("SRQ %d: status %#x, want %#x", i, status, want)
		}
	}
	for i, want := range []Status{OK, NoRes} { // setup has the first
		if _, status := d.try(0x80e, 0, 0, nil); status != want {
			t.Errorf("XRC domain %d: status %#x, want %#x", i+1, status, want)
		}
	}

	d = startedAs(t, false, profile(t, "tiny"))
	s = d.setup()
	at = d.pages(2)
	if _, status := d.try(0x700, 8, 0, srq(6)); status != LimitErr {
		t.Errorf("a long SRQ: status %#x", status)
	}
	create := d.qp(s, serviceRC)
	for _, field := range []string{"qpc.log_rq_size", "qpc.log_sq_size"} {
		if _, status := d.try(0x500, 8, 0, func(in ifc.View) { create(in); in.Set(field, 10) }); status != LimitErr {
			t.Errorf("%s: status %#x", field, status)
		}
	}
}
