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

// TestNothingReachesTheKernel runs the misuses once more, with ibvtrace as the
// witness: not one of the control verbs that get to the kernel is refused.
func TestNothingReachesTheKernel(t *testing.T) {
	if os.Getenv(witnessVar) != "" {
		t.Fatal("the witnessed part must not include its witness")
	}
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	self := rdmatest.Must(os.Executable())(t)
	cmd := exec.Command(rdmatest.Program(t, "ibvtrace"), "--json", "-o", trace, self, "-test.run", "^("+witnessed+")$")
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
			// Opening the device, which is no verb.
		case v.Object == "DEVICE" && v.Method == "0xfff" && (v.Errno == "EPROTONOSUPPORT" || v.Errno == "EINVAL"):
			probes++ // Open asks for a method that doesn't exist, to learn the driver
		default:
			t.Errorf("the kernel refused %s %s %s with %s", v.Verb, v.Object, v.Method, v.Errno)
		}
	}
	// The world is made of several dozens of verbs; a witness who saw fewer was
	// looking elsewhere.
	if verbs < 100 || probes == 0 {
		t.Errorf("ibvtrace saw %d verbs and %d probes", verbs, probes)
	}
}
