package info

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
)

// TestEmptyList: a list without devices succeeds, and stderr says why it is empty.
func TestEmptyList(t *testing.T) {
	n := verbstest.New(t)
	saved := os.Stderr
	t.Cleanup(func() { os.Stderr = saved })
	said := func(list func() error) string {
		name := filepath.Join(t.TempDir(), "stderr")
		os.Stderr = rdmatest.Must(os.Create(name))(t)
		rdmatest.Check(t, list())
		rdmatest.Check(t, os.Stderr.Close())
		return string(rdmatest.Must(os.ReadFile(name))(t))
	}
	for name, list := range map[string]func() error{"devices": list, "info -l": listNames} {
		if got := said(list); got != "" {
			t.Errorf("%s, with devices: %s", name, got)
		}
	}
	n.Device(0).Remove()
	n.Device(1).Remove()
	for name, list := range map[string]func() error{"devices": list, "info -l": listNames} {
		if got := said(list); !strings.Contains(got, "no such RDMA device; the kernel has") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
