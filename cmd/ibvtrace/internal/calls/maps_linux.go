//go:build amd64 || arm64

package calls

import (
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

var protNames = &uapi.Enum{Prefix: "PROT_", Flags: true, Values: []uapi.EnumValue{
	{Value: unix.PROT_READ, CName: "PROT_READ"}, {Value: unix.PROT_WRITE, CName: "PROT_WRITE"}, {Value: unix.PROT_EXEC, CName: "PROT_EXEC"},
}}

// EnterMmap handles an mmap, which may be of a device's queue or register page.
func (t *Decoder) EnterMmap(th *tracee.Thread, args [6]uint64) *tracee.Call {
	if kind := args[3] & unix.MAP_TYPE; args[3]&unix.MAP_ANONYMOUS != 0 || kind != unix.MAP_SHARED && kind != unix.MAP_SHARED_VALIDATE {
		return nil
	}
	fd := int(int32(args[4]))
	f := t.File(th, fd)
	if f == nil || f.Kind != tracee.FileUverbs {
		return nil
	}
	c := t.NewCall(th, tracee.KindMap, "mmap")
	c.FD, c.File = fd, f
	c.Args = []ioctl.NamedValue{
		tracee.Number("length", args[1]),
		tracee.Flags("prot", protNames, args[2]),
		tracee.HexNumber("offset", args[5]),
		tracee.Text("what", mapped(f, args[5])),
	}
	c.Finish = func(_ *tracee.Thread, c *tracee.Call) {
		if c.Errno == 0 {
			c.Results = []ioctl.NamedValue{tracee.Pointer("addr", uint64(c.Ret))}
			c.Ret = 0
		}
	}
	return c
}

// mapped describes what is mapped at an offset of a uverbs file.
func mapped(f *tracee.File, offset uint64) string {
	if what := f.Offsets[offset]; what != "" {
		return what
	}
	if f.Driver == uapi.RDMA_DRIVER_MLX5 {
		return mlx5Mapped(offset / uint64(os.Getpagesize()))
	}
	return "unknown"
}

// mlx5Mapped describes what a page offset selects. mlx5_ib's mmap has a command in bits 8 to
// 15, and an index in the other bits.
func mlx5Mapped(page uint64) string {
	command := uapi.Mlx5IbMmapCmd(page >> 8 & 0xff)
	index, long := page&0xff, page&0xff|page>>16&0xff<<8
	switch command {
	case uapi.MLX5_IB_MMAP_REGULAR_PAGE:
		return fmt.Sprintf("UAR page %d", index)
	case uapi.MLX5_IB_MMAP_WC_PAGE:
		return fmt.Sprintf("UAR page %d, write-combining", index)
	case uapi.MLX5_IB_MMAP_NC_PAGE:
		return fmt.Sprintf("UAR page %d, not cached", index)
	case uapi.MLX5_IB_MMAP_ALLOC_WC:
		return fmt.Sprintf("UAR page %d, allocated, write-combining", long)
	case uapi.MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES:
		return fmt.Sprintf("contiguous pages, order %d", index)
	case uapi.MLX5_IB_MMAP_CORE_CLOCK:
		return "core clock page"
	case uapi.MLX5_IB_MMAP_CLOCK_INFO:
		return "clock info page"
	case uapi.MLX5_IB_MMAP_DEVICE_MEM:
		return fmt.Sprintf("device memory, page %d", long)
	}
	return fmt.Sprintf("mlx5 object, command %d, index %d", command, long)
}

// keys has the fields with mmap offsets of the drivers that have one for each queue and doorbell.
var keys = map[uapi.RdmaDriverId]map[string]string{
	uapi.RDMA_DRIVER_SIW: {"sq_key": "send queue", "rq_key": "receive queue", "srq_key": "queue", "cq_key": "queue"},
	uapi.RDMA_DRIVER_EFA: {
		"llq_desc_mmap_key": "send queue", "sq_db_mmap_key": "send doorbell", "rq_mmap_key": "receive queue", "rq_db_mmap_key": "receive doorbell",
		"q_mmap_key": "queue", "db_mmap_key": "doorbell",
	},
}

// keyless reports whether a field has no offset, because there is no such queue or doorbell. 0 is
// an offset like others.
func keyless(fields []ioctl.NamedValue, name string, key uint64) bool {
	has := func(field string, bits uint64) bool {
		v := tracee.Find(fields, field)
		return v != nil && v.Num&bits != 0
	}
	switch name {
	case "db_mmap_key":
		return !has("comp_mask", uapi.EFA_CREATE_CQ_RESP_DB_OFF)
	case "rq_mmap_key", "rq_db_mmap_key":
		return !has("rq_mmap_size", math.MaxUint64)
	}
	return key == uapi.SIW_INVAL_UOBJ_KEY
}

// maxOffsets bounds the offsets that are kept, since a program need not map them.
const maxOffsets = 1 << 16

// noteOffsets records the mmap offsets that the kernel returned with a new object.
func noteOffsets(f *tracee.File, c *tracee.Call, k tracee.ObjectKey) {
	owner := fmt.Sprintf("%s %d", tracee.ClassName(f.Driver, k.Class), k.Handle)
	var walk func([]ioctl.NamedValue)
	walk = func(fields []ioctl.NamedValue) {
		for i := range fields {
			v := &fields[i].Value
			name := fields[i].Name
			switch {
			case name == "mi" || strings.HasSuffix(name, "_mi"): // rxe's struct mminfo
				offset, size := tracee.Find(v.Fields, "offset"), tracee.Find(v.Fields, "size")
				if offset == nil || size == nil || size.Num == 0 {
					continue
				}
				queue := map[string]string{"sq_mi": "send queue", "rq_mi": "receive queue"}[name]
				if queue == "" {
					queue = "queue"
				}
				offer(f, offset.Num, queue+" of "+owner)
			case strings.HasSuffix(name, "mmap_offset") && v.Kind() == uapi.TypeUint:
				offer(f, v.Num, owner)
			case keys[f.Driver][name] != "" && !keyless(fields, name, v.Num):
				offer(f, v.Num, keys[f.Driver][name]+" of "+owner)
			case len(v.Fields) > 0:
				walk(v.Fields)
			}
		}
	}
	walk(c.Results)
}

func offer(f *tracee.File, offset uint64, what string) {
	if f.Offsets == nil || len(f.Offsets) >= maxOffsets {
		f.Offsets = make(map[uint64]string)
	}
	f.Offsets[offset] = what
}
