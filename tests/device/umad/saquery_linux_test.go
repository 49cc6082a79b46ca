package umad

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/sa"
	"github.com/goverbs/goverbs/umad"
)

var _ = rdmatest.Test(TestAdministration, rdmatest.OnMLX5, rdmatest.Long)

// TestAdministration: package sa and saquery query Debian's OpenSM about a switch between two
// adapters. ibv saquery prints the same as infiniband-diags' saquery. Ports join a multicast
// group and leave it.
func TestAdministration(t *testing.T) {
	manage(t, []int{0, 1})
	names := [2]string{"first-node", "second-node"}
	for i, device := range rdmatest.Devices {
		file := "/sys/class/infiniband/" + device + "/node_desc"
		before := rdmatest.Must(os.ReadFile(file))(t)
		rdmatest.Check(t, os.WriteFile(file, []byte(names[i]), 0))
		t.Cleanup(func() { _ = os.WriteFile(file, before, 0) })
	}
	lids := active(t, openSM(t, rdmatest.Devices[0], 9), rdmatest.Devices[:]...)

	var clients [2]*sa.Client
	var gids [2]netip.Addr
	for i, device := range rdmatest.Devices {
		p := rdmatest.Must(umad.Open(device, 1))(t)
		t.Cleanup(func() { p.Close() })
		clients[i] = rdmatest.Must(sa.NewClient(p, sa.Options{}))(t)
		gids[i] = netip.MustParseAddr(portFile(t, device, "gids/0"))
	}
	// The answer is longer than a MAD. The first client is on OpenSM's own port, the second
	// is behind the switch.
	nodes := rdmatest.Must(clients[0].Nodes(t.Context(), sa.NodeRecord{}, 0))(t)
	if again := rdmatest.Must(clients[1].Nodes(t.Context(), sa.NodeRecord{}, 0))(t); !reflect.DeepEqual(nodes, again) {
		t.Errorf("one port gets %+v, the other %+v", nodes, again)
	}
	switches, ends := 0, [2]int{}
	for _, n := range nodes {
		if n.Type == ib.NodeSwitch {
			switches++
		}
		for i := range ends {
			if n.LID == lids[i] && n.Description == names[i] && n.Type == ib.NodeCA {
				ends[i]++
			}
		}
	}
	if len(nodes) != 3 || switches != 1 || ends != [2]int{1, 1} {
		t.Errorf("LIDs %d, nodes %+v", lids, nodes)
	}
	query := sa.PathRecord{SGID: gids[1].As16(), DGID: gids[0].As16(), Count: 1}
	const ways = sa.PathSGID | sa.PathDGID | sa.PathCount
	if p, err := clients[1].Path(t.Context(), query, ways); err != nil || p.SLID != lids[1] || p.DLID != lids[0] || p.DGID != query.DGID || p.SGID != query.SGID {
		t.Errorf("the path: %+v, %v", p, err)
	}
	query.DGID[15]++
	if p, err := clients[1].Path(t.Context(), query, ways); !errors.Is(err, sa.NoRecords) && !errors.Is(err, sa.InvalidGID) {
		t.Errorf("a path to nowhere: %+v, %v", p, err)
	}

	group := sa.MCMemberRecord{MGID: netip.MustParseAddr("ff12:1234::5").As16(), QKey: 0x5678, PKey: 0xffff, JoinState: sa.JoinFull}
	member := func(i int) sa.MCMemberRecord {
		m := group
		m.PortGID = gids[i].As16()
		return m
	}
	made := rdmatest.Must(clients[0].Join(t.Context(), member(0), sa.MemberCreate))(t)
	joined := rdmatest.Must(clients[1].Join(t.Context(), member(1), sa.MemberJoin))(t)
	if made.MLID < 0xc000 || joined.MLID != made.MLID || joined.QKey != group.QKey || joined.PortGID != gids[1].As16() {
		t.Errorf("made %+v, joined %+v", made, joined)
	}
	groups := func() []sa.MCMemberRecord {
		return rdmatest.Must(clients[0].Members(t.Context(), sa.MCMemberRecord{MGID: group.MGID}, sa.MemberMGID))(t)
	}
	if all := groups(); len(all) != 1 || all[0].MLID != made.MLID {
		t.Errorf("the groups are %+v", all)
	}

	same(t, "saquery -O 0")
	same(t, "saquery -L")
	for _, line := range []string{
		"", "LID1", "second-node", "NR LID0", "-N", "-N second-node", "-D", "-L first-node", "-l second-node", "-G first-node", "-O LID1", "-U GUID1",
		"-p", "PR --slid LID0 -n 1", "-p --dlid LID1 -r 1", "--src-to-dst LID0:LID1", "--src-to-dst first-node:second-node",
		"--sgid-to-dgid GID0-GID1", "-p --sgid GID0 --dgid GID1 --pkey 0xffff -M 0x84",
		"-g", "-m", "-m MLID", "--smkey 1 -m", "--smkey 1 -m MLID", "MCMR", "--smkey 1 MCMR --mgid MGID", "MCMR --mlid MLID", "-s", "-c", "CPI",
		"-x", "-x LID0", "LR LID0/1 SWITCH", "PIR", "PIR LID1/1", "-K pir LID0",
	} {
		number := ""
		for _, n := range nodes {
			if n.Type == ib.NodeSwitch {
				number = fmt.Sprint(n.LID)
			}
		}
		line = strings.NewReplacer("MLID", fmt.Sprintf("%#x", made.MLID), "LID0", fmt.Sprint(lids[0]), "LID1", fmt.Sprint(lids[1]), "GUID1", guid(t, rdmatest.Devices[1]),
			"MGID", netip.AddrFrom16(group.MGID).String(), "GID0", gids[0].String(), "GID1", gids[1].String(), "SWITCH", number).Replace(line)
		if same(t, "saquery "+line) == "" {
			t.Errorf("saquery %s prints nothing", line)
		}
	}
	if got := same(t, "saquery --smkey 1 -m"); strings.Count(got, "NodeDescription.........first-node\n") != 1 || strings.Count(got, "NodeDescription.........second-node\n") != 1 {
		t.Errorf("the members: %s", got)
	}
	for i, left := range []int{1, 0} {
		rdmatest.Must(clients[i].Leave(t.Context(), member(i), sa.MemberJoin))(t)
		if all := groups(); len(all) != left {
			t.Errorf("after %d have left, the groups are %+v", i+1, all)
		}
	}
	if _, err := clients[0].Leave(t.Context(), member(0), sa.MemberJoin); !errors.Is(err, sa.RequestInvalid) {
		t.Errorf("leaving twice: %v", err)
	}
}
