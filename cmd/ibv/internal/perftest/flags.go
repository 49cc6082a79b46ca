package perftest

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// An option is a supported option.
type option struct {
	only func(Tool) bool // nil: all tools
	cli.Option
}

func bandwidthOnly(t Tool) bool { return !t.latency }
func latencyOnly(t Tool) bool   { return t.latency }
func delivers(t Tool) bool      { return t.verb == send || t.verb == write }
func sendOnly(t Tool) bool      { return t.verb == send }
func writeOnly(t Tool) bool     { return t.verb == write }
func notAtomic(t Tool) bool     { return t.verb != atomics }
func atomicOnly(t Tool) bool    { return t.verb == atomics }
func inlinable(t Tool) bool     { return t.verb == send || t.verb == write }
func responding(t Tool) bool    { return t.verb.responds() }

func streams(t Tool) bool   { return !t.latency || t.burst }
func burstOnly(t Tool) bool { return t.burst }

// options returns the options of all tools except those of raw frames.
func (o *options) options() []option {
	return []option{
		{notAtomic, cli.Flag('a', "all", "messages of 2 bytes to 8 MiB, one size after the other", &o.all)},
		{atomicOnly, cli.Opt('A', "atomic_type", "TYPE", "CMP_AND_SWAP or FETCH_AND_ADD (the default)", func(v string) error {
			var name string
			err := cli.Word(&name, "CMP_AND_SWAP", "FETCH_AND_ADD")(v)
			o.swap = name == "CMP_AND_SWAP"
			return err
		})},
		{bandwidthOnly, cli.Flag('b', "bidirectional", "both sides send", &o.duplex)},
		{nil, cli.Opt('c', "connection", o.connections(), "transport (default RC)", o.setTransport)},
		{nil, cli.Opt('d', "ib-dev", "DEV", "device, by name, node GUID or network interface (default the first)", cli.Text(&o.device))},
		{nil, cli.Opt('D', "duration", "SECONDS", "run for a time, not for a number of iterations", cli.Int(&o.duration, 1, math.MaxInt32))},
		{nil, cli.Flag('e', "events", "sleep until completions arrive instead of polling", &o.events)},
		{nil, cli.Opt('f', "margin", "SECONDS", "with -D: don't measure at the start and the end (default a quarter)", cli.Int(&o.margin, 0, math.MaxInt32))},
		{nil, cli.Ignored('F', "CPU-freq", "")},      // times don't depend on the processor's frequency
		{nil, cli.Ignored(0, "perform_warm_up", "")}, // the messages that it leaves out are few
		{latencyOnly, cli.Flag('H', "report-histogram report-histogrm", "print all latencies, sorted", &o.histogram)},
		{nil, cli.Opt('i', "ib-port", "PORT", "port of the device (default 1)", cli.Int(&o.ibPort, 1, 255))},
		{inlinable, cli.Opt('I', "inline_size", "SIZE", "messages up to this size are sent inline", cli.Int(&o.inline, 0, 912))},
		{bandwidthOnly, cli.Opt('l', "post_list", "N", "post N requests at a time (default 1)", cli.Int(&o.postList, 1, 15000))},
		{nil, cli.Opt('L', "hop_limit", "N", "hop limit, or time to live (default 255; of raw frames 64)", cli.Int(&o.hopLimit, 0, 255))},
		{nil, cli.Opt('m', "mtu", "SIZE", "path MTU, 256 to 4096 (default the port's)", o.setMTU)},
		{nil, cli.Opt('n', "iters", "N", "iterations, at least 5", cli.Int(&o.iters, 5, 100000000))},
		{bandwidthOnly, cli.Flag('N', "noPeak", "don't compute the peak bandwidth", &o.noPeak)},
		{responding, cli.Opt('o', "outs", "N", "reads or atomics in flight (default the device's maximum)", cli.Int(&o.outs, 1, 255))},
		{nil, cli.Opt('p', "port", "PORT", "TCP port where the sides meet (default 18515)", cli.Int(&o.tcpPort, 1, 65535))},
		{bandwidthOnly, cli.Opt('q', "qp", "N", "queue pairs (default 1)", cli.Int(&o.numQPs, 1, 16384))},
		{bandwidthOnly, cli.Opt('Q', "cq-mod", "N", "sends per completion (default 100; 1 for messages over 8 KiB)", func(v string) error {
			o.signalOwn = true
			return cli.Int(&o.signal, 1, 1024)(v)
		})},
		{delivers, cli.Opt('r', "rx-depth", "N", "receives posted at a time (default 512)", cli.Int(&o.rxDepth, 1, 16384))},
		{nil, cli.Opt('R', "rdma_cm", "", "the RDMA connection manager connects the queue pairs", func(string) error {
			o.byCM, o.cmQPs = true, true
			return nil
		})},
		{notAtomic, cli.Opt('s', "size", "SIZE", "bytes in a message (default 65536, for latencies 2); K and M are units", o.setSize)},
		{nil, cli.Opt('S', "sl", "SL", "service level (default 0)", cli.Int(&o.sl, 0, 15))},
		{streams, cli.Opt('t', "tx-depth", "N", "size of the send queue (default 128)", cli.Int(&o.txDepth, 1, 15000))},
		{nil, cli.Opt('T', "tos", "VALUE", "with -R: type of service", cli.Int(&o.tos, 0, 255))},
		{nil, cli.Opt('u', "qp-timeout", "N", "wait 4 µs << N for an acknowledgement (default 14)", cli.Int(&o.timeout, 0, 31))},
		{latencyOnly, cli.Flag('U', "report-unsorted", "print all latencies in their order", &o.unsorted)},
		{nil, cli.Opt('V', "version", "", "print the version of the wire", func(string) error { return cli.Answer("Version: " + Version + "\n") })},
		{bandwidthOnly, cli.Opt('w', "limit_bw", "VALUE", "fail if the average bandwidth is lower", atLeast(&o.limitBW))},
		{nil, cli.Opt('x', "gid-index", "INDEX", "GID index of the port (default: over RoCE, the best one)", cli.Int(&o.gidIndex, 0, 255))},
		{nil, cli.Opt('X', "vector", "N", "completion vector of events", cli.Int(&o.vector, 0, 2048))},
		{bandwidthOnly, cli.Opt('y', "limit_msgrate", "VALUE", "fail if the message rate is lower", atLeast(&o.limitRate))},
		{nil, cli.Flag('z', "comm_rdma_cm", "the sides meet by the RDMA connection manager, not over TCP", &o.byCM)},
		{streams, cli.Opt(0, "burst_size", "N", "with --rate_limit: messages at a time (default as many as -t)", cli.Int(&o.limit.burst, 1, math.MaxInt32))},
		{nil, cli.Flag(0, "cpu_util", "with -D: print the use of all processors", &o.cpuUtil)},
		{bandwidthOnly, cli.Flag(0, "disable_pcie_relaxed", "no relaxed ordering of PCIe", &o.ordered)},
		{nil, cli.Opt(0, "dlid", "LID", "LID of the peer, in place of the one it tells", cli.Int(&o.dlid, 1, 0xbfff))},
		{nil, cli.Opt(0, "dmabuf", "NODE", "the memory is a dma-buf of /dev/udmabuf or of a heap in /dev/dma_heap", cli.Text(&o.dmabuf))},
		{nil, cli.Flag(0, "dont_xchg_versions", "don't exchange versions and MTU with the peer", &o.blind)},
		{nil, cli.Flag(0, "ipv6", "prefer an IPv6 GID", &o.ipv6)},
		{nil, cli.Flag(0, "json", "print the result as JSON in place of the tables, for ibv plot, too", &o.asJSON)},
		{latencyOnly, cli.Opt(0, "latency_gap", "µS", "wait before each send", cli.Int(&o.gap, 0, math.MaxInt32))},
		{nil, cli.Opt(0, "mmap", "FILE", "the memory is that of a file or a device node", cli.Text(&o.mmapFile))},
		{nil, cli.Opt(0, "mmap-offset", "BYTES", "with --mmap: where it begins (default 0)", cli.Int(&o.mmapOffset, 0, math.MaxInt))},
		{nil, cli.Flag(0, "odp", "the memory is not pinned: on-demand paging", &o.odp)},
		{nil, cli.Flag(0, "out_json", "write the report to a JSON file, too", &o.json)},
		{nil, cli.Opt(0, "out_json_file", "FILE", "its name (default perftest_out.json)", cli.Text(&o.jsonFile))},
		{nil, cli.Opt(0, "output", "WHAT", "print only the bandwidth, message_rate or latency", cli.Word(&o.output, "bandwidth", "message_rate", "latency"))},
		{nil, cli.Opt(0, "patience", "SECONDS", "end if the other side hangs for so long (default 10; 0: never)", cli.Int(&o.patience, 0, math.MaxInt32))},
		{nil, cli.Opt(0, "pkey_index", "INDEX", "index of the P_Key (default 0)", cli.Int(&o.pkey, 0, 65535))},
		{nil, cli.Opt(0, "plot", "FILE", "draw the result to a file, which ends with .svg or .html", func(v string) error {
			o.plot = v
			return plot.Check(v)
		})},
		{nil, cli.Opt(0, "rate_limit", "RATE", "don't send faster, in Gb/s or --rate_units", o.setRate)},
		{nil, cli.Opt(0, "rate_limit_type", "TYPE", "who limits: HW, the device, or SW, the program (default HW if it can)", func(v string) error {
			if v == "PP" && !o.tool.raw {
				return errors.New("packet pacing is for the tests of raw Ethernet frames")
			}
			return cli.Word(&o.limit.by, "HW", "SW", "PP")(v)
		})},
		{nil, cli.Opt(0, "rate_units", "UNIT", "g: Gb/s (the default), M: MiB/s, p: messages per second", cli.Word(&o.limit.units, "g", "M", "p"))},
		{bandwidthOnly, cli.Flag(0, "report-both", "with -b: print each direction, too", &o.reportBoth)},
		{bandwidthOnly, cli.Flag(0, "report_gbits", "bandwidths in Gb/s instead of MiB/s", &o.gbits)},
		{nil, cli.Opt(0, "retry_count", "N", "with -R: retries without an acknowledgement (default 7)", cli.Int(&o.retries, 0, 7))},
		{bandwidthOnly, cli.Flag(0, "reversed", "the server sends", &o.reversed)},
		{bandwidthOnly, cli.Flag(0, "run_infinitely", "don't end, and report every 5 seconds, or every -D seconds", &o.forever)},
		{sendOnly, cli.Flag(0, "send_with_imm", "messages carry immediate data", &o.imm)},
		{nil, cli.Opt('j', "source_ip local_ip", "ADDRESS", "local address of the TCP connection, or of raw frames", o.setSource)},
		{nil, cli.Flag(0, "summary", "print percentiles, the CPU's time and what limits, as on a terminal", &o.summary)},
		{nil, cli.Opt(0, "tclass", "VALUE", "traffic class", cli.Int(&o.tclass, 0, 255))},
		{nil, cli.Flag(0, "use_hugepages", "the memory is in huge pages", &o.hugePages)},
		{delivers, cli.Flag(0, "use-srq", "the queue pairs share their receives", &o.srq)},
		{nil, cli.Ignored(0, "use_old_post_send", "")},
		{writeOnly, cli.Flag(0, "write_with_imm", "writes carry immediate data and consume receives", &o.imm)},
	}
}

// commandLine returns all options of perftest: the tool's own, those that make no difference to it,
// and those that are refused.
func (o *options) commandLine() (all []cli.Option) {
	shared := o.options()
	for i, opt := range append(shared, o.rawOptions()...) {
		name, _, _ := strings.Cut(opt.Long, " ")
		isRaw := i >= len(shared)
		own := (opt.only == nil || opt.only(o.tool)) && (isRaw == o.tool.raw || !isRaw && slices.Contains(rawToo, name))
		switch {
		case own:
			all = append(all, opt.Option)
		case o.tool.latency && slices.Contains(vacuous, name):
			all = append(all, cli.Ignored(opt.Short, opt.Long, opt.Arg))
		default:
			all = append(all, cli.Refuse(opt.Short, opt.Long, opt.Arg, "is not an option of "+o.tool.Name))
		}
	}
	for _, r := range refusals {
		for name := range strings.FieldsSeq(r.names) {
			name, takes := strings.CutSuffix(name, "=")
			var short byte
			if name[1] == '/' {
				short, name = name[0], name[2:]
			}
			arg := ""
			if takes {
				arg = "VALUE"
			}
			all = append(all, cli.Refuse(short, name, arg, "is not supported: "+r.why))
		}
	}
	return all
}

// vacuous lists options that perftest's latency tests take, and that make no difference to them.
var vacuous = strings.Fields("cq-mod disable_pcie_relaxed limit_bw limit_msgrate post_list report_gbits reversed tx-depth")

// A refusal lists options of perftest that this package lacks. The name of an option with a
// value ends with "=".
type refusal struct{ names, why string }

var refusals = []refusal{
	{"g/mcg M/MGID=", "there is no multicast here"},
	{"O/dualport report-per-port", "a run uses one port"},
	{"C/report-cycles", "times are not measured in cycles"},
	{"v/mac_fwd", "frames are not sent on"},
	{"G/use_rss", "a queue pair receives what its flow says"},
	{"raw_ipv6 flow_label=", "frames have IPv4 headers"},
	{"raw_mcast", "frames go to one host"},
	{"flows= flows_burst=", "all frames are of one flow"},
	{"vlan_en vlan_pcp=", "frames have no VLAN tag"},
	{"W/report-counters=", "counters are not read"},
	{"inline_recv=", "verbs has no inline receives"},
	{"mr_per_qp", "all queue pairs use one region"},
	{"use_cuda= use_cuda_bus_id= use_cuda_dmabuf use_cuda_pcie_mapping cuda_mem_type= gpu_touch= use_data_direct use_rocm= use_rocm_dmabuf " +
		"use_neuron= use_neuron_dmabuf use_hl= use_mlu= use_mlu_dmabuf use_musa= use_musa_bus_id= use_musa_dmabuf " +
		"use_musa_pcie_mapping use_opencl= opencl_platform_id= use_ib_dm_dmabuf= use-null-mr", "the memory is the host's"},
	{"recv_post_list=", "receives are posted as they are used"},
	{"wait_destroy=", "objects are closed at once"},
	{"force-link=", "the link layer is the port's"},
	{"use_ooo", "messages arrive in their order"},
	{"log_dci_streams= log_active_dci_streams=", "a DC queue pair has one stream"},
	{"aes_xts encrypt_on_tx sig_before aes_block_size= kek_path= credentials_path= data_enc_keys_number= data_enc_key_app_path=", "there is no encryption here"},
	{"unsolicited_write", "a write with immediate data consumes a receive"},
	{"bind_source_ip= ipv6-addr", "--source_ip and the host's address say over which protocol the sides meet"},
	{"disable_numa numa_node= cpu_id= pin_cores=", "the program doesn't choose its processors: start it with numactl or taskset"},
	{"data_validation data_validation_debug payload_file_path=", "the data is not looked at"},
	{"congest_type= connectionless cqe_poll= disable_dynamic_polling no_enhanced_reorder no_lock ph= tph_mem= sig_offload num_sge=",
		"it sets up the queues in a way of its own"},
}
