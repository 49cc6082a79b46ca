package ibstat

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
)

// PrintStatus prints ports as ibstatus does: those named "device" or "device:port", or all
// if there are no names.
func (c Class) PrintStatus(w io.Writer, names ...string) error {
	if len(names) == 0 {
		var err error
		if names, err = c.devices(); err != nil {
			return err
		}
	}
	for _, name := range names {
		name, number, one := strings.Cut(name, ":")
		dev, err := c.device(name)
		if err != nil {
			return err
		}
		ports, err := dev.ports()
		if one {
			var n int
			n, err = strconv.Atoi(number)
			ports = []int{n}
		}
		if err != nil {
			return fmt.Errorf("the port of %s: %w", name, err)
		}
		for _, n := range ports {
			p, err := dev.port(n)
			if err != nil {
				return err
			}
			name := filepath.Base(string(dev))
			fmt.Fprintf(w, "Infiniband device '%s' port %d status:\n", name, n)
			p.status(w).put("device", name, "port", n)
		}
	}
	return nil
}

// status prints a port, and returns its properties.
func (f folder) status(w io.Writer) (all lines) {
	for _, line := range []struct{ title, attribute, none string }{
		{"default gid:\t", "gids/0", "unknown"},
		{"base lid:\t", "lid", "unknown"},
		{"sm lid:\t\t", "sm_lid", "unknown"},
		{"state:\t\t", "state", "unknown"},
		{"phys state:\t", "phys_state", "unknown"},
		{"rate:\t\t", "rate", "unknown"},
		{"link_layer:\t", "link_layer", "IB"},
	} {
		value := f.text(line.attribute)
		if value == "" {
			value = line.none
		}
		fmt.Fprintf(w, "\t%s %s\n", line.title, value)
		name, _, _ := strings.Cut(line.title, ":")
		all = append(all, [2]string{name, value})
	}
	fmt.Fprintln(w)
	return all
}
