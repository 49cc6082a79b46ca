package export

import "github.com/goverbs/goverbs/monitor"

// names has the metrics of counters that node_exporter's infiniband collector has, too: after the prefix they
// have the same names.
var names = map[string]struct{ name, help string }{
	"port_xmit_data":                  {"port_data_transmitted_bytes_total", "Bytes sent."},
	"port_rcv_data":                   {"port_data_received_bytes_total", "Bytes received."},
	"port_xmit_packets":               {"port_packets_transmitted_total", "Packets sent."},
	"port_rcv_packets":                {"port_packets_received_total", "Packets received."},
	"port_xmit_discards":              {"port_discards_transmitted_total", "Packets that couldn't be sent, because the port was down or congested."},
	"port_rcv_errors":                 {"port_errors_received_total", "Packets received with an error."},
	"port_xmit_wait":                  {"port_transmit_wait_total", "Ticks of the adapter in which data waited to be sent."},
	"port_xmit_constraint_errors":     {"port_constraint_errors_transmitted_total", "Packets not sent because of a partition or a filter."},
	"port_rcv_constraint_errors":      {"port_constraint_errors_received_total", "Packets dropped because of a partition or a filter."},
	"port_rcv_remote_physical_errors": {"port_receive_remote_physical_errors_total", "Packets received that were marked as bad."},
	"port_rcv_switch_relay_errors":    {"port_receive_switch_relay_errors_total", "Packets that a switch couldn't forward."},
	"unicast_xmit_packets":            {"unicast_packets_transmitted_total", "Unicast packets sent."},
	"unicast_rcv_packets":             {"unicast_packets_received_total", "Unicast packets received."},
	"multicast_xmit_packets":          {"multicast_packets_transmitted_total", "Multicast packets sent."},
	"multicast_rcv_packets":           {"multicast_packets_received_total", "Multicast packets received."},
	"symbol_error":                    {"symbol_error_total", "Symbols received with an error."},
	"link_downed":                     {"link_downed_total", "How often the link failed to recover and went down."},
	"link_error_recovery":             {"link_error_recovery_total", "How often the link recovered from errors."},
	"local_link_integrity_errors":     {"local_link_integrity_errors_total", "How often errors of the link exceeded the threshold."},
	"excessive_buffer_overrun_errors": {"excessive_buffer_overrun_errors_total", "How often buffers overran in successive periods."},
	"VL15_dropped":                    {"vl15_dropped_total", "Subnet management packets dropped."},

	"duplicate_request":          {"duplicate_requests_packets_total", "Requests received twice."},
	"implied_nak_seq_err":        {"implied_nak_seq_errors_total", "Acknowledgements that implied a lost packet."},
	"local_ack_timeout_err":      {"local_ack_timeout_errors_total", "How often no acknowledgement came in time."},
	"np_cnp_sent":                {"np_cnp_packets_sent_total", "Congestion notifications sent."},
	"np_ecn_marked_roce_packets": {"np_ecn_marked_roce_packets_received_total", "RoCE packets received that were marked as congested."},
	"out_of_buffer":              {"out_of_buffer_drops_total", "Messages that arrived before a receive was posted."},
	"out_of_sequence":            {"out_of_sequence_packets_received_total", "Packets received out of order."},
	"packet_seq_err":             {"packet_sequence_errors_total", "NAKs received because of lost packets."},
	"req_cqe_error":              {"req_cqes_errors_total", "Send requests that completed with an error."},
	"req_cqe_flush_error":        {"req_cqes_flush_errors_total", "Send requests that were flushed."},
	"req_remote_access_errors":   {"req_remote_access_errors_total", "Requests refused by the peer because of their key or address."},
	"req_remote_invalid_request": {"req_remote_invalid_request_errors_total", "Requests refused by the peer as invalid."},
	"resp_cqe_error":             {"resp_cqes_errors_total", "Receives that completed with an error."},
	"resp_cqe_flush_error":       {"resp_cqes_flush_errors_total", "Receives that were flushed."},
	"resp_local_length_error":    {"resp_local_length_errors_total", "Messages longer than their receive."},
	"resp_remote_access_errors":  {"resp_remote_access_errors_total", "Requests of peers refused because of their key or address."},
	"rnr_nak_retry_err":          {"rnr_nak_retry_packets_total", "How often a peer had no receive posted."},
	"roce_adp_retrans":           {"roce_adp_retransmits_total", "Adaptive retransmissions."},
	"roce_adp_retrans_to":        {"roce_adp_retransmits_timeout_total", "Timeouts of adaptive retransmission."},
	"roce_slow_restart":          {"roce_slow_restart_used_total", "How often a sender restarted slowly."},
	"roce_slow_restart_cnps":     {"roce_slow_restart_cnps_total", "Congestion notifications of slow restarts."},
	"roce_slow_restart_trans":    {"roce_slow_restart_total", "Changes of state by slow restarts."},
	"rp_cnp_handled":             {"rp_cnp_packets_handled_total", "Congestion notifications handled."},
	"rp_cnp_ignored":             {"rp_cnp_ignored_packets_received_total", "Congestion notifications ignored."},
	"rx_atomic_requests":         {"rx_atomic_requests_total", "Atomic requests received."},
	"rx_dct_connect":             {"rx_dct_connect_requests_total", "Connections to DCTs."},
	"rx_icrc_encapsulated":       {"rx_icrc_encapsulated_errors_total", "RoCE packets received with a wrong checksum."},
	"rx_read_requests":           {"rx_read_requests_total", "Read requests received."},
	"rx_write_requests":          {"rx_write_requests_total", "Write requests received."},
}

// counters adds the counters of a port.
func (p *page) counters(all []monitor.Counter, labels []string) {
	seen := make(map[string]bool)
	for _, c := range all {
		n, known := names[c.Name]
		// Two sources may have a counter of the same name.
		other := append(labels[:len(labels):len(labels)], "name", c.Name, "unit", c.Unit.String(), "source", c.Source.String())
		switch {
		case known && !seen[c.Name]:
			p.add(n.name, counter, n.help, float64(c.Value), labels...)
		case c.Gauge:
			p.add("port_other_now", gauge, "A figure of the driver that goes up and down.", float64(c.Value), other...)
		default:
			p.add("port_other_total", counter, "A counter of the driver that has no metric of its own.", float64(c.Value), other...)
		}
		seen[c.Name] = true
	}
}
