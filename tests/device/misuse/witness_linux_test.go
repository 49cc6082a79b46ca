package misuse

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// witnessVar is set for the child that ibvtrace watches.
const witnessVar = "GOVERBS_MISUSE_WITNESSED"

// TestNothingReachesTheKernel runs the misuses again under ibvtrace. The kernel must not
// refuse any control verb, as no misuse may reach it.
func TestNothingReachesTheKernel(t *testing.T) {
	if os.Getenv(witnessVar) != "" {
		t.Fatal("the witnessed part must not include its witness")
	}
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	self := rdmatest.Must(os.Executable())(t)
	cmd := exec.Command(rdmatest.Program(t, "ibvtrace"), "--how=ptrace", "--json", "-o", trace, self, "-test.run", "^("+witnessed+")$")
	cmd.Env = append(os.Environ(), witnessVar+"=1")
	p := rdmatest.StartCmd(t, cmd)
	if !p.OK() || !strings.Contains(p.Said(), "witnessed") {
		t.Fatal(p)
	}
	b := rdmatest.Must(os.ReadFile(trace))(t)
	verbs, probes := 0, 0
	for dec := json.NewDecoder(bytes.NewReader(b)); dec.More(); {
		var v struct {
			Verb, Object, Method, Errno string
			Ret                         *int
		}
		rdmatest.Check(t, dec.Decode(&v))
		switch {
		case v.Ret == nil:
			t.Errorf("%+v has no result", v)
		case *v.Ret == 0:
			verbs++
		case v.Object == "":
			// Opening the device isn't a verb.
		case v.Object == "DEVICE" && v.Method == "0xfff" && (v.Errno == "EPROTONOSUPPORT" || v.Errno == "EINVAL"):
			probes++ // Open calls a nonexistent method to identify the driver
		default:
			t.Errorf("the kernel refused %s %s %s with %s", v.Verb, v.Object, v.Method, v.Errno)
		}
	}
	// Creating the world takes dozens of verbs. Fewer would mean that ibvtrace missed them.
	if verbs < 100 || probes == 0 {
		t.Errorf("ibvtrace saw %d verbs and %d probes", verbs, probes)
	}
}
