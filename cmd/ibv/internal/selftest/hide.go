package selftest

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sort"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// A hider replaces identifiers of a host by random numbers: GUIDs, GIDs, and addresses of its
// interfaces. Within a report, equal addresses have equal numbers.
type hider struct {
	names map[string]string
	order []string // the longest first, because one address may contain another
}

func newHider() *hider { return &hider{names: make(map[string]string)} }

// add hides a text, which must not be a common word.
func (h *hider) add(kind, text string) {
	if len(text) < 4 || h.names[text] != "" {
		return
	}
	h.names[text] = fmt.Sprintf("<%s %08x>", kind, rand.Uint32())
	h.order = append(h.order, text)
	sort.SliceStable(h.order, func(i, j int) bool { return len(h.order[i]) > len(h.order[j]) })
}

// device hides the identifiers of a device.
func (h *hider) device(d *verbs.Device) {
	for _, g := range []verbs.GUID{d.Info().NodeGUID(), d.Info().SysImageGUID()} {
		h.guid(g)
	}
	table, err := d.GIDTable()
	if err != nil {
		return // then no message contains a GID
	}
	for _, e := range table {
		h.gid(e.GID)
	}
}

func (h *hider) guid(g verbs.GUID) {
	if g == (verbs.GUID{}) {
		return
	}
	h.add("guid", g.String())
	h.add("guid", hex.EncodeToString(g[:]))
}

func (h *hider) gid(g verbs.GID) {
	h.add("gid", g.String())
	a := g.Addr()
	h.add("gid", a.StringExpanded())
	if a.Is4In6() || a.Is4() {
		h.add("gid", a.Unmap().String())
	}
}

// host hides the host's name and the addresses of its interfaces.
func (h *hider) host() {
	if name, err := os.Hostname(); err == nil && name != "localhost" {
		h.add("host", name)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return
	}
	for _, i := range interfaces {
		h.add("mac", i.HardwareAddr.String())
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
				h.add("ip", n.IP.String())
			}
		}
	}
}

// text returns s without secrets.
func (h *hider) text(s string) string {
	for _, secret := range h.order {
		s = strings.ReplaceAll(s, secret, h.names[secret])
	}
	return s
}

func (h *hider) texts(list []string) {
	for i := range list {
		list[i] = h.text(list[i])
	}
}

// group removes the secrets from a group's results.
func (h *hider) group(g *Group) {
	h.texts(g.NotThere)
	for i := range g.Failures {
		f := &g.Failures[i]
		f.Check, f.Object, f.Expected, f.Seen = h.text(f.Check), h.text(f.Object), h.text(f.Expected), h.text(f.Seen)
		h.texts(f.Also)
		h.texts(f.Right)
		h.texts(f.Details)
	}
	for i := range g.Facts {
		switch v := g.Facts[i].Value.(type) {
		case string:
			g.Facts[i].Value = h.text(v)
		case []string:
			h.texts(v)
		}
	}
}
