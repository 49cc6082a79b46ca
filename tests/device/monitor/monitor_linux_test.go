// Package monitor tests package monitor on devices: its reports, without opening a device,
// equal those of package verbs about an opened device.
package monitor

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/umad"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
}

var hosts = []monitor.Host{{}, {Sysfs: "/sys"}}

var _ = rdmatest.Test(TestMonitorPorts, rdmatest.AlsoSIW)

// TestMonitorPorts: the ports equal those of opened devices.
func TestMonitorPorts(t *testing.T) {
	for _, h := range hosts {
		seen := 0
		for _, p := range rdmatest.Must(h.Ports(t.Context()))(t) {
			seen++
			dev := rdmatest.Must(verbs.Open(p.Device))(t)
			a := rdmatest.Must(dev.QueryPort(p.Number))(t)
			if p.State != a.State || p.PhysState != a.PhysState || p.LinkLayer != a.LinkLayer || p.Width != a.ActiveWidth || p.Speed != a.ActiveSpeed {
				t.Errorf("%+v: %+v, opened %+v", h, p, a)
			}
			roce := p.LinkLayer == ib.LinkLayerEthernet && dev.Info().Transport() == verbs.TransportIB
			switch {
			case p.LinkLayer == ib.LinkLayerInfiniBand && (p.LID != a.LID || p.SMLID != a.SMLID || p.MTU != 0 || p.Netdev != ""):
				t.Errorf("%+v: %+v, opened %+v", h, p, a)
			case roce && (p.MTU != a.ActiveMTU || p.Netdev != rdmatest.NetDev(p.Device)):
				t.Errorf("%+v: %+v, opened %+v on %s", h, p, a, rdmatest.NetDev(p.Device))
			case h.Sysfs == "" && p.LinkLayer == ib.LinkLayerEthernet && p.Netdev == "":
				t.Errorf("%+v has no network interface", p)
			}
			rdmatest.Close(t, dev)
		}
		if seen < 1 || seen < len(rdmatest.Must(verbs.Devices())(t)) {
			t.Errorf("%+v has %d ports", h, seen)
		}
	}
}

// read returns the counters of a device's first port by name: "counters/NAME" for the link's
// counters.
func read(t *testing.T, h monitor.Host, device string) map[string]monitor.Counter {
	t.Helper()
	all := make(map[string]monitor.Counter)
	for _, c := range rdmatest.Must(h.Counters(t.Context(), device, 1))(t) {
		name := c.Name
		if c.Source == monitor.SourceSysfs {
			name = "counters/" + name
		}
		if _, twice := all[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		all[name] = c
	}
	return all
}

// TestMonitorCounters: each counter is listed once, whether it is from netlink or from files.
// Sent packets are counted.
func TestMonitorCounters(t *testing.T) {
	low, files, high := read(t, hosts[0], rdmatest.Device), read(t, hosts[1], rdmatest.Device), read(t, hosts[0], rdmatest.Device)
	if len(files) < 5 {
		t.Errorf("only %d counters: %+v", len(files), files)
	}
	for name, c := range files {
		l, ok := low[name]
		if !ok || c.Value < l.Value || c.Value > high[name].Value {
			t.Errorf("%+v, and netlink says %+v, then %+v", c, l, high[name])
		}
		if c.Source == monitor.SourceHWSysfs && l.Source != monitor.SourceNetlink || c.Source == monitor.SourceSysfs && l.Source != c.Source {
			t.Errorf("%s is from %v, and from %v", name, l.Source, c.Source)
		}
	}
	if rdmatest.KindOf() != rdmatest.RXE {
		if c := low["counters/port_xmit_data"]; c.Unit != monitor.UnitBytes || c.Source != monitor.SourceSysfs || c.Value%4 != 0 {
			t.Errorf("bytes: %+v", c)
		}
		return
	}
	p := rdmatest.NewPair(t, rdmatest.Default())
	p.B.Recv(t, 1, 0, 8)
	p.A.Send(t, verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 8)}})
	rdmatest.PollOK(t, p.A.CQ, 1)
	rdmatest.PollOK(t, p.B.CQ, 1)
	if c := read(t, hosts[0], rdmatest.Device)["sent_pkts"]; c.Value <= high["sent_pkts"].Value || c.Unit != monitor.UnitPackets || c.Source != monitor.SourceNetlink {
		t.Errorf("after a message %+v, before %+v", c, high["sent_pkts"])
	}
}

var _ = rdmatest.Test(TestMonitorPMA, rdmatest.OnMLX5)

// TestMonitorPMA: another port of the subnet reports by MADs the counters that its host reads
// in sysfs, and the MADs are counted in bytes.
func TestMonitorPMA(t *testing.T) {
	rdmatest.Command(t, "modprobe ib_umad")
	p := rdmatest.Must(umad.Open(rdmatest.Device, 1))(t)
	defer p.Close()
	pma := rdmatest.Must(monitor.NewPMA(p, monitor.PMAOptions{}))(t)
	defer pma.Close()
	h, other := hosts[0], rdmatest.Devices[1]
	lid := rdmatest.Must(h.Port(t.Context(), other, 1))(t).LID
	low, own := read(t, h, other), read(t, h, rdmatest.Device)["counters/port_xmit_data"]
	got := rdmatest.Must(pma.Counters(t.Context(), lid, 1))(t)
	high, ownThen := read(t, h, other), read(t, h, rdmatest.Device)["counters/port_xmit_data"]
	both := 0
	for _, c := range got {
		l, ok := low["counters/"+c.Name]
		if !ok {
			continue
		}
		both++
		if c.Value < l.Value || c.Value > high["counters/"+c.Name].Value || c.Unit != l.Unit || c.Source != monitor.SourcePMA {
			t.Errorf("%+v, and sysfs has %+v, then %+v", c, l, high["counters/"+c.Name])
		}
	}
	if both < 10 {
		t.Errorf("only %d counters are in both: %+v, %+v", both, got, low)
	}
	if ownThen.Value < own.Value+3*umad.Size {
		t.Errorf("%d bytes were sent, and after three MADs %d", own.Value, ownThen.Value)
	}
}

// TestExport: ibv export serves it all to a user without rights.
func TestExport(t *testing.T) {
	p := rdmatest.Start(t, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", rdmatest.Program(t, "ibv"), "export", "--listen", "localhost:0")
	url := regexp.MustCompile(`http://\S+`)
	p.Until(t, func() bool { return url.MatchString(p.Stdout()) })
	scrape := func() string {
		t.Helper()
		r := rdmatest.Must(http.Get(url.FindString(p.Stdout())))(t)
		defer r.Body.Close()
		text := string(rdmatest.Must(io.ReadAll(r.Body))(t))
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", r.Status, text)
		}
		return text
	}
	text := scrape()
	sample := regexp.MustCompile(`^(# TYPE \w+ (gauge|counter)|# HELP \w+ .+|rdma_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [0-9.e+-]+)$`)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if !sample.MatchString(lines.Text()) {
			t.Errorf("%q is no sample", lines.Text())
		}
	}
	of := `{device="` + rdmatest.Device + `",port="1"`
	wants := []string{"rdma_state_id" + of + "} 4\n", "rdma_physical_state_id" + of + "} 5\n", "rdma_port_info" + of, "rdma_processes "}
	if rdmatest.KindOf() == rdmatest.RXE {
		wants = append(wants, "rdma_port_other_total"+of+`,name="sent_pkts",unit="packets",source="netlink"}`)
	} else {
		wants = append(wants, "rdma_port_data_transmitted_bytes_total"+of+"}", "rdma_out_of_buffer_drops_total"+of+"}")
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if rdmatest.KindOf() == rdmatest.RXE {
		rdmatest.ExtraRXE(t, "rxelink", "link0", "192.168.82.1")
		p.Until(t, func() bool {
			return strings.Contains(scrape(), `rdma_port_link_events_total{device="rxelink",port="1",state="ACTIVE"} `)
		})
	}
}
