package perftest

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// The limits and defaults are perftest's.
const (
	defaultPort  = 18515
	maxAllSize   = 8 << 20 // -a
	largeMessage = 8192    // from here on, each send is signaled
	peakIters    = 20000   // up to here, the peak bandwidth is computed
	maxSignal    = 100     // sends per completion

	defaultReceives  = 512
	maxDatagramDepth = 16000
	reportInterval   = 5 // seconds, with --run_infinitely
)

// options are the command line of a tool.
type options struct {
	tool       Tool
	host       string // "": be the server
	tcpPort    int
	device     string
	ibPort     int
	mtu        int // bytes; 0: the port's
	size       int
	sizeGiven  bool
	all        bool // sizes of 2 to 8 MiB
	iters      int
	duration   int // seconds; 0: iters
	margin     int // seconds; -1: a quarter of duration
	txDepth    int
	rxDepth    int // 0: the default
	numQPs     int
	signal     int // sends per completion
	signalOwn  bool
	postList   int
	inline     int // -1: the default
	gidIndex   int // -1: the default
	ipv6       bool
	hopLimit   int
	sl         int
	timeout    int
	pkey       int
	tclass     int
	dlid       int
	transport  transport
	srq        bool // receive from a shared queue
	imm        bool // messages carry immediate data
	forever    bool // duration is the time between reports
	odp        bool
	hugePages  bool
	mmapFile   string
	mmapOffset int
	dmabuf     string // device node
	limit      rateLimit
	raw        raw
	duplex     bool
	reversed   bool
	noPeak     bool
	events     bool
	vector     int // -1: not given
	outs       int // 0: the device's maximum
	swap       bool
	ordered    bool // no relaxed ordering of PCIe
	gbits      bool
	reportBoth bool
	limitBW    float64
	limitRate  float64
	histogram  bool
	unsorted   bool
	gap        int    // µs between sends
	output     string // "": tables
	json       bool
	jsonFile   string
	asJSON     bool
	plot       string // file
	summary    bool
	cpuUtil    bool
	source     string
	blind      bool // don't exchange versions
	byCM       bool // the sides meet by the connection manager
	cmQPs      bool // the queue pairs are connected by it, too
	tos        int  // type of service of these; -1: the default
	retries    int  // of these
	patience   int  // seconds for which the other side may hang; 0: for ever
}

// newOptions returns a tool's defaults.
func newOptions(t Tool) *options {
	o := &options{
		tool: t, tcpPort: defaultPort, ibPort: 1, size: 65536, iters: 1000, margin: -1, txDepth: 128, numQPs: 1,
		signal: maxSignal, postList: 1, inline: -1, gidIndex: -1, hopLimit: 255, timeout: 14, transport: rc, vector: -1,
		jsonFile: "perftest_out.json", tos: -1, retries: 7, patience: 10, limit: rateLimit{units: "g"},
	}
	if t.latency {
		o.size, o.txDepth = 2, 1
	}
	switch {
	case t.raw:
		o.transport, o.hopLimit, o.raw.replyEvery = rawEth, 64, 1
		if t.burst {
			o.txDepth = 128
		}
	case t.verb == write && !t.latency:
		o.iters = 5000
	case t.verb == atomics:
		o.size = 8
	}
	return o
}

// sender reports whether this side sends in a test of one direction.
func (o *options) sender() bool { return o.client() != o.reversed }

// receives reports whether the messages consume receives.
func (o *options) receives() bool { return o.tool.verb == send || o.imm }

// finish takes the operands, and checks the options together.
func (o *options) finish(operands []string) error {
	if len(operands) == 1 {
		o.host = operands[0]
	}
	if o.rxDepth == 0 {
		o.rxDepth = 1
		if o.receives() {
			o.rxDepth = defaultReceives
		}
	}
	if o.forever && o.duration == 0 {
		o.duration = reportInterval
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.tool.raw {
		if err := o.checkRaw(); err != nil {
			return err
		}
	}
	if err := o.checkRate(); err != nil {
		return err
	}
	o.adjust()
	o.summary = o.summary || cli.Terminal(os.Stdout) && o.output == ""
	return nil
}

func (o *options) check() error {
	switch {
	case o.duration > 0 && o.events:
		return errors.New("-D and -e can't be combined")
	case o.duration > 0 && o.all:
		return errors.New("-D and -a can't be combined")
	case o.duration > 0 && o.margin >= 0 && o.duration <= 2*o.margin:
		return fmt.Errorf("-D %d leaves nothing between two margins of %d seconds (-f)", o.duration, o.margin)
	case o.cmQPs && o.transport != rc && o.transport != ud:
		return fmt.Errorf("-R and -c %s can't be combined: the connection manager has RC and UD", o.transport.name)
	case o.transport == srd && o.signalOwn && o.signal > 1:
		return errors.New("-Q and -c SRD can't be combined: each request of SRD has a completion")
	case o.srq && o.transport == srd:
		return errors.New("--use-srq and -c SRD can't be combined: EFA has no shared receive queues")
	case o.srq && o.numQPs > o.rxDepth:
		return fmt.Errorf("--use-srq: %d queue pairs (-q) need a queue of as many receives or more (-r)", o.numQPs)
	case o.tos >= 0 && !o.cmQPs && !o.tool.raw:
		return errors.New("-T is for queue pairs of the connection manager: it needs -R")
	case o.forever && o.duplex && o.receives():
		return errors.New("--run_infinitely and -b can't be combined if messages consume receives")
	case o.forever && o.json:
		return errors.New("--run_infinitely and --out_json can't be combined: the file is written at the end")
	case o.forever && (o.asJSON || o.plot != ""):
		return errors.New("--run_infinitely has no end, at which --json and --plot write")
	case o.asJSON && o.output != "":
		return errors.New("--json and --output can't be combined")
	case o.cpuUtil && o.forever:
		return errors.New("--run_infinitely has no end, at which --cpu_util prints")
	case o.mmapFile != "" && (o.hugePages || o.odp):
		return errors.New("--mmap and --use_hugepages or --odp can't be combined")
	case o.dmabuf != "" && (o.hugePages || o.odp || o.mmapFile != ""):
		return errors.New("--dmabuf and --mmap, --use_hugepages or --odp can't be combined")
	case o.mmapOffset > 0 && o.mmapFile == "":
		return errors.New("--mmap-offset needs --mmap")
	case o.srq && !o.receives():
		return errors.New("--use-srq is for messages that consume receives: sends, and writes with --write_with_imm")
	case o.rxDepth > 1 && !o.receives():
		return errors.New("-r is for messages that consume receives: sends, and writes with --write_with_imm")
	case o.events && o.tool.verb == write && !o.imm:
		return errors.New("-e: a write completes nothing at the other side; use --write_with_imm")
	case o.vector >= 0 && !o.events:
		return errors.New("-X selects the vector of events: it needs -e")
	case o.postList > 1 && o.duration == 0 && o.iters%o.postList != 0:
		return fmt.Errorf("-n %d is not a multiple of -l %d", o.iters, o.postList)
	case o.postList > 1 && o.signalOwn && o.postList%o.signal != 0:
		return fmt.Errorf("-l %d is not a multiple of -Q %d", o.postList, o.signal)
	case o.postList > o.txDepth:
		return fmt.Errorf("-l %d doesn't fit into a queue of %d (-t)", o.postList, o.txDepth)
	case o.reversed && o.duplex:
		return errors.New("--reversed and -b can't be combined")
	case o.reportBoth && !o.duplex:
		return errors.New("--report-both needs -b")
	case o.output == "latency" && !o.tool.latency:
		return errors.New("--output: a bandwidth test has bandwidth and message_rate")
	case o.output != "" && o.output != "latency" && o.tool.latency:
		return errors.New("--output: a latency test has latency")
	}
	return nil
}

// adjust makes perftest's adjustments. Both sides' depths depend on the iterations.
// Therefore both sides need the same number.
func (o *options) adjust() {
	if o.forever {
		o.margin = 0
	}
	if o.duration == 0 {
		o.cpuUtil = false // as perftest has it
		o.txDepth = min(o.txDepth, o.iters)
		if o.receives() {
			unreliable := o.transport.lossy()
			o.rxDepth = min(o.rxDepth, o.iters)
			if unreliable && o.rxDepth == defaultReceives {
				o.rxDepth = min(o.iters, maxDatagramDepth)
			}
		}
	} else {
		o.noPeak = true
		if o.margin < 0 {
			o.margin = o.duration / 4
		}
	}
	if o.size > largeMessage && o.transport != ud && !o.all && !o.events && !o.signalOwn {
		o.signal = 1
	}
	if o.postList > 1 && !o.signalOwn {
		o.signal = o.postList
	}
	if o.transport == srd {
		o.signal = 1
	}
	o.signal = min(o.signal, o.txDepth)
	if o.all {
		o.size = maxAllSize
	}
	if o.iters > peakIters || o.receives() && !o.sender() && !o.duplex {
		o.noPeak = true
	}
}

// atLeast returns the Set of a limit. As in perftest, a unit after the number changes nothing.
func atLeast(to *float64) func(string) error {
	return func(value string) error {
		v, err := strconv.ParseFloat(strings.TrimRight(value, "KMG"), 64)
		if err != nil || !(v >= 0) {
			return fmt.Errorf("%q is not a limit", value)
		}
		*to = v
		return nil
	}
}

func (o *options) setSize(value string) error {
	n, err := cli.Size(value, 1, math.MaxInt32)
	if err == nil {
		o.size, o.sizeGiven = int(n), true
	}
	return err
}

func (o *options) setMTU(value string) error {
	switch value {
	case "256", "512", "1024", "2048", "4096":
		return cli.Int(&o.mtu, 256, 4096)(value)
	}
	return fmt.Errorf("%q is not 256, 512, 1024, 2048 or 4096", value)
}

func (o *options) setSource(value string) error {
	if o.tool.raw {
		return setIPv4(&o.raw.localIP)(value)
	}
	if _, err := netip.ParseAddr(value); err != nil {
		return fmt.Errorf("%q is not an IP address", value)
	}
	o.source = value
	return nil
}
