package perftest

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// latencies returns a result of a latency test, as of a network with a tail.
func latencies(t *testing.T, seed uint64, shift float64) *Result {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	r := &Result{Test: "write_lat", Time: time.Unix(1_700_000_000, 0).UTC(), Host: "node1", Peer: "node2", Device: "mlx5_0", Link: "Ethernet",
		LinkGbits: 100, MTU: 4096, Connection: "RC", QPs: 1, TXDepth: 1, CPU: CPU{Local: 2.1}}
	for _, size := range []int{2, 64, 1024, 4096} {
		times := newRecorder(true, 0)
		at := int64(0)
		for i := range 200_000 {
			v := 2*(shift+float64(size)/5) + random.ExpFloat64()*120 + random.NormFloat64()*60
			if random.IntN(2000) == 0 {
				v += random.ExpFloat64() * 9000
			}
			at += int64(math.Max(v*(1+0.1*math.Sin(float64(i)/2e4)), 500))
			times.stamp(at)
		}
		l := times.summarise(size)
		r.Sizes = append(r.Sizes, Size{Bytes: size, Messages: l.iters, Latency: times.result(l)})
	}
	return r
}

func bandwidths(seed uint64, core float64) *Result {
	random := rand.New(rand.NewPCG(seed, 2))
	r := &Result{Test: "write_bw", Time: time.Unix(1_700_000_000, 0).UTC(), Host: "node1", Peer: "node2", Device: "mlx5_0", Link: "InfiniBand",
		LinkGbits: 100, MTU: 4096, Connection: "RC", QPs: 2, TXDepth: 128, PostList: 1, CPU: CPU{Local: 0.31, Remote: new(float64)}}
	for size := 2; size <= 8<<20; size *= 2 {
		limit := 100 * float64(size) / float64(size+16+26*((size+4095)/4096))
		v := min(limit*0.97, core*float64(size)) * (1 - 0.02*random.Float64())
		r.Sizes = append(r.Sizes, Size{Bytes: size, Messages: 5000, Bandwidth: &Bandwidth{Average: v, Peak: v, Limit: limit, Messages: v * 1e9 / 8 / float64(size)}})
	}
	return r
}

// TestDraw: pictures are well-formed, have all compared results, and no NaN or infinity.
// With GOVERBS_PLOTS, they remain in that folder.
func TestDraw(t *testing.T) {
	folder := os.Getenv("GOVERBS_PLOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	one := bandwidths(5, 0.07)
	one.Sizes = one.Sizes[15:16]
	for name, test := range map[string]struct {
		results []*Result
		says    []string
	}{
		"latency.svg":    {[]*Result{latencies(t, 1, 1600)}, []string{"ibv write_lat", "Percentiles", "99.99 %", "node1 to node2", "Over sizes"}},
		"latencies.html": {[]*Result{latencies(t, 1, 1600), latencies(t, 2, 2100)}, []string{"A: ", "B: 4 KiB", "<!DOCTYPE html>"}},
		"bandwidth.svg":  {[]*Result{bandwidths(1, 0.07)}, []string{"limit of the link", "8 MiB", "messages per second"}},
		"bandwidths.svg": {[]*Result{bandwidths(1, 0.07), bandwidths(2, 0.02)}, []string{"A: average", "B: average"}},
		"one.svg":        {[]*Result{one}, []string{"64 KiB"}},
	} {
		page, err := Draw(test.results...)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, name)
		if err := page.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.says {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		if strings.Contains(string(b), "NaN") || strings.Contains(string(b), `Inf"`) {
			t.Errorf("%s has a place that is no number", name)
		}
		d := xml.NewDecoder(strings.NewReader(string(b[strings.Index(string(b), "<svg"):])))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if end, is := token.(xml.EndElement); is && end.Name.Local == "svg" {
				break
			}
		}
	}
	if _, err := Draw(one, latencies(t, 1, 1600)); err == nil {
		t.Error("a latency is compared with a bandwidth")
	}
}

// TestReadResult: a written result is read back, and other files are refused.
func TestReadResult(t *testing.T) {
	name := filepath.Join(t.TempDir(), "result.json")
	for _, want := range []*Result{latencies(t, 1, 1600), bandwidths(1, 0.05)} {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadResult(name)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(got); string(again) != string(b) {
			t.Errorf("%s came back as %s", b, again)
		}
	}
	if _, err := ReadResult(os.DevNull); !errors.Is(err, errNoResult) {
		t.Error(err)
	}
	for _, text := range []string{"", "[]", "{}", `{"results": [{"bytes": 2}]}`, `{"results": [{"bytes": 0, "bandwidth": {}}]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := ReadResult(name); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

// TestPercentiles: there are as many as the number of messages supports, and in order.
func TestPercentiles(t *testing.T) {
	for n, most := range map[uint64]float64{1: 99.99, 100: 99.99, 1e9: 99.999} {
		all := percentiles(n)
		if len(all) < len(percents) || n == 1e9 && len(all) < 40 {
			t.Errorf("of %d: %v", n, all)
		}
		for i, p := range all {
			if p < 0 || p > most+1e-9 || i > 0 && p <= all[i-1] {
				t.Errorf("of %d: %v", n, all)
				break
			}
		}
	}
}
