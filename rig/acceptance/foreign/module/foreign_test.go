// Package foreign stands for another project, which knows nothing of the rig.
package foreign

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDevice needs an RDMA device, and a file of its own folder.
func TestDevice(t *testing.T) {
	devices, err := filepath.Glob("/sys/class/infiniband/*")
	if err != nil || len(devices) != 2 {
		t.Fatalf("devices %q, %v", devices, err)
	}
	f, err := os.OpenFile("/dev/infiniband/uverbs0", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := os.Stat("go.mod"); err != nil {
		t.Error(err)
	}
	for _, device := range devices {
		t.Log(filepath.Base(device))
	}
}
