package efa

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

const efas = "/sys/bus/pci/drivers/efa/"

// function returns the PCI function of a device.
func function(t *testing.T, name string) string {
	t.Helper()
	return filepath.Base(rdmatest.Must(filepath.EvalSymlinks("/sys/class/infiniband/" + name + "/device"))(t))
}

// until waits for a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(rdmatest.Patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in a long time: %s", what)
		}
	}
}

// opens reports whether a program can open the device.
func opens(t *testing.T, name string) bool {
	t.Helper()
	d, err := verbs.Open(name)
	if err == nil {
		rdmatest.Close(t, d)
	}
	return err == nil
}

// node returns the device node's name in /dev/infiniband.
func node(t *testing.T, name string) string {
	t.Helper()
	for _, file := range rdmatest.Must(filepath.Glob("/sys/class/infiniband_verbs/uverbs*/ibdev"))(t) {
		if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == name {
			return filepath.Base(filepath.Dir(file))
		}
	}
	t.Fatalf("%s has no node", name)
	return ""
}

// EFA's driver delays a removal until all programs have closed the device. Until then, the
// programs continue. The device that comes back works as a new one.
func TestEFARemoved(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	address, node := function(t, "efa_1"), node(t, "efa_1")
	removed := make(chan error, 1)
	go func() { removed <- os.WriteFile("/sys/bus/pci/devices/"+address+"/remove", []byte("1"), 0) }()
	until(t, node+" goes", func() bool {
		_, err := os.Stat("/sys/class/infiniband_verbs/" + node)
		return os.IsNotExist(err)
	})
	if opens(t, "efa_1") {
		t.Error("a device that goes could be opened")
	}
	exchange(t, a, b, 100, depth, 100)
	select {
	case err := <-removed:
		t.Errorf("the driver hasn't waited: %v", err)
	default:
	}
	rdmatest.Check(t, b.Close())
	select {
	case err := <-removed:
		rdmatest.Check(t, err)
	case <-time.After(rdmatest.Patience):
		t.Fatal("the device isn't removed, though nobody uses it")
	}
	refusesWithoutPeer(t, a, b)
	rdmatest.Check(t, os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0))
	until(t, "efa_1 is back", func() bool { return opens(t, "efa_1") })
	meets(t, a)
}

// A driver that is unbound from its device resets it, and can be bound again. The other
// device's queue pairs are unchanged.
func TestEFAReset(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	exchange(t, a, b, 50, depth, 50)
	address := function(t, "efa_1")
	rdmatest.Check(t, b.Close())
	rdmatest.Check(t, os.WriteFile(efas+"unbind", []byte(address), 0))
	refusesWithoutPeer(t, a, b)
	rdmatest.Check(t, os.WriteFile(efas+"bind", []byte(address), 0))
	until(t, "efa_1 is back", func() bool { return opens(t, "efa_1") })
	meets(t, a)
}

// The driver only logs a fatal error that the device reports. Traffic goes on.
func TestEFAFatal(t *testing.T) {
	a, b := pair(t, verbs.SRD)
	rdmatest.Check(t, control.Request{Do: "fatal", HCA: 1}.Ask())
	exchange(t, a, b, 50, depth, 50)
}

// refusesWithoutPeer sends to a peer whose device is gone.
func refusesWithoutPeer(t *testing.T, a, gone *side) {
	t.Helper()
	a.number(t, gone, 77)
	if wc := a.completions(t, 1)[0]; wc.WRID != 77 || wc.Status != verbs.WCRemInvRDReqErr && wc.Status != verbs.WCRespTimeoutErr {
		t.Errorf("a message to a device that is gone: %+v", wc)
	}
}

// meets makes a side exchange messages with the second device, which is opened again.
func meets(t *testing.T, a *side) {
	t.Helper()
	b := open(t, "efa_1", a.qp.Type())
	a.to(t, b)
	b.to(t, a)
	exchange(t, a, b, 100, depth, 100)
	exchange(t, b, a, 100, depth, 100)
}
