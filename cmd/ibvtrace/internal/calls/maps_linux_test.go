//go:build amd64 || arm64

package calls

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

func TestMapped(t *testing.T) {
	const page = 4096
	for offset, want := range map[uint64]string{
		3 * page:                      "UAR page 3",
		(2<<8 | 4) * page:             "UAR page 4, write-combining",
		5 << 8 * page:                 "core clock page",
		7 << 8 * page:                 "clock info page",
		(6<<8 | 0x34 | 1<<16) * page:  "UAR page 308, allocated, write-combining",
		(77<<8 | 0x02 | 0<<16) * page: "mlx5 object, command 77, index 2",
	} {
		if got := mlx5Mapped(offset / page); got != want {
			t.Errorf("offset %#x is %q, want %q", offset, got, want)
		}
	}
	f := tracee.File{Kind: tracee.FileUverbs, Driver: uapi.RDMA_DRIVER_MLX5}
	offer(&f, 77<<8*page, "uar 4")
	if got := mapped(&f, 77<<8*page); got != "uar 4" {
		t.Errorf("what a verb offered is %q", got)
	}
}

func TestKeys(t *testing.T) {
	number := func(name string, v uint64) ioctl.NamedValue { return tracee.Number(name, v) }
	for _, c := range []struct {
		driver uapi.RdmaDriverId
		fields []ioctl.NamedValue
		want   map[uint64]string
	}{
		{uapi.RDMA_DRIVER_SIW, []ioctl.NamedValue{number("num_sqe", 16), number("sq_key", 4096), number("rq_key", 8192)},
			map[uint64]string{4096: "send queue of qp 3", 8192: "receive queue of qp 3"}},
		{uapi.RDMA_DRIVER_SIW, []ioctl.NamedValue{number("sq_key", 4096), number("rq_key", uapi.SIW_INVAL_UOBJ_KEY)},
			map[uint64]string{4096: "send queue of qp 3"}},
		{uapi.RDMA_DRIVER_EFA, []ioctl.NamedValue{number("comp_mask", 0), number("q_mmap_key", 0), number("db_mmap_key", 0)},
			map[uint64]string{0: "queue of qp 3"}},
		{uapi.RDMA_DRIVER_EFA, []ioctl.NamedValue{number("comp_mask", uapi.EFA_CREATE_CQ_RESP_DB_OFF), number("q_mmap_key", 0), number("db_mmap_key", 4096)},
			map[uint64]string{0: "queue of qp 3", 4096: "doorbell of qp 3"}},
		{uapi.RDMA_DRIVER_EFA, []ioctl.NamedValue{number("rq_mmap_size", 0), number("rq_mmap_key", 0), number("rq_db_mmap_key", 0), number("sq_db_mmap_key", 4096)},
			map[uint64]string{4096: "send doorbell of qp 3"}},
		{uapi.RDMA_DRIVER_EFA, []ioctl.NamedValue{number("rq_mmap_size", 4096), number("rq_mmap_key", 1<<12), number("llq_desc_mmap_key", 2<<12), number("sq_db_mmap_key", 3<<12)},
			map[uint64]string{1 << 12: "receive queue of qp 3", 2 << 12: "send queue of qp 3", 3 << 12: "send doorbell of qp 3"}},
		{uapi.RDMA_DRIVER_RXE, []ioctl.NamedValue{number("sq_key", 4096)}, nil},
	} {
		f := &tracee.File{Kind: tracee.FileUverbs, Driver: c.driver}
		noteOffsets(f, &tracee.Call{Results: c.fields}, tracee.ObjectKey{Class: uint16(uapi.UVERBS_OBJECT_QP), Handle: 3})
		if diff := cmp.Diff(c.want, f.Offsets); diff != "" {
			t.Errorf("driver %d (-want +got):\n%s", c.driver, diff)
		}
	}
}
