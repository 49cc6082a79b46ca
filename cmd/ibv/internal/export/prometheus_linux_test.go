package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

const files = "../../../../docs/prometheus/"

// TestPrometheus: promtool finds nothing wrong with metrics and rules, and each rule's alert fires when it should.
// Prometheus scrapes the exporter, knows what the dashboard asks for, and evaluates the rules.
func TestPrometheus(t *testing.T) {
	out, err := exec.Command("testdata/prometheus").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	folder := strings.TrimSpace(string(out))
	e, _ := newBed(t)
	tool := func(in []byte, args ...string) {
		t.Helper()
		c := exec.Command(filepath.Join(folder, "promtool"), args...)
		c.Stdin = bytes.NewReader(in)
		if out, err := c.CombinedOutput(); err != nil || in != nil && len(out) > 0 {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
	tool(e.collect(t.Context()).text(false), "check", "metrics")
	tool(nil, "check", "rules", files+"alerts.yml")
	const cases = "testdata/alerts.yml"
	tool(nil, "test", "rules", cases)
	tested := string(rdmatest.Must(os.ReadFile(cases))(t))
	alerts := regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(string(rdmatest.Must(os.ReadFile(files+"alerts.yml"))(t)), -1)
	for _, a := range alerts {
		if !strings.Contains(tested, "alertname: "+a[1]+"\n        exp_alerts:\n          - ") || !strings.Contains(tested, "alertname: "+a[1]+", exp_alerts: []") {
			t.Errorf("%s lacks a case in which %s fires, or one in which it doesn't", cases, a[1])
		}
	}

	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs: [{job_name: rdma, static_configs: [{targets: [%q]}]}]\n",
		rdmatest.Must(filepath.Abs(files+"alerts.yml"))(t), serving(t, e))
	rdmatest.Check(t, os.WriteFile(filepath.Join(dir, "p.yml"), []byte(config), 0o644))
	l := rdmatest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	l.Close()
	p := rdmatest.Start(t, filepath.Join(folder, "prometheus"), "--config.file", filepath.Join(dir, "p.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr)
	// ask asks Prometheus, and reports whether there is an answer already.
	ask := func(what string, data any) bool {
		t.Helper()
		r, err := http.Get("http://" + addr + "/api/v1/" + what)
		if err != nil || r.StatusCode == http.StatusServiceUnavailable {
			return false
		}
		defer r.Body.Close()
		b := rdmatest.Must(io.ReadAll(r.Body))(t)
		answer := struct {
			Status string
			Data   any
		}{Data: data}
		if err := json.Unmarshal(b, &answer); err != nil || answer.Status != "success" {
			t.Errorf("%s: %v, %s", what, err, b)
		}
		return true
	}
	// query returns how many results a query has; -1 as long as there is no answer.
	query := func(q string) int {
		t.Helper()
		var data struct{ Result []any }
		if !ask("query?query="+url.QueryEscape(q), &data) {
			return -1
		}
		return len(data.Result)
	}
	p.Until(t, func() bool {
		return query("rdma_state_id") == 1 && query("rate(rdma_port_data_received_bytes_total[1m])") == 1
	})
	p.Until(t, func() bool {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, State, LastError string }
			}
		}
		ask("rules", &data)
		evaluated := 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				switch {
				case r.Health == "unknown":
					continue
				case r.Health != "ok":
					t.Errorf("%+v", r)
				case r.Name == "RDMAQueuePairsStuck" && r.State == "inactive":
					continue // it has been evaluated before the first scrape
				}
				evaluated++
			}
		}
		return evaluated > 0 && evaluated == len(alerts)
	})
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	rdmatest.Check(t, json.Unmarshal(rdmatest.Must(os.ReadFile(files+"dashboard.json"))(t), &board))
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			q := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m").Replace(target.Expr)
			n := query(q)
			// These counters are not among the bed's.
			absent := strings.Contains(q, "transmitted") || strings.Contains(q, "rnr_nak") || strings.Contains(q, "timeout") || strings.Contains(q, "sequence") || strings.Contains(q, "symbol")
			if n == 0 && !absent {
				t.Errorf("%s: nothing for %s", panel.Title, q)
			}
		}
	}
	if len(board.Panels) < 10 {
		t.Errorf("%d panels", len(board.Panels))
	}
	if n := query(`sum by (pod) (sum by (pid) (rdma_process_queue_pairs) * on (pid) group_left (pod) rdma_process_info) == 3`); n != 1 {
		t.Errorf("the pod's queue pairs: %d results", n)
	}
}
