package mlx5ctx

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/ib"
)

// A QP is the context of a queue pair (mlx5_ifc_qpc_bits).
type QP struct {
	Number    uint32     // the device's; 0 in a QPFromQuery
	State     ib.QPState // while its sends are drained, SQD
	Service   Service    // the transport
	PD        uint32     // the device's number
	MTU       ib.MTU     // of its path; 0 before it is connected
	RemoteQPN uint32     // the peer's, of a connected one
	Path      Path       // the primary one

	SendCQ, RecvCQ uint32   // the device's numbers; 0 for none
	SRQ            uint32   // or RMP, or XRQ: the device's number; with Receives of ReceivesShared
	Receives       Receives // where its receives come from
	UserIndex      uint32   // the program's number for it
	CounterSet     uint8    // where the adapter counts its troubles

	// The queues' sizes. A block has 64 bytes; a send request has one or more.
	SendBlocks   uint32 // 0 without a send queue
	RecvRequests uint32 // 0 without a receive queue of its own

	// SendPosted counts the blocks that the program has posted, and SendTaken those that the
	// adapter has begun. The difference waits in the queue. Both wrap around.
	SendPosted, SendTaken uint16
	// RecvPosted counts the receives that the program has posted, and RecvTaken those that the
	// adapter has used. The difference waits for messages. Both wrap around, on some adapters
	// at 16 bits.
	RecvPosted, RecvTaken uint32

	// NextSendPSN is the sequence number of the next new packet, and LastAckedPSN that of the
	// last packet that the peer has acknowledged. NextRecvPSN is what is expected of the peer.
	NextSendPSN, LastAckedPSN, NextRecvPSN uint32
	SSN                                    uint32 // send requests that it has begun

	// RetryCount and RNRRetry are what the program has set. 7 RNR retries are without end.
	// CurRetry and CurRNRRetry are the adapter's counters of the current request. Whether
	// they count up or down isn't documented; that they move means that the adapter retries.
	RetryCount, RNRRetry, CurRetry, CurRNRRetry uint8
}

// A Path is an address path (mlx5_ifc_ads_bits).
type Path struct {
	Port       uint8   // 0 stands for 1
	PKeyIndex  uint16  // of the partition, in the port's table
	GRH        bool    // packets have a global header
	SGIDIndex  uint8   // of the source, in the port's table
	DGID       ib.GID  // with GRH, and over RoCE
	HopLimit   uint8   // of the global header
	FlowLabel  uint32  // of the global header
	DLID       uint16  // over InfiniBand; over RoCE 0
	SL         uint8   // the service level, over InfiniBand
	AckTimeout uint8   // 4.096 µs, doubled so often; 0 for none
	UDPPort    uint16  // the source port, over RoCE
	MAC        [6]byte // over RoCE: of the next hop
}

// A Service is the transport of a queue pair (MLX5_QP_ST_*).
type Service uint8

func (s Service) String() string {
	names := map[Service]string{0: "RC", 1: "UC", 2: "UD", 3: "XRC", 4: "MLX", 5: "DCI", 6: "DCT", 7: "QP0", 8: "QP1", 9: "RAW_ETHERTYPE", 12: "REG_UMR"}
	if n, ok := names[s]; ok {
		return n
	}
	return fmt.Sprintf("unknown(%d)", uint8(s))
}

// Reliable reports whether the peer acknowledges what the queue pair sends.
func (s Service) Reliable() bool {
	const rc, xrc, dci = 0, 3, 5
	return s == rc || s == xrc || s == dci
}

// Receives says where receives come from (rq_type).
type Receives uint8

// Where receives come from.
const (
	ReceivesOwn    Receives = 0 // a queue of its own
	ReceivesShared Receives = 1 // an SRQ
	ReceivesNone   Receives = 3
)

// Waiting returns how many blocks of the send queue the adapter hasn't begun.
func (q *QP) Waiting() uint16 { return q.SendPosted - q.SendTaken }

// Unacknowledged returns how many packets the peer hasn't acknowledged, in a state in which it
// sends.
func (q *QP) Unacknowledged() uint32 {
	if !q.Service.Reliable() || q.State != ib.QPRTS && q.State != ib.QPSQD {
		return 0
	}
	return (q.NextSendPSN - q.LastAckedPSN - 1) & (1<<24 - 1)
}

// Receivable returns how many receives of its own queue wait for messages.
func (q *QP) Receivable() uint32 {
	if q.RecvRequests == 0 {
		return 0
	}
	return uint32(uint16(q.RecvPosted) - uint16(q.RecvTaken))
}

// states has the states of mlx5 (MLX5_QP_STATE_*) by their values.
var states = [16]ib.QPState{ib.QPReset, ib.QPInit, ib.QPRTR, ib.QPRTS, ib.QPSQE, ib.QPSQD, ib.QPErr, ib.QPSQD}

const path = "primary_address_path."

var qpLayout = layout[QP]{"QUERY_QP", 24, 232, []field[QP]{
	{"state", 0, 4, func(q *QP, v uint64) { q.State = states[v] }},
	{"st", 8, 8, func(q *QP, v uint64) { q.Service = Service(v) }},
	{"pd", 40, 24, func(q *QP, v uint64) { q.PD = uint32(v) }},
	{"mtu", 64, 3, func(q *QP, v uint64) { q.MTU = ib.MTU(v) }},
	{"log_rq_size", 73, 4, func(q *QP, v uint64) { q.RecvRequests = 1 << v }},
	{"no_sq", 80, 1, func(q *QP, v uint64) { q.SendBlocks = uint32(1 - v) }},
	{"log_sq_size", 81, 4, func(q *QP, v uint64) { q.SendBlocks <<= v }},
	{"counter_set_id", 96, 8, func(q *QP, v uint64) { q.CounterSet = uint8(v) }},
	{"user_index", 136, 24, func(q *QP, v uint64) { q.UserIndex = uint32(v) }},
	{"remote_qpn", 168, 24, func(q *QP, v uint64) { q.RemoteQPN = uint32(v) }},
	{path + "pkey_index", 208, 16, func(q *QP, v uint64) { q.Path.PKeyIndex = uint16(v) }},
	{path + "grh", 232, 1, func(q *QP, v uint64) { q.Path.GRH = v != 0 }},
	{path + "rlid", 240, 16, func(q *QP, v uint64) { q.Path.DLID = uint16(v) }},
	{path + "ack_timeout", 256, 5, func(q *QP, v uint64) { q.Path.AckTimeout = uint8(v) }},
	{path + "src_addr_index", 264, 8, func(q *QP, v uint64) { q.Path.SGIDIndex = uint8(v) }},
	{path + "hop_limit", 280, 8, func(q *QP, v uint64) { q.Path.HopLimit = uint8(v) }},
	{path + "flow_label", 300, 20, func(q *QP, v uint64) { q.Path.FlowLabel = uint32(v) }},
	{path + "rgid_rip", 320, 64, func(q *QP, v uint64) { binary.BigEndian.PutUint64(q.Path.DGID[:], v) }},
	{path + "rgid_rip", 384, 64, func(q *QP, v uint64) { binary.BigEndian.PutUint64(q.Path.DGID[8:], v) }},
	{path + "udp_sport", 464, 16, func(q *QP, v uint64) { q.Path.UDPPort = uint16(v) }},
	{path + "sl", 484, 4, func(q *QP, v uint64) { q.Path.SL = uint8(v) }},
	{path + "vhca_port_num", 488, 8, func(q *QP, v uint64) { q.Path.Port = uint8(v) }},
	{path + "rmac_47_32", 496, 16, func(q *QP, v uint64) { binary.BigEndian.PutUint16(q.Path.MAC[:], uint16(v)) }},
	{path + "rmac_31_0", 512, 32, func(q *QP, v uint64) { binary.BigEndian.PutUint32(q.Path.MAC[2:], uint32(v)) }},
	{"retry_count", 909, 3, func(q *QP, v uint64) { q.RetryCount = uint8(v) }},
	{"rnr_retry", 912, 3, func(q *QP, v uint64) { q.RNRRetry = uint8(v) }},
	{"cur_rnr_retry", 917, 3, func(q *QP, v uint64) { q.CurRNRRetry = uint8(v) }},
	{"cur_retry_count", 920, 3, func(q *QP, v uint64) { q.CurRetry = uint8(v) }},
	{"next_send_psn", 968, 24, func(q *QP, v uint64) { q.NextSendPSN = uint32(v) }},
	{"cqn_snd", 1000, 24, func(q *QP, v uint64) { q.SendCQ = uint32(v) }},
	{"last_acked_psn", 1096, 24, func(q *QP, v uint64) { q.LastAckedPSN = uint32(v) }},
	{"ssn", 1128, 24, func(q *QP, v uint64) { q.SSN = uint32(v) }},
	{"next_rcv_psn", 1192, 24, func(q *QP, v uint64) { q.NextRecvPSN = uint32(v) }},
	{"cqn_rcv", 1256, 24, func(q *QP, v uint64) { q.RecvCQ = uint32(v) }},
	{"rq_type", 1381, 3, func(q *QP, v uint64) {
		if q.Receives = Receives(v); q.Receives != ReceivesOwn {
			q.RecvRequests = 0
		}
	}},
	{"srqn_rmpn_xrqn", 1384, 24, func(q *QP, v uint64) { q.SRQ = uint32(v) }},
	{"hw_sq_wqebb_counter", 1440, 16, func(q *QP, v uint64) { q.SendTaken = uint16(v) }},
	{"sw_sq_wqebb_counter", 1456, 16, func(q *QP, v uint64) { q.SendPosted = uint16(v) }},
	{"hw_rq_counter", 1472, 32, func(q *QP, v uint64) { q.RecvTaken = uint32(v) }},
	{"sw_rq_counter", 1504, 32, func(q *QP, v uint64) { q.RecvPosted = uint32(v) }},
}}

// QPFromDump decodes what rdmanl.Raw returns for a rdmanl.RawQP. The error is a *DumpError, or
// matches ErrFormat.
func QPFromDump(dump []byte) (QP, error) {
	q, number, err := qpLayout.dump(dump)
	q.Number = number
	return q, err
}

// QPFromQuery decodes the answer of the firmware's command QUERY_QP. The error matches ErrFormat.
func QPFromQuery(out []byte) (QP, error) { return qpLayout.query(out) }
