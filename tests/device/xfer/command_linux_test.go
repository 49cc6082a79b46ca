package xfer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestXferTwoGuests, rdmatest.OnRXE, rdmatest.TwoGuests, rdmatest.LongOn("rxe"))

// A fetched is what ibv xfer fetch --json prints, as far as it is tested.
type fetched struct {
	Files   int
	Bytes   int64
	Resumed int64 `json:"resumed_bytes"`
	Present int   `json:"present_files"`
	Rails   []struct {
		Rail  string
		Bytes uint64
	}
	Failed []any
}

// serve starts ibv xfer serve for a folder with a file of a size.
func serve(t *testing.T, devices string, size int) (folder string) {
	t.Helper()
	folder = t.TempDir()
	rdmatest.Check(t, os.MkdirAll(filepath.Join(folder, "sub"), 0o777))
	rdmatest.Check(t, os.WriteFile(filepath.Join(folder, "sub/file"), rdmatest.Pattern(size, 5), 0o666))
	p := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "xfer", "serve", "-d", devices, folder)
	if line := p.Line(t); !strings.HasPrefix(line, "serving ") {
		t.Fatalf("the server says %q", line)
	}
	t.Cleanup(func() {
		p.Signal(os.Interrupt)
		p.Succeeds(t)
	})
	return folder
}

func fetch(t *testing.T, devices, host, to string) *rdmatest.Process {
	t.Helper()
	return rdmatest.Start(t, rdmatest.Program(t, "ibv"), "xfer", "fetch", "--json", "-d", devices, host, "-o", to)
}

func parse(t *testing.T, p *rdmatest.Process) (r fetched) {
	t.Helper()
	rdmatest.Check(t, json.Unmarshal([]byte(p.Succeeds(t)), &r))
	return r
}

// TestXferCommand: ibv xfer fetches over both rails. A fetch that is killed is continued, with the bytes that it has left.
func TestXferCommand(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const size = 8<<20 + 100
	devices := rdmatest.Devices[0] + "," + rdmatest.Devices[1]
	folder, to := serve(t, devices, size), t.TempDir()
	file := filepath.Join(to, "sub/file")
	begun := func() bool {
		for _, name := range []string{file, file + ".ibv-part"} {
			if info, err := os.Stat(name); err == nil && info.Size() > 1<<20 {
				return true
			}
		}
		return false
	}
	p := fetch(t, devices, "127.0.0.1", to)
	p.Until(t, begun)
	p.Kill()
	r := parse(t, fetch(t, devices, "127.0.0.1", to))
	if r.Files+r.Present != 1 || r.Present == 0 && r.Bytes+r.Resumed != size || len(r.Failed) > 0 {
		t.Errorf("%+v", r)
	}
	t.Logf("%+v", r)
	want := rdmatest.Must(os.ReadFile(filepath.Join(folder, "sub/file")))(t)
	same(t, "fetched", rdmatest.Must(os.ReadFile(file))(t), want)
	to = t.TempDir()
	r = parse(t, fetch(t, devices, "127.0.0.1", to))
	// A rail whose queue pair isn't connected yet carries nothing.
	if len(r.Rails) != 2 || r.Rails[0].Bytes+r.Rails[1].Bytes != size || r.Bytes != size {
		t.Errorf("%+v", r)
	}

	var bench struct {
		Results []struct {
			Rails      string
			Bytes      int
			Operations uint64
			Gbits      float64
		}
	}
	p = rdmatest.Start(t, rdmatest.Program(t, "ibv"), "xfer", "bench", "--json", "-d", devices, "-s", "64,262144", "-c", "4", "-t", "50ms", "--each", "127.0.0.1")
	rdmatest.Check(t, json.Unmarshal([]byte(p.Succeeds(t)), &bench))
	if len(bench.Results) != 6 {
		t.Fatalf("%+v", bench)
	}
	for _, r := range bench.Results {
		if r.Operations == 0 || r.Gbits <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestXferTwoGuests: the second guest fetches from the first, while one packet in a hundred is lost in either direction.
func TestXferTwoGuests(t *testing.T) {
	for _, command := range []string{
		"modprobe -a sch_ingress cls_u32 act_gact",
		"tc qdisc add dev eth0 clsact",
		"tc filter add dev eth0 ingress protocol ip pref 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff action pass random netrand drop 100",
	} {
		rdmatest.Command(t, command)
	}
	defer rdmatest.Command(t, "tc qdisc delete dev eth0 clsact")
	const size = 4<<20 + 3
	other := rdmatest.Meet(t)
	tell := func(what string) { rdmatest.Check(t, other.Encode(what)) }
	hear := func(want string) {
		t.Helper()
		var said string
		if err := other.Decode(&said); err != nil || said != want {
			t.Fatalf("the other guest said %q, %v; want %q", said, err, want)
		}
	}
	if os.Getenv("VM_INDEX") == "0" {
		serve(t, rdmatest.Device, size)
		tell("serving")
		hear("fetched")
		return
	}
	hear("serving")
	to := t.TempDir()
	r := parse(t, fetch(t, rdmatest.Device, os.Getenv("VM_PEER"), to))
	if r.Files != 1 || r.Bytes != size {
		t.Errorf("%+v", r)
	}
	same(t, "fetched", rdmatest.Must(os.ReadFile(filepath.Join(to, "sub/file")))(t), rdmatest.Pattern(size, 5))
	tell("fetched")
}
