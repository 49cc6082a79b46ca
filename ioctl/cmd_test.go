package ioctl

import (
	"bytes"
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

// decodeBuilt decodes a Cmd in the form that the kernel gets.
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
	c := NewQpCreate()
	c.Handle()
	c.PdHandle(3)
	c.SendCqHandle(4)
	c.RecvCqHandle(5)
	c.UserHandle(0x1122334455667788)
	c.Cap(uapi.IbUverbsQpCap{MaxSendWr: 16, MaxInlineData: 64})
	c.Type(uapi.IB_UVERBS_QPT_RC)
	c.RespCap()
	c.RespQpNum()
	c.Rxe().Out()
	return c.Cmd
}

// The tracer's decoder, which is written from the schema alone, must decode the encoder's
// output.
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
	c := NewWriteAllocPd()
	defer c.Release()
	if v := decodeBuilt(t, c.Cmd).Verb(); v != "alloc_pd" {
		t.Errorf("verb %q, want alloc_pd", v)
	}
	ex := NewWriteExQueryDevice()
	defer ex.Release()
	if v := decodeBuilt(t, ex.Cmd).Verb(); v != "query_device_ex" {
		t.Errorf("verb %q, want query_device_ex", v)
	}
}

// The tail of a request has the caller's length.
func TestRequestWithTail(t *testing.T) {
	for _, tail := range []string{"", "\x01\x02\x03\x04\x05\x06\x07\x08"} {
		c := NewWriteExCreateFlow([]byte(tail))
		defer c.Release()
		c.Req.QpHandle = 0x11223344
		decodeBuilt(t, c.Cmd)
		a := c.find(uapi.UVERBS_ATTR_CORE_IN)
		b := make([]byte, a.Len)
		ownMemory(a.Data, b)
		if want := string(encode(*c.Req)) + tail; string(b) != want {
			t.Errorf("the kernel gets %x, want %x", b, want)
		}
	}
}

// A command that the schema doesn't allow never reaches the kernel.
func TestCheckRefuses(t *testing.T) {
	tests := []struct {
		name  string
		build func() *Cmd
		want  string
	}{
		{"unknown object", func() *Cmd { return begin(0x0ffe, 0) }, "no object"},
		{"unknown method", func() *Cmd { return begin(uapi.UVERBS_OBJECT_PD, 0x0ffe) }, "no method"},
		{"unknown attribute", func() *Cmd {
			c := buildCreateQP()
			put[uint32](c, 0x0ffe, 1)
			return c
		}, "no attribute"},
		{"missing attribute", func() *Cmd { return NewPdDestroy().Cmd }, "HANDLE is missing"},
		{"wrong length", func() *Cmd {
			c := NewCqCreate()
			put[uint64](c.Cmd, uapi.UVERBS_ATTR_CREATE_CQ_CQE, 1)
			return c.Cmd
		}, "has length 8"},
		{"data for a handle", func() *Cmd {
			c := NewPdDestroy()
			put[uint32](c.Cmd, uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
			return c.Cmd
		}, "takes a handle"},
		{"twice the same", func() *Cmd {
			c := NewPdDestroy()
			c.Handle(1)
			c.Handle(1)
			return c.Cmd
		}, "HANDLE appears twice"},
		{"too many attributes", func() *Cmd {
			c := NewPdDestroy()
			for range maxAttrs + 1 {
				c.Handle(1)
			}
			return c.Cmd
		}, "too many"},
		{"payload too large", func() *Cmd {
			c := NewPdDestroy()
			putAll(c.Cmd, 1, make([]byte, 0x10000))
			return c.Cmd
		}, "larger than an attribute"},
		{"another command's request", func() *Cmd {
			c := beginWrite(uapi.IB_USER_VERBS_CMD_REG_MR)
			request[uapi.IbUverbsDeregMr](c)
			get[uapi.IbUverbsRegMrResp](c, uapi.UVERBS_ATTR_CORE_OUT)
			return c
		}, "REG_MR: the request has length 4, want 40 to 40"},
		{"another command's response", func() *Cmd {
			c := beginWrite(uapi.IB_USER_VERBS_CMD_REG_MR)
			request[uapi.IbUverbsRegMr](c)
			get[uapi.IbUverbsAllocPdResp](c, uapi.UVERBS_ATTR_CORE_OUT)
			return c
		}, "REG_MR: the response has length 4, want 12 to 12"},
		{"a response too many", func() *Cmd {
			c := NewWriteDeregMr()
			get[uint32](c.Cmd, uapi.UVERBS_ATTR_CORE_OUT)
			return c.Cmd
		}, "DEREG_MR: the command takes no response"},
		{"a response too few", func() *Cmd {
			c := beginWrite(uapi.IB_USER_VERBS_CMD_REG_MR)
			request[uapi.IbUverbsRegMr](c)
			return c
		}, "REG_MR: the response is missing"},
		{"unknown write command", func() *Cmd { return beginWrite(0x0ffe) }, "no write command 0xffe"},
		{"no write command", func() *Cmd {
			c := begin(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
			put[uint64](c, uapi.UVERBS_ATTR_WRITE_CMD, 1<<32|uint64(uapi.IB_USER_VERBS_CMD_ALLOC_PD))
			return c
		}, "no write command 0x100000003"},
		{"a driver's data where there is none", func() *Cmd {
			c := NewWriteDeregMr()
			DriverData[uint32, None]{c.Cmd}.In()
			return c.Cmd
		}, "DEREG_MR: the command takes no driver data"},
		{"a request that the driver doesn't have", func() *Cmd {
			c := buildCreateQP()
			DriverData[uint32, None]{c}.In()
			return c
		}, "create_qp: the driver takes no request"},
		{"another driver's response", func() *Cmd {
			c := NewWriteCreateAh()
			c.Mlx5().Out()
			return c.Cmd
		}, "create_ah: the driver's response has length 16, want 8"},
	}
	f, err := Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.driver = uint32(uapi.RDMA_DRIVER_RXE)
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
		c := NewQpCreate()
		p := add[[64]byte](c.Cmd, uapi.UVERBS_ATTR_CREATE_QP_CAP)
		if *p != [64]byte{} {
			t.Fatal("payload is not zeroed")
		}
		for i := range p {
			p[i] = 0xff
		}
		c.fail(errPayload)
		c.Release()
	}
	c := NewPdDestroy()
	defer c.Release()
	if c.err != nil || c.msg.hdr.NumAttrs != 0 {
		t.Errorf("error %v, %d attributes", c.err, c.msg.hdr.NumAttrs)
	}
}

// One payload exceeds the arena, and one goes into the caller's slice.
func TestLargePayloads(t *testing.T) {
	c := NewQueryGidTable()
	defer c.Release()
	big := make([]byte, 60000)
	big[0], big[59999] = 5, 7
	putAll(c.Cmd, 1, big)
	out := make([]uint64, 4000)
	getInto(c.Cmd, 2, out)
	if a := c.find(1); a.Len != 60000 {
		t.Errorf("in: %+v", a)
	} else {
		b := make([]byte, a.Len)
		if ownMemory(a.Data, b); !bytes.Equal(b, big) {
			t.Error("in: other bytes")
		}
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
