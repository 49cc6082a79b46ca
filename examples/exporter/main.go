// Command exporter serves the states, speeds, MTUs and counters of the ports of all RDMA devices,
// and how often their links went up and down, in Prometheus's text format at /metrics. It opens no
// device, so any user can run it.
//
//	go run ./examples/exporter -listen :9315
//	curl -s localhost:9315/metrics
//
// In a container, -sysfs is the directory of the host's /sys.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

func main() {
	listen := flag.String("listen", "localhost:9315", "the address to serve at")
	sysfs := flag.String("sysfs", "", "where sysfs is, if not in /sys")
	flag.Parse()
	e := exporter{host: monitor.Host{Sysfs: *sysfs}, links: make(map[link]int)}
	w, err := rdmanl.Watch(context.Background(), rdmanl.WatchOptions{})
	if err != nil {
		log.Print(err) // the rest is still served
	} else {
		go e.follow(w)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("serving at http://%v/metrics\n", l.Addr())
	http.Handle("/metrics", &e)
	log.Fatal(http.Serve(l, nil))
}

type exporter struct {
	host  monitor.Host
	mu    sync.Mutex
	links map[link]int // how often links have changed
}

// A link is a port, and a state that its link has entered.
type link struct {
	device string
	port   uint32
	state  ib.PortState
}

// follow counts the events of links.
func (e *exporter) follow(w *rdmanl.Watcher) {
	for {
		event, err := w.Next(context.Background())
		switch {
		case errors.Is(err, syscall.ENOBUFS):
		case err != nil:
			log.Print(err)
			return
		case event.Kind == rdmanl.EventPortState:
			e.mu.Lock()
			e.links[link{event.Device.Or(""), event.Port.Or(0), event.State.Or(0)}]++
			e.mu.Unlock()
		}
	}
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := e.metrics(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	io.WriteString(w, text)
}

// A family has the samples of one metric, which the text keeps together.
type family struct{ kind, samples string }

func (e *exporter) metrics(ctx context.Context) (string, error) {
	var names []string
	families := make(map[string]*family)
	add := func(name, kind, labels string, value any) {
		if families[name] == nil {
			names, families[name] = append(names, name), &family{kind: kind}
		}
		families[name].samples += fmt.Sprintf("%s{%s} %d\n", name, labels, value)
	}
	ports, err := e.host.Ports(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		labels := fmt.Sprintf("device=%s,port=\"%d\"", quote(p.Device), p.Number)
		add("rdma_port_info", "gauge", fmt.Sprintf("%s,state=%s,phys_state=%s,link_layer=%s,width=%s,netdev=%s", labels,
			quote(p.State.String()), quote(p.PhysState.String()), quote(p.LinkLayer.String()), quote(p.Width.String()), quote(p.Netdev)), 1)
		active := 0
		if p.State == ib.PortActive {
			active = 1
		}
		add("rdma_port_active", "gauge", labels, active)
		add("rdma_port_bits_per_second", "gauge", labels, p.Rate)
		if p.MTU != 0 {
			add("rdma_port_mtu_bytes", "gauge", labels, p.MTU.Bytes())
		}
		counters, err := e.host.Counters(ctx, p.Device, p.Number)
		if err != nil {
			log.Print(err) // the device may have gone
		}
		for _, c := range counters {
			name, kind := "rdma_port_counter_total", "counter"
			if c.Gauge {
				name, kind = "rdma_port_gauge", "gauge"
			}
			add(name, kind, fmt.Sprintf("%s,name=%s,unit=\"%v\",source=\"%v\"", labels, quote(c.Name), c.Unit, c.Source), c.Value)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for l, n := range e.links {
		add("rdma_port_link_events_total", "counter", fmt.Sprintf("device=%s,port=\"%d\",state=\"%v\"", quote(l.device), l.port, l.state), n)
	}
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "# TYPE %s %s\n%s", name, families[name].kind, families[name].samples)
	}
	return b.String(), nil
}

// quote writes a label's value. Unlike Go, the format knows only these escapes.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
