package umad

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// A Name identifies a port.
type Name struct {
	Device string // such as "mlx5_0"
	Port   int    // from 1; a switch has its own port 0
}

func (n Name) String() string { return fmt.Sprintf("%s/%d", n.Device, n.Port) }

// class is the directory in sysfs of the ports that have files for MADs.
type class string

const system class = "/sys/class/infiniband_mad"

// Ports returns the ports that can send and receive MADs, by name.
func Ports() ([]Name, error) {
	nodes, err := system.nodes("umad")
	if err != nil {
		return nil, &OpError{Op: "list ports", Err: err}
	}
	var all []Name
	for n := range nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Name) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

var errNoModule = errors.New("the kernel has no files for MADs: load the module ib_umad")

// nodes returns the names of the files in /dev/infiniband that begin with a prefix.
func (c class) nodes(prefix string) (map[Name]string, error) {
	version, err := os.ReadFile(filepath.Join(string(c), "abi_version"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoModule
	}
	if err != nil {
		return nil, err
	}
	if v := strings.TrimSpace(string(version)); v != strconv.Itoa(uapi.IB_USER_MAD_ABI_VERSION) {
		return nil, fmt.Errorf("the kernel's interface has version %s; this package supports version %d", v, uapi.IB_USER_MAD_ABI_VERSION)
	}
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return nil, err
	}
	nodes := make(map[Name]string)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		device, err := os.ReadFile(filepath.Join(string(c), e.Name(), "ibdev"))
		if err != nil {
			continue // the port has just gone
		}
		number, err := os.ReadFile(filepath.Join(string(c), e.Name(), "port"))
		if err != nil {
			continue
		}
		port, err := strconv.Atoi(strings.TrimSpace(string(number)))
		if err != nil {
			return nil, fmt.Errorf("%s has port %q", e.Name(), number)
		}
		nodes[Name{strings.TrimSpace(string(device)), port}] = e.Name()
	}
	return nodes, nil
}

// path returns the file of a port whose name begins with a prefix.
func (c class) path(prefix string, n Name) (string, error) {
	nodes, err := c.nodes(prefix)
	if err != nil {
		return "", err
	}
	node, ok := nodes[n]
	if !ok {
		return "", ErrNoPort
	}
	return filepath.Join("/dev/infiniband", node), nil
}
