package doctor

import (
	"flag"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

var update = flag.Bool("update", false, "write the picture of docs")

// TestScreen: on a terminal, a finding stands out.
func TestScreen(t *testing.T) {
	x := rdmatest.Shows(t, 110, 24, func() {
		b := roce()
		b.files["/proc/self/limits"] = limits("65536", "65536")
		examine(t, b, "").Text(&cli.Stdout)
	})
	rdmatest.Check(t, x.Wait())
	x.Picture("../../../../docs/screens/finding.svg", "ibv doctor", *update)
}
