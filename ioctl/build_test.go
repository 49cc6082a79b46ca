package ioctl

import (
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
)

// Payloads of all sizes don't overlap, in the arena and beyond.
func TestPayloadsDoNotOverlap(t *testing.T) {
	c := NewQpCreate()
	defer c.Release()
	var payloads [][]byte
	inside := uintptr(0)
	for i, n := range []int{12, 20, 9, 17, 8*arenaWords - 8*10, 12, 16, 8} { // the fifth payload leaves one word of the arena
		b := unsafe.Slice((*byte)(c.alloc(uintptr(n))), n)
		payloads = append(payloads, b)
		at := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&c.arena))
		if at < unsafe.Sizeof(c.arena) {
			inside++
			if at+uintptr(n) > unsafe.Sizeof(c.arena) {
				t.Errorf("payload %d reaches beyond the arena", i)
			}
		}
		for j := range b {
			if b[j] != 0 {
				t.Fatalf("payload %d overlaps another", i)
			}
			b[j] = byte(i + 1)
		}
	}
	for i, b := range payloads {
		for _, v := range b {
			if v != byte(i+1) {
				t.Fatalf("payload %d became payload %d's", i, v-1)
			}
		}
	}
	if inside < 5 {
		t.Errorf("%d payloads of %d are in the arena", inside, len(payloads))
	}
}

// Memory whose address the kernel gets lives until the command is released.
func TestPayloadsStay(t *testing.T) {
	c := NewQueryGidTable()
	var freed atomic.Int32
	func() {
		free := func(n int32) { freed.Add(n) }
		runtime.AddCleanup(add[[5000]uint64](c.Cmd, 1), free, 1)
		out := make([]uint64, 1000)
		getInto(c.Cmd, 2, out)
		runtime.AddCleanup(&out[0], free, 1)
	}()
	for range 3 {
		runtime.GC()
	}
	if n := freed.Load(); n > 0 {
		t.Errorf("%d payloads are gone before the command ran", n)
	}
	c.Release()
	for freed.Load() < 2 { // hangs if they stay
		runtime.GC()
		runtime.Gosched()
	}
}

func TestAttributes(t *testing.T) {
	c := begin(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR)
	defer c.Release()
	c.fd(1, -1)
	c.handle(2, 7)
	c.choose(3, 2, []byte{5, 0, 0, 0})
	c.choose(4, 1, nil)
	if a := c.find(1); a.Data != math.MaxUint64 || a.Len != 0 {
		t.Errorf("descriptor -1: %+v", a)
	}
	if a := c.find(2); a.Data != 7 || a.Len != 0 {
		t.Errorf("handle 7: %+v", a)
	}
	if a := c.find(3); a.AttrData.EnumData().ElemId != 2 || uint32(a.Data) != binary.NativeEndian.Uint32([]byte{5, 0, 0, 0}) || a.Len != 4 {
		t.Errorf("element 2: %+v", a)
	}
	if a := c.find(4); a.AttrData.EnumData().ElemId != 1 || a.Data != 0 || a.Len != 0 {
		t.Errorf("element 1: %+v", a)
	}
	if c.err != nil {
		t.Error(c.err)
	}

	// The first mistake is reported.
	getInto(c, 6, []uint32{})
	for range maxAttrs {
		c.handle(9, 0)
	}
	if err := c.check(0); err != errPayload {
		t.Errorf("nothing for an output, and then too many attributes: %v", err)
	}
}

// A command is checked again when it has changed.
func TestCheckAgain(t *testing.T) {
	c := buildCreateQP()
	defer c.Release()
	if err := c.check(uint32(uapi.RDMA_DRIVER_RXE)); err != nil {
		t.Fatal(err)
	}
	put[uint32](c, 0x0ffe, 1)
	if err := c.check(uint32(uapi.RDMA_DRIVER_RXE)); err == nil {
		t.Error("an unknown attribute that was added later passes")
	}
}

// Commands that the check distinguishes have different shapes.
func TestShape(t *testing.T) {
	seen := make(map[uint64]string)
	differs := func(name string, change func(c *Cmd)) {
		for what, build := range map[string]func() *Cmd{"method": buildCreateQP, "write": func() *Cmd { return NewWriteAllocPd().Cmd }} {
			c := build()
			change(c)
			shape := c.shape(uint32(uapi.RDMA_DRIVER_RXE))
			if other := seen[shape]; other != "" {
				t.Errorf("%s of a %s has the shape of %s", name, what, other)
			}
			seen[shape] = name + " of a " + what
			c.Release()
		}
	}
	differs("nothing", func(c *Cmd) {})
	differs("the object", func(c *Cmd) { c.msg.hdr.ObjectId++ })
	differs("the method", func(c *Cmd) { c.msg.hdr.MethodId++ })
	differs("one attribute less", func(c *Cmd) { c.msg.hdr.NumAttrs-- })
	differs("an attribute twice", func(c *Cmd) { *c.attr(0) = c.msg.attrs[0] })
	differs("an attribute's id", func(c *Cmd) { c.msg.attrs[1].AttrId += 3 })
	differs("an attribute's length", func(c *Cmd) { c.msg.attrs[1].Len++ })
	differs("an attribute's element", func(c *Cmd) { c.msg.attrs[1].AttrData.EnumData().ElemId++ })
	differs("the order", func(c *Cmd) { a := c.msg.attrs[:]; a[0], a[1] = a[1], a[0] })
	for _, half := range []uint64{1, 1 << 32} {
		c := NewWriteAllocPd().Cmd
		c.find(uapi.UVERBS_ATTR_WRITE_CMD).Data += half
		if other := seen[c.shape(uint32(uapi.RDMA_DRIVER_RXE))]; other != "" {
			t.Errorf("another write command has the shape of %s", other)
		}
		c.Release()
	}
	c := buildCreateQP()
	defer c.Release()
	if other := seen[c.shape(uint32(uapi.RDMA_DRIVER_MLX5))]; other != "" {
		t.Errorf("another driver has the shape of %s", other)
	}
}

// The check requires each mandatory attribute.
func TestCheckAsksForAll(t *testing.T) {
	optional := map[uint16]bool{uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE: true, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE: true,
		uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE: true, uapi.UVERBS_ATTR_UHW_OUT: true}
	whole := buildCreateQP()
	defer whole.Release()
	for _, a := range whole.msg.attrs[:whole.msg.hdr.NumAttrs] {
		c := NewQpCreate().Cmd
		for _, b := range whole.msg.attrs[:whole.msg.hdr.NumAttrs] {
			if b.AttrId != a.AttrId {
				*c.attr(b.AttrId) = b
			}
		}
		if err := c.check(uint32(uapi.RDMA_DRIVER_RXE)); (err == nil) != optional[a.AttrId] {
			t.Errorf("without attribute %d: %v", a.AttrId, err)
		}
		c.Release()
	}
}

// Lengths at and beyond the schema's limits.
func TestCheckLengths(t *testing.T) {
	element := func(n uint8, length uint16) *uapi.IbUverbsAttr {
		a := &uapi.IbUverbsAttr{Len: length}
		a.AttrData.EnumData().ElemId = n
		return a
	}
	length := func(n uint16) *uapi.IbUverbsAttr { return &uapi.IbUverbsAttr{Len: n} }
	bounded := uapi.Attr{Name: "X", Kind: uapi.AttrPtrIn, MinLen: 8, MaxLen: 16}
	grows, open, list := bounded, bounded, bounded
	grows.ZeroTrailing = true
	open.MaxLen = -1
	list.Kind, list.MinLen, list.MaxLen = uapi.AttrIDRArray, 2, 3
	enum := uapi.Attr{Name: "X", Kind: uapi.AttrEnumIn, Elems: []uapi.Attr{{Name: "A", Kind: uapi.AttrPtrIn, MaxLen: 0}, bounded}}
	for _, x := range []struct {
		name string
		spec uapi.Attr
		attr *uapi.IbUverbsAttr
		want string
	}{
		{"least", bounded, length(8), ""},
		{"most", bounded, length(16), ""},
		{"less", bounded, length(7), "has length 7, want 8 to 16"},
		{"more", bounded, length(17), "has length 17"},
		{"more, if zero", grows, length(17), ""},
		{"less, if zero", grows, length(7), "has length 7"},
		{"any", open, length(0xffff), ""},
		{"handles", list, length(12), ""},
		{"too few handles", list, length(4), "has length 1"},
		{"too many handles", list, length(16), "has length 4"},
		{"element", enum, element(1, 8), ""},
		{"element's length", enum, element(0, 8), "has length 8"},
		{"no element", enum, element(2, 8), "no element 2"},
		{"handle", uapi.Attr{Name: "X", Kind: uapi.AttrIDR}, length(0), ""},
		{"handle with data", uapi.Attr{Name: "X", Kind: uapi.AttrIDR}, length(4), "takes a handle"},
		{"object's descriptor with data", uapi.Attr{Name: "X", Kind: uapi.AttrFD}, length(4), "takes a handle"},
		{"descriptor with data", uapi.Attr{Name: "X", Kind: uapi.AttrRawFD}, length(4), "takes a handle"},
	} {
		err := checkAttr(&x.spec, x.attr)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}
