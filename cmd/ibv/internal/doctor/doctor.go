// Package doctor finds out why RDMA doesn't work on a host. It reads /sys, /proc and /dev,
// asks the kernel about the devices, and changes nothing.
//
// Each file holds the checks of one subject. A check adds findings to the report. All
// kinds of findings are in kinds.go.
//
// A check reports a cause and not its consequences: a port whose network interface is
// down has no finding about its addresses.
package doctor

import (
	"fmt"
	"slices"
	"time"
)

// A Report is the result of an examination.
type Report struct {
	Kernel   string    `json:"kernel"`
	Devices  []Summary `json:"devices"`
	Findings []Finding `json:"findings"` // findings first, then notes
	Unseen   []string  `json:"unseen"`   // what could not be examined, and why
	Peer     *Reach    `json:"peer,omitempty"`
}

// Healthy reports whether all findings are notes.
func (r *Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return !f.Note })
}

// A Finding is a fault, or a fact worth knowing.
type Finding struct {
	ID       string     `json:"id"`
	Note     bool       `json:"note"`           // a note leaves the host healthy
	Host     string     `json:"host,omitempty"` // the peer; "" for this host, or both
	Device   string     `json:"device,omitempty"`
	Port     int        `json:"port,omitempty"`
	What     string     `json:"what"`
	Evidence []Evidence `json:"evidence"`
	LeadsTo  string     `json:"leads_to"`
	Mend     []string   `json:"mend"`             // commands for a shell, to be run in this order
	Advice   string     `json:"advice,omitempty"` // steps that no command can do, or where to run the commands
}

// Evidence is a file, or another source, and its contents.
type Evidence struct {
	Source string `json:"source"`
	Value  string `json:"value"`
}

// A Summary describes a device.
type Summary struct {
	Name   string        `json:"name"`
	Driver string        `json:"driver"`
	FW     string        `json:"fw,omitempty"`
	Ports  []PortSummary `json:"ports"`
}

// A PortSummary describes a port.
type PortSummary struct {
	Port      int     `json:"port"`
	LinkLayer string  `json:"link_layer"`
	State     string  `json:"state"`
	Rate      string  `json:"rate"`
	NetDev    string  `json:"netdev,omitempty"`
	ActiveMTU int     `json:"active_mtu,omitempty"`
	GID       *Choice `json:"gid,omitempty"` // over Ethernet only
}

// Options select what to examine.
type Options struct {
	Device string        // only this device; "" for all
	Watch  time.Duration // how long to watch the error counters
	Sleep  func(time.Duration)
}

// An exam is an examination in progress.
type exam struct {
	host    *Host
	opts    Options
	devices []*device // devices to examine
	all     []*device // all devices of the host
	report  *Report

	folderClosed bool // /dev/infiniband can't be searched, which was reported
}

// Examine examines the host.
func Examine(h *Host, o Options) *Report {
	e := &exam{host: h, opts: o, report: &Report{
		Kernel:   h.read("/proc/sys/kernel/osrelease"),
		Devices:  []Summary{},
		Findings: []Finding{},
		Unseen:   []string{},
	}}
	e.run()
	e.report.sort()
	return e.report
}

// sort moves the notes behind the findings.
func (r *Report) sort() {
	findings, notes := []Finding{}, []Finding{}
	for _, f := range r.Findings {
		if f.Note {
			notes = append(notes, f)
		} else {
			findings = append(findings, f)
		}
	}
	r.Findings = append(findings, notes...)
}

func (e *exam) run() {
	if !e.mounts() {
		return
	}
	e.all = e.host.devices()
	e.cards()
	if !e.selectDevices() {
		return
	}
	before := e.counters()
	e.uverbs()
	e.connectionManager()
	e.memlock()
	e.cgroup()
	e.renamed()
	for _, d := range e.devices {
		e.node(d)
		if e.found(nodeNotPassed, d) {
			continue // the container isn't meant to use it
		}
		for _, p := range d.ports {
			e.port(p)
			if p.active() {
				e.netns(p)
				e.gids(p)
				e.pkeys(p)
				e.mtu(p)
				e.link(p)
				e.bond(p)
				e.roceMode(p)
			}
		}
		e.firmware(d)
		e.pcie(d)
		e.numa(d)
	}
	e.gpus()
	e.hugePages()
	e.kernelFaults()
	e.rxeApart()
	if len(before) > 0 {
		o := e.opts
		if o.Sleep == nil {
			o.Sleep = time.Sleep
		}
		o.Sleep(o.Watch)
		e.compare(before, e.counters())
	}
	for _, d := range e.devices {
		e.report.Devices = append(e.report.Devices, d.summary())
	}
}

// selectDevices selects the devices to examine. It reports whether there are any.
func (e *exam) selectDevices() bool {
	if e.opts.Device == "" {
		e.devices = e.all
		if len(e.all) == 0 && len(e.report.Findings) == 0 {
			e.noDevices()
		}
		return len(e.all) > 0
	}
	for _, d := range e.all {
		if d.name == e.opts.Device || slices.Contains(d.netDevs(), e.opts.Device) {
			e.devices = []*device{d}
			return true
		}
	}
	var names []string
	for _, d := range e.all {
		names = append(names, d.name)
	}
	if len(names) == 0 {
		if len(e.report.Findings) == 0 {
			e.noDevices()
		}
		return false
	}
	f := e.add(deviceUnknown, "there is no device %s", e.opts.Device)
	f.evidence("/sys/class/infiniband", join(names))
	f.Mend = []string{"ibv doctor " + names[0]}
	f.Advice = "The devices are " + join(names) + ". udev may have renamed it."
	return false
}

// add adds a finding about the host. The result is valid until the next call.
func (e *exam) add(k *Kind, what string, args ...any) *Finding { return e.report.add(k, what, args...) }

func (r *Report) add(k *Kind, what string, args ...any) *Finding {
	r.Findings = append(r.Findings, Finding{
		ID: k.ID, Note: k.Note, What: fmt.Sprintf(what, args...), LeadsTo: k.LeadsTo,
		Evidence: []Evidence{}, Mend: []string{},
	})
	return &r.Findings[len(r.Findings)-1]
}

// addTo adds a finding about a device.
func (e *exam) addTo(d *device, k *Kind, what string, args ...any) *Finding {
	f := e.add(k, what, args...)
	f.Device = d.name
	return f
}

// addToPort adds a finding about a port.
func (e *exam) addToPort(p *port, k *Kind, what string, args ...any) *Finding {
	f := e.addTo(p.dev, k, what, args...)
	f.Port = p.number
	return f
}

// found reports whether the device has a finding.
func (e *exam) found(k *Kind, d *device) bool {
	return slices.ContainsFunc(e.report.Findings, func(f Finding) bool { return f.ID == k.ID && f.Device == d.name })
}

// evidence adds a source and its contents.
func (f *Finding) evidence(source, value string) *Finding {
	f.Evidence = append(f.Evidence, Evidence{source, value})
	return f
}

// mend adds a command.
func (f *Finding) mend(format string, args ...any) *Finding {
	f.Mend = append(f.Mend, fmt.Sprintf(format, args...))
	return f
}

// unseen records what could not be examined.
func (e *exam) unseen(format string, args ...any) {
	e.report.Unseen = append(e.report.Unseen, fmt.Sprintf(format, args...))
}
