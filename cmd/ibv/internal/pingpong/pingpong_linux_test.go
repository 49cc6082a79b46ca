package pingpong

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestNoXRC: without XRC, the device is named.
func TestNoXRC(t *testing.T) {
	verbstest.New(t)
	dev := rdmatest.Must(verbs.Open(""))(t)
	err := playXRC(dev, rdmatest.Must(parse("xsrq -g 1"))(t))
	if !errors.Is(err, verbs.ErrNotSupported) || !strings.HasPrefix(err.Error(), "vt0 has no XRC: ") {
		t.Error(err)
	}
	rdmatest.Check(t, dev.Close())
}
