package perftest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
	"github.com/goverbs/goverbs/verbs"
)

// The tables are perftest's, because scripts read them.
const (
	rule          = "---------------------------------------------------------------------------------------\n"
	bandwidthHead = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
	gigabitHead   = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
	latencyHead   = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
	durationHead  = " #bytes        #iterations       t_avg[usec]    tps average"

	bandwidthRow = " %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f"
	slowRow      = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f"
	latencyRow   = " %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f"
	durationRow  = " %-7d       %d            %-7.2f        %-7.2f"
)

// A report collects the results.
type report struct {
	results []any  // for --out_json
	sizes   []Size // for everything else
	limit   string // the limit of the bandwidth of the last size
	failed  error  // a limit that was not reached
}

// full reports whether everything is printed.
func (s *side) full() bool { return s.output == "" && !s.asJSON }

func (s *side) printf(format string, args ...any) {
	if s.full() {
		cli.Printf(format, args...)
	}
}

// usesSRQ returns the value that perftest reports for both sides.
func (o *options) usesSRQ() bool { return o.srq || o.transport.split() }

func onOff(b bool) string {
	if b {
		return "ON"
	}
	return "OFF"
}

func (s *side) linkName() string {
	if s.port.LinkLayer == verbs.LinkLayerEthernet {
		return "Ethernet"
	}
	return "IB"
}

func (s *side) relaxed() bool { return !s.ordered && !s.polled() }

// printSettings prints the test's settings.
func (s *side) printSettings() {
	title := s.title() + " "
	if s.tool.verb == atomics {
		title += s.operation() + " "
	}
	if s.duplex {
		title += "Bidirectional "
	}
	if s.postList > 1 {
		title += "Post List "
	}
	if s.tool.latency {
		title += "Latency "
	} else {
		title += "BW "
	}
	s.printf(rule+"                    %sTest\n", title)
	if s.events {
		s.printf(" Test with events. Using %s_comp%d\n", s.dev.Info().Name(), max(s.vector, 0))
	}
	s.printf(" Dual-port       : OFF\t\tDevice         : %s\n", s.dev.Info().Name())
	s.printf(" Number of qps   : %d\t\tTransport type : IB\n", s.queues())
	s.printf(" Connection type : %s\t\tUsing SRQ      : %s\n", s.transport.name, onOff(s.usesSRQ()))
	s.printf(" PCIe relax order: %s\n", onOff(s.relaxed()))
	s.printf(" ibv_wr* API     : OFF\n")
	sends := s.duplex || s.sender()
	if sends {
		s.printf(" TX depth        : %d\n", s.txDepth)
	}
	if s.postList > 1 {
		s.printf(" Post List       : %d\n", s.postList)
	}
	if s.receives() && (s.duplex || !s.sender()) {
		s.printf(" RX depth        : %d\n", s.rxDepth)
	}
	if !s.tool.latency {
		s.printf(" CQ Moderation   : %d\n", s.signal)
	}
	s.printf(" Mtu             : %d[B]\n", s.mtuInUse())
	s.printf(" Link type       : %s\n", s.linkName())
	if s.global {
		s.printf(" GID index       : %d\n", s.gid.Index)
	}
	if s.tool.verb.responds() {
		s.printf(" Outstand reads  : %d\n", s.depth)
	} else {
		s.printf(" Max inline data : %d[B]\n", s.inline)
	}
	s.printf(" rdma_cm QPs\t : %s\n Data ex. method : %s", onOff(s.cmQPs), s.method())
	if s.tos >= 0 {
		s.printf(" \tTOS    : %d", s.tos)
	}
	if s.cmQPs && s.host == "" {
		s.printf("\n" + rule + " Waiting for client rdma_cm QP to connect\n Please run the same command with the IB/RoCE interface IP")
	}
	s.printf("\n" + rule)
}

// mtuInUse returns the MTU of paths, or of raw frames.
func (s *side) mtuInUse() int {
	if s.tool.raw {
		return s.frameMTU + frameMore
	}
	return s.pathMTU.Bytes()
}

func (s *side) title() string {
	if s.imm {
		return s.tool.verb.title() + "_imm"
	}
	return s.tool.verb.title()
}

// method names the way in which the sides meet.
func (s *side) method() string {
	if s.byCM {
		return "rdma_cm"
	}
	return "Ethernet"
}

func (s *side) operation() string {
	if s.swap {
		return "CMP_AND_SWAP"
	}
	return "FETCH_AND_ADD"
}

// hex0x formats a number as C's %#0*x does: zero has no 0x.
func hex0x(width int, v uint64) string {
	if v == 0 {
		return fmt.Sprintf("%0*d", width, 0)
	}
	return fmt.Sprintf("0x%0*x", width-2, v)
}

// printKeys prints the keys of a side.
func (s *side) printKeys(side string, all []keys) {
	for _, k := range all {
		lid := k.lid
		if side == "remote" && s.dlid != 0 {
			lid = uint16(s.dlid)
		}
		s.printf(" %s address: LID %s QPN %s PSN %s", side, hex0x(4, uint64(lid)), hex0x(6, uint64(k.qpn)), hex0x(6, uint64(k.psn)))
		// With the connection manager, perftest leaves these out.
		if s.tool.verb == read && !s.byCM {
			s.printf(" OUT %s", hex0x(4, uint64(k.outs)))
		}
		if (s.tool.verb == read || s.tool.verb == write) && !s.byCM {
			s.printf(" RKey %s VAddr %s", hex0x(8, uint64(k.rkey)), "0x"+fmt.Sprintf("%014x", k.vaddr))
		}
		if s.transport == xrc || s.transport == dc && !s.byCM {
			s.printf(" SRQn %s", hex0x(8, uint64(k.srqn)))
		}
		s.printf("\n")
		if s.global {
			s.printf(" GID: ")
			for i, b := range k.gid {
				if i > 0 {
					s.printf(":")
				}
				s.printf("%02d", b)
			}
			s.printf("\n")
		}
	}
}

// printHead prints the head of the table.
func (s *side) printHead() {
	head := bandwidthHead
	switch {
	case s.tool.latency && s.duration > 0:
		head = durationHead
	case s.tool.latency:
		head = latencyHead
	case s.gbits:
		head = gigabitHead
	}
	s.printf("%s%s%s\n", rule, head, s.extra("    CPU_Util[%%]"))
}

// extra returns the column of --cpu_util.
func (s *side) extra(format string, values ...any) string {
	if s.load == nil {
		return ""
	}
	return fmt.Sprintf(format, values...)
}

// printRow prints a row of the table.
func (s *side) printRow(format string, values ...any) {
	if s.full() {
		cli.Printf(format+"%s\n", append(values, s.extra("\t    %-3.2f", s.percent()))...)
	}
}

func (s *side) percent() float64 {
	if s.load == nil {
		return 0
	}
	return s.load.percent()
}

// printBandwidth prints a row.
func (s *side) printBandwidth(b bandwidth) {
	row := bandwidthRow
	if s.gbits && b.average < 0.1 {
		row = slowRow
	}
	switch s.output {
	case "bandwidth":
		cli.Printf("%f\n", b.average)
	case "message_rate":
		cli.Printf("%f\n", b.rate)
	default:
		s.printRow(row, b.size, b.iters, b.peak, b.average, b.rate)
	}
}

// nothing reports whether a test with a duration has measured no message. Then the test has no result, and fails.
func (s *side) nothing(messages int) bool {
	if s.duration == 0 || s.forever || messages > 0 {
		return false
	}
	s.report.failed = fmt.Errorf("no message was completed in the %d seconds that are measured", s.duration-2*s.margin)
	return true
}

// addBandwidth prints the result of a size and keeps it.
func (s *side) addBandwidth(b bandwidth) {
	if s.nothing(int(b.iters)) {
		return
	}
	s.printBandwidth(b)
	size := int(b.size)
	unit := 8 * float64(1<<20) / 1e9
	if s.gbits {
		unit = 1
	}
	s.report.sizes = append(s.report.sizes, Size{Bytes: size, Messages: int(b.iters), Bandwidth: &Bandwidth{
		Peak: b.peak * unit, Average: b.average * unit, Limit: s.carries(size, s.pathMTU.Bytes()), Messages: b.rate * 1e6,
	}})
	s.report.results = append(s.report.results, struct {
		MsgSize    uint64   `json:"MsgSize"`
		Iterations uint64   `json:"n_iterations"`
		Peak       float64  `json:"BW_peak"`
		Average    float64  `json:"BW_average"`
		Rate       float64  `json:"MsgRate"`
		CPU        *float64 `json:"CPU_util,omitempty"`
	}{b.size, b.iters, b.peak, b.average, b.rate, s.utilisation()})
	switch {
	case b.average < s.limitBW:
		s.report.failed = fmt.Errorf("the bandwidth %.2f is below the limit %.2f (-w)", b.average, s.limitBW)
	case b.rate < s.limitRate:
		s.report.failed = fmt.Errorf("the message rate %.6f is below the limit %.6f (-y)", b.rate, s.limitRate)
	}
}

// utilisation returns the number of --cpu_util for the JSON file, or nil.
func (s *side) utilisation() *float64 {
	if s.load == nil {
		return nil
	}
	v := s.load.percent()
	return &v
}

// addLatency prints the result of a size and keeps it.
func (s *side) addLatency(l latency) {
	if s.nothing(l.iters) {
		return
	}
	if s.duration == 0 && s.full() && (s.unsorted || s.histogram) {
		if s.unsorted {
			printAll(l.times.unsorted())
		}
		if s.histogram {
			printAll(l.times.sorted())
		}
		s.printHead()
	}
	switch {
	case s.output != "":
		cli.Printf("%f\n", l.average)
	case s.duration > 0:
		s.printRow(durationRow, l.size, l.iters, l.average, l.perSecond)
	default:
		s.printRow(latencyRow, l.size, l.iters, l.least, l.most, l.typical, l.average, l.stdev, l.p99, l.p999)
	}
	if l.times != nil {
		if s.duration > 0 && l.times.hist.Count() > outliers {
			l.typical, l.stdev = l.times.typical()
		}
		s.report.sizes = append(s.report.sizes, Size{Bytes: l.size, Messages: l.iters, Latency: l.times.result(l)})
	}
	if s.duration > 0 {
		s.report.results = append(s.report.results, struct {
			MsgSize    int      `json:"MsgSize"`
			Iterations int      `json:"n_iterations"`
			Average    float64  `json:"t_avg"`
			PerSecond  float64  `json:"tps_average"`
			CPU        *float64 `json:"CPU_util,omitempty"`
		}{l.size, l.iters, l.average, l.perSecond, s.utilisation()})
		return
	}
	s.report.results = append(s.report.results, struct {
		MsgSize    int     `json:"MsgSize"`
		Iterations int     `json:"n_iterations"`
		Least      float64 `json:"t_min"`
		Most       float64 `json:"t_max"`
		Typical    float64 `json:"t_typical"`
		Average    float64 `json:"t_avg"`
		Stdev      float64 `json:"t_stdev"`
		P99        float64 `json:"percentile_99"`
		P999       float64 `json:"percentile_99.9"`
	}{l.size, l.iters, l.least, l.most, l.typical, l.average, l.stdev, l.p99, l.p999})
}

func printAll(values []float64) {
	cli.Println("#, usec")
	for i, v := range values {
		cli.Printf("%d, %.6g\n", i+1, v)
	}
}

// printSummary prints the results that perftest's table lacks.
func (s *side) printSummary() { s.printf("%s", s.result().summary(s.duration == 0)) }

// summary returns the text of printSummary. Some tables leave out the two longest times.
func (r *Result) summary(leavesOut bool) string {
	var b strings.Builder
	for _, size := range r.Sizes {
		if l := size.Latency; l != nil && len(l.Percentiles) > 0 {
			fmt.Fprintf(&b, " %s:", plot.Bytes(float64(size.Bytes)))
			for _, p := range percents {
				if p < 99.9 || l.supports(p, size.Messages) {
					fmt.Fprintf(&b, "  %g%% %s", p, cli.SI(l.at(p)/1e6, "s"))
				}
			}
			fmt.Fprintf(&b, "  max %s\n  %s\n", cli.SI(l.Most/1e6, "s"), l.shape())
		}
	}
	if leavesOut && b.Len() > 0 {
		b.WriteString(" max is of all messages. The table leaves out the two longest, as perftest does.\n")
	}
	fmt.Fprintf(&b, " %s\n", r.costs())
	if r.Limit != "" {
		fmt.Fprintf(&b, " %s\n", r.Limit)
	}
	return b.String()
}

// shape draws how many messages have which latency, up to the 99.9th percentile, on a logarithmic axis.
func (l *Latency) shape() string {
	first, most := l.Buckets[0].Time, l.at(99.9)
	span := max(math.Log2(most/first), 1e-9)
	counts := make([]float64, min(48, 1+int(32*span)))
	for _, b := range l.Buckets {
		if b.Time <= most*math.Exp2(0.5/32) { // its middle
			i := int(math.Log2(b.Time/first) / span * float64(len(counts)))
			counts[min(i, len(counts)-1)] += float64(b.Count)
		}
	}
	return fmt.Sprintf("%s ▕%s▏ %s", cli.SI(l.Least/1e6, "s"), cli.Bars(counts), cli.SI(most/1e6, "s"))
}

// writeJSON writes the file. Its results are an object, or with -a a list of objects.
func (s *side) writeJSON() error {
	if !s.json || len(s.report.results) == 0 {
		return nil
	}
	test := s.title() + "_"
	if s.tool.verb == atomics {
		test += s.operation() + "_"
	}
	if s.duplex {
		test += "Bidirectional_"
	}
	if s.tool.latency {
		test += "Latency_Test"
	} else {
		test += "BW_Test"
	}
	info := struct {
		Test       string `json:"test"`
		DualPort   string `json:"Dual_port"`
		Device     string `json:"Device"`
		QPs        int    `json:"Number_of_qps"`
		Type       string `json:"Transport_type"`
		Connection string `json:"Connection_type"`
		SRQ        string `json:"Using_SRQ"`
		Relaxed    string `json:"PCIe_relax_order"`
		WRAPI      string `json:"ibv_wr_API"`
		TXDepth    int    `json:"TX_depth"`
		PostList   int    `json:"Post_List,omitempty"`
		RXDepth    int    `json:"RX_depth,omitempty"`
		Moderation int    `json:"CQ_Moderation,omitempty"`
		MTU        int    `json:"Mtu"`
		Link       string `json:"Link_type"`
		GIDIndex   *int   `json:"GID_index,omitempty"`
		Inline     *int   `json:"Max_inline_data,omitempty"`
		Outstand   int    `json:"Outstand_reads,omitempty"`
		CM         string `json:"rdma_cm_QPs"`
		Method     string `json:"Data_ex_method"`
	}{
		Test: test, DualPort: "OFF", Device: s.dev.Info().Name(), QPs: s.queues(), Type: "IB", Connection: s.transport.name,
		SRQ: onOff(s.usesSRQ()), Relaxed: onOff(s.relaxed()), WRAPI: "OFF", TXDepth: s.txDepth, MTU: s.mtuInUse(), Link: s.linkName(),
		CM: onOff(s.cmQPs), Method: s.method(),
	}
	if s.postList > 1 {
		info.PostList = s.postList
	}
	if s.receives() {
		info.RXDepth = s.rxDepth
	}
	if !s.tool.latency {
		info.Moderation = s.signal
	}
	if s.global {
		info.GIDIndex = &s.gid.Index
	}
	if s.tool.verb.responds() {
		info.Outstand = s.depth
	} else {
		info.Inline = &s.inline
	}
	file := struct {
		Info    any `json:"test_info"`
		Results any `json:"results"`
	}{info, s.report.results}
	if !s.all {
		file.Results = s.report.results[0]
	}
	b, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.jsonFile, append(b, '\n'), 0o644)
}
