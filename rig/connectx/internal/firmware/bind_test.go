package firmware

import (
	"reflect"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
)

// Each context field that drivers write reaches the transport's variable for it, and no
// other. All fields have different values, as far as their widths allow.
func TestQPContext(t *testing.T) {
	v := ifc.Make("qpc")
	for field, value := range map[string]uint64{
		"st": 9, "pm_state": 2, "pd": 0x101, "xrcd": 0x102, "mtu": 5, "log_msg_max": 29, "log_sq_size": 11, "rq_type": 1,
		"log_rq_size": 12, "log_rq_stride": 6, "uar_page": 0x103, "user_index": 0x104, "counter_set_id": 0x71,
		"remote_qpn": 0x105, "log_ack_req_freq": 13, "log_sra_max": 1, "log_rra_max": 2, "retry_count": 3, "rnr_retry": 4,
		"min_rnr_nak": 17, "atomic_mode": 7, "next_send_psn": 0x106, "next_rcv_psn": 0x107, "cqn_snd": 0x108, "cqn_rcv": 0x109,
		"deth_sqpn": 0x10a, "q_key": 0x10b, "srqn_rmpn_xrqn": 0x10c, "dbr_addr": 0x10d0, "cs_req": 0x22, "cs_res": 0x11,
		"dc_access_key": 0x10e, "rwe": 1,
		"primary_address_path.pkey_index": 0x21, "primary_address_path.mlid": 0x31, "primary_address_path.rlid": 0x23,
		"primary_address_path.ack_timeout": 19, "primary_address_path.src_addr_index": 0x24, "primary_address_path.hop_limit": 0x25,
		"primary_address_path.tclass": 0x26, "primary_address_path.flow_label": 0x27, "primary_address_path.sl": 0xa,
		"primary_address_path.vhca_port_num": 0x28, "primary_address_path.rmac_47_32": 0x0102, "primary_address_path.rmac_31_0": 0x03040506,
		"primary_address_path.eth_prio":     5,
		"secondary_address_path.pkey_index": 0x41, "secondary_address_path.rlid": 0x43, "secondary_address_path.grh": 1,
	} {
		v.Set(field, value)
	}
	copy(v.Bytes("primary_address_path.rgid_rip"), "0123456789abcdef")
	want := transport.QPContext{
		Service: transport.Raw, PMState: 2, PD: 0x101, XRCD: 0x102, MTU: 5, LogMsgMax: 29, LogSQSize: 11, RQType: transport.SharedRQ,
		LogRQSize: 12, LogRQStride: 6, UAR: 0x103, UserIndex: 0x104, CounterSet: 0x71,
		RemoteQPN: 0x105, LogAckReqFreq: 13, LogSRAMax: 1, LogRRAMax: 2, RetryCount: 3, RNRRetry: 4,
		MinRNRNak: 17, AtomicMode: 7, NextSendPSN: 0x106, NextRecvPSN: 0x107, CQNSend: 0x108, CQNRecv: 0x109,
		DethSQPN: 0x10a, QKey: 0x10b, SRQN: 0x10c, DBRAddr: 0x10d0, CSReq: 0x22, CSRes: 0x11, DCAccessKey: 0x10e, RWE: true,
		Primary: transport.Path{
			PKeyIndex: 0x21, PathBits: 0x31, DLID: 0x23, AckTimeout: 19, SGIDIndex: 0x24, HopLimit: 0x25, TClass: 0x26, FlowLabel: 0x27,
			DGID: fabric.GID([]byte("0123456789abcdef")), SL: 0xa, Port: 0x28, MAC: fabric.MAC{1, 2, 3, 4, 5, 6}, Priority: 5,
		},
		Alternate: transport.Path{PKeyIndex: 0x41, DLID: 0x43, GRH: true},
	}
	var got transport.QPContext
	load(v, qpBindings(&got))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n%+v, want\n%+v", got, want)
	}
	// Flags all have one bit, so set one at a time.
	for field, is := range map[string]func(c *transport.QPContext) *bool{
		"wq_signature":             func(c *transport.QPContext) *bool { return &c.WQSignature },
		"block_lb_mc":              func(c *transport.QPContext) *bool { return &c.BlockLBMC },
		"no_sq":                    func(c *transport.QPContext) *bool { return &c.NoSQ },
		"rlky":                     func(c *transport.QPContext) *bool { return &c.RLKey },
		"rre":                      func(c *transport.QPContext) *bool { return &c.RRE },
		"rwe":                      func(c *transport.QPContext) *bool { return &c.RWE },
		"rae":                      func(c *transport.QPContext) *bool { return &c.RAE },
		"primary_address_path.grh": func(c *transport.QPContext) *bool { return &c.Primary.GRH },
	} {
		v := ifc.Make("qpc")
		v.SetFlag(field, true)
		var got, want transport.QPContext
		*is(&want) = true
		load(v, qpBindings(&got))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", field, got)
		}
	}
}
