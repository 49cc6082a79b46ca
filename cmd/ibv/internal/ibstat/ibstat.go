package ibstat

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// What selects the output of Print.
type What int

const (
	All       What = iota // devices and ports
	Short                 // devices
	Names                 // their names
	PortGUIDs             // one per line
)

// Print prints one device, or all if the name is "", as ibstat does. A port other than -1
// restricts the output to that port.
func (c Class) Print(w io.Writer, name string, port int, what What) error {
	names, all := []string{name}, name == ""
	if all {
		var err error
		if names, err = c.devices(); err != nil {
			return err
		}
	}
	for _, name := range names {
		dev, err := c.device(name)
		if err != nil {
			return err
		}
		// ibstat lists only InfiniBand's node types.
		if t := dev.number("node_type"); (t < 1 || t > 3) && all {
			continue
		} else if t < 1 || t > 3 {
			return fmt.Errorf("%s is no InfiniBand or RoCE device: its type is %q", name, dev.text("node_type"))
		}
		switch {
		case what == Names:
			fmt.Fprintln(w, name)
		case what == PortGUIDs:
			err = dev.printGUIDs(w)
		case what == All && port >= 0:
			err = dev.printPort(w, port)
		default:
			err = dev.print(w, what)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f folder) kind() string {
	return [...]string{"???", "CA", "Switch", "Router"}[f.number("node_type")]
}

func (f folder) print(w io.Writer, what What) error {
	ports, err := f.ports()
	if err != nil {
		return err
	}
	last := 0
	if len(ports) > 0 {
		last = ports[len(ports)-1]
	}
	fmt.Fprintf(w, "%s '%s'\n\t%s type: %s\n", f.kind(), filepath.Base(string(f)), f.kind(), f.text("hca_type"))
	fmt.Fprintf(w, "\tNumber of ports: %d\n", last)
	fmt.Fprintf(w, "\tFirmware version: %s\n\tHardware version: %s\n", f.text("fw_ver"), f.text("hw_rev"))
	fmt.Fprintf(w, "\tNode GUID: 0x%s\n\tSystem image GUID: 0x%s\n", f.guid("node_guid"), f.guid("sys_image_guid"))
	if what == Short {
		return nil
	}
	for _, n := range ports {
		p, err := f.port(n)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\tPort %d:\n", n)
		p.printState(w, "\t\t")
	}
	return nil
}

func (f folder) printPort(w io.Writer, n int) error {
	p, err := f.port(n)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: '%s'\nPort %d:\n", f.kind(), filepath.Base(string(f)), n)
	p.printState(w, "")
	return nil
}

// printGUIDs prints the ports' GUIDs that are not zero.
func (f folder) printGUIDs(w io.Writer) error {
	ports, err := f.ports()
	if err != nil {
		return err
	}
	for _, n := range ports {
		p, err := f.port(n)
		if err != nil {
			return err
		}
		if guid := p.portGUID(); strings.Trim(guid, "0") != "" {
			fmt.Fprintf(w, "0x%s\n", guid)
		}
	}
	return nil
}

// portGUID is the second half of the first GID.
func (f folder) portGUID() string {
	gid := f.guid("gids/0")
	return gid[len(gid)-16:]
}

var (
	states         = []string{"???", "Down", "Initializing", "Armed", "Active"}
	physicalStates = []string{"No state change", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "PhyTest"}
)

func wordOf(words []string, i uint64) string {
	if i < uint64(len(words)) {
		return words[i]
	}
	return "???"
}

// printState prints a port. Each line begins with the prefix.
func (f folder) printState(w io.Writer, prefix string) {
	rate := fmt.Sprint(f.number("rate"))
	switch {
	case strings.HasSuffix(strings.ToLower(f.text("rate")), "fdr10)"):
		rate += " (FDR10)"
	case rate == "2":
		rate = "2.5"
	}
	link := f.text("link_layer")
	if link == "" {
		link = "IB"
	}
	for _, line := range []string{
		"State: " + wordOf(states, f.number("state")),
		"Physical state: " + wordOf(physicalStates, f.number("phys_state")),
		"Rate: " + rate,
		fmt.Sprintf("Base lid: %d", f.number("lid")),
		fmt.Sprintf("LMC: %d", f.number("lid_mask_count")),
		fmt.Sprintf("SM lid: %d", f.number("sm_lid")),
		fmt.Sprintf("Capability mask: 0x%08x", f.number("cap_mask")),
		"Port GUID: 0x" + f.portGUID(),
		"Link layer: " + link,
	} {
		fmt.Fprintf(w, "%s%s\n", prefix, line)
	}
}
