package mlx5dv

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// TestDoorbellRegisters: the requested number of QPs have a doorbell register each, and so do
// further QPs with SingleOwner. Other QPs share registers.
func TestDoorbellRegisters(t *testing.T) {
	device := info(t, rdmatest.Device)
	for _, n := range []int{-1, 513} {
		if _, err := mlx5dv.Open(device, mlx5dv.Options{Registers: n}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d registers: %v", n, err)
		}
	}
	rdmatest.CheckLeaks(t)
	const own, shared, single = 12, 20, 4
	c := rdmatest.Must(mlx5dv.Open(device, mlx5dv.Options{Registers: own}))(t)
	defer rdmatest.Close(t, c)
	pd := rdmatest.Must(c.AllocPD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 1}))(t)
	users := map[unsafe.Pointer]int{}
	for i := range own + shared + single {
		qp := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}, SingleOwner: i >= own+shared}))(t)
		m := rdmatest.Must(mlx5dv.QPQueues(qp))(t)
		if n := users[m.Register]; n > 0 && (i < own || i >= own+shared) {
			t.Errorf("QP %d has the register of %d others", i, n)
		}
		users[m.Register]++
	}
	if len(users) >= own+shared+single {
		t.Errorf("%d queue pairs have %d registers: none is shared", own+shared+single, len(users))
	}
}
