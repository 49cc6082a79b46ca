package monitor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/rdmanl"
)

// A Counter is a counter or a gauge of a port.
type Counter struct {
	Name   string // the kernel's or the driver's, such as "port_xmit_data"
	Value  uint64 // in the unit
	Unit   Unit   // what is counted
	Gauge  bool   // the value goes up and down; otherwise it only grows, from the device's start or reset on
	Source Source // the counter's origin
}

// A Unit is what a Counter counts.
type Unit uint8

// The units.
const (
	UnitCount   Unit = iota // errors, requests or objects, as the name says
	UnitBytes               // bytes
	UnitPackets             // packets
	UnitTicks               // time in which the port couldn't send, in ticks of the adapter
)

func (u Unit) String() string {
	if int(u) < len(units) {
		return units[u]
	}
	return fmt.Sprintf("unknown(%d)", uint8(u))
}

var units = []string{"count", "bytes", "packets", "ticks"}

// A Source is the origin of a Counter.
type Source uint8

// The sources. The package comment says which counters each has.
const (
	SourceSysfs   Source = iota + 1 // the folder counters in sysfs: the port's PMA, read by the kernel
	SourceNetlink                   // netlink: the driver's counters
	SourceHWSysfs                   // the folder hw_counters in sysfs: the driver's counters
	SourcePMA                       // the PMA of a port of the subnet, by a MAD
)

// String returns the source's name. The name of a source of files is their folder: "counters" or
// "hw_counters".
func (s Source) String() string {
	switch s {
	case SourceSysfs:
		return "counters"
	case SourceNetlink:
		return "netlink"
	case SourceHWSysfs:
		return "hw_counters"
	case SourcePMA:
		return "PMA"
	}
	return fmt.Sprintf("unknown(%d)", uint8(s))
}

// Counters returns the counters of a port. For a port without counters it returns none and no error.
// The counters of a PMA stop at their highest value. Data is in bytes, although sysfs and MADs count
// words of four bytes.
func (h Host) Counters(ctx context.Context, device string, port int) ([]Counter, error) {
	all, err := h.counters(ctx, device, port)
	if err != nil {
		return nil, fmt.Errorf("monitor: read the counters of %s/%d: %w", device, port, err)
	}
	return all, nil
}

func (h Host) counters(ctx context.Context, device string, port int) ([]Counter, error) {
	dir, err := h.folder(device, port)
	if err != nil {
		return nil, err
	}
	all, err := files(dir, SourceSysfs)
	if err != nil {
		return nil, err
	}
	if h.Sysfs == "" {
		d, err := rdmanl.FindDevice(ctx, device)
		var own []rdmanl.Counter
		if err == nil {
			own, err = rdmanl.Counters(ctx, d.Index, uint32(port))
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil {
			for _, c := range own {
				all = append(all, newCounter(c.Name, c.Value, SourceNetlink))
			}
			return all, nil
		}
	}
	own, err := files(dir, SourceHWSysfs)
	return append(all, own...), err
}

// files reads the counters in a folder of a port, which may not exist.
func files(dir string, source Source) ([]Counter, error) {
	dir = filepath.Join(dir, source.String())
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Counter
	for _, e := range entries {
		// If a file can't be read or has no number, the agent lacks the counter. lifespan
		// isn't a counter: it is the maximum age of the others.
		text, err := readText(dir, e.Name())
		if v, wrong := strconv.ParseUint(text, 10, 64); err == nil && wrong == nil && e.Name() != "lifespan" {
			all = append(all, newCounter(e.Name(), v, source))
		}
	}
	return all, nil
}

// gone reports whether the device has disappeared.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

// newCounter returns a counter, with the unit and kind that its name implies.
func newCounter(name string, value uint64, source Source) Counter {
	c := Counter{Name: name, Value: value, Source: source}
	lower := strings.ToLower(name)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(lower, w) {
				return true
			}
		}
		return false
	}
	const word = 4
	switch {
	case name == "port_xmit_data" || name == "port_rcv_data":
		c.Unit, c.Value = UnitBytes, word*value
	case name == "port_xmit_wait":
		c.Unit = UnitTicks
	case has("bytes", "octets"):
		c.Unit = UnitBytes
	case has("packets", "pkts"):
		c.Unit = UnitPackets
	}
	// bnxt_re counts objects that exist, and their highest number.
	c.Gauge = strings.HasPrefix(lower, "active_") || strings.HasPrefix(lower, "watermark_") ||
		strings.HasPrefix(lower, "active ") || strings.HasPrefix(lower, "watermark ")
	return c
}
