package diags

import (
	"fmt"

	"github.com/goverbs/goverbs/cmd/ibv/internal/plot"
)

// picture draws the nodes and links: switches above, adapters and routers below. Links that are not
// active are dashed.
func (f *Fabric) picture() *plot.Page {
	const active = 4
	var g plot.Graph
	at := make(map[*node]int)
	for i, n := range f.nodes {
		var lid uint64
		for _, p := range n.all() {
			lid = p.lid()
		}
		at[n] = i
		g.Boxes = append(g.Boxes, plot.Box{Name: n.name(), More: fmt.Sprintf("LID %d, %016x", lid, n.get("Guid")), Below: !n.isSwitch()})
	}
	drawn := make(map[*port]bool)
	for _, n := range f.nodes {
		for _, p := range n.all() {
			if p.remote == nil || drawn[p] {
				continue
			}
			drawn[p.remote] = true
			width, speed := p.rate()
			g.Links = append(g.Links, plot.Join{From: at[n], To: at[p.remote.node], Text: fmt.Sprintf("%d – %d, %s", p.number, p.remote.number, width+speed), Dashed: p.get("LinkState") != active})
		}
	}
	return &plot.Page{Title: "InfiniBand subnet", Lines: []string{fmt.Sprintf("%d nodes, %d links", len(g.Boxes), len(g.Links))}, Panels: []plot.Panel{g}}
}
