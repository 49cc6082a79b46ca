package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// Text writes the report as text.
func (r *Report) Text(w io.Writer) {
	c := cli.PaletteOf(w)
	for _, d := range r.Devices {
		for _, p := range d.Ports {
			state := strings.ToLower(p.State)
			if state == "active" {
				state = c.Good(state)
			}
			fmt.Fprintf(w, "%s port %d: %s, %s", c.Name(d.Name), p.Port, p.LinkLayer, state)
			if p.NetDev != "" {
				fmt.Fprintf(w, ", on %s", p.NetDev)
			}
			if p.ActiveMTU != 0 {
				fmt.Fprintf(w, ", MTU %d", p.ActiveMTU)
			}
			fmt.Fprintf(w, ", %s\n", p.Rate)
			if g := p.GID; g != nil {
				fmt.Fprintf(w, "  GID index %d: %s, %s (NCCL, UCX, perftest choose %d, %d, %d)\n", g.Take, g.Address, g.Type, g.NCCL, g.UCX, g.Perftest)
			}
		}
	}
	if p := r.Peer; p != nil && p.Here.Device != "" {
		fmt.Fprintf(w, "\nhere:   %v\nthere:  %v\n", p.Here, p.There)
		if p.Untried == "" {
			p.Out.text(w, "out", p)
			p.Back.text(w, "back", p)
		}
	}
	wrong := 0
	for _, f := range r.Findings {
		word := c.Note("note")
		if !f.Note {
			word = c.Bad("FINDING")
			wrong++
		}
		where := ""
		if f.Host != "" {
			where = f.Host + ": "
		}
		if f.Device != "" {
			where += c.Name(f.Device)
			if f.Port != 0 {
				where += fmt.Sprintf(" port %d", f.Port)
			}
			where += ": "
		}
		fmt.Fprintf(w, "\n%s: %s%s [%s]\n", word, where, f.What, f.ID)
		for _, e := range f.Evidence {
			fmt.Fprintf(w, "  seen      %s\n", c.Dim(e.Source+": "+e.Value))
		}
		fmt.Fprintf(w, "  leads to  %s\n", f.LeadsTo)
		for _, m := range f.Mend {
			fmt.Fprintf(w, "  mend      %s\n", m)
		}
		for _, line := range cli.Wrap(f.Advice, 12) {
			if line != "" {
				fmt.Fprintf(w, "            %s\n", line)
			}
		}
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(w)
	}
	for _, u := range r.Unseen {
		fmt.Fprintf(w, "not seen: %s\n", u)
	}
	switch {
	case wrong == 1:
		fmt.Fprintln(w, c.Bad("1 finding"))
	case wrong > 1:
		fmt.Fprintln(w, c.Bad(fmt.Sprintf("%d findings", wrong)))
	default:
		fmt.Fprintln(w, c.Good("healthy"))
	}
}

func (f Facts) String() string {
	s := fmt.Sprintf("%s port %d, %s, GID index %d: %s, %s, MTU %d", f.Device, f.Port, f.LinkLayer, f.GIDIndex, f.GID, f.GIDType, f.ActiveMTU)
	if f.NetDev != "" {
		s += ", on " + f.NetDev
	}
	if f.VLAN != 0 {
		s += fmt.Sprintf(", VLAN %d", f.VLAN)
	}
	return s
}

// text writes the counts of a direction.
func (y *Way) text(w io.Writer, name string, r *Reach) {
	fmt.Fprintf(w, "%-7s %d of %d small datagrams, %d of %d full ones", name+":", y.Small, r.Sent, y.Full, r.Sent)
	if y.UDP >= 0 {
		fmt.Fprintf(w, ", %d of %d other UDP packets", y.UDP, r.Sent)
	}
	for _, c := range []struct{ name, result string }{{"connection", y.RC}, {"long message", y.Large}} {
		if c.result != "" {
			fmt.Fprintf(w, ", %s %s", c.name, c.result)
		}
	}
	fmt.Fprintln(w)
}
