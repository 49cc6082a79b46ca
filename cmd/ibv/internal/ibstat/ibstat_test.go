package ibstat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// class makes a folder with an InfiniBand device, an Ethernet device and one of another type.
func class(t *testing.T) Class {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"node_type": "1: CA", "hca_type": "MT4123", "fw_ver": "20.31.1014", "hw_rev": "0",
		"node_guid": "0c42:a103:00b3:7a5e", "sys_image_guid": "0c42:a103:00b3:7a5e",
		"ports/1/state": "4: ACTIVE", "ports/1/phys_state": "5: LinkUp", "ports/1/rate": "56 Gb/sec (4X FDR10)",
		"ports/1/lid": "0x1b", "ports/1/lid_mask_count": "0", "ports/1/sm_lid": "0x1", "ports/1/cap_mask": "0x2651e84a",
		"ports/1/gids/0": "fe80:0000:0000:0000:0c42:a103:00b3:7a5e", "ports/1/link_layer": "InfiniBand",
	} {
		put("mlx5_0/"+name, text)
	}
	for name, text := range map[string]string{
		"node_type": "1: CA", "node_guid": "5054:00ff:fe12:3456", "sys_image_guid": "5054:00ff:fe12:3456",
		"ports/1/state": "1: DOWN", "ports/1/phys_state": "3: Disabled", "ports/1/rate": "2.5 Gb/sec (1X SDR)",
		"ports/1/lid": "0x0", "ports/1/lid_mask_count": "0", "ports/1/sm_lid": "0x0", "ports/1/cap_mask": "0x00010000",
		"ports/1/gids/0": "0000:0000:0000:0000:0000:0000:0000:0000", "ports/1/link_layer": "Ethernet",
	} {
		put("rxe0/"+name, text)
	}
	put("siw0/node_type", "4: RNIC")
	put("siw0/ports/1/state", "4: ACTIVE")
	return Class(dir)
}

func TestPrint(t *testing.T) {
	const (
		head = `CA 'mlx5_0'
	CA type: MT4123
	Number of ports: 1
	Firmware version: 20.31.1014
	Hardware version: 0
	Node GUID: 0x0c42a10300b37a5e
	System image GUID: 0x0c42a10300b37a5e
`
		port = `	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 56 (FDR10)
		Base lid: 27
		LMC: 0
		SM lid: 1
		Capability mask: 0x2651e84a
		Port GUID: 0x0c42a10300b37a5e
		Link layer: InfiniBand
`
		ethernet = `CA 'rxe0'
	CA type: 
	Number of ports: 1
	Firmware version: 
	Hardware version: 
	Node GUID: 0x505400fffe123456
	System image GUID: 0x505400fffe123456
	Port 1:
		State: Down
		Physical state: Disabled
		Rate: 2.5
		Base lid: 0
		LMC: 0
		SM lid: 0
		Capability mask: 0x00010000
		Port GUID: 0x0000000000000000
		Link layer: Ethernet
`
	)
	c := class(t)
	for _, test := range []struct {
		name string
		port int
		what What
		want string
	}{
		{"", -1, All, head + port + ethernet},
		{"mlx5_0", -1, Short, head},
		{"mlx5_0", 1, All, "CA: 'mlx5_0'\n" + strings.ReplaceAll(port, "\t", "")},
		{"", -1, Names, "mlx5_0\nrxe0\n"},
		{"", -1, PortGUIDs, "0x0c42a10300b37a5e\n"},
	} {
		var b strings.Builder
		if err := c.Print(&b, test.name, test.port, test.what); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(test.want, b.String()); diff != "" {
			t.Errorf("%+v: (-want +got)\n%s", test, diff)
		}
	}
}

func TestPrintStatus(t *testing.T) {
	const want = `Infiniband device 'mlx5_0' port 1 status:
	default gid:	 fe80:0000:0000:0000:0c42:a103:00b3:7a5e
	base lid:	 0x1b
	sm lid:		 0x1
	state:		 4: ACTIVE
	phys state:	 5: LinkUp
	rate:		 56 Gb/sec (4X FDR10)
	link_layer:	 InfiniBand

`
	c := class(t)
	var b strings.Builder
	if err := c.PrintStatus(&b, "mlx5_0", "mlx5_0:1"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want+want, b.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b.Reset()
	if err := c.PrintStatus(&b); err != nil || strings.Count(b.String(), "Infiniband device") != 3 {
		t.Errorf("all devices: %v, %s", err, b.String())
	}
}

// TestMissing: the error names a missing device or port.
func TestMissing(t *testing.T) {
	c := class(t)
	for says, print := range map[string]func() error{
		"no device mlx5_7":        func() error { return c.Print(new(strings.Builder), "mlx5_7", -1, All) },
		"siw0 is no InfiniBand":   func() error { return c.Print(new(strings.Builder), "siw0", -1, All) },
		"mlx5_0 has no port 2":    func() error { return c.Print(new(strings.Builder), "mlx5_0", 2, All) },
		"rxe0 has no port 9":      func() error { return c.PrintStatus(new(strings.Builder), "rxe0:9") },
		"the port of rxe0":        func() error { return c.PrintStatus(new(strings.Builder), "rxe0:x") },
		`"../mlx5_0" is not`:      func() error { return c.PrintStatus(new(strings.Builder), "../mlx5_0") },
		"no RDMA devices":         func() error { return (c + "/none").Print(new(strings.Builder), "", -1, All) },
		"no RDMA devices: the ke": func() error { return (c + "/none").PrintStatus(new(strings.Builder)) },
	} {
		if err := print(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
