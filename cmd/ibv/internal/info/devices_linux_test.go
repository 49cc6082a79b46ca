package info

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
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
	lists := map[string]func() error{"devices": list, "info -l": options{list: true}.run}
	for name, list := range lists {
		if got := said(list); got != "" {
			t.Errorf("%s, with devices: %s", name, got)
		}
	}
	n.Device(0).Remove()
	n.Device(1).Remove()
	for name, list := range lists {
		if got := said(list); !strings.Contains(got, "no such RDMA device; the kernel has") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestJSON: the output of --json is JSON, also of a list, and without devices.
func TestJSON(t *testing.T) {
	n := verbstest.New(t)
	saved := os.Stdout
	t.Cleanup(func() { os.Stdout = saved })
	printed := func(args ...string) (status int, names []string) {
		name := filepath.Join(t.TempDir(), "stdout")
		os.Stdout = rdmatest.Must(os.Create(name))(t)
		status = Info().Main("ibv info", args)
		rdmatest.Check(t, os.Stdout.Close())
		var devices []struct {
			Name string `json:"hca_id"`
		}
		rdmatest.Check(t, json.Unmarshal(rdmatest.Must(os.ReadFile(name))(t), &devices))
		names = []string{}
		for _, d := range devices {
			names = append(names, d.Name)
		}
		return status, names
	}
	first, second := n.Device(0).Name(), n.Device(1).Name()
	for line, want := range map[string][]string{"--json": {first, second}, "--json -l": {first, second}, "--json -d " + second: {second}} {
		if status, names := printed(strings.Fields(line)...); status != cli.OK || !slices.Equal(names, want) {
			t.Errorf("%s: status %d, %q", line, status, names)
		}
	}
	n.Device(0).Remove()
	n.Device(1).Remove()
	for line, want := range map[string]int{"--json": cli.Failed, "--json -l": cli.OK, "--json -d " + second: cli.Failed} {
		if status, names := printed(strings.Fields(line)...); status != want || len(names) != 0 {
			t.Errorf("%s, without devices: status %d, %q", line, status, names)
		}
	}
}
