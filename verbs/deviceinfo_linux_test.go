package verbs

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestOpenMissingNode(t *testing.T) {
	m := machine(t)
	devs, err := m.devices()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(devs, func(d *DeviceInfo) bool { return d.Name() == "iwp0" })
	if _, err := devs[i].Open(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), devs[i].Node()) {
		t.Errorf("Open = %v, want it to say which node is missing", err)
	}
	// The node of rxe0 is a plain file here, no device.
	i = slices.IndexFunc(devs, func(d *DeviceInfo) bool { return d.Name() == "rxe0" })
	if _, err := devs[i].Open(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("Open = %v, want ErrNotSupported", err)
	}
}
