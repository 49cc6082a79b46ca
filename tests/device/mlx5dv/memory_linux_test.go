package mlx5dv

import (
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// TestDataDirect: this adapter has no second PCI function, and old kernels don't support one.
// Both refuse before they examine the dma-buf.
func TestDataDirect(t *testing.T) {
	c := rdmatest.Open(t)
	pd := rdmatest.Must(c.AllocPD())(t)
	none := rdmatest.Must(os.Open(os.DevNull))(t)
	defer none.Close()
	var e *verbs.OpError
	if _, err := mlx5dv.RegDmabufMR(pd, verbs.DmabufOptions{FD: int(none.Fd()), Length: 4096}); !errors.As(err, &e) || e.Op != "reg data-direct MR" {
		t.Errorf("an MR: %v", err)
	}
	if _, err := mlx5dv.DataDirectPath(c); !errors.As(err, &e) {
		t.Errorf("its path: %v", err)
	}
	if err := pd.Close(); err != nil {
		t.Errorf("the PD is still in use: %v", err)
	}
}
