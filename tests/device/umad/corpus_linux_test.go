package umad

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/corpus"
)

var _ = rdmatest.Test(TestSubnetCorpus, rdmatest.OnMLX5, rdmatest.Long)

// TestSubnetCorpus: command lines as people run them on a subnet give what is taken from infiniband-diags' output.
func TestSubnetCorpus(t *testing.T) {
	manage(t, []int{0, 1})
	lids := active(t, openSM(t, rdmatest.Devices[0], 9), rdmatest.Devices[:]...)
	of := func(line, pattern string) string {
		t.Helper()
		out, _ := outcome(t, append([]string{rdmatest.Program(t, "ibv")}, strings.Fields(line)...)...)
		m := regexp.MustCompile(pattern).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("ibv %s: %s", line, out)
		}
		return m[1]
	}
	named := filepath.Join(t.TempDir(), "names")
	text := ""
	for name, port := range map[string]string{"the switch": "-D 0,1", "an adapter": fmt.Sprint(lids[0]), "another": fmt.Sprint(lids[1])} {
		text += fmt.Sprintf("%s \"%s\"\n", of("smpquery nodeinfo "+port, `(?m)^Guid:\.+(\w+)`), name)
	}
	rdmatest.Check(t, os.WriteFile(named, []byte(text), 0o644))
	names := strings.NewReplacer("NAMES", named, "SWITCHLID", of("smpquery -D portinfo 0,1 0", `(?m)^Lid:\.+(\d+)`),
		"SWITCHGUID", of("smpquery -D nodeinfo 0,1", `(?m)^PortGuid:\.+(\w+)`), "OWNLID", fmt.Sprint(lids[0]), "LID", fmt.Sprint(lids[1]),
		"GUID", guid(t, rdmatest.Devices[1]), "DEVICE", rdmatest.Devices[0], "OTHER", rdmatest.Devices[1])
	corpus.Run(t, true, names)

	// With --json, the same is JSON, with something in it.
	for _, line := range []string{
		"ibaddr LID", "sminfo", "perfquery LID 1", "perfquery -x LID 1", "ibnetdiscover", "iblinkinfo", "iblinkinfo -S SWITCHGUID", "ibtracert OWNLID LID",
		"smpquery nodeinfo LID", "smpquery nodedesc LID", "smpquery portinfo LID 1", "smpquery switchinfo SWITCHLID", "smpquery pkeys LID 1", "smpquery sl2vl LID 1",
		"smpquery vlarb LID 1", "smpquery guidinfo LID", "saquery", "saquery -p", "saquery -s", "saquery -D", "saquery -c", "saquery -x", "saquery PIR LID",
		"saquery SMIR", "saquery -O LID",
	} {
		out, ok := outcome(t, append([]string{rdmatest.Program(t, "ibv")}, strings.Fields(names.Replace(line)+" --json")...)...)
		var list []map[string]any
		if err := json.Unmarshal([]byte(out), &list); err != nil || !ok || len(list) == 0 {
			t.Errorf("%s: %v, %s", line, err, out)
		}
	}
}
