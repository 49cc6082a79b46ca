package firmware

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

const (
	serviceRC = 0
	serviceUD = 2
)

// Commands move a QP through its states, and the objects that it uses can't be destroyed.
func TestQueuePair(t *testing.T) {
	d := started(t)
	s := d.setup()
	out := d.doWith(0x500, 8, 0, d.qp(s, serviceRC))
	qpn := int(out.Get("qpn"))
	d.refused(ResBusy, 0x401, set("cqn", s.cqn))
	d.refused(ResBusy, 0x801, set("pd", s.pd))
	d.refused(ResBusy, 0x803, set("uar", s.uar))
	d.refused(BadQPState, 0x504, set("qpn", qpn)) // to RTS from RST
	d.refused(BadRes, 0x502, set("qpn", qpn+1))

	path := func(in ifc.View) {
		in.Set("qpn", uint64(qpn))
		in.Set("qpc.primary_address_path.vhca_port_num", 1)
		in.Set("qpc.primary_address_path.rlid", 1)
		in.Set("qpc.pm_state", 3)
		in.Set("qpc.mtu", 3)
		in.Set("qpc.log_msg_max", 30)
		in.Set("qpc.remote_qpn", uint64(qpn))
		in.Set("qpc.next_send_psn", 0x123)
		in.Set("qpc.rwe", 1)
	}
	for i, opcode := range []uint16{0x502, 0x503, 0x504} {
		d.do(opcode, path)
		if got := d.do(0x50b, set("qpn", qpn)).Get("qpc.state"); got != uint64(i)+1 {
			t.Errorf("after %s the state is %d", opcodes[opcode].name, got)
		}
	}
	q := d.do(0x50b, set("qpn", qpn)).Sub("qpc")
	for field, want := range map[string]uint64{
		"log_sq_size": 4, "user_index": 7, "mtu": 3, "remote_qpn": uint64(qpn), "next_send_psn": 0x123,
		"rwe": 1, "primary_address_path.rlid": 1,
	} {
		if got := q.Get(field); got != want {
			t.Errorf("QUERY_QP: %s is %#x, want %#x", field, got, want)
		}
	}
	d.do(0x507, set("qpn", qpn))
	if got := transport.State(d.do(0x50b, set("qpn", qpn)).Get("qpc.state")); got != transport.Err {
		t.Errorf("after 2ERR_QP the state is %d", got)
	}
	d.do(0x50a, set("qpn", qpn))
	d.do(0x501, set("qpn", qpn))
	d.refused(BadRes, 0x501, set("qpn", qpn))
	d.do(0x401, set("cqn", s.cqn))
}

// A message that is never acknowledged fails after some timeouts. For each of them, Run
// returns the time of the next call.
func TestTimeouts(t *testing.T) {
	d := started(t)
	s := d.setup()
	create := d.qp(s, serviceRC)
	var sq []byte
	var record []byte
	qpn := d.doWith(0x500, 8, 0, func(in ifc.View) {
		create(in)
		sq = d.ram.Bytes(in.At("pas", 0)+16<<6, 64)
		record = d.ram.Bytes(in.Get("qpc.dbr_addr"), 8)
	}).Get("qpn")
	for _, opcode := range []uint16{0x502, 0x503, 0x504} {
		d.do(opcode, func(in ifc.View) {
			for field, value := range map[string]uint64{
				"primary_address_path.vhca_port_num": 1, "primary_address_path.rlid": 1, "primary_address_path.ack_timeout": 1,
				"pm_state": 3, "mtu": 3, "log_msg_max": 30, "remote_qpn": qpn, "retry_count": 7,
			} {
				in.Set("qpc."+field, value)
			}
			in.Set("qpn", qpn)
		})
	}
	const send = 0x0a
	copy(sq, []byte{0, 0, 0, send, byte(qpn >> 16), byte(qpn >> 8), byte(qpn), 1})
	record[7] = 1
	d.write(uint64(s.uar)*PageSize+uarSend, send, uint32(qpn)<<8|1)
	for d.do(0x50b, set("qpn", int(qpn))).Get("qpc.state") != uint64(transport.Err) {
		if more, wait := d.h.Run(); !more && wait == time.Hour {
			t.Fatal("it waits for nothing, with a message to be acknowledged")
		}
	}
	if n := d.do(0x402, set("cqn", s.cqn)).Get("cq_context.producer_counter"); n != 1 {
		t.Errorf("%d completions", n)
	}
}

// Invalid parameters of CREATE_QP.
func TestBadQueuePairs(t *testing.T) {
	d := started(t)
	s := d.setup()
	good := d.qp(s, serviceRC)
	for field, want := range map[string]Status{
		"pd": BadRes, "cqn_snd": BadRes, "cqn_rcv": BadRes, "log_page_size": BadParam, "st": BadParam,
	} {
		_, status := d.try(0x500, 8, 0, func(in ifc.View) {
			good(in)
			in.Set("qpc."+field, 0xff)
		})
		if status != want {
			t.Errorf("with a bad %s the status is %#x, want %#x", field, status, want)
		}
	}
	if _, status := d.try(0x500, 0, 0, func(in ifc.View) { in.Set("qpc.log_sq_size", 15) }); status != BadInLen {
		t.Errorf("without pages the status is %#x", status)
	}
	if n := d.h.Resources()["qp"]; n != 0 {
		t.Errorf("%d QPs", n)
	}
	d.do(0x401, set("cqn", s.cqn)) // nothing uses it
}

func TestSharedQueues(t *testing.T) {
	d := started(t)
	s := d.setup()
	at := d.pages(2)
	xrc := int(d.doWith(0x705, 8, 0, func(in ifc.View) {
		context := in.Sub("xrc_srq_context_entry")
		context.Set("log_xrc_srq_size", 4)
		context.Set("log_rq_stride", 1)
		context.Set("pd", uint64(s.pd))
		context.Set("cqn", uint64(s.cqn))
		context.Set("xrcd", uint64(s.xrcd))
		context.Set("db_record_addr_h", (at+PageSize)>>32)
		context.Set("db_record_addr_l", (at+PageSize)>>2)
		in.SetAt("pas", 0, at)
	}).Get("xrc_srqn"))
	rmpn := int(d.doWith(0x90c, 8, 0, func(in ifc.View) {
		wq := in.Sub("ctx.wq")
		wq.Set("log_wq_sz", 4)
		wq.Set("log_wq_stride", 5)
		wq.Set("pd", uint64(s.pd))
		wq.Set("dbr_addr", at+PageSize)
		in.SetAt("ctx.wq.pas", 0, at)
	}).Get("rmpn"))

	d.ram.Bytes(at+PageSize, 4)[3] = 10 // WQEs are posted, so a lower limit isn't reached

	d.refused(BadRes, 0x706, set("xrc_srqn", rmpn)) // of another kind
	d.refused(ResBusy, 0x80f, set("xrcd", s.xrcd))
	d.do(0x708, set("xrc_srqn", xrc, "lwm", 3))
	if got := d.do(0x707, set("xrc_srqn", xrc)).Get("xrc_srq_context_entry.lwm"); got != 3 {
		t.Errorf("the XRC SRQ's limit is %d", got)
	}
	d.do(0x90d, set("rmpn", rmpn, "rmp_state", rmpReady, "bitmask.lwm", 1, "ctx.wq.lwm", 5))
	if q := d.doWith(0x90f, 64, 0, set("rmpn", rmpn)); q.Get("rmp_context.wq.lwm") != 5 || q.Get("rmp_context.state") != rmpReady {
		t.Error("QUERY_RMP tells something else")
	}

	sharing := d.qp(s, serviceRC)
	qpn := int(d.doWith(0x500, 8, 0, func(in ifc.View) {
		sharing(in)
		in.Set("qpc.rq_type", uint64(transport.SharedRQ))
		in.Set("qpc.srqn_rmpn_xrqn", uint64(rmpn))
	}).Get("qpn"))
	d.refused(ResBusy, 0x90e, set("rmpn", rmpn))
	d.do(0x501, set("qpn", qpn))
	d.do(0x90e, set("rmpn", rmpn))
	d.do(0x706, set("xrc_srqn", xrc))
	d.do(0x80f, set("xrcd", s.xrcd))
}

func TestGroupsAndCounters(t *testing.T) {
	d := started(t)
	s := d.setup()
	qpn := int(d.doWith(0x500, 8, 0, d.qp(s, serviceUD)).Get("qpn"))
	group := func(in ifc.View) {
		in.Set("qpn", uint64(qpn))
		copy(in.Bytes("multicast_gid"), []byte{0xff, 0x12, 15: 1})
	}
	d.do(0x806, group)
	d.refused(ResBusy, 0x501, set("qpn", qpn))
	d.do(0x807, group)
	d.do(0x501, set("qpn", qpn))

	counter := int(d.do(0x771, nil).Get("counter_set_id"))
	d.h.engine.Counters(uint8(counter)).OutOfBuffer = 9
	query := set("counter_set_id", counter, "clear", 1)
	if got := d.do(0x773, query).Get("out_of_buffer"); got != 9 {
		t.Errorf("out_of_buffer is %d", got)
	}
	if got := d.do(0x773, query).Get("out_of_buffer"); got != 0 {
		t.Errorf("out_of_buffer is %d after it was cleared", got)
	}
	d.do(0x772, set("counter_set_id", counter))
}

// RTS2RTS_QP selects a port of a bond, where the profile has one, and the UDP source port, where
// the ports are Ethernet. QUERY_QP shows both.
func TestRerouting(t *testing.T) {
	const lagPort, sourcePort = 1 << 15, 1 << 2
	for _, tt := range []struct {
		profile  string
		ethernet bool
		ports    int
	}{
		{"connectx5", false, 0}, {"connectx5", true, 0}, {"connectx6dx", true, 2},
	} {
		d := startedAs(t, tt.ethernet, profile(t, tt.profile))
		s := d.setup()
		qpn := int(d.doWith(0x500, 8, 0, d.qp(s, serviceRC)).Get("qpn"))
		change := func(mask, more byte, port, udp int) func(ifc.View) {
			return func(in ifc.View) {
				in.Set("qpn", uint64(qpn))
				in.Set("opt_param_mask", uint64(mask)<<8)
				in.Data[264+7] = more
				in.Set("qpc.lag_tx_port_affinity", uint64(port))
				in.Set("qpc.primary_address_path.udp_sport", uint64(udp))
			}
		}
		d.refused(BadQPState, 0x505, change(0, sourcePort*boolByte(tt.ethernet), 0, 9))
		for _, opcode := range []uint16{0x502, 0x503, 0x504} {
			d.do(opcode, func(in ifc.View) {
				in.Set("qpn", uint64(qpn))
				in.Set("qpc.primary_address_path.vhca_port_num", 1)
				in.Set("qpc.primary_address_path.rlid", 1)
				in.Set("qpc.pm_state", 3)
				in.Set("qpc.mtu", 3)
				in.Set("qpc.log_msg_max", 30)
				in.Set("qpc.remote_qpn", uint64(qpn))
			})
		}
		state := func() (port, udp uint64) {
			c := d.do(0x50b, set("qpn", qpn)).Sub("qpc")
			return c.Get("lag_tx_port_affinity"), c.Get("primary_address_path.udp_sport")
		}
		if _, udp := state(); udp != 0 {
			t.Errorf("%+v: what was refused has set the UDP port to %d", tt, udp)
		}
		if _, status := d.try(0x505, 0, 0, change(lagPort>>8, 0, 2, 77)); (status == OK) != (tt.ports == 2) {
			t.Errorf("%+v: port 2: status %#x", tt, status)
		}
		d.refused(BadParam, 0x505, change(lagPort>>8, 0, 3, 0))
		if _, status := d.try(0x505, 0, 0, change(0, sourcePort, 1, 0xc0de)); (status == OK) != tt.ethernet {
			t.Errorf("%+v: a UDP port: status %#x", tt, status)
		}
		d.refused(BadParam, 0x505, change(0, 1, 0, 0))
		port, udp := state()
		if (port == 2) != (tt.ports == 2) || (udp == 0xc0de) != tt.ethernet {
			t.Errorf("%+v: then the ports are %d and %#x", tt, port, udp)
		}
	}
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
