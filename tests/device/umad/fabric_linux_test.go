package umad

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// The adapters of a fabric of two switches, with three at each. The guest has further
// adapters, which have no link.
var (
	six         = []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5"}
	twoSwitches = [][]int{{0, 1, 2}, {3, 4, 5}}
)

const trunkPort = 4 // of each switch

var _ = rdmatest.Test(TestSixPorts, rdmatest.Mixed, rdmatest.Long)

// TestSixPorts: OpenSM brings up six ports at two switches. infiniband-diags and ibv find the same
// nodes, links and routes.
func TestSixPorts(t *testing.T) {
	manage(t, twoSwitches...)
	lids := active(t, openSM(t, six[0], 9), six...)
	found := discovered(t)
	if strings.Count(found, "\nSwitch\t4 ") != 2 || strings.Count(found, "\nCa\t1 ") != 6 {
		t.Errorf("ibnetdiscover finds %s", found)
	}
	if n := strings.Count(found, fmt.Sprintf("\n[%d]\t\"S-", trunkPort)); n != 2 {
		t.Errorf("%d ends of the trunk: %s", n, found)
	}
	for to, switches := range map[int]int{0: 0, 1: 1, 3: 2, 5: 2} {
		for _, option := range []string{"", "-n "} {
			got := same(t, fmt.Sprintf("ibtracert %s%d %d", option, lids[0], lids[to]))
			if n := strings.Count(got, "switch port"); option == "" && n != switches {
				t.Errorf("through %d switches to adapter %d: %s", n, to, got)
			}
		}
	}
	info := same(t, "smpquery -D portinfo 0,1 0")
	m := regexp.MustCompile(`(?m)^Lid:\.+(\d+)$`).FindStringSubmatch(info)
	if m == nil {
		t.Fatalf("the switch has no LID: %s", info)
	}
	lid := strings.NewReplacer("SWITCH", m[1], "FIRST", fmt.Sprint(lids[0]), "NEAR", fmt.Sprint(lids[2]), "FAR", fmt.Sprint(lids[5]))
	for _, line := range []string{
		"ibtracert NEAR FAR", "ibtracert -n FAR FIRST", "ibtracert SWITCH NEAR", "ibtracert FAR SWITCH", "ibtracert FAR FAR", "smpquery portinfo FAR 1", "saquery -x", "saquery -p --src-to-dst FIRST:FAR",
		"smpquery -D switchinfo 0,1,4", "smpquery -D portinfo 0,1,4 4", "smpquery -D nodeinfo 0,1,4,3",
	} {
		if line = lid.Replace(line); same(t, line) == "" {
			t.Errorf("%s prints nothing", line)
		}
	}
}
