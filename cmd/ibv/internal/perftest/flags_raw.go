package perftest

import (
	"math"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// rawToo lists the options that the tests of raw frames share with the others.
var rawToo = strings.Fields(`bidirectional hop_limit ib-dev duration events margin CPU-freq help report-histogram report-histogrm ib-port iters
	post_list noPeak cq-mod rx-depth size tos tx-depth report-unsorted version limit_bw limit_msgrate vector disable_pcie_relaxed
	latency_gap out_json out_json_file output report_gbits run_infinitely use_hugepages use_old_post_send cpu_util json plot summary
	burst_size rate_limit rate_limit_type rate_units qp source_ip inline_size`)

// rawOptions returns the options that only the tests of raw frames have.
func (o *options) rawOptions() []option {
	return []option{
		{nil, cli.Opt('B', "source_mac local_mac", "MAC", "MAC address of this side", setMAC(&o.raw.localMAC))},
		{nil, cli.Opt('E', "dest_mac remote_mac", "MAC", "MAC address of the other side", setMAC(&o.raw.peerMAC))},
		{nil, cli.Opt('J', "dest_ip remote_ip", "ADDRESS", "IPv4 address of the other side", setIPv4(&o.raw.peerIP))},
		{nil, cli.Opt('k', "source_port local_port", "PORT", "UDP port of this side", cli.Int(&o.raw.localPort, 1, 65535))},
		{nil, cli.Opt('K', "dest_port remote_port", "PORT", "UDP port of the other side", cli.Int(&o.raw.peerPort, 1, 65535))},
		{nil, cli.Opt('P', "client", "", "this side begins", cli.Const(&o.raw.role, "client"))},
		{nil, cli.Opt('Y', "ethertype", "TYPE", "type of the frames", cli.Int(&o.raw.etherType, 1, 65535))},
		{nil, cli.Opt('Z', "server", "", "this side waits for the other one", cli.Const(&o.raw.role, "server"))},
		{nil, cli.Flag(0, "promiscuous", "also receive frames that nobody else receives", &o.raw.promiscuous)},
		{burstOnly, cli.Opt(0, "reply_every", "N", "answer one in N frames (default 1)", cli.Int(&o.raw.replyEvery, 1, math.MaxInt32))},
		{nil, cli.Flag(0, "sniffer", "also receive copies of all frames", &o.raw.sniffer)},
		{nil, cli.Flag(0, "tcp", "the ports are TCP's", &o.raw.tcp)},
		{nil, cli.Opt(0, "typical_pkt_size", "BYTES", "with --rate_limit_type=PP: the usual length of a frame", cli.Int(&o.raw.typicalPacket, 0, 65535))},
	}
}
