package monitor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmanl"
)

// A Host is the system whose ports are looked up. The zero Host is this system.
type Host struct {
	// Sysfs is the directory of sysfs, "" for /sys and netlink. With a directory, such as the
	// host's /sys in a container, only files are read, because netlink reports the container's
	// own network namespace.
	Sysfs string
}

// A Port is a port of a device, as it was when it was looked up.
type Port struct {
	Device    string       // the device's name, such as "mlx5_0"
	Number    int          // from 1
	State     ib.PortState // whether it can be used
	PhysState ib.PhysState // of the cable
	LinkLayer ib.LinkLayer // InfiniBand or Ethernet
	Rate      uint64       // of all lanes together, in bits per second
	Width     ib.Width     // lanes
	Speed     ib.Speed     // of each lane
	// MTU is the largest payload of a RoCE packet: the interface's MTU less the headers. It is 0 over
	// InfiniBand and for iWARP: only an opened device reports it.
	MTU    ib.MTU
	LID    uint16 // InfiniBand only
	SMLID  uint16 // the subnet manager's; InfiniBand only
	Netdev string // the network interface, "" over InfiniBand and if it is in another network namespace
}

// String returns the port's name, such as "mlx5_0/1".
func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Device, p.Number) }

func (h Host) sysfs(path ...string) string {
	root := h.Sysfs
	if root == "" {
		root = "/sys"
	}
	return filepath.Join(append([]string{root}, path...)...)
}

func (h Host) device(name string) string { return h.sysfs("class/infiniband", name) }

// folder returns the folder of a port.
func (h Host) folder(device string, port int) (string, error) {
	if device == "" || strings.ContainsRune(device, '/') {
		return "", fmt.Errorf("%q is not a device's name: %w", device, fs.ErrNotExist)
	}
	dir := filepath.Join(h.device(device), "ports", strconv.Itoa(port))
	_, err := os.Stat(dir)
	return dir, err
}

// Ports returns the ports of all devices, by device and number. Without devices it returns none and
// no error. A device that goes away meanwhile is left out.
func (h Host) Ports(ctx context.Context) ([]Port, error) {
	devices, err := os.ReadDir(h.sysfs("class/infiniband"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("monitor: list ports: %w", err)
	}
	var all []Port
	for _, d := range devices {
		entries, _ := os.ReadDir(filepath.Join(h.device(d.Name()), "ports"))
		var numbers []int
		for _, e := range entries {
			if n, err := strconv.Atoi(e.Name()); err == nil {
				numbers = append(numbers, n)
			}
		}
		slices.Sort(numbers)
		for _, n := range numbers {
			p, err := h.Port(ctx, d.Name(), n)
			switch {
			case gone(err):
			case err != nil:
				return nil, err
			default:
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// Port returns a port of a device.
func (h Host) Port(ctx context.Context, device string, port int) (Port, error) {
	p := Port{Device: device, Number: port}
	dir, err := h.folder(device, port)
	if err == nil {
		err = h.read(ctx, dir, &p)
	}
	if err != nil {
		return Port{}, fmt.Errorf("monitor: look up port %v: %w", p, err)
	}
	return p, nil
}

func (h Host) read(ctx context.Context, dir string, p *Port) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	var errs []error
	number := func(name string, bits int) uint64 {
		text, err := readText(dir, name)
		if err != nil {
			errs = append(errs, err)
			return 0
		}
		digits, _, _ := strings.Cut(text, ":")
		n, err := strconv.ParseUint(digits, 0, bits)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", filepath.Join(dir, name), err))
		}
		return n
	}
	p.State, p.PhysState = ib.PortState(number("state", 8)), ib.PhysState(number("phys_state", 8))
	p.LID, p.SMLID = uint16(number("lid", 32)), uint16(number("sm_lid", 32))
	rate, err := readText(dir, "rate")
	if err == nil {
		p.Rate, p.Width, p.Speed = parseRate(rate)
	}
	layer, err2 := readText(dir, "link_layer")
	switch layer {
	case ib.LinkLayerInfiniBand.String():
		p.LinkLayer = ib.LinkLayerInfiniBand
	case ib.LinkLayerEthernet.String():
		p.LinkLayer = ib.LinkLayerEthernet
	}
	if err := errors.Join(append(errs, err2)...); err != nil {
		return err // but a driver may not know its rate
	}
	if p.LinkLayer == ib.LinkLayerEthernet {
		p.LID, p.SMLID = 0, 0
		p.Netdev = h.netdev(ctx, dir, p)
		p.MTU = h.mtu(p)
	}
	return nil
}

// netdev returns the network interface of an Ethernet port: from the kernel's answer, or the
// interface below a software device, or the interface of the port's default GID.
func (h Host) netdev(ctx context.Context, dir string, p *Port) string {
	if h.Sysfs == "" {
		if d, err := rdmanl.FindDevice(ctx, p.Device); err == nil {
			links, _ := rdmanl.Links(ctx, d.Index)
			for _, l := range links {
				if name, ok := l.Netdev.Get(); ok && int(l.Port) == p.Number {
					return name
				}
			}
		}
	}
	name, err := readText(h.device(p.Device), "parent")
	if err != nil {
		name, _ = readText(dir, "gid_attrs/ndevs/0")
	}
	return name
}

// The bytes of an interface's MTU that drivers leave to headers: the kernel's iboe_get_mtu, and rxe's
// RXE_MAX_HDR_LENGTH.
const (
	roceHeaders = 40 + 8 + 12 + 4 + 28 + 4
	rxeHeaders  = 80
)

// mtu returns the MTU of a port of RoCE.
func (h Host) mtu(p *Port) ib.MTU {
	node, _ := readText(h.device(p.Device), "node_type")
	text, err := readText(h.sysfs("class/net", p.Netdev), "mtu")
	n, wrong := strconv.Atoi(text)
	if !strings.HasPrefix(node, "1:") || p.Netdev == "" || err != nil || wrong != nil {
		return 0
	}
	headers := roceHeaders
	if _, err := readText(h.device(p.Device), "parent"); err == nil {
		headers = rxeHeaders
	}
	return ib.MTUOf(n - headers)
}

var speeds = map[string]ib.Speed{
	"": ib.SpeedSDR, "SDR": ib.SpeedSDR, "DDR": ib.SpeedDDR, "QDR": ib.SpeedQDR, "FDR10": ib.SpeedFDR10, "FDR": ib.SpeedFDR,
	"EDR": ib.SpeedEDR, "HDR": ib.SpeedHDR, "NDR": ib.SpeedNDR, "XDR": ib.SpeedXDR,
}

// parseRate parses a rate of sysfs, such as "2.5 Gb/sec (1X SDR)". Unknown parts are 0.
func parseRate(text string) (rate uint64, width ib.Width, speed ib.Speed) {
	number, rest, _ := strings.Cut(text, " Gb/sec (")
	if v, err := strconv.ParseFloat(number, 64); err == nil && v >= 0 && v < 1e9 {
		rate = uint64(math.Round(v * 1e9))
	}
	lanes, name, _ := strings.Cut(strings.TrimSuffix(rest, ")"), " ")
	for _, w := range []ib.Width{ib.Width1X, ib.Width2X, ib.Width4X, ib.Width8X, ib.Width12X} {
		if lanes == w.String() {
			width = w
		}
	}
	if width != 0 {
		speed = speeds[name]
	}
	return rate, width, speed
}

func readText(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b)), err
}
