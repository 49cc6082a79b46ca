package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/why"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// A bed is a source without devices of its own.
type bed struct {
	ports    []monitor.Port
	counters []monitor.Counter
	qps      []rdmanl.QP
	mrs      []rdmanl.MR
	failure  error
}

var container = strings.Repeat("0123456789abcdef", 4)

func (b *bed) Devices(context.Context) ([]rdmanl.Device, error) {
	return []rdmanl.Device{{Index: 3, Name: "mlx5_0", Ports: 1, Firmware: rdmanl.Some("20.1"), Protocol: rdmanl.Some("ib"), NodeGUID: rdmanl.Some(ib.GUIDOf(7))}}, b.failure
}
func (b *bed) Ports(context.Context) ([]monitor.Port, error) { return b.ports, b.failure }
func (b *bed) Counters(context.Context, string, int) ([]monitor.Counter, error) {
	return b.counters, b.failure
}
func (b *bed) Counts(context.Context, uint32) ([]rdmanl.Count, error) {
	return []rdmanl.Count{{Name: "qp", Now: 4}, {Name: "mr", Now: 5}}, b.failure
}
func (b *bed) QPs(context.Context, uint32) ([]rdmanl.QP, error) { return b.qps, b.failure }
func (b *bed) MRs(context.Context, uint32) ([]rdmanl.MR, error) { return b.mrs, b.failure }
func (b *bed) Process(o *rdmanl.Owner) *why.Process {
	pid := o.PID.Or(0)
	p := &why.Process{PID: pid &^ 1, Comm: fmt.Sprintf("program \"%d\"\n\\", pid&^1)} // two threads each
	if pid&^1 == 8 {
		p.Cgroup, p.Container = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice/cri-containerd-"+container+".scope", container
	}
	return p
}

// newBed returns an exporter of a bed with a port and some processes.
func newBed(t testing.TB) (*exporter, *bed) {
	own := func(pid uint32) rdmanl.Owner { return rdmanl.Owner{PID: rdmanl.Some(pid)} }
	state := rdmanl.Some(ib.QPRTS)
	b := &bed{
		ports: []monitor.Port{{Device: "mlx5_0", Number: 1, State: ib.PortActive, PhysState: ib.PhysLinkUp, LinkLayer: ib.LinkLayerEthernet, Rate: 100e9, Width: ib.Width4X, MTU: ib.MTU4096, Netdev: "eth0"}},
		qps: []rdmanl.QP{{Number: 1, State: state, Owner: own(8)}, {Number: 2, State: state, Owner: own(9)}, {Number: 3, State: rdmanl.Some(ib.QPErr), Owner: own(8)},
			{Number: 4, State: state, Owner: own(10)}, {Number: 5, State: state, Owner: rdmanl.Owner{Kernel: rdmanl.Some("nvme_rdma")}}},
		mrs: []rdmanl.MR{{ID: 1, Length: rdmanl.Some(uint64(4096)), Owner: own(8)}, {ID: 2, Length: rdmanl.Some(uint64(1 << 40)), Owner: own(10)}},
		counters: []monitor.Counter{
			{Name: "port_rcv_data", Value: 1000, Unit: monitor.UnitBytes, Source: monitor.SourceSysfs}, {Name: "link_downed", Value: 2, Source: monitor.SourceSysfs},
			{Name: "link_downed", Value: 3, Source: monitor.SourceNetlink}, {Name: "out_of_buffer", Value: 18446744073709551615, Source: monitor.SourceNetlink},
			{Name: "active_qps", Value: 6, Gauge: true, Source: monitor.SourceNetlink}, {Name: "sent_pkts", Value: 4, Unit: monitor.UnitPackets, Source: monitor.SourceNetlink},
		},
	}
	e := &exporter{source: b, root: t.TempDir(), prefix: "rdma", most: 100, report: t.Errorf, links: map[link]int{{"mlx5_0", 1, ib.PortDown}: 2},
		at: time.Unix(1800000000, 0),
		looked: &why.Report{
			Users: []why.User{{Device: "mlx5_0", Process: &why.Process{PID: 8}, QPs: map[string]int{"moving": 2, "stuck": 1}}},
			Findings: []why.Finding{{ID: "peer-not-ready", Device: "mlx5_0", QPs: []uint32{3}, Process: &why.Process{PID: 8, Comm: "a"}},
				{ID: "device-fatal", Device: "mlx5_1"}},
		}}
	config := filepath.Join(e.root, "run/containerd/io.containerd.runtime.v2.task/k8s.io", container, "config.json")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(`{"annotations":{"io.kubernetes.cri.sandbox-name":"train-0","io.kubernetes.cri.sandbox-namespace":"ml"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return e, b
}

// samples returns the lines without comments and times.
func samples(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if line[0] != '#' && !strings.Contains(line, "_duration_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestMetrics(t *testing.T) {
	e, _ := newBed(t)
	want := `rdma_info{device="mlx5_0",firmware_version="20.1",protocol="ib",node_guid="0000:0000:0000:0007"} 1
rdma_link_downed_total{device="mlx5_0",port="1"} 2
rdma_look_timestamp_seconds 1.8e+09
rdma_objects{device="mlx5_0",type="qp"} 4
rdma_objects{device="mlx5_0",type="mr"} 5
rdma_out_of_buffer_drops_total{device="mlx5_0",port="1"} 1.8446744073709552e+19
rdma_physical_state_id{device="mlx5_0",port="1"} 5
rdma_port_data_received_bytes_total{device="mlx5_0",port="1"} 1000
rdma_port_info{device="mlx5_0",port="1",link_layer="Ethernet",netdev="eth0",width="4X"} 1
rdma_port_link_events_total{device="mlx5_0",port="1",state="DOWN"} 2
rdma_port_mtu_bytes{device="mlx5_0",port="1"} 4096
rdma_port_other_now{device="mlx5_0",port="1",name="active_qps",unit="count",source="netlink"} 6
rdma_port_other_total{device="mlx5_0",port="1",name="link_downed",unit="count",source="netlink"} 3
rdma_port_other_total{device="mlx5_0",port="1",name="sent_pkts",unit="packets",source="netlink"} 4
rdma_process_info{pid="10",comm="program \"10\"\n\\",cgroup="",container="",namespace="",pod="",pod_uid=""} 1
rdma_process_info{pid="8",comm="program \"8\"\n\\",cgroup="/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice/cri-containerd-CONTAINER.scope",container="CONTAINER",namespace="ml",pod="train-0",pod_uid="1b4e28ba-2fa1-11d2-883f-0016d3cca427"} 1
rdma_process_memory_regions{device="mlx5_0",pid="10",comm="program \"10\"\n\\"} 1
rdma_process_memory_regions{device="mlx5_0",pid="8",comm="program \"8\"\n\\"} 1
rdma_process_memory_regions{device="mlx5_0",pid="0",comm="kernel"} 0
rdma_process_queue_pairs{device="mlx5_0",pid="10",comm="program \"10\"\n\\",state="RTS"} 1
rdma_process_queue_pairs{device="mlx5_0",pid="8",comm="program \"8\"\n\\",state="ERR"} 1
rdma_process_queue_pairs{device="mlx5_0",pid="8",comm="program \"8\"\n\\",state="RTS"} 2
rdma_process_queue_pairs{device="mlx5_0",pid="0",comm="kernel",state="RTS"} 1
rdma_process_registered_bytes{device="mlx5_0",pid="10",comm="program \"10\"\n\\"} 1.099511627776e+12
rdma_process_registered_bytes{device="mlx5_0",pid="8",comm="program \"8\"\n\\"} 4096
rdma_process_registered_bytes{device="mlx5_0",pid="0",comm="kernel"} 0
rdma_processes 3
rdma_queue_pairs{device="mlx5_0",condition="moving"} 2
rdma_queue_pairs{device="mlx5_0",condition="stuck"} 1
rdma_rate_bytes_per_second{device="mlx5_0",port="1"} 1.25e+10
rdma_state_id{device="mlx5_0",port="1"} 4
rdma_stuck_queue_pairs{device="mlx5_0",reason="peer-not-ready",pid="8",comm="a"} 1
rdma_stuck_queue_pairs{device="mlx5_1",reason="device-fatal",pid="",comm=""} 1
`
	want = strings.ReplaceAll(want, "CONTAINER", container)
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(samples(e.collect(t.Context()).text(false)), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	open := string(e.collect(t.Context()).text(true))
	if !strings.Contains(open, "# TYPE rdma_link_downed counter\nrdma_link_downed_total{") || !strings.HasSuffix(open, "\n# EOF\n") || samples([]byte(open)) != want {
		t.Errorf("%s", open)
	}
	names := make(map[string]bool)
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(open, -1) {
		if names[line[1]] {
			t.Errorf("two metrics have the name %s in OpenMetrics", line[1])
		}
		names[line[1]] = true
	}
	e.most, e.prefix = 1, "node_infiniband"
	few := samples(e.collect(t.Context()).text(false))
	if strings.Count(few, "process_registered_bytes{") != 1 || !strings.Contains(few, "node_infiniband_processes 3\n") || strings.Count(few, "stuck_queue_pairs{") != 1 {
		t.Errorf("%s", few)
	}
}

// TestFailures: what can't be read is left out, and reported once until it can be read again.
func TestFailures(t *testing.T) {
	e, b := newBed(t)
	b.ports, b.qps, b.mrs = nil, nil, nil
	var said []string
	e.report = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	e.tell("look", syscall.EPROTONOSUPPORT)
	for _, b.failure = range []error{syscall.EPROTONOSUPPORT, syscall.EPROTONOSUPPORT, syscall.EPERM, nil, syscall.EPERM} {
		if text := samples(e.collect(t.Context()).text(false)); !strings.Contains(text, "rdma_processes 0\n") {
			t.Errorf("%s", text)
		}
	}
	if want := []string{"protocol not supported", "operation not permitted", "operation not permitted"}; !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
}

// TestLater: events of links are waited for, if the kernel has no RDMA yet.
func TestLater(t *testing.T) {
	e, _ := newBed(t)
	ctx, stop := context.WithCancel(t.Context())
	tries, said := 0, 0
	e.report = func(string, ...any) { said++ }
	e.watch = func(context.Context, rdmanl.WatchOptions) (*rdmanl.Watcher, error) {
		if tries++; tries == 3 {
			stop()
		}
		return nil, syscall.EPROTONOSUPPORT
	}
	e.follow(ctx, time.Millisecond)
	if tries != 3 || said != 1 {
		t.Errorf("%d tries, %d reports", tries, said)
	}
}

// TestOnce: what can't be read makes --once fail, which writes the rest.
func TestOnce(t *testing.T) {
	for _, failure := range []error{nil, syscall.EPROTONOSUPPORT} {
		e, b := newBed(t)
		e.report = func(string, ...any) {}
		b.failure = failure
		o := options{file: filepath.Join(t.TempDir(), "rdma.prom"), interval: time.Nanosecond}
		err := o.print(t.Context(), e, why.NewLooker(&why.Host{Root: t.TempDir(), Kernel: empty{}}))
		if (err == cli.ErrReported) != (failure != nil) || err != nil && err != cli.ErrReported {
			t.Errorf("%v: %v", failure, err)
		}
		if b, err := os.ReadFile(o.file); err != nil || !strings.Contains(string(b), "\nrdma_processes ") {
			t.Errorf("%v: %v, %q", failure, err, b)
		}
	}
}

// empty is a kernel without devices.
type empty struct{ why.Kernel }

func (empty) Devices(context.Context) ([]rdmanl.Device, error) { return nil, nil }

func TestPods(t *testing.T) {
	const uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
	for cgroup, want := range map[string]string{
		"/kubepods/burstable/pod" + uid + "/" + container:                                        uid,
		"/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/x.scope":    uid,
		"/kubelet.slice/kubelet-kubepods.slice/pod0123456789abcdef0123456789abcdef/" + container: "0123456789abcdef0123456789abcdef",
		"/../../pod" + uid + "/" + container:                                                     uid, // as seen from another pod's namespace of cgroups
		"/kubepods/besteffort/podman":                                                            "",
		"/user.slice/pod" + uid:                                                                  "",
		"/system.slice/docker-" + container + ".scope":                                           "",
	} {
		if got := podOf(t.TempDir(), cgroup, ""); got.uid != want || got.name != "" {
			t.Errorf("%s: %+v, want %s", cgroup, got, want)
		}
	}
	// Programs that may make cgroups can't give them the names of another pod.
	e, _ := newBed(t)
	lie := "/kubepods/pod0123456789abcdef0123456789abcdef/" + container
	other := strings.Repeat("ab", 32)
	for cgroup, want := range map[string]pod{
		"/kubepods.slice/kubepods-pod" + uid + ".slice/cri-containerd-" + other + ".scope" + lie:            {uid: uid},
		"/kubepods.slice/kubepods-pod" + uid + ".slice/cri-containerd-" + other + ".scope/" + container:     {uid: uid},
		"/system.slice/docker-" + other + ".scope" + lie:                                                    {},
		"/user.slice/user-1000.slice/user@1000.service" + lie:                                               {},
		"/kubepods/burstable/pod" + uid + "/" + container:                                                   {"ml", "train-0", uid},
		"/kubepods/burstable/pod" + uid + "/" + container + "/kubepods/pod0123456789abcdef0123456789abcdef": {"ml", "train-0", uid},
	} {
		if got := podOf(e.root, cgroup, why.ContainerOf(cgroup)); got != want {
			t.Errorf("%s: %+v, want %+v", cgroup, got, want)
		}
	}
	root := t.TempDir()
	config := filepath.Join(root, "run/containers/storage/overlay-containers", container, "userdata/config.json")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(`{"annotations":{"io.kubernetes.pod.name":"p","io.kubernetes.pod.namespace":"n"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := podOf(root, "", container); got != (pod{"n", "p", ""}) {
		t.Errorf("%+v", got)
	}
}

// serving returns the address of an exporter's server, whose listener wrap changes.
func serving(t *testing.T, e *exporter, wrap ...func(net.Listener) net.Listener) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrap {
		l = w(l)
	}
	done := make(chan error)
	go func() { done <- e.serve(t.Context(), l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestServe(t *testing.T) {
	e, _ := newBed(t)
	addr := serving(t, e)
	ask := func(text string) string {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(c) // a connection may be reset
		return string(b)
	}
	for request, want := range map[string][]string{
		"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":                                  {"HTTP/1.1 200 OK\r\n", "Content-Type: text/plain; version=0.0.4", "rdma_state_id{"},
		"GET /metrics?x=1 HTTP/1.0\n\n":                                             {"HTTP/1.1 200 OK\r\n", "rdma_state_id{"},
		"GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;q=1\r\n\r\n": {"Content-Type: application/openmetrics-text; version=1.0.0", "# EOF\n"},
		"HEAD /metrics HTTP/1.1\r\n\r\n":                                            {"HTTP/1.1 200 OK\r\n", "Connection: close\r\n\r\n"},
		"GET / HTTP/1.1\r\n\r\n":                                                    {"HTTP/1.1 200 OK\r\n", "/metrics"},
		"GET /etc/passwd HTTP/1.1\r\n\r\n":                                          {"HTTP/1.1 404 Not Found\r\n"},
		"POST /metrics HTTP/1.1\r\n\r\n":                                            {"HTTP/1.1 405 Method Not Allowed\r\n"},
	} {
		got := ask(request)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q gives %q without %q", request, got, w)
			}
		}
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if length := fmt.Sprintf("Content-Length: %d\r\n", len(body)); !strings.Contains(head, length) && request[0] != 'H' || request[0] == 'H' && body != "" {
			t.Errorf("%q gives %q and %d bytes", request, head, len(body))
		}
	}
	for _, bad := range []string{"SSH-2.0-OpenSSH\r\n", "GET /metrics\r\n\r\n", "GET /metrics HTTP/2\r\n\r\n", strings.Repeat("x", 2*mostRequest)} {
		if got := ask(bad); got != "" {
			t.Errorf("%.20q gives %q", bad, got)
		}
	}
}

// TestFile: a reader of the file sees the old or the new text, and no other file is left.
func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rdma.prom")
	for _, text := range []string{"first\n", "second\n"} {
		if err := write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, []byte(text)) {
			t.Errorf("%q, %v", b, err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	if err := write(filepath.Join(name, "x"), nil); err == nil {
		t.Error("a file in a file")
	}
}

// TestNotReplaced: what is no regular file stays, such as /dev/stdout.
func TestNotReplaced(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/stdout", link); err != nil {
		t.Fatal(err)
	}
	if err := write(link, nil); err == nil || !strings.Contains(err.Error(), link+" is no regular file") {
		t.Error(err)
	}
	if to, err := os.Readlink(link); err != nil || to != "/dev/stdout" {
		t.Errorf("%q, %v", to, err)
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--listen: the value is empty":          {"-l", ""},
		"--web.config.file: the value is empty": {"--web.config.file="},
		"--textfile: the value is empty":        {"--textfile", ""},
		"go neither with --once":                {"--once", "-l", ":9"},
		"--web.config.file go neither":          {"--textfile", "x", "--web.config.file", "y"},
	} {
		c := Export()
		operands, err := c.Parse(args)
		if err == nil {
			err = c.Run(operands)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestLabel: whatever the names are, labels are valid, and control no terminal.
func TestLabel(t *testing.T) {
	p := &page{prefix: "rdma", families: make(map[string]*family)}
	p.add("x", gauge, "Help.", 1, "a", "a\xffb\x1b[2J\u202e\u009b\n\"\\\r", "b", strings.Repeat("é", 200))
	want := "# HELP rdma_x Help.\n# TYPE rdma_x gauge\nrdma_x{a=\"a?b?[2J??\\n\\\"\\\\?\",b=\"" + strings.Repeat("é", 128) + "\"} 1\n"
	if got := string(p.text(false)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSteady: an exporter keeps nothing of processes that have gone.
func TestSteady(t *testing.T) {
	e, bed := newBed(t)
	const few, many = 20, 500
	first := uint32(1000)
	scrapes := func(n int) {
		for range n {
			bed.qps, bed.mrs = bed.qps[:0], bed.mrs[:0]
			for range 100 { // each time of other processes
				first += 2
				owner := rdmanl.Owner{PID: rdmanl.Some(first)}
				bed.qps = append(bed.qps, rdmanl.QP{Number: first, State: rdmanl.Some(ib.QPRTS), Owner: owner})
				bed.mrs = append(bed.mrs, rdmanl.MR{ID: first, Length: rdmanl.Some(uint64(4096)), Owner: owner})
			}
			e.collect(t.Context()).text(true)
		}
	}
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	scrapes(few)
	before := live()
	scrapes(many)
	if after := live(); after > before+many*100 { // less than a byte for each process that has gone
		t.Errorf("%d bytes are in use after %d scrapes, and %d after %d", before, few, after, few+many)
	}
}

// BenchmarkScrape collects the figures of 5,000 queue pairs of 200 processes.
func BenchmarkScrape(b *testing.B) {
	e, bed := newBed(b)
	for n := range uint32(5000) {
		bed.qps = append(bed.qps, rdmanl.QP{Number: 100 + n, State: rdmanl.Some(ib.QPRTS), Owner: rdmanl.Owner{PID: rdmanl.Some(100 + n%200)}})
		bed.mrs = append(bed.mrs, rdmanl.MR{ID: 100 + n, Length: rdmanl.Some(uint64(4096)), Owner: rdmanl.Owner{PID: rdmanl.Some(100 + n%200)}})
	}
	for b.Loop() {
		e.collect(b.Context()).text(true)
	}
}
