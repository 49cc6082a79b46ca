package device

import (
	"fmt"
	"strings"
)

// A Profile is a kind of adapter.
type Profile struct {
	Name, What string
	Device     uint16 // PCI ID
	SubCQs     uint16 // of each CQ
	EQs        bool   // completion events
	RDMARead   bool
	RDMAWrite  bool
	RNRRetry   bool
	Future     bool // other versions, a feature and a capability that no driver knows
}

// Profiles are the known ones. The first is the default.
var Profiles = []Profile{
	{Name: "efa2", What: "RDMA read and write, completion events", Device: 0xefa2, SubCQs: 1, EQs: true, RDMARead: true, RDMAWrite: true, RNRRetry: true},
	{Name: "efa3", What: "efa2 with the next PCI ID, which drivers know from Linux 6.11 on", Device: 0xefa3, SubCQs: 1, EQs: true, RDMARead: true, RDMAWrite: true, RNRRetry: true},
	{Name: "efa1", What: "RDMA read, completion events, two sub-CQs in each CQ", Device: 0xefa1, SubCQs: 2, EQs: true, RDMARead: true, RNRRetry: true},
	{Name: "efa0", What: "neither RDMA nor completion events, two sub-CQs in each CQ", Device: 0xefa0, SubCQs: 2},
	{Name: "future", What: "efa2 of a later specification: other versions, and what no driver knows", Device: 0xefa2, SubCQs: 1, EQs: true, RDMARead: true, RDMAWrite: true, RNRRetry: true, Future: true},
}

// ProfileOf returns the profile of a name.
func ProfileOf(name string) (Profile, error) {
	for _, p := range Profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("no profile %q; the profiles are\n%s", name, DescribeProfiles())
}

// DescribeProfiles returns a line for each profile.
func DescribeProfiles() string {
	var b strings.Builder
	for _, p := range Profiles {
		fmt.Fprintf(&b, "  %-6s %s\n", p.Name, p.What)
	}
	return b.String()
}
