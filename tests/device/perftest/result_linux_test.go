package perftest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A result has the tested fields of the output of --json.
type result struct {
	Test, Device string
	Sizes        []struct {
		Bytes, Messages int
		Bandwidth       *struct {
			Average  float64 `json:"average_gbits"`
			Limit    float64 `json:"limit_gbits"`
			Messages float64 `json:"messages_per_second"`
		}
		Latency *struct {
			Min, Typical, Mean, Max float64
			Percentiles             []struct{ Percent, Time float64 }
		}
	} `json:"results"`
	CPU struct {
		Local  float64
		Remote *float64
	} `json:"cpu_us_per_message"`
}

// TestMeasureResult: --json, --plot and --summary agree about a run. If both sides are ibv,
// they exchange the cost of the messages.
func TestMeasureResult(t *testing.T) {
	dir := t.TempDir()
	for _, r := range []run{
		{tool: "write_lat", args: "-n 300 -s 64"},
		{tool: "send_bw", args: "-n 300 -s 4096"},
		{tool: "send_lat", args: "-D 1 -f 0 -s 64"},
	} {
		for _, server := range []maker{ours, theirs} {
			if r.tool != "write_lat" && (server == theirs || testing.Short()) {
				continue
			}
			t.Run(string(server)+"/"+r.tool, func(t *testing.T) {
				lastPort++
				first := start(t, server, r, false)
				listens(t, first, r)
				picture := filepath.Join(dir, r.tool+".svg")
				mine := r
				mine.args += " --json --plot=" + picture
				client := start(t, ours, mine, true)
				if !client.Wait().Success() || !first.Wait().Success() {
					t.Fatalf("%v\n%v", first, client)
				}
				var got result
				rdmatest.Check(t, json.Unmarshal([]byte(client.Stdout()), &got))
				if got.Test != r.tool || len(got.Sizes) != 1 || got.Device != device(true) {
					t.Fatalf("%+v", got)
				}
				size := got.Sizes[0]
				switch {
				case r.latency() == (size.Latency == nil) || r.latency() != (size.Bandwidth == nil):
					t.Errorf("%+v", size)
				case r.latency():
					l := size.Latency
					if l.Min <= 0 || l.Typical < l.Min || l.Mean < l.Min || l.Max < l.Typical || len(l.Percentiles) < 5 || l.Percentiles[0].Time < l.Min {
						t.Errorf("%+v", l)
					}
				default:
					if b := size.Bandwidth; size.Messages != 300 || b.Average <= 0 || b.Limit <= 0 || b.Messages <= 0 {
						t.Errorf("%+v", b)
					}
				}
				if got.CPU.Local <= 0 || (got.CPU.Remote != nil) != (server == ours) {
					t.Errorf("%+v", got.CPU)
				}
				b, err := os.ReadFile(picture)
				rdmatest.Check(t, err)
				if !strings.Contains(string(b), "ibv "+r.tool) {
					t.Errorf("%s", b)
				}
				file := filepath.Join(dir, r.tool+".json")
				rdmatest.Check(t, os.WriteFile(file, []byte(client.Stdout()), 0o600))
				compared := filepath.Join(dir, "compared.html")
				if p := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "plot", "-o", compared, file, file); !p.Wait().Success() {
					t.Fatal(p)
				}
				if b, err = os.ReadFile(compared); err != nil || !strings.Contains(string(b), "B: ") {
					t.Errorf("%s, %v", b, err)
				}
			})
		}
	}
}

// TestMeasureSummary checks the summary after the table.
func TestMeasureSummary(t *testing.T) {
	lastPort++
	r := run{tool: "write_lat", args: "-n 300 -s 64"}
	server := start(t, ours, r, false)
	listens(t, server, r)
	r.args += " --summary"
	client := start(t, ours, r, true)
	if !client.Wait().Success() || !server.Wait().Success() {
		t.Fatalf("%v\n%v", server, client)
	}
	for _, want := range []string{" 64 B:  50% ", "  99% ", "  max ", " CPU for each message: ", " at the other side."} {
		if !strings.Contains(client.Stdout(), want) {
			t.Errorf("%q is missing: %v", want, client)
		}
	}
	if strings.Contains(server.Stdout(), "CPU for each") {
		t.Errorf("nobody has asked: %v", server)
	}
}

// TestMeasureUtilisation: --cpu_util adds perftest's column.
func TestMeasureUtilisation(t *testing.T) {
	r := run{tool: "send_bw", args: "-D 2 -f 0 -s 64 --cpu_util"}
	lastPort++
	server := start(t, theirs, r, false)
	listens(t, server, r)
	client := start(t, ours, r, true)
	if !client.Wait().Success() || !server.Wait().Success() {
		t.Fatalf("%v\n%v", server, client)
	}
	for _, p := range []*rdmatest.Process{server, client} {
		all := rows(t, p)
		if len(all) != 1 || len(all[0]) != 6 || all[0][5] < 0 || all[0][5] > 100 || !strings.Contains(p.Stdout(), "MsgRate[Mpps]    CPU_Util[%]\n") {
			t.Error(p)
		}
	}
}
