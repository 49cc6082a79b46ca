package verbs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRaiseMemlock: with CAP_SYS_RESOURCE there is no limit, without it the hard limit. A separate
// process sets the limits.
func TestRaiseMemlock(t *testing.T) {
	const variable = "GOVERBS_TEST_MEMLOCK"
	if os.Getenv(variable) != "" {
		limit, err := RaiseMemlock()
		var now unix.Rlimit
		must(0, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now))(t)
		if err != nil || now.Cur != now.Max || limit != 0 && limit != now.Cur || (limit == 0) != (now.Cur == unix.RLIM_INFINITY) {
			t.Errorf("%d, %v; the limits are %+v", limit, err, now)
		}
		return
	}
	for _, script := range []string{
		`ulimit -H -l 4096; ulimit -S -l 64; exec setpriv --bounding-set -all --inh-caps -all "$@"`,
		`ulimit -S -l 64; exec "$@"`,
	} {
		cmd := exec.Command("sh", "-c", script, "sh", "/proc/self/exe", "-test.run", "^TestRaiseMemlock$")
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Args[4] = self
		cmd.Env = append(os.Environ(), variable+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
}
