package doctor

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestPeer, rdmatest.OnRXE, rdmatest.TwoGuests)

// A request is an order of the first guest's test to the second guest's.
type request struct {
	Shell string // commands
	End   bool
}

// TestPeer runs in both guests. The second guest serves, and executes the first guest's
// requests.
func TestPeer(t *testing.T) {
	shell(t, "modprobe -a sch_ingress cls_u32 act_gact && tc qdisc add dev eth0 clsact")
	defer shell(t, "tc qdisc delete dev eth0 clsact")
	if os.Getenv("VM_INDEX") == "1" {
		serve(t)
		return
	}
	other := rdmatest.Meet(t)
	there := func(t *testing.T, line string) {
		t.Helper()
		var failure string
		rdmatest.Check(t, other.Encode(request{Shell: line}))
		rdmatest.Check(t, other.Decode(&failure))
		if failure != "" {
			t.Fatalf("there: %s", failure)
		}
	}
	there(t, "true") // the server runs
	defer func() { _ = other.Encode(request{End: true}) }()
	for _, f := range peerFaults() {
		ok := t.Run(f.name, func(t *testing.T) {
			if f.there != "" {
				there(t, f.there)
			}
			if f.here != "" {
				shell(t, f.here)
			}
			command := append([]string{"-w", "0", "--peer", os.Getenv("VM_PEER")}, f.args...)
			r := examine(t, nil, command...)
			if got := strings.Join(r.wrong(), " "); got != f.want {
				t.Fatalf("found %q, want %q: %+v", got, f.want, r.Findings)
			}
			for _, w := range r.Findings {
				if !strings.Contains(w.What, f.text) && !w.Note && w.ID == strings.Fields(f.want)[0] {
					t.Errorf("%q doesn't contain %q", w.What, f.text)
				}
			}
			if f.want == "" {
				return
			}
			f.cure(t, r, there)
			if f.undo != "" {
				there(t, f.undo)
			}
			if f.undoHere != "" {
				shell(t, f.undoHere)
			}
			if r := examine(t, nil, "-w", "0", "--peer", os.Getenv("VM_PEER")); len(r.wrong()) > 0 {
				t.Fatalf("afterwards: %+v", r.Findings)
			}
		})
		if !ok {
			return
		}
	}
}

var _ = rdmatest.Test(TestPeerUntried, rdmatest.OnEFA, rdmatest.OnSIW, rdmatest.Long)

// TestPeerUntried: devices without UD or RC queue pairs are compared. Doctor reports that
// nothing was sent, which is not a finding.
func TestPeerUntried(t *testing.T) {
	p := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "doctor", "--serve", "-w", "0")
	if line := p.Line(t); line != "listening on port 18516" {
		t.Fatalf("%q: %v", line, p)
	}
	r := examine(t, nil, "-w", "0", "--peer", "localhost")
	if len(r.wrong()) > 0 || len(r.Unseen) != 1 || !strings.Contains(r.Unseen[0], "UD and RC queue pairs") {
		t.Errorf("%+v", r)
	}
}

// serve runs the server, and executes the other guest's requests.
func serve(t *testing.T) {
	p := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "doctor", "--serve", "-w", "0")
	if line := p.Line(t); line != "listening on port 18516" {
		t.Fatalf("%q: %v", line, p)
	}
	other := rdmatest.Meet(t)
	for {
		var r request
		rdmatest.Check(t, other.Decode(&r))
		if r.End {
			return
		}
		failure := ""
		if out, err := exec.Command("sh", "-c", r.Shell).CombinedOutput(); err != nil {
			failure = r.Shell + ": " + err.Error() + "\n" + string(out)
		}
		rdmatest.Check(t, other.Encode(failure))
	}
}

// A peerFault is a fault of the path to the other guest, or of that guest.
type peerFault struct {
	mirrored bool // another fault is the same in the other direction: only with GOVERBS_LONG
	slow     bool // not with testing.Short
	name     string
	there    string // shell commands in the other guest
	here     string // shell commands in this guest
	args     []string
	want     string
	text     string // in the first finding of that name
	undo     string // shell commands in the other guest

	undoHere string // shell commands in this guest

	mends bool // the proposed command is run, in the guest that has the finding
}

// The filters stand for a firewall, a switch or a cable. Removing the filters repairs it.
func peerFaults() []peerFault {
	const (
		udp    = "match ip protocol 17 0xff"
		roce   = udp + " match ip dport 4791 0xffff"
		large  = " match u16 0x0400 0xfc00 at 2" // a length of 1024 to 2047
		remove = "tc filter delete dev eth0 ingress"
	)
	// The GID table follows the addresses a moment later.
	gid := func(tail string) string {
		return " && until grep -q " + tail + " /sys/class/infiniband/rxe0/ports/1/gids/2; do sleep 0.1; done"
	}
	// The filter drops arriving packets. rxe would retry for ever to send packets that its
	// own host drops.
	drop := func(match string) string {
		return "tc filter add dev eth0 ingress protocol ip pref 1 u32 " + match + " action drop"
	}
	faults := []peerFault{
		{name: "healthy"},
		{name: "healthy by IPv6", mirrored: true, args: []string{"-g", "0", "-G", "0"}},
		{name: "a firewall there", there: drop(roce), want: "peer-firewall", text: "from here to there", undo: remove},
		{name: "a firewall here", mirrored: true, here: drop(roce), want: "peer-firewall", text: "from there to here", undoHere: remove},
		{name: "firewalls", mirrored: true, there: drop(roce), here: drop(roce), want: "peer-firewall", text: "in either direction", undo: remove, undoHere: remove},
		{name: "one way", there: drop(udp), want: "peer-one-way", text: "from here to there", undo: remove},
		{name: "the other way", mirrored: true, here: drop(udp), want: "peer-one-way", text: "from there to here", undoHere: remove},
		{name: "a black hole", there: drop(roce + large), want: "peer-black-hole", text: "from here to there", undo: remove},
		{name: "a black hole back", mirrored: true, here: drop(roce + large), want: "peer-black-hole", text: "from there to here", undoHere: remove},
		{name: "loss", slow: true, there: "tc filter add dev eth0 ingress protocol ip pref 1 u32 " + roce + " action pass random determ drop 3", want: "peer-loss", text: "from here to there", undo: remove},
		{name: "a wrong GID", there: "ip address add 10.99.0.1/24 dev eth0" + gid("0a63:0001"), args: []string{"-G", "2"},
			// Without a route, the kernel assumes that the address is on the link. No host
			// answers for it.
			here: "tc filter add dev eth0 ingress protocol arp pref 2 u32 match u16 0x0a63 0xffff at 14 match u16 0x0001 0xffff at 16 action drop",
			want: "peer-wrong-gid", text: "those at 1 and 1 do", undo: "ip address delete 10.99.0.1/24 dev eth0", undoHere: remove, mends: true},
		{name: "IPv4 and IPv6", slow: true, args: []string{"-g", "0"}, want: "peer-family"},
		{name: "VLANs", slow: true, there: "modprobe 8021q && ip link add link eth0 name eth0.7 type vlan id 7 && echo 1 > /proc/sys/net/ipv6/conf/eth0.7/disable_ipv6 &&" +
			" ip link set dev eth0.7 up && ip address add 192.168.78.2/24 dev eth0.7" + gid("c0a8:4e02"), args: []string{"-G", "2"}, want: "peer-vlan", undo: "ip link delete eth0.7"},
		{name: "a small MTU", there: "ip link set dev eth0 mtu 1000", want: "mtu-low peer-mtu", mends: true},
		{name: "nothing", slow: true, there: drop(udp), here: drop(udp) + " && echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6", want: "peer-unreachable", undo: remove,
			undoHere: remove + " && echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6"},
		{name: "no rdma_cm there", slow: true, there: "rm /dev/infiniband/rdma_cm", want: "node-missing", mends: true},
	}
	return slices.DeleteFunc(faults, func(f peerFault) bool {
		return f.mirrored && os.Getenv("GOVERBS_LONG") == "" || f.slow && testing.Short()
	})
}

// cure runs the commands that the findings propose.
func (f *peerFault) cure(t *testing.T, r *report, there func(*testing.T, string)) {
	if !f.mends {
		return
	}
	for _, w := range r.Findings {
		if w.Note {
			continue
		}
		for _, command := range w.Mend {
			switch words := strings.Fields(command); {
			case words[0] == "ibv":
				// It must succeed.
				if r := examine(t, nil, slices.Concat(words[2:], []string{"-w", "0"})...); len(r.wrong()) > 0 {
					t.Errorf("%q: %+v", command, r.Findings)
				}
			case w.Host != "" || strings.Contains(w.Advice, "for the end there"):
				there(t, command)
			default:
				shell(t, command)
			}
		}
	}
}
