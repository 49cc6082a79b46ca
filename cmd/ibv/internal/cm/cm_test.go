package cm

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmacm"
)

// parse parses the arguments of a command.
func parse(c *cli.Command, line string) error {
	_, err := c.Parse(strings.Fields(line))
	return err
}

func TestParseRping(t *testing.T) {
	o := newRping()
	if err := parse(o.command(), "-c -a 192.168.77.1 -I192.168.77.2 -p 7 -C 10 -S 100 -vVdq"); err != nil {
		t.Fatal(err)
	}
	want := rpingOptions{
		client: true, addr: "192.168.77.1", source: "192.168.77.2", port: 7, count: 10, size: 100,
		verbose: true, validate: true, debug: true, ownQP: true, parting: 30 * time.Second,
	}
	if *o != want {
		t.Errorf("got %+v, want %+v", *o, want)
	}
	o = newRping()
	if err := parse(o.command(), "-sP"); err != nil || !o.server || !o.persistent || o.port != 7174 || o.size != 64 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range []string{"", "-s -c -a x", "-c", "-s -S 0", "-s -S 65537", "-s -C -1", "-s -p 65536", "-s -x", "-s there", "-s -a"} {
		if status := Rping().Main("ibv rping", strings.Fields(bad)); status != cli.Wrong {
			t.Errorf("%q: status %d", bad, status)
		}
	}
}

func TestParseCmtime(t *testing.T) {
	o := newCmtime()
	err := parse(o.command(), "-s 192.168.77.1 -b 192.168.77.2 -c 7 -p 9 -r 3 -t 100")
	if want := (cmtimeOptions{"192.168.77.1", "192.168.77.2", 7, 9, 3, 100 * time.Millisecond}); err != nil || *o != want {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range []string{"-c 0", "-t 0", "-x", "there"} {
		if err := parse(Cmtime(), bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The text is rping's: it is shifted by one with each ping, and ends with a NUL.
func TestFillPing(t *testing.T) {
	b := make([]byte, 30)
	for ping, want := range map[int]string{
		0:  "rdma-ping-0: ABCDEFGHIJKLMNOP\x00",
		1:  "rdma-ping-1: BCDEFGHIJKLMNOPQ\x00",
		57: "rdma-ping-57: z" + "ABCDEFGHIJKLMN\x00",
		58: "rdma-ping-58: A" + "BCDEFGHIJKLMNO\x00",
	} {
		if fillPing(b, ping); string(b) != want {
			t.Errorf("ping %d is %q, want %q", ping, b, want)
		}
	}
	for n, want := range map[int]string{1: "\x00", 5: "rdma\x00", 14: "rdma-ping-0: \x00"} {
		if fillPing(b[:n], 0); string(b[:n]) != want {
			t.Errorf("%d bytes are %q", n, b[:n])
		}
	}
}

// TestRpingClients: beyond the limit, the client that has been silent longest is closed.
func TestRpingClients(t *testing.T) {
	var clients rpingClients
	var all []*rpingClient
	ended := -1
	add := func() {
		i := len(all)
		c := &rpingClient{end: func(cause error) {
			if ended = i; !errors.Is(cause, errRpingFull) {
				t.Error(cause)
			}
		}}
		c.last.Store(int64(i + 1))
		all = append(all, c)
		clients.add(c)
	}
	for range rpingClientsMost {
		add()
	}
	if ended >= 0 || len(clients.all) != rpingClientsMost {
		t.Fatalf("client %d is ended, %d remain", ended, len(clients.all))
	}
	all[0].hear()
	add()
	if ended != 1 || len(clients.all) != rpingClientsMost {
		t.Errorf("client %d is ended, %d remain", ended, len(clients.all))
	}
	for _, c := range all {
		clients.remove(c)
	}
	if len(clients.all) != 0 {
		t.Errorf("%d remain", len(clients.all))
	}
}

// TestChosen: of the addresses of a name, the one is taken on which a server without an address listens.
func TestChosen(t *testing.T) {
	v4, v6, other := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("[2001:db8::1]:7"), netip.MustParseAddrPort("[2001:db8::2]:7")
	for _, test := range []struct {
		found []rdmacm.AddrInfo
		want  netip.AddrPort
	}{
		{[]rdmacm.AddrInfo{{Dst: v6}, {Dst: v4}}, v4},
		{[]rdmacm.AddrInfo{{Dst: v6}, {Dst: other}}, v6},
		{[]rdmacm.AddrInfo{{Src: v6}, {Src: v4}}, v4},
		{[]rdmacm.AddrInfo{{Src: v4, Dst: v6}, {Src: v4, Dst: v4}}, v4},
		{[]rdmacm.AddrInfo{{Src: other, Dst: v4}, {Src: other, Dst: v6}}, v6},
	} {
		got := chosen(test.found)
		if at := got.Dst; at != test.want && (at.IsValid() || got.Src != test.want) {
			t.Errorf("of %v: %v, want %v", test.found, got, test.want)
		}
	}
}
