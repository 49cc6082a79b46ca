package ioctl

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/uapi"
)

// ownMemory reads this process's memory, as a tracer reads another's.
func ownMemory(addr uint64, b []byte) error {
	p := uintptr(addr)
	copy(b, unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), len(b)))
	return nil
}

// decodeBuilt decodes what a Cmd would hand to the kernel.
func decodeBuilt(t *testing.T, c *Cmd) *Call {
	t.Helper()
	if err := c.check(uint32(uapi.RDMA_DRIVER_RXE)); err != nil {
		t.Fatal(err)
	}
	c.address(uint32(uapi.RDMA_DRIVER_RXE))
	call, err := Decode(uint64(uintptr(unsafe.Pointer(&c.msg))), ownMemory)
	if err != nil {
		t.Fatal(err)
	}
	if call.Err != nil {
		t.Fatal(call.Err)
	}
	return call
}

func buildCreateQP() *Cmd {
	c := New(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE)
	c.NewHandle(uapi.UVERBS_ATTR_CREATE_QP_HANDLE)
	c.Handle(uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, 3)
	c.Handle(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, 4)
	c.Handle(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, 5)
	c.U64(uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0x1122334455667788)
	*In[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_CAP) = uapi.IbUverbsQpCap{MaxSendWr: 16, MaxInlineData: 64}
	c.U64(uapi.UVERBS_ATTR_CREATE_QP_TYPE, uint64(uapi.IB_UVERBS_QPT_RC))
	Out[uapi.IbUverbsQpCap](c, uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP)
	Out[uint32](c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM)
	Out[uapi.RxeCreateQpResp](c, uapi.UVERBS_ATTR_UHW_OUT)
	return c
}

// The tracer's decoder, which was written from the schema alone, must read
// what the encoder wrote.
func TestEncodedIsWhatTheDecoderReads(t *testing.T) {
	c := buildCreateQP()
	defer c.Release()
	call := decodeBuilt(t, c)
	if call.Verb() != "create_qp" {
		t.Errorf("verb %q", call.Verb())
	}
	raw := map[uint16]uapi.IbUverbsAttr{}
	for _, a := range call.Attrs {
		if a.Spec == nil {
			t.Errorf("attribute %#x is not in the schema", a.Raw.AttrId)
		}
		if a.Raw.Flags != uapi.UVERBS_ATTR_F_MANDATORY {
			t.Errorf("attribute %s has flags %#x", a.Spec.Name, a.Raw.Flags)
		}
		raw[a.Raw.AttrId] = a.Raw
	}
	if a := raw[uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE]; a.Data != 4 || a.Len != 0 {
		t.Errorf("send CQ: %+v", a)
	}
	if a := raw[uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE]; a.Data != 0x1122334455667788 || a.Len != 8 {
		t.Errorf("8 bytes must be inline: %+v", a)
	}
	var cap uapi.IbUverbsQpCap
	a := raw[uapi.UVERBS_ATTR_CREATE_QP_CAP]
	if int(a.Len) != int(unsafe.Sizeof(cap)) {
		t.Fatalf("cap has length %d", a.Len)
	}
	ownMemory(a.Data, unsafe.Slice((*byte)(unsafe.Pointer(&cap)), a.Len))
	if cap.MaxSendWr != 16 || cap.MaxInlineData != 64 {
		t.Errorf("cap behind the pointer: %+v", cap)
	}
}

func TestInvokeWrite(t *testing.T) {
	c := NewWrite(uapi.IB_USER_VERBS_CMD_ALLOC_PD)
	defer c.Release()
	In[uapi.IbUverbsAllocPd](c, uapi.UVERBS_ATTR_CORE_IN)
	Out[uapi.IbUverbsAllocPdResp](c, uapi.UVERBS_ATTR_CORE_OUT)
	if v := decodeBuilt(t, c).Verb(); v != "alloc_pd" {
		t.Errorf("verb %q, want alloc_pd", v)
	}
	ex := NewWrite(uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED)
	defer ex.Release()
	In[uapi.IbUverbsExQueryDevice](ex, uapi.UVERBS_ATTR_CORE_IN)
	Out[uapi.IbUverbsExQueryDeviceResp](ex, uapi.UVERBS_ATTR_CORE_OUT)
	if v := decodeBuilt(t, ex).Verb(); v != "query_device_ex" {
		t.Errorf("verb %q, want query_device_ex", v)
	}
}

// A command that the schema doesn't allow never reaches the kernel.
func TestCheckRefuses(t *testing.T) {
	tests := []struct {
		name  string
		build func() *Cmd
		want  string
	}{
		{"unknown object", func() *Cmd { return New(0x0ffe, 0) }, "no object"},
		{"unknown method", func() *Cmd { return New(uapi.UVERBS_OBJECT_PD, 0x0ffe) }, "no method"},
		{"unknown attribute", func() *Cmd {
			c := buildCreateQP()
			c.U32(0x0ffe, 1)
			return c
		}, "no attribute"},
		{"missing attribute", func() *Cmd { return New(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY) }, "HANDLE is missing"},
		{"wrong length", func() *Cmd {
			c := New(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
			c.U64(uapi.UVERBS_ATTR_CREATE_CQ_CQE, 1)
			return c
		}, "has length 8"},
		{"data for a handle", func() *Cmd {
			c := New(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY)
			c.U32(uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
			return c
		}, "takes a handle"},
		{"too many attributes", func() *Cmd {
			c := New(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY)
			for range maxAttrs + 1 {
				c.Handle(uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
			}
			return c
		}, "too many"},
		{"payload too large", func() *Cmd {
			c := New(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY)
			InSlice[byte](c, 1, 0x10000)
			return c
		}, "larger than an attribute"},
		{"optional but absent", func() *Cmd {
			c := New(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY)
			c.Optional(uapi.UVERBS_ATTR_DESTROY_PD_HANDLE)
			return c
		}, "was not added"},
	}
	f, err := Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.build()
			defer c.Release()
			err := c.Run(f)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			var errno syscall.Errno
			if errors.As(err, &errno) {
				t.Errorf("it reached the kernel: %v", err)
			}
		})
	}
}

// A released command leaves nothing behind for the next.
func TestReleasedIsClean(t *testing.T) {
	for range 100 {
		c := New(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE)
		p := In[[64]byte](c, uapi.UVERBS_ATTR_CREATE_QP_CAP)
		if *p != [64]byte{} {
			t.Fatal("payload is not zeroed")
		}
		for i := range p {
			p[i] = 0xff
		}
		c.Optional(uapi.UVERBS_ATTR_CREATE_QP_CAP)
		c.fail(errPayload)
		c.Release()
	}
	c := New(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY)
	defer c.Release()
	if c.err != nil || c.msg.hdr.NumAttrs != 0 {
		t.Errorf("error %v, %d attributes", c.err, c.msg.hdr.NumAttrs)
	}
}

// A payload beyond the arena, and one into the caller's slice.
func TestLargePayloads(t *testing.T) {
	c := New(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE)
	defer c.Release()
	big := InSlice[byte](c, 1, 60000)
	big[59999] = 7
	out := make([]uint64, 4000)
	OutSlice(c, 2, out)
	if a := c.find(1); a.Len != 60000 || a.Data != uint64(uintptr(unsafe.Pointer(&big[0]))) {
		t.Errorf("in: %+v", a)
	}
	if a := c.find(2); a.Len != 32000 || a.Data != uint64(uintptr(unsafe.Pointer(&out[0]))) {
		t.Errorf("out: %+v", a)
	}
	if c.err != nil {
		t.Error(c.err)
	}
}

// Building and running a call allocates nothing. /dev/null refuses it.
func TestRunAllocatesNothing(t *testing.T) {
	f, err := Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.driver = uint32(uapi.RDMA_DRIVER_RXE)
	if n := testing.AllocsPerRun(1000, func() {
		c := buildCreateQP()
		if err := c.Run(f); err != syscall.ENOTTY {
			t.Fatal(err)
		}
		c.Release()
	}); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func BenchmarkCreateQPCall(b *testing.B) {
	f, err := Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.ReportAllocs()
	for b.Loop() {
		c := buildCreateQP()
		c.Run(f)
		c.Release()
	}
}
