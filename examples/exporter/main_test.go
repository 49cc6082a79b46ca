package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
)

// TestMetrics: a scrape has all ports, whatever their names.
func TestMetrics(t *testing.T) {
	e := exporter{host: monitor.Host{Sysfs: t.TempDir()}, links: map[link]int{{"mlx5_0", 1, ib.PortDown}: 2}}
	const ib0, odd = "class/infiniband/mlx5_0/", `class/infiniband/o"dd\/`
	for name, text := range map[string]string{
		ib0 + "node_type": "1: CA", ib0 + "ports/1/state": "4: ACTIVE", ib0 + "ports/1/phys_state": "5: LinkUp", ib0 + "ports/1/rate": "100 Gb/sec (4X EDR)",
		ib0 + "ports/1/lid": "0x1", ib0 + "ports/1/sm_lid": "0x1", ib0 + "ports/1/link_layer": "InfiniBand",
		ib0 + "ports/1/counters/port_xmit_data": "250", ib0 + "ports/1/hw_counters/active_qps": "3",
		odd + "node_type": "1: CA", odd + "ports/1/state": "1: DOWN", odd + "ports/1/phys_state": "3: Disabled", odd + "ports/1/rate": "2.5 Gb/sec (1X SDR)",
		odd + "ports/1/lid": "0x0", odd + "ports/1/sm_lid": "0x0", odd + "ports/1/link_layer": "Ethernet", odd + "ports/1/gid_attrs/ndevs/0": "eth0",
		odd + "ports/1/hw_counters/sent_pkts": "5", "class/net/eth0/mtu": "1500",
	} {
		path := filepath.Join(e.host.Sysfs, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const want = `# TYPE rdma_port_info gauge
rdma_port_info{device="mlx5_0",port="1",state="ACTIVE",phys_state="LINK_UP",link_layer="InfiniBand",width="4X",netdev=""} 1
rdma_port_info{device="o\"dd\\",port="1",state="DOWN",phys_state="DISABLED",link_layer="Ethernet",width="1X",netdev="eth0"} 1
# TYPE rdma_port_active gauge
rdma_port_active{device="mlx5_0",port="1"} 1
rdma_port_active{device="o\"dd\\",port="1"} 0
# TYPE rdma_port_bits_per_second gauge
rdma_port_bits_per_second{device="mlx5_0",port="1"} 100000000000
rdma_port_bits_per_second{device="o\"dd\\",port="1"} 2500000000
# TYPE rdma_port_counter_total counter
rdma_port_counter_total{device="mlx5_0",port="1",name="port_xmit_data",unit="bytes",source="counters"} 1000
rdma_port_counter_total{device="o\"dd\\",port="1",name="sent_pkts",unit="packets",source="hw_counters"} 5
# TYPE rdma_port_gauge gauge
rdma_port_gauge{device="mlx5_0",port="1",name="active_qps",unit="count",source="hw_counters"} 3
# TYPE rdma_port_mtu_bytes gauge
rdma_port_mtu_bytes{device="o\"dd\\",port="1"} 1024
# TYPE rdma_port_link_events_total counter
rdma_port_link_events_total{device="mlx5_0",port="1",state="DOWN"} 2
`
	r := httptest.NewRecorder()
	e.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	if diff := cmp.Diff(want, r.Body.String()); diff != "" || r.Code != 200 {
		t.Errorf("status %d (-want +got):\n%s", r.Code, diff)
	}
}
