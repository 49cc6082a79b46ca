package perftest

import (
	"math"
	"strings"
)

// rawToo lists the options that the tests of raw frames share with the others.
var rawToo = strings.Fields(`bidirectional ib-dev duration events margin CPU-freq help report-histogram report-histogrm ib-port iters
	post_list noPeak cq-mod rx-depth size tos tx-depth report-unsorted version limit_bw limit_msgrate vector disable_pcie_relaxed
	latency_gap out_json out_json_file output report_gbits run_infinitely use_hugepages use_old_post_send cpu_util json plot summary
	burst_size rate_limit rate_limit_type rate_units qp source_ip inline_size`)

// rawFlags are the options that only the tests of raw frames have.
var rawFlags = []flag{
	{'B', "source_mac", "MAC", "MAC address of this side", nil, func(o *Options, v string) error { return setMAC(&o.raw.localMAC, v) }},
	{'E', "dest_mac", "MAC", "MAC address of the other side", nil, func(o *Options, v string) error { return setMAC(&o.raw.peerMAC, v) }},
	{'J', "dest_ip", "ADDRESS", "IPv4 address of the other side", nil, func(o *Options, v string) error { return setIPv4(&o.raw.peerIP, v) }},
	{'k', "source_port", "PORT", "UDP port of this side", nil, count(1, 65535, func(o *Options) *int { return &o.raw.localPort })},
	{'K', "dest_port", "PORT", "UDP port of the other side", nil, count(1, 65535, func(o *Options) *int { return &o.raw.peerPort })},
	{'L', "hop_limit", "N", "the IPv4 header's time to live (default 64)", nil, count(0, 255, func(o *Options) *int { return &o.raw.hopLimit })},
	{'P', "client", "", "this side begins", nil, func(o *Options, _ string) error {
		o.raw.role = "client"
		return nil
	}},
	{'Y', "ethertype", "TYPE", "type of the frames", nil, count(1, 65535, func(o *Options) *int { return &o.raw.etherType })},
	{'Z', "server", "", "this side waits for the other one", nil, func(o *Options, _ string) error {
		o.raw.role = "server"
		return nil
	}},
	{0, "local_ip", "ADDRESS", "the same as -j", nil, func(o *Options, v string) error { return setIPv4(&o.raw.localIP, v) }},
	{0, "local_mac", "MAC", "the same as -B", nil, func(o *Options, v string) error { return setMAC(&o.raw.localMAC, v) }},
	{0, "local_port", "PORT", "the same as -k", nil, count(1, 65535, func(o *Options) *int { return &o.raw.localPort })},
	{0, "remote_ip", "ADDRESS", "the same as -J", nil, func(o *Options, v string) error { return setIPv4(&o.raw.peerIP, v) }},
	{0, "remote_mac", "MAC", "the same as -E", nil, func(o *Options, v string) error { return setMAC(&o.raw.peerMAC, v) }},
	{0, "remote_port", "PORT", "the same as -K", nil, count(1, 65535, func(o *Options) *int { return &o.raw.peerPort })},
	{0, "promiscuous", "", "also receive frames that nobody else receives", nil, on(func(o *Options) *bool { return &o.raw.promiscuous })},
	{0, "reply_every", "N", "answer one in N frames (default 1)", burstOnly, count(1, math.MaxInt32, func(o *Options) *int { return &o.raw.replyEvery })},
	{0, "sniffer", "", "also receive copies of all frames", nil, on(func(o *Options) *bool { return &o.raw.sniffer })},
	{0, "tcp", "", "the ports are TCP's", nil, on(func(o *Options) *bool { return &o.raw.tcp })},
	{0, "typical_pkt_size", "BYTES", "with --rate_limit_type=PP: the usual length of a frame", nil, count(0, 65535, func(o *Options) *int { return &o.raw.typicalPacket })},
}
