package ibstat

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
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
			cli.Put("ca", name)
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
	name := filepath.Base(string(f))
	fmt.Fprintf(w, "%s '%s'\n", f.kind(), name)
	own := lines{{f.kind() + " type", f.text("hca_type")}, {"Number of ports", fmt.Sprint(last)},
		{"Firmware version", f.text("fw_ver")}, {"Hardware version", f.text("hw_rev")},
		{"Node GUID", "0x" + f.guid("node_guid")}, {"System image GUID", "0x" + f.guid("sys_image_guid")}}
	own.print(w, "\t")
	if what == Short {
		own.put("ca", name)
		return nil
	}
	for _, n := range ports {
		p, err := f.port(n)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\tPort %d:\n", n)
		state := p.state()
		state.print(w, "\t\t")
		append(own, state...).put("ca", name, "port", n)
	}
	return nil
}

func (f folder) printPort(w io.Writer, n int) error {
	p, err := f.port(n)
	if err != nil {
		return err
	}
	name, state := filepath.Base(string(f)), p.state()
	fmt.Fprintf(w, "%s: '%s'\nPort %d:\n", f.kind(), name, n)
	state.print(w, "")
	state.put("ca", name, "port", n)
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
			cli.Put("ca", filepath.Base(string(f)), "port", n, "port_guid", "0x"+guid)
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

// lines are names with values.
type lines [][2]string

// print prints them. Each line begins with the prefix.
func (l lines) print(w io.Writer, prefix string) {
	for _, line := range l {
		fmt.Fprintf(w, "%s%s: %s\n", prefix, line[0], line[1])
	}
}

// put puts them into the JSON, after others.
func (l lines) put(object ...any) {
	for _, line := range l {
		object = append(object, strings.ReplaceAll(strings.ToLower(line[0]), " ", "_"), cli.Value(line[1]))
	}
	cli.Put(object...)
}

// state returns what is printed of a port.
func (f folder) state() lines {
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
	return lines{
		{"State", wordOf(states, f.number("state"))},
		{"Physical state", wordOf(physicalStates, f.number("phys_state"))},
		{"Rate", rate},
		{"Base lid", fmt.Sprint(f.number("lid"))},
		{"LMC", fmt.Sprint(f.number("lid_mask_count"))},
		{"SM lid", fmt.Sprint(f.number("sm_lid"))},
		{"Capability mask", fmt.Sprintf("0x%08x", f.number("cap_mask"))},
		{"Port GUID", "0x" + f.portGUID()},
		{"Link layer", link},
	}
}
