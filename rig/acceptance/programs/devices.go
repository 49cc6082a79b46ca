//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/goverbs/goverbs/rig/internal/control"
)

// devices has the drivers' names of the HCAs. The HCA that the drivers probe first is
// mlx5_0, so it is HCA 0 only until they are reloaded.
var devices = [2]string{"mlx5_0", "mlx5_1"}

// device returns the drivers' current name of an HCA. The node GUIDs are in the order of
// the HCAs.
func device(hca int) (string, error) {
	if err := ready(); err != nil {
		return "", err
	}
	if attribute(class, devices[0], "node_guid") > attribute(class, devices[1], "node_guid") {
		hca = 1 - hca
	}
	return devices[hca], nil
}

// eventually calls f until it returns no error. After the limit, it returns f's last
// error.
func eventually(limit time.Duration, f func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// patience limits the time in which the drivers notice an event and recover.
const patience = 100 * time.Second

func attribute(path ...string) string {
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

const class = "/sys/class/infiniband"

// state waits until sysfs shows that a port is in a state.
func state(device, want string) error {
	return eventually(patience, func() error {
		if got := attribute(class, device, "ports/1/state"); !strings.Contains(got, want) {
			return fmt.Errorf("port of %s: %s instead of %s", device, got, want)
		}
		return nil
	})
}

// ready waits until programs can use both devices.
func ready() error {
	for _, d := range devices {
		if err := state(d, "ACTIVE"); err != nil {
			return err
		}
		if err := eventually(patience, func() error {
			nodes, err := filepath.Glob(filepath.Join(class, d, "device/infiniband_verbs/uverbs*"))
			if err != nil || len(nodes) == 0 {
				return fmt.Errorf("%s has no uverbs: %v", d, err)
			}
			_, err = os.Stat("/dev/infiniband/" + filepath.Base(nodes[0]))
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// slot returns a device's folder in /sys/bus/pci/devices.
func slot(device string) (string, error) {
	return filepath.EvalSymlinks(filepath.Join(class, device, "device"))
}

func write(path, text string) error { return os.WriteFile(path, []byte(text), 0) }

func rescan() error { return write("/sys/bus/pci/rescan", "1") }

// unload removes the drivers' modules, which must be unused, and load loads them again.
func unload() error { return modprobe("-r", "mlx5_ib", "mlx5_core") }

func load() error { return inOrder(func() error { return modprobe("mlx5_ib") }, ready) }

// modprobe runs modprobe in the root directory that has the kernel's modules. Within
// rig/in-tree, that is another one.
func modprobe(args ...string) error {
	return run(exec.Command("nsenter", append([]string{"-t", "1", "-m", "modprobe"}, args...)...))
}

// own lists kinds of objects that programs create and that are destroyed with them. Keys
// and UARs are not among them: the driver caches keys for later registrations, and
// allocates UAR pages for itself when it needs them.
var own = []string{"pd", "xrcd", "cq", "qp", "dct", "sq", "srq", "uctx", "umem"}

// A census counts such objects of both HCAs.
type census [2]map[string]int

func count() (c census, err error) {
	for i := range c {
		if c[i], err = control.Resources(i); err != nil {
			return c, err
		}
	}
	return c, nil
}

// returns waits until no kind has more objects than in the census.
func (c census) returns() error {
	return eventually(patience, func() error {
		now, err := count()
		if err != nil {
			return err
		}
		for i := range c {
			for _, kind := range own {
				if was, is := c[i][kind], now[i][kind]; is > was {
					return fmt.Errorf("%s of HCA %d: %d, before %d", kind, i, is, was)
				}
			}
		}
		return nil
	})
}

// nothing returns an error if an HCA that no driver uses has any object.
func nothing(hca int) error {
	n, err := control.Resources(hca)
	if err != nil {
		return err
	}
	for kind, n := range n {
		if n != 0 {
			return fmt.Errorf("%d %s are left on HCA %d", n, kind, hca)
		}
	}
	return nil
}
