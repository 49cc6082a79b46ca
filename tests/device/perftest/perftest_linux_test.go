package perftest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// runs are the tested settings. One run of each tool is for every pairing, and the others are
// for one pairing. With GOVERBS_LONG=1, every pairing makes every run that it can.
var runs = []run{
	{tool: "send_bw", args: "-n 100 -s 4096", sizes: []int{4096}, iters: 100},
	{tool: "send_bw", args: "-n 100 -s 1024 -c UC", who: goC, sizes: []int{1024}, iters: 100},
	{tool: "send_bw", args: "-n 100 -s 1024 -c UD", who: cGo, quick: true, sizes: []int{1024}, iters: 100},
	{tool: "send_bw", args: "-n 100 -s 512 -b", who: goC, quick: true, sizes: []int{512}, iters: 100},
	{tool: "send_bw", args: "-n 100 -s 64 -c UD -b", who: cGo, sizes: []int{64}, iters: 100},
	{tool: "send_bw", args: "-n 50 -s 64 -q 4", who: goC, sizes: []int{64}, iters: 200},
	{tool: "send_bw", args: "-n 60 -s 64 -l 6 -t 18 -r 20", who: cGo, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 64 -Q 7 -N --report_gbits", who: cGo, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 64 -e", who: goC, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 65536 -m 512", who: cGo, sizes: []int{65536}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 64 --output=bandwidth", who: goC, sizes: []int{64}, quiet: true},
	{tool: "send_bw", args: "-n 60 -s 64 --reversed", who: goC, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-D 3 -f 1 -s 64", who: goC, sizes: []int{64}},
	{tool: "send_bw", args: "-n 5 -a -c UD", who: goC, sizes: powers(2, 1024), iters: 5, rxe: true},
	{tool: "send_bw", args: "-n 5 -a", who: cGo, sizes: powers(2, 8<<20), iters: 5, rxe: true, long: true},
	{tool: "send_bw", args: "-n 60 -s 64 --use-srq -q 2", who: goC, sizes: []int{64}, iters: 120},
	{tool: "send_bw", args: "-n 60 -s 64 -c XRC", who: cGo, mlx5: true, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 64 -c DC -b", who: goC, mlx5: true, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 64 -R", who: goC, roce: true, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 64 -R -q 2", who: cGo, roce: true, sizes: []int{64}, iters: 120},
	{tool: "send_bw", args: "-n 60 -s 64 -R -c UD -b", who: cGo, roce: true, sizes: []int{64}, iters: 60},
	{tool: "send_bw", args: "-n 60 -s 64 -z", who: goC, roce: true, sizes: []int{64}, iters: 60},
	{tool: "send_lat", args: "-n 50", sizes: []int{2}, iters: 50},
	{tool: "send_lat", args: "-n 50 -s 512 -c UD", who: goC, sizes: []int{512}, iters: 50},
	{tool: "send_lat", args: "-n 50 -s 512 -c UC", who: cGo, sizes: []int{512}, iters: 50},
	{tool: "send_lat", args: "-n 50 -s 512 -R -c UD", who: goC, roce: true, sizes: []int{512}, iters: 50},
	// With -e, ib_send_lat takes the event of a receive for that of its send, posts the next
	// send, and finds its queue of one request full.
	{tool: "send_lat", args: "-n 50 -s 512 -e", who: goGo, sizes: []int{512}, iters: 50},
	{tool: "send_lat", args: "-D 3 -f 1", who: cGo, sizes: []int{2}},
	{tool: "write_bw", args: "-n 100 -s 4096", sizes: []int{4096}, iters: 100},
	{tool: "write_bw", args: "-n 100 -s 100 -b -q 3", who: cGo, sizes: []int{100}, iters: 300},
	{tool: "write_bw", args: "-n 100 -s 4096 -c UC", who: goC, sizes: []int{4096}, iters: 100},
	{tool: "write_bw", args: "-D 3 -f 1 -s 64", who: cGo, sizes: []int{64}},
	{tool: "write_bw", args: "-n 5 -a -b", who: goC, sizes: powers(2, 8<<20), iters: 5, rxe: true, long: true},
	{tool: "write_lat", args: "-n 300", sizes: []int{2}, iters: 300},
	{tool: "write_bw", args: "-n 60 -s 64 --write_with_imm -b", who: goGo, sizes: []int{64}, iters: 60},
	{tool: "write_bw", args: "-n 60 -s 64 --mmap=/dev/zero", who: goC, sizes: []int{64}, iters: 60},
	{tool: "write_bw", args: "-n 60 -s 64 -c XRC -b -q 2", who: goC, mlx5: true, sizes: []int{64}, iters: 120},
	{tool: "write_lat", args: "-n 50 -s 8 --write_with_imm -e", who: goGo, sizes: []int{8}, iters: 50},
	{tool: "write_lat", args: "-n 50 -s 8 -c DC", who: cGo, mlx5: true, sizes: []int{8}, iters: 50},
	{tool: "write_lat", args: "-n 50 -s 8 -R -T 32", who: goC, roce: true, sizes: []int{8}, iters: 50},
	{tool: "write_lat", args: "-n 50 -s 1000 -c UC", who: goC, sizes: []int{1000}, iters: 50},
	{tool: "read_bw", args: "-n 100 -s 4096", sizes: []int{4096}, iters: 100},
	{tool: "read_bw", args: "-n 100 -s 64 -b -o 4", who: goC, sizes: []int{64}, iters: 100},
	{tool: "read_bw", args: "-n 50 -s 64 -R -q 3", who: cGo, roce: true, sizes: []int{64}, iters: 150},
	{tool: "read_bw", args: "-n 100 -s 64 -e", who: cGo, sizes: []int{64}, iters: 100},
	{tool: "read_lat", args: "-n 50", sizes: []int{2}, iters: 50},
	{tool: "atomic_bw", args: "-n 100", sizes: []int{8}, iters: 100},
	{tool: "atomic_bw", args: "-n 100 -A CMP_AND_SWAP -b", who: cGo, sizes: []int{8}, iters: 100},
	{tool: "atomic_lat", args: "-n 50", sizes: []int{8}, iters: 50},
	{tool: "atomic_lat", args: "-n 50 -c DC", who: cGo, mlx5: true, sizes: []int{8}, iters: 50},
}

// powers returns the powers of two from lo to hi.
func powers(lo, hi int) (all []int) {
	for ; lo <= hi; lo *= 2 {
		all = append(all, lo)
	}
	return all
}

func TestMeasure(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, who := range pairings {
		for _, r := range runs {
			if r.with(who) {
				t.Run(who.String()+"/"+r.String(), func(t *testing.T) { play(t, r, who) })
			}
		}
	}
}

// TestMeasureJSON: the file has the numbers of the table.
func TestMeasureJSON(t *testing.T) {
	for _, tool := range []string{"send_bw", "send_lat"} {
		t.Run(tool, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out.json")
			lastPort++
			r := run{tool: tool, args: "-n 20 -s 64"}
			server := start(t, ours, r, false)
			listens(t, server, r)
			r.args += " --out_json --out_json_file=" + file
			client := start(t, ours, r, true)
			if !client.Wait().Success() || !server.Wait().Success() {
				t.Fatalf("%v\n%v", server, client)
			}
			var got struct {
				Info    map[string]any     `json:"test_info"`
				Results map[string]float64 `json:"results"`
			}
			b, err := os.ReadFile(file)
			rdmatest.Check(t, err)
			rdmatest.Check(t, json.Unmarshal(b, &got))
			if got.Info["Device"] != device(true) || got.Results["MsgSize"] != 64 || got.Results["n_iterations"] != 20 {
				t.Errorf("%s", b)
			}
		})
	}
}

var _ = rdmatest.Test(TestMeasureForever, rdmatest.Long)

// TestMeasureForever: a run without an end reports in intervals, and ends with the other side.
func TestMeasureForever(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for who, tool := range map[pairing]string{goGo: "send_bw", cGo: "write_bw"} {
		t.Run(who.String()+"/"+tool, func(t *testing.T) {
			lastPort++
			r := run{tool: tool, args: "--run_infinitely -D 1 -s 64"}
			server := start(t, who.server, r, false)
			listens(t, server, r)
			client := start(t, who.client, r, true)
			// On a slow machine, an interval may have no message.
			var reports [][]float64
			client.Until(t, func() bool {
				reports = slices.DeleteFunc(rows(t, client), func(row []float64) bool { return row[len(row)-1] == 0 })
				return len(reports) >= 2
			})
			client.Kill()
			for _, row := range reports {
				checkRate(t, r, client, row)
			}
			if who.server == ours && !server.Wait().Success() {
				t.Error(server)
			}
		})
	}
}

// TestMeasureMemory measures with memory in huge pages, and with a file that is too short.
func TestMeasureMemory(t *testing.T) {
	const knob = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(knob)
	rdmatest.Check(t, err)
	rdmatest.Check(t, os.WriteFile(knob, []byte("8"), 0))
	t.Cleanup(func() { rdmatest.Check(t, os.WriteFile(knob, before, 0)) })
	play(t, run{tool: "send_bw", args: "-n 20 -s 64 --use_hugepages", sizes: []int{64}, iters: 20}, goGo)

	lastPort++
	server := start(t, ours, run{tool: "send_bw"}, false)
	listens(t, server, run{})
	short := filepath.Join(t.TempDir(), "short")
	rdmatest.Check(t, os.WriteFile(short, make([]byte, 5000), 0o600))
	client := start(t, ours, run{tool: "send_bw", args: "--mmap=" + short}, true)
	if client.Wait().ExitCode() != 1 || !strings.Contains(client.Stderr(), "has 5000 bytes") {
		t.Error(client)
	}
	server.Wait()
}

// TestMeasureDmabuf measures with memory of a dma-buf, where the kernel supports it.
func TestMeasureDmabuf(t *testing.T) {
	if _, err := os.Stat("/dev/udmabuf"); err == nil && rdmatest.KindOf() != rdmatest.RXE {
		for _, r := range []run{
			{tool: "send_bw", args: "-n 20 -s 64 --dmabuf=/dev/udmabuf", sizes: []int{64}, iters: 20},
			{tool: "write_lat", args: "-n 20 -s 64 --dmabuf=/dev/udmabuf", sizes: []int{64}, iters: 20},
		} {
			play(t, r, goGo)
		}
		return
	}
	// There is no such device node, or rxe doesn't take a dma-buf.
	r := run{tool: "send_bw"}
	lastPort++
	server := start(t, ours, r, false)
	listens(t, server, r)
	r.args = "--dmabuf=/dev/udmabuf"
	client := start(t, ours, r, true)
	if client.Wait().ExitCode() != 1 || !strings.Contains(client.Stderr(), "--dmabuf") {
		t.Error(client)
	}
	server.Wait()
}

// TestMeasureRate: the program keeps to the rate limit. It doesn't assume that the device
// limits the rate.
func TestMeasureRate(t *testing.T) {
	const rate, messages = 100, 60
	r := run{tool: "write_bw", args: "-n 60 -s 64 --rate_limit=100 --rate_units=p --burst_size=5", sizes: []int{64}, iters: messages}
	for _, server := range []maker{ours, theirs} {
		lastPort++
		passive := r
		passive.args = "-n 60 -s 64"
		first := start(t, server, passive, false)
		listens(t, first, passive)
		client := start(t, ours, r, true)
		if !client.Wait().Success() || !first.Wait().Success() {
			t.Fatalf("%v\n%v", first, client)
		}
		checkRows(t, r, client, r.sizes)
		// Without a limit there would be thousands of messages. A process that has waited for
		// a processor catches up.
		if got := rows(t, client)[0][4] * 1e6; got > 2*rate {
			t.Errorf("%v messages per second: %v", got, client)
		}
		if !strings.Contains(client.Stderr(), "the program does") {
			t.Errorf("who limits the rate? %v", client)
		}
	}
	if rdmatest.KindOf() == rdmatest.RXE || rdmatest.RoCE {
		r := run{tool: "write_bw", args: "-n 60 -s 64"}
		lastPort++
		server := start(t, ours, r, false)
		listens(t, server, r)
		r.args += " --rate_limit=10 --rate_limit_type=HW"
		if client := start(t, ours, r, true); client.Wait().ExitCode() != 1 || !strings.Contains(client.Stderr(), "doesn't limit the rate") {
			t.Error(client)
		}
		server.Wait()
	}
}

var _ = rdmatest.Test(TestMeasureAlone, rdmatest.Long)

// TestMeasureAlone: a side fails soon and with a sentence when the other side is missing,
// speaks another protocol, or ends in the middle.
func TestMeasureAlone(t *testing.T) {
	rdmatest.CheckLeaks(t)
	fails := func(t *testing.T, p *rdmatest.Process, says string) {
		t.Helper()
		if p.Wait().ExitCode() != 1 || !strings.Contains(p.Stderr(), says) {
			t.Errorf("want %q: %v", says, p)
		}
	}
	t.Run("nobody", func(t *testing.T) {
		lastPort++
		fails(t, start(t, ours, run{tool: "send_bw"}, true), "refused")
	})
	t.Run("too large for UD", func(t *testing.T) {
		lastPort++
		r := run{tool: "send_bw", args: "-c UD -s 8192"}
		server := start(t, ours, r, false)
		listens(t, server, r)
		fails(t, start(t, ours, r, true), "larger than the MTU")
		server.Wait()
	})
	for _, r := range []run{{tool: "send_bw"}, {tool: "send_lat"}, {tool: "write_lat"}, {tool: "read_bw"}, {tool: "send_bw", args: "-R", roce: true}} {
		if r.roce && !rdmatest.RoCE {
			continue
		}
		t.Run("killed/"+r.String(), func(t *testing.T) {
			lastPort++
			r.args += " -D 600 -s 64"
			server := start(t, ours, r, false)
			listens(t, server, r)
			client := start(t, ours, r, true)
			running := func() bool { return slices.Contains(strings.Fields(client.Stdout()), "#bytes") }
			client.Until(t, running)
			client.Kill()
			fails(t, server, "has ended")
		})
	}
}
