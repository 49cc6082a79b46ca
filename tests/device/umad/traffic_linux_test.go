package umad

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sa"
	"github.com/goverbs/goverbs/umad"
	"github.com/goverbs/goverbs/verbs"
)

// makers returns commands that run a program of rdma-core's, or ibv's of the same name.
func makers(t *testing.T, c, ibv string) map[string][]string {
	return map[string][]string{"C": {c}, "Go": append([]string{rdmatest.Program(t, "ibv")}, strings.Fields(ibv)...)}
}

// pairings are the makers of the server and the client.
var pairings = [][2]string{{"C", "C"}, {"C", "Go"}, {"Go", "C"}, {"Go", "Go"}}

var _ = rdmatest.Test(TestSwitchedPingpong, rdmatest.Mixed, rdmatest.Long)

// TestSwitchedPingpong runs ping-pongs in C and in Go through both switches, by LID.
func TestSwitchedPingpong(t *testing.T) {
	manage(t, twoSwitches...)
	active(t, openSM(t, six[0], 9), six...)
	for _, transport := range []string{"rc", "ud"} {
		programs := makers(t, "ibv_"+transport+"_pingpong", "pingpong "+transport)
		for i, who := range pairings {
			from, to := six[i%3], six[3+i%3]
			play(t, slices.Concat(programs[who[0]], []string{"-d", to}), slices.Concat(programs[who[1]], []string{"-d", from}))
		}
	}
}

var _ = rdmatest.Test(TestSwitchedMulticast, rdmatest.Mixed, rdmatest.Long)

// TestSwitchedMulticast: ports at both switches join a group through OpenSM's subnet
// administration, and receive the group's messages. A port that hasn't joined doesn't receive
// them, although its adapter would accept them.
func TestSwitchedMulticast(t *testing.T) {
	manage(t, twoSwitches...)
	lids := active(t, openSM(t, six[0], 9), six...)
	group := sa.MCMemberRecord{MGID: netip.MustParseAddr("ff12:1234::7").As16(), QKey: rdmatest.QKey, PKey: 0xffff, JoinState: sa.JoinFull}
	join := func(i int, what sa.Mask) sa.MCMemberRecord {
		t.Helper()
		p := rdmatest.Must(umad.Open(six[i], 1))(t)
		t.Cleanup(func() { p.Close() })
		client := rdmatest.Must(sa.NewClient(p, sa.Options{}))(t)
		m := group
		m.PortGID = netip.MustParseAddr(portFile(t, six[i], "gids/0")).As16()
		return rdmatest.Must(client.Join(t.Context(), m, what))(t)
	}
	mlid := join(0, sa.MemberCreate).MLID

	const sender, near, far, other, size, depth = 0, 2, 5, 4, 300, 16
	spec := rdmatest.Default()
	spec.Type, spec.Global = verbs.UD, true
	ends := make(map[int]*rdmatest.End)
	var address verbs.AHAttr
	var pd *verbs.PD
	for _, i := range []int{sender, near, far, other} {
		device := rdmatest.Must(verbs.Open(six[i]))(t)
		t.Cleanup(func() { rdmatest.Close(t, device) })
		pair := rdmatest.PairOn(t, device, spec)
		ends[i] = pair.A
		if i == sender {
			address, pd = pair.Address, pair.PD
			continue
		}
		rdmatest.Check(t, pair.A.QP.AttachMcast(verbs.GID(group.MGID), mlid))
		for id := range depth {
			pair.A.Recv(t, uint64(id), 0, 1024)
		}
	}
	address.DGID, address.DLID = verbs.GID(group.MGID), mlid
	ah := rdmatest.Must(pd.CreateAH(address))(t)
	data := rdmatest.Pattern(size, 3)
	copy(ends[sender].MR.Bytes(), data)
	// OpenSM sets the switches' tables after it has answered, so the first messages are lost.
	arrives := func(i int) {
		t.Helper()
		for deadline := time.Now().Add(rdmatest.Patience); ; time.Sleep(10 * time.Millisecond) {
			ends[sender].Send(t, verbs.SendWR{
				Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{ends[sender].MR.SGE(0, size)},
				AH: ah, RemoteQPN: 0xffffff, RemoteQKey: rdmatest.QKey,
			})
			rdmatest.PollOK(t, ends[sender].CQ, 1)
			var wc [1]verbs.WC
			n, err := ends[i].CQ.Poll(wc[:])
			rdmatest.Check(t, err)
			if n == 0 && time.Now().Before(deadline) {
				continue
			}
			if err := wc[0].Err(); n == 0 || err != nil {
				t.Fatalf("nothing arrives at %s: %v", six[i], err)
			}
			if wc[0].SLID != lids[sender] || wc[0].SrcQP != ends[sender].QP.Num() || wc[0].ByteLen != verbs.GRHLen+size || !bytes.Equal(ends[i].MR.Bytes()[verbs.GRHLen:][:size], data) {
				t.Errorf("%s gets %+v", six[i], wc[0])
			}
			return
		}
	}
	for _, i := range []int{near, far} {
		if m := join(i, sa.MemberJoin); m.MLID != mlid {
			t.Errorf("%s joins %+v, which has LID %#x", six[i], m, mlid)
		}
		arrives(i)
	}
	rdmatest.Idle(t, ends[other].CQ)
	join(other, sa.MemberJoin)
	arrives(other)
}

// ipoib gives two adapters' network interfaces addresses. The second interface is in a
// network namespace of its own: otherwise the kernel would deliver packets between the two by
// itself. ipoib returns the command that runs programs in that namespace.
func ipoib(t *testing.T, devices, addresses [2]string) (there []string) {
	t.Helper()
	space := rdmatest.Start(t, "unshare", "-n", "sleep", "infinity")
	pid := fmt.Sprint(space.PID())
	network := func(pid string) string {
		link, _ := os.Readlink(filepath.Join("/proc", pid, "ns/net"))
		return link
	}
	space.Until(t, func() bool { return network(pid) != "" && network(pid) != network("self") })
	there = []string{"nsenter", "-t", pid, "-n"}
	in := [2]string{"", strings.Join(there, " ") + " "}
	t.Cleanup(func() { rdmatest.Command(t, "modprobe -r ib_ipoib") })
	rdmatest.Command(t, "modprobe ib_ipoib")
	for i, device := range devices {
		links := rdmatest.Must(filepath.Glob("/sys/class/infiniband/" + device + "/device/net/*"))(t)
		if len(links) != 1 {
			t.Fatalf("%s has the network interfaces %q", device, links)
		}
		link := filepath.Base(links[0])
		if in[i] != "" {
			rdmatest.Command(t, "ip link set "+link+" netns "+pid)
		}
		rdmatest.Command(t, in[i]+"ip link set "+link+" up")
		rdmatest.Command(t, in[i]+"ip address add "+addresses[i]+"/24 dev "+link)
	}
	return there
}

var _ = rdmatest.Test(TestSwitchedCM, rdmatest.Mixed, rdmatest.Long)

// TestSwitchedCM: the connection manager resolves IP addresses and paths through OpenSM, and connects
// programs of C and Go through both switches. The programs also join a group of IPoIB.
func TestSwitchedCM(t *testing.T) {
	manage(t, twoSwitches...)
	active(t, openSM(t, six[0], 9), six...)
	addresses := [2]string{"192.168.80.1", "192.168.80.2"}
	there := ipoib(t, [2]string{six[1], six[4]}, addresses)
	run := func(far bool, program []string, args string) *rdmatest.Process {
		line := slices.Concat(program, strings.Fields(args))
		if far {
			line = slices.Concat(there, line)
		}
		return rdmatest.Start(t, line...)
	}
	pings := makers(t, "rping", "rping")
	for i, who := range pairings {
		const count = "-C 5 -v -p "
		port := uint16(7300 + i)
		server := run(true, pings[who[0]], fmt.Sprint("-s -a ", addresses[1], " ", count, port))
		server.Until(t, func() bool { return rdmatest.ListeningCM(t, "TCP", port) })
		client := run(false, pings[who[1]], fmt.Sprint("-c -I ", addresses[0], " -a ", addresses[1], " ", count, port))
		for _, p := range []*rdmatest.Process{client, server} {
			if out := p.Succeeds(t); strings.Count(out, "ping data: rdma-ping-") != 5 {
				t.Errorf("%s to %s: %v", who[1], who[0], p)
			}
		}
	}

	groups := makers(t, "mckey", "mckey")
	complete := func(p *rdmatest.Process) {
		t.Helper()
		if out := p.Succeeds(t); !strings.Contains(out, "data transfers complete") || !strings.Contains(out, "return status 0") {
			t.Error(p)
		}
	}
	for i, who := range [][2]string{{"Go", "C"}, {"Go", "Go"}, {"C", "Go"}} {
		args := func(k int) string { return fmt.Sprintf("-m 239.80.1.%d -C 5 -b %s", i+1, addresses[k]) }
		receiver := run(true, groups[who[0]], args(1))
		if who[0] == "Go" {
			receiver.Until(t, func() bool { return strings.Contains(receiver.Stdout(), "joined") })
		}
		// librdmacm's sender doesn't wait until its messages are sent. Messages that are sent
		// before the switches' tables are set, or before the receiver has joined, are lost.
		for complete(run(false, groups[who[1]], args(0)+" -s")); !receiver.Ended(); {
			complete(run(false, groups[who[1]], args(0)+" -s"))
		}
		complete(receiver)
	}
}
