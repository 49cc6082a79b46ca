package mesh

import (
	"flag"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

var update = flag.Bool("update", false, "write the picture of docs")

// TestScreen: on a terminal, slow links are seen at once.
func TestScreen(t *testing.T) {
	x := rdmatest.Shows(t, 92, 50, func() {
		play(t, newModels(8, func(a, b int) float64 {
			v := 92 - float64((a*7+b*3)%5)
			switch {
			case a == 5 || b == 5:
				v -= 50
			case a == 1 && b == 2:
				v -= 30
			}
			return v
		}), settings).Print(&cli.Stdout)
	})
	rdmatest.Check(t, x.Wait())
	x.Picture("../../../../docs/screens/mesh.svg", "ibv mesh", *update)
}
