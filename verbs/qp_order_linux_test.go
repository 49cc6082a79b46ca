package verbs

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// orderedQP promises an order.
type orderedQP struct {
	*fakeQP
	order  provider.DataOrder
	err    error
	handle uint32
	op     uapi.IbUverbsWrOpcode
}

func (q *orderedQP) DataOrder(handle uint32, op uapi.IbUverbsWrOpcode) (provider.DataOrder, error) {
	q.handle, q.op = handle, op
	return q.order, q.err
}

func TestDataOrder(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	x.qp.setState(QPRTS)
	if got, err := x.qp.DataOrder(OpRDMAWrite); got != DataUnordered || err != nil {
		t.Errorf("a provider that knows nothing: %v, %v", got, err)
	}
	q := &orderedQP{fakeQP: x.qp.prov.(*fakeQP)}
	x.qp.prov = q
	known := func(o DataOrder) DataOrder {
		if runtime.GOARCH != "amd64" {
			return DataUnordered
		}
		return o
	}
	for promised, want := range map[provider.DataOrder]DataOrder{
		provider.DataUnordered: DataUnordered, provider.DataInOrder128: DataInOrder128, provider.DataInOrder: DataInOrder,
	} {
		q.order = promised
		if got, err := x.qp.DataOrder(OpRDMARead); got != known(want) || err != nil {
			t.Errorf("%v: %v, %v", want, got, err)
		}
	}
	if runtime.GOARCH == "amd64" && (q.handle != x.qp.handle || q.op != uapi.IB_UVERBS_WR_RDMA_READ) {
		t.Errorf("the provider was asked about handle %d, operation %d", q.handle, q.op)
	}
	q.order = provider.DataInOrder
	for state, want := range map[QPState]DataOrder{QPReset: DataUnordered, QPInit: DataUnordered, QPRTR: DataUnordered, QPRTS: known(DataInOrder), QPSQD: DataUnordered, QPErr: DataUnordered} {
		x.qp.setState(state)
		if got, err := x.qp.DataOrder(OpSend); got != want || err != nil {
			t.Errorf("in %v: %v, %v", state, got, err)
		}
	}
	x.qp.setState(QPRTS)
	for _, op := range []Opcode{OpFetchAdd, OpLocalInv, OpBindMW, OpNop, 99} {
		if _, err := x.qp.DataOrder(op); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", op, err)
		}
	}
	q.err = unix.EPERM
	if _, err := x.qp.DataOrder(OpSend); runtime.GOARCH == "amd64" && !errors.Is(err, unix.EPERM) {
		t.Errorf("the kernel refuses: %v", err)
	}
	x.qp.prov = q.fakeQP
	if err := x.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := x.qp.DataOrder(OpSend); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
