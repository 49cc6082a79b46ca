//go:build amd64 || arm64

package trace

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

var protNames = &uapi.Enum{Prefix: "PROT_", Flags: true, Values: []uapi.EnumValue{
	{Value: unix.PROT_READ, CName: "PROT_READ"}, {Value: unix.PROT_WRITE, CName: "PROT_WRITE"}, {Value: unix.PROT_EXEC, CName: "PROT_EXEC"},
}}

// enterMmap looks at a mapping of a device: of a queue, a register page or the like.
func (t *tracer) enterMmap(th *thread, args [6]uint64) *call {
	if kind := args[3] & unix.MAP_TYPE; args[3]&unix.MAP_ANONYMOUS != 0 || kind != unix.MAP_SHARED && kind != unix.MAP_SHARED_VALIDATE {
		return nil
	}
	fd := int(int32(args[4]))
	f := t.file(th, fd)
	if f == nil || f.kind != fileUverbs {
		return nil
	}
	c := t.newCall(th, kindMap, "mmap")
	c.fd, c.file = fd, f
	c.args = []ioctl.NamedValue{
		number("length", args[1]),
		flags("prot", protNames, args[2]),
		hexNumber("offset", args[5]),
		text("what", f.mapped(args[5])),
	}
	c.finish = func(_ *tracer, _ *thread, c *call) {
		if c.errno == 0 {
			c.results = []ioctl.NamedValue{pointer("addr", uint64(c.ret))}
			c.ret = 0
		}
	}
	return c
}

// mapped says what is at an offset of a uverbs file.
func (f *file) mapped(offset uint64) string {
	if what := f.offsets[offset]; what != "" {
		return what
	}
	if f.driver == uapi.RDMA_DRIVER_MLX5 {
		return mlx5Mapped(offset / uint64(os.Getpagesize()))
	}
	return "unknown"
}

// mlx5Mapped says what a page offset selects: mlx5_ib's mmap takes a command in bits
// 8 to 15, and an index around them.
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

// maxOffsets bounds what is kept: a program need not map what it is offered.
const maxOffsets = 1 << 16

// noteOffsets notes the places to be mapped that a new object came with.
func (f *file) noteOffsets(c *call, k objectKey) {
	owner := fmt.Sprintf("%s %d", className(f.driver, k.class), k.handle)
	var walk func([]ioctl.NamedValue)
	walk = func(fields []ioctl.NamedValue) {
		for i := range fields {
			v := &fields[i].Value
			name := fields[i].Name
			switch {
			case name == "mi" || strings.HasSuffix(name, "_mi"): // rxe's struct mminfo
				offset, size := find(v.Fields, "offset"), find(v.Fields, "size")
				if offset == nil || size == nil || size.Num == 0 {
					continue
				}
				queue := map[string]string{"sq_mi": "send queue", "rq_mi": "receive queue"}[name]
				if queue == "" {
					queue = "queue"
				}
				f.offer(offset.Num, queue+" of "+owner)
			case strings.HasSuffix(name, "mmap_offset") && v.Kind() == uapi.TypeUint:
				f.offer(v.Num, owner)
			case len(v.Fields) > 0:
				walk(v.Fields)
			}
		}
	}
	walk(c.results)
}

func (f *file) offer(offset uint64, what string) {
	if f.offsets == nil || len(f.offsets) >= maxOffsets {
		f.offsets = make(map[uint64]string)
	}
	f.offsets[offset] = what
}
