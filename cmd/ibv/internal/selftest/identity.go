package selftest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// identity records the raw answers of the device and the kernel, and checks that the answers
// agree with each other.
func identity(r *run) {
	r.planned(1, "devices")
	if !r.loopback() {
		r.planned(2, "devices")
	}
	for i, s := range r.sides {
		if i == 1 && r.loopback() {
			break
		}
		name := s.dev.Info().Name()
		r.check("answers of "+name, func(c *check) error { return c.answers(s) })
		r.check("limits of "+name, func(c *check) error { return s.plausible(name) })
	}
}

// answers records a device's raw answers.
func (c *check) answers(s *side) error {
	d := s.dev.Info()
	name := d.Name()
	c.g.fact(name+" driver", driverOf(name))
	c.g.fact(name+" ABI version", d.ABIVersion())
	c.g.fact(name+" board", d.BoardID())
	c.g.fact(name+" hardware revision", d.HWRev())
	c.g.fact(name+" node GUID", d.NodeGUID().String())
	// A second query must return the same answer.
	attr, err := s.dev.QueryDevice()
	if err != nil {
		return err
	}
	if a, b := fmt.Sprintf("%+v", *attr), fmt.Sprintf("%+v", *s.attr); a != b {
		return &Failure{Object: name, Expected: "two queries of the device to agree", Seen: a, Details: []string{"before " + b}}
	}
	c.g.fact(name+" device", fmt.Sprintf("%+v", *attr))
	if attr.NodeGUID != d.NodeGUID() {
		return &Failure{Object: name, Expected: "the node GUID of /sys, " + d.NodeGUID().String(), Seen: attr.NodeGUID.String()}
	}
	for n := 1; n <= attr.PhysPortCnt; n++ {
		port, err := s.dev.QueryPort(n)
		if err != nil {
			return err
		}
		c.g.fact(fmt.Sprintf("%s port %d", name, n), fmt.Sprintf("%+v", *port))
	}
	table, err := s.dev.GIDTable()
	if err != nil {
		return err
	}
	var gids []string
	for _, e := range table {
		gids = append(gids, e.String())
		one, err := s.dev.QueryGID(e.Port, e.Index)
		if err != nil {
			return err
		}
		if one.GID != e.GID || one.Type != e.Type {
			return &Failure{Object: fmt.Sprintf("%s, GID %d of port %d", name, e.Index, e.Port), Expected: "the entry of the table, " + e.String(), Seen: one.String()}
		}
	}
	c.g.fact(name+" GIDs", gids)
	c.g.fact(name+" completion vectors", s.dev.NumCompVectors())
	c.g.fact(name+" PCI", pciOf(name))
	c.done(1)
	return nil
}

// plausible checks the limits that the specification requires of each device.
func (s *side) plausible(name string) error {
	a := s.attr
	for _, l := range []struct {
		name string
		n    int
	}{{"MaxQP", a.MaxQP}, {"MaxQPWR", a.MaxQPWR}, {"MaxSGE", a.MaxSGE}, {"MaxCQ", a.MaxCQ}, {"MaxCQE", a.MaxCQE}, {"MaxMR", a.MaxMR},
		{"MaxPD", a.MaxPD}, {"MaxMRSize", int(min(a.MaxMRSize, 1<<62))}, {"PageSizeCap", int(a.PageSizeCap & (1 << 12))}, {"GIDTableLen", s.port.GIDTableLen},
		{"PKeyTableLen", s.port.PKeyTableLen}, {"MaxMsgSize", int(s.port.MaxMsgSize)}, {"ActiveMTU", s.port.ActiveMTU.Bytes()}} {
		if l.n <= 0 {
			return &Failure{Object: name, Expected: l.name + " to be more than 0", Seen: fmt.Sprint(l.n)}
		}
	}
	if s.port.ActiveMTU > s.port.MaxMTU {
		return &Failure{Object: name, Expected: "an active MTU of at most " + s.port.MaxMTU.String(), Seen: s.port.ActiveMTU.String()}
	}
	return nil
}

// driverOf returns the driver of a device's PCI function, or "none".
func driverOf(name string) string {
	link, err := os.Readlink("/sys/class/infiniband/" + name + "/device/driver")
	if err != nil {
		return "none"
	}
	return filepath.Base(link)
}

// pciOf returns the answers of /sys about a device's PCI function.
func pciOf(name string) (list []string) {
	for _, f := range []string{"vendor", "device", "subsystem_vendor", "subsystem_device", "revision", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "numa_node"} {
		text, err := os.ReadFile("/sys/class/infiniband/" + name + "/device/" + f)
		if err == nil {
			list = append(list, f+" "+strings.TrimSpace(string(text)))
		}
	}
	return list
}
