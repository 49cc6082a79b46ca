package perftest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMapFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, append(make([]byte, 4<<10), strings.Repeat("x", 4<<10)...), 0o600); err != nil {
		t.Fatal(err)
	}
	mem, err := mapFile(name, 4<<10, 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	mem[1] = 'y'
	if err := mem.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b[4<<10:][:3]) != "xyx" {
		t.Errorf("%q, %v", b[4<<10:][:3], err)
	}
	for _, test := range []struct{ offset, size int }{{4 << 10, 4<<10 + 1}, {0, 1 << 30}, {1 << 30, 1}} {
		if _, err := mapFile(name, test.offset, test.size); err == nil || !strings.Contains(err.Error(), "has 8192 bytes") {
			t.Errorf("%+v: %v", test, err)
		}
	}
	if _, err := mapFile(name, 100, 4000); err == nil {
		t.Error("mapped from the middle of a page on")
	}
	if mem, err := mapFile("/dev/zero", 1<<12, 1<<20); err != nil || mem.Close() != nil {
		t.Errorf("a device node: %v", err)
	}
}
