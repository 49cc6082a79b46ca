package doctor

import (
	"slices"
	"strings"
	"testing"
)

// ends are two hosts on RoCE that reach each other.
func ends() *Reach {
	facts := Facts{Device: "mlx5_0", Port: 1, LinkLayer: "Ethernet", NetDev: "eth0", GIDIndex: 3, GID: "10.1.2.3", GIDType: rocev2, ActiveMTU: 4096, PKeys: []uint16{0xffff}, GIDs: []int{0, 1, 2, 3}}
	there := facts
	there.Device, there.GID = "mlx5_1", "10.1.2.4"
	all := Way{UDP: shots, Small: shots, Full: shots, RC: "ok", Large: "ok"}
	return &Reach{Host: "node1", Here: facts, There: there, Sent: shots, Out: all, Back: all}
}

func infiniBandEnds() *Reach {
	m := ends()
	for _, f := range []*Facts{&m.Here, &m.There} {
		f.LinkLayer, f.GIDType, f.NetDev = "InfiniBand", "InfiniBand", ""
	}
	m.Here.GID, m.There.GID = "fe80::2:c903:6f:7600", "fe80::2:c903:6f:7700"
	m.Out.UDP, m.Back.UDP = -1, -1
	return m
}

// Each difference in settings, and each kind of loss, has its own finding.
func TestPeer(t *testing.T) {
	roce := func(change func(*Reach)) *Reach {
		m := ends()
		change(m)
		return m
	}
	ib := func(change func(*Reach)) *Reach {
		m := infiniBandEnds()
		change(m)
		return m
	}
	way := func(udp, small, full int, rc, large string) Way {
		return Way{UDP: udp, Small: small, Full: full, RC: rc, Large: large}
	}
	none := way(0, 0, 0, "", "")
	filtered := way(shots, 0, 0, "", "")
	arrives := way(shots, shots, shots, "", "")
	seen := make(map[string]bool)
	for _, test := range []struct {
		name string
		ends *Reach
		want string
		text string // part of the finding, its evidence or its commands
	}{
		{"all arrives", ends(), "", ""},
		{"all arrives over InfiniBand", infiniBandEnds(), "", ""},
		{"two lost of twenty", roce(func(m *Reach) { m.Out.Small = shots - few }), "", ""},
		{"Ethernet and InfiniBand", roce(func(m *Reach) { m.There.LinkLayer = "InfiniBand" }), "peer-link-layer", "there, mlx5_1: InfiniBand"},
		{"RoCE v1 and v2", roce(func(m *Reach) { m.Here.GIDType = rocev1 }), "peer-gid-type", "here, mlx5_0: GID index 3: 10.1.2.3, IB/RoCE v1"},
		{"IPv4 and IPv6", roce(func(m *Reach) { m.There.GID = "fe80::1" }), "peer-family", "fe80::1"},
		{"VLANs", roce(func(m *Reach) { m.There.VLAN = 7 }), "peer-vlan", "VLAN 7"},
		{"no common partition", ib(func(m *Reach) { m.There.PKeys = []uint16{0x8001} }), "peer-pkey", "0x8001"},
		{"limited members", ib(func(m *Reach) { m.Here.PKeys, m.There.PKeys = []uint16{0x7fff}, []uint16{0x7fff} }), "peer-pkey", "0x7fff"},
		{"one limited member", ib(func(m *Reach) { m.Here.PKeys = []uint16{0x7fff} }), "", ""},
		{"subnets", ib(func(m *Reach) { m.There.GID = "fec0::2:c903:6f:7700" }), "peer-subnet", "fec0::2:c903:6f:7700, InfiniBand"},
		{"MTUs", roce(func(m *Reach) { m.There.ActiveMTU = 1024 }), "peer-mtu", "ip link set dev eth0 mtu 4196"},
		{"MTUs over InfiniBand", ib(func(m *Reach) { m.There.ActiveMTU = 2048 }), "peer-mtu", "there, mlx5_1: 2048"},
		{"traffic classes", roce(func(m *Reach) { m.Here.TrafficClass = 106 }), "peer-traffic-class", "106"},
		{"a firewall", roce(func(m *Reach) { m.Out, m.Back = filtered, filtered }), "peer-firewall", "in either direction"},
		{"a firewall there", roce(func(m *Reach) { m.Out, m.Back = filtered, arrives }), "peer-firewall", "from here to there"},
		{"a firewall here", roce(func(m *Reach) { m.Out, m.Back = arrives, filtered }), "peer-firewall", "--dport 4791 -j ACCEPT"},
		{"a firewall of the sender", roce(func(m *Reach) { m.Out, m.Back = Way{UDP: shots, Stuck: true}, arrives }), "peer-firewall", "they didn't leave the sender's host"},
		{"a firewall, and UDP lost back", roce(func(m *Reach) { m.Out, m.Back = filtered, none }), "peer-firewall peer-one-way", ""},
		{"one way", roce(func(m *Reach) { m.Out, m.Back = none, arrives }), "peer-one-way", "nothing arrives from here to there"},
		{"one way over InfiniBand", ib(func(m *Reach) { m.Back = way(-1, 0, 0, "", "") }), "peer-one-way", "from there to here"},
		{"nothing", roce(func(m *Reach) { m.Out, m.Back = none, none }), "peer-unreachable", "10.1.2.3 here, 10.1.2.4 there"},
		{"nothing over InfiniBand", ib(func(m *Reach) { m.Out, m.Back = way(-1, 0, 0, "", ""), way(-1, 0, 0, "", "") }), "peer-unreachable", "0 of 20 small"},
		{"a black hole", roce(func(m *Reach) { m.Out = way(shots, shots, 0, "ok", "") }), "peer-black-hole", "4096, don't arrive from here to there"},
		{"a black hole both ways", roce(func(m *Reach) {
			m.Out, m.Back = way(shots, shots, 0, "ok", ""), way(shots, shots, 0, "ok", "")
		}), "peer-black-hole peer-black-hole", ""},
		{"loss", roce(func(m *Reach) { m.Back.Small = 12 }), "peer-loss", "from there to here"},
		{"loss of large packets", roce(func(m *Reach) { m.Out.Full = 3 }), "peer-loss", "3 full ones"},
		{"no route", roce(func(m *Reach) { m.NoRoute = "node1: meet: connect QP: network is unreachable" }), "peer-no-route", "network is unreachable"},
		{"another GID works", roce(func(m *Reach) { m.NoRoute, m.Instead = "no route", &[2]int{1, 5} }), "peer-wrong-gid", "ibv doctor --peer node1 -g 1 -G 5"},
		{"another GID works, this one is silent", roce(func(m *Reach) { m.Out, m.Back, m.Instead = none, none, &[2]int{1, 5} }), "peer-wrong-gid", "at 1 and 5"},
		{"connections fail", roce(func(m *Reach) { m.Out.RC, m.Back.RC, m.Out.Large, m.Back.Large = "RETRY_EXC_ERR", "", "", "" }), "peer-rc", "RETRY_EXC_ERR"},
		{"long messages fail", roce(func(m *Reach) { m.Back.Large = "RETRY_EXC_ERR" }), "peer-rc", "many packets over a reliable connection fails from there to here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := new(Report)
			if r.compare(test.ends.Here, test.ends.There) {
				r.diagnose(test.ends)
			}
			complete(t, r)
			var got []string
			var text strings.Builder
			for _, f := range r.Findings {
				got = append(got, f.ID)
				seen[f.ID] = true
				text.WriteString(f.What + "\n" + strings.Join(f.Mend, "\n") + "\n")
				for _, e := range f.Evidence {
					text.WriteString(e.Source + ": " + e.Value + "\n")
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Fatalf("found %v, want %q: %+v", got, test.want, r.Findings)
			}
			if !strings.Contains(text.String(), test.text) {
				t.Errorf("%q is not in %s", test.text, text.String())
			}
		})
	}
	for _, k := range Kinds {
		if strings.HasPrefix(k.ID, "peer-") && !seen[k.ID] {
			t.Errorf("nothing leads to %s", k.ID)
		}
	}
}

// The facts about a port.
func TestFacts(t *testing.T) {
	b := roce()
	b.files["/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"] = "106"
	b.vlans = map[string]int{"ens1f0np0.7": 7}
	b.gid("mlx5_0", 6, mapped("10.7.2.3"), rocev2, "ens1f0np0.7")
	h := b.host(t)
	f, err := h.facts("", -1)
	if err != nil || f.GID != "10.1.2.3" || f.GIDIndex != 3 || f.VLAN != 0 || f.TrafficClass != 106 || f.ActiveMTU != 4096 || !slices.Equal(f.GIDs, []int{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := h.facts("ens1f0np0", 6); err != nil || f.GID != "10.7.2.3" || f.VLAN != 7 || f.NetDev != "ens1f0np0.7" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := h.facts("mlx5_0", 9); err == nil || !strings.Contains(err.Error(), "index 9") {
		t.Errorf("a GID that doesn't exist: %v", err)
	}
	if f, err := infiniBand().host(t).facts("mlx5_0", -1); err != nil || f.GIDType != "InfiniBand" || f.GIDIndex != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := h.facts("mlx5_9", -1); err == nil {
		t.Error("a device that doesn't exist has facts")
	}
}
