package perftest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// A flag is a supported option.
type flag struct {
	short byte
	long  string
	arg   string // the name of its value; "" without a value
	help  string
	only  func(Tool) bool // nil: all tools
	set   func(o *Options, value string) error
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

// on returns a flag's set function that sets a field to true.
func on(field func(o *Options) *bool) func(*Options, string) error {
	return func(o *Options, _ string) error {
		*field(o) = true
		return nil
	}
}

// count returns a flag's set function that sets a field to a number.
func count(lo, hi int, field func(o *Options) *int) func(*Options, string) error {
	return func(o *Options, value string) error { return number(field(o), value, lo, hi) }
}

var flags = []flag{
	{'a', "all", "", "messages of 2 bytes to 8 MiB, one size after the other", notAtomic, on(func(o *Options) *bool { return &o.all })},
	{'A', "atomic_type", "TYPE", "CMP_AND_SWAP or FETCH_AND_ADD (the default)", atomicOnly, func(o *Options, v string) error {
		var name string
		err := word(&name, v, "CMP_AND_SWAP", "FETCH_AND_ADD")
		o.swap = name == "CMP_AND_SWAP"
		return err
	}},
	{'b', "bidirectional", "", "both sides send", bandwidthOnly, on(func(o *Options) *bool { return &o.duplex })},
	{'c', "connection", "TYPE", "transport: RC (the default), UC, UD, XRC, DC or SRD", nil, (*Options).setTransport},
	{'d', "ib-dev", "DEV", "device, by name, node GUID or network interface (default the first)", nil, func(o *Options, v string) error {
		o.device = v
		return nil
	}},
	{'D', "duration", "SECONDS", "run for a time, not for a number of iterations", nil, count(1, math.MaxInt32, func(o *Options) *int { return &o.duration })},
	{'e', "events", "", "sleep until completions arrive instead of polling", nil, on(func(o *Options) *bool { return &o.events })},
	{'f', "margin", "SECONDS", "with -D: don't measure at the start and the end (default a quarter)", nil, count(0, math.MaxInt32, func(o *Options) *int { return &o.margin })},
	{'F', "CPU-freq", "", "ignored: times do not depend on the processor's frequency", nil, func(*Options, string) error { return nil }},
	{'h', "help", "", "show this help", nil, func(*Options, string) error { return ErrHelp }},
	{'H', "report-histogram", "", "print all latencies, sorted", latencyOnly, on(func(o *Options) *bool { return &o.histogram })},
	{0, "report-histogrm", "", "the same, as perftest spells it", latencyOnly, on(func(o *Options) *bool { return &o.histogram })},
	{'i', "ib-port", "PORT", "port of the device (default 1)", nil, count(1, 255, func(o *Options) *int { return &o.ibPort })},
	{'I', "inline_size", "SIZE", "messages up to this size are sent inline", inlinable, count(0, 912, func(o *Options) *int { return &o.inline })},
	{'l', "post_list", "N", "post N requests at a time (default 1)", bandwidthOnly, count(1, 15000, func(o *Options) *int { return &o.postList })},
	{'m', "mtu", "SIZE", "path MTU, 256 to 4096 (default the port's)", nil, (*Options).setMTU},
	{'n', "iters", "N", "iterations, at least 5", nil, count(5, 100000000, func(o *Options) *int { return &o.iters })},
	{'N', "noPeak", "", "don't compute the peak bandwidth", bandwidthOnly, on(func(o *Options) *bool { return &o.noPeak })},
	{'o', "outs", "N", "reads or atomics in flight (default the device's maximum)", responding, count(1, 255, func(o *Options) *int { return &o.outs })},
	{'p', "port", "PORT", "TCP port where the sides meet (default 18515)", nil, count(1, 65535, func(o *Options) *int { return &o.tcpPort })},
	{'q', "qp", "N", "queue pairs (default 1)", bandwidthOnly, count(1, 16384, func(o *Options) *int { return &o.numQPs })},
	{'Q', "cq-mod", "N", "sends per completion (default 100; 1 for messages over 8 KiB)", bandwidthOnly, func(o *Options, v string) error {
		o.signalOwn = true
		return number(&o.signal, v, 1, 1024)
	}},
	{'r', "rx-depth", "N", "receives posted at a time (default 512)", delivers, count(1, 16384, func(o *Options) *int { return &o.rxDepth })},
	{'R', "rdma_cm", "", "the RDMA connection manager connects the queue pairs", nil, func(o *Options, _ string) error {
		o.byCM, o.cmQPs = true, true
		return nil
	}},
	{'s', "size", "SIZE", "bytes in a message (default 65536, for latencies 2); K and M are units", notAtomic, (*Options).setSize},
	{'S', "sl", "SL", "service level (default 0)", nil, count(0, 15, func(o *Options) *int { return &o.sl })},
	{'t', "tx-depth", "N", "size of the send queue (default 128)", streams, count(1, 15000, func(o *Options) *int { return &o.txDepth })},
	{'T', "tos", "VALUE", "with -R: type of service", nil, count(0, 255, func(o *Options) *int { return &o.tos })},
	{'u', "qp-timeout", "N", "wait 4 µs << N for an acknowledgement (default 14)", nil, count(0, 31, func(o *Options) *int { return &o.timeout })},
	{'U', "report-unsorted", "", "print all latencies in their order", latencyOnly, on(func(o *Options) *bool { return &o.unsorted })},
	{'V', "version", "", "print the version of the wire", nil, func(*Options, string) error { return ErrVersion }},
	{'w', "limit_bw", "VALUE", "fail if the average bandwidth is lower", bandwidthOnly, func(o *Options, v string) error { return atLeast(&o.limitBW, v) }},
	{'x', "gid-index", "INDEX", "GID index of the port (default: over RoCE, the best one)", nil, count(0, 255, func(o *Options) *int { return &o.gidIndex })},
	{'X', "vector", "N", "completion vector of events", nil, count(0, 2048, func(o *Options) *int { return &o.vector })},
	{'y', "limit_msgrate", "VALUE", "fail if the message rate is lower", bandwidthOnly, func(o *Options, v string) error { return atLeast(&o.limitRate, v) }},
	{'z', "comm_rdma_cm", "", "the sides meet by the RDMA connection manager, not over TCP", nil, on(func(o *Options) *bool { return &o.byCM })},
	{0, "burst_size", "N", "with --rate_limit: messages at a time (default as many as -t)", streams, count(1, math.MaxInt32, func(o *Options) *int { return &o.limit.burst })},
	{0, "cpu_util", "", "with -D: print the use of all processors", nil, on(func(o *Options) *bool { return &o.cpuUtil })},
	{0, "disable_pcie_relaxed", "", "no relaxed ordering of PCIe", bandwidthOnly, on(func(o *Options) *bool { return &o.ordered })},
	{0, "dlid", "LID", "LID of the peer, in place of the one it tells", nil, count(1, 0xbfff, func(o *Options) *int { return &o.dlid })},
	{0, "dmabuf", "NODE", "the memory is a dma-buf of /dev/udmabuf or of a heap in /dev/dma_heap", nil, func(o *Options, v string) error {
		o.dmabuf = v
		return nil
	}},
	{0, "dont_xchg_versions", "", "don't exchange versions and MTU with the peer", nil, on(func(o *Options) *bool { return &o.blind })},
	{0, "ipv6", "", "prefer an IPv6 GID", nil, on(func(o *Options) *bool { return &o.ipv6 })},
	{0, "json", "", "print the result as JSON in place of the tables, for ibv plot, too", nil, on(func(o *Options) *bool { return &o.asJSON })},
	{0, "latency_gap", "µS", "wait before each send", latencyOnly, count(0, math.MaxInt32, func(o *Options) *int { return &o.gap })},
	{0, "mmap", "FILE", "the memory is that of a file or a device node", nil, func(o *Options, v string) error {
		o.mmapFile = v
		return nil
	}},
	{0, "mmap-offset", "BYTES", "with --mmap: where it begins (default 0)", nil, count(0, math.MaxInt, func(o *Options) *int { return &o.mmapOffset })},
	{0, "odp", "", "the memory is not pinned: on-demand paging", nil, on(func(o *Options) *bool { return &o.odp })},
	{0, "out_json", "", "write the report to a JSON file, too", nil, on(func(o *Options) *bool { return &o.json })},
	{0, "out_json_file", "FILE", "its name (default perftest_out.json)", nil, func(o *Options, v string) error {
		o.jsonFile = v
		return nil
	}},
	{0, "output", "WHAT", "print only the bandwidth, message_rate or latency", nil, func(o *Options, v string) error {
		return word(&o.output, v, "bandwidth", "message_rate", "latency")
	}},
	{0, "patience", "SECONDS", "end if the other side hangs for so long (default 10; 0: never)", nil, count(0, math.MaxInt32, func(o *Options) *int { return &o.patience })},
	{0, "pkey_index", "INDEX", "index of the P_Key (default 0)", nil, count(0, 65535, func(o *Options) *int { return &o.pkey })},
	{0, "plot", "FILE", "draw the result to a file, which ends with .svg or .html", nil, func(o *Options, v string) error {
		o.plot = v
		return plot.Check(v)
	}},
	{0, "rate_limit", "RATE", "don't send faster, in Gb/s or --rate_units", nil, (*Options).setRate},
	{0, "rate_limit_type", "TYPE", "who limits: HW, the device, or SW, the program (default HW if it can)", nil, func(o *Options, v string) error {
		if v == "PP" && !o.tool.raw {
			return errors.New("packet pacing is for the tests of raw Ethernet frames")
		}
		return word(&o.limit.by, v, "HW", "SW", "PP")
	}},
	{0, "rate_units", "UNIT", "g: Gb/s (the default), M: MiB/s, p: messages per second", nil, func(o *Options, v string) error {
		return word(&o.limit.units, v, "g", "M", "p")
	}},
	{0, "report-both", "", "with -b: print each direction, too", bandwidthOnly, on(func(o *Options) *bool { return &o.reportBoth })},
	{0, "report_gbits", "", "bandwidths in Gb/s instead of MiB/s", bandwidthOnly, on(func(o *Options) *bool { return &o.gbits })},
	{0, "retry_count", "N", "with -R: retries without an acknowledgement (default 7)", nil, count(0, 7, func(o *Options) *int { return &o.retries })},
	{0, "reversed", "", "the server sends", bandwidthOnly, on(func(o *Options) *bool { return &o.reversed })},
	{0, "run_infinitely", "", "don't end, and report every 5 seconds, or every -D seconds", bandwidthOnly, on(func(o *Options) *bool { return &o.forever })},
	{0, "send_with_imm", "", "messages carry immediate data", sendOnly, on(func(o *Options) *bool { return &o.imm })},
	{'j', "source_ip", "ADDRESS", "local address of the TCP connection, or of raw frames", nil, (*Options).setSource},
	{0, "summary", "", "print percentiles, the CPU's time and what limits, as on a terminal", nil, on(func(o *Options) *bool { return &o.summary })},
	{0, "tclass", "VALUE", "traffic class", nil, count(0, 255, func(o *Options) *int { return &o.tclass })},
	{0, "use_hugepages", "", "the memory is in huge pages", nil, on(func(o *Options) *bool { return &o.hugePages })},
	{0, "use-srq", "", "the queue pairs share their receives", delivers, on(func(o *Options) *bool { return &o.srq })},
	{0, "use_old_post_send", "", "ignored: there is only one way to post here", nil, func(*Options, string) error { return nil }},
	{0, "write_with_imm", "", "writes carry immediate data and consume receives", writeOnly, on(func(o *Options) *bool { return &o.imm })},
}

// flags returns the options of a tool.
func (t Tool) flags() (all []flag) {
	for _, f := range flags {
		if (f.only == nil || f.only(t)) && (!t.raw || slices.Contains(rawToo, f.long)) {
			all = append(all, f)
		}
	}
	if t.raw {
		for _, f := range rawFlags {
			if f.only == nil || f.only(t) {
				all = append(all, f)
			}
		}
	}
	return all
}

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
	{"recv_post_list= perform_warm_up wait_destroy= force-link= use_ooo", "a run has none of perftest's variations"},
	{"log_dci_streams= log_active_dci_streams=", "a DC queue pair has one stream"},
	{"aes_xts encrypt_on_tx sig_before aes_block_size= kek_path= credentials_path= data_enc_keys_number= data_enc_key_app_path=", "there is no encryption here"},
	{"unsolicited_write", "a write with immediate data consumes a receive"},
	{"bind_source_ip= ipv6-addr", "--source_ip and the host's address say over which protocol the sides meet"},
	{"disable_numa numa_node= cpu_id= pin_cores=", "the program doesn't choose its processors: start it with numactl or taskset"},
	{"data_validation data_validation_debug payload_file_path=", "the data is not looked at"},
	{"congest_type= connectionless cqe_poll= disable_dynamic_polling no_enhanced_reorder no_lock ph= tph_mem= sig_offload num_sge=",
		"it sets up the queues in a way of its own"},
}

// Usage returns the tool's help.
func (t Tool) Usage() string {
	var b strings.Builder
	forms := "        wait for a client\n       ibv %s [OPTION...] HOST   connect to the server on HOST"
	if t.raw {
		forms = " --server   wait for a client\n       ibv %s [OPTION...] --client   begin"
	}
	fmt.Fprintf(&b, "Usage: ibv %s [OPTION...]"+forms+`

%s between two hosts. The other side may be perftest's
%s. Use the same sizes and numbers on both sides.

`, t.Name, t.Name, strings.ToUpper(t.Summary[:1])+t.Summary[1:], t.Program())
	for _, f := range t.flags() {
		name := "--" + f.long
		if f.arg != "" {
			name += "=" + f.arg
		}
		if f.short != 0 {
			name = fmt.Sprintf("-%c, %s", f.short, name)
		} else {
			name = "    " + name
		}
		fmt.Fprintf(&b, "  %-28s  %s\n", name, f.help)
	}
	if t.raw {
		fmt.Fprintf(&b, `
Examples:
  ibv %s --server -d mlx5_0 -B 02:00:00:00:00:0a -E 02:00:00:00:00:0b
  ibv %s --client -d mlx5_0 -B 02:00:00:00:00:0b -E 02:00:00:00:00:0a
        a server and, elsewhere, its client
`, t.Name, t.Name)
		return b.String()
	}
	fmt.Fprintf(&b, `
Examples:
  ibv %s -d rxe0
  ibv %s -d rxe0 192.168.77.1
        a server and, elsewhere, its client
  %s -d mlx5_0 192.168.77.1
        perftest's client works with the same server
`, t.Name, t.Name, t.Program())
	return b.String()
}
