package recorder

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// aSlot returns a slot as the recorder fills it for the creation of a QP.
func aSlot() slot {
	s := slot{
		call: callIoctl, head: headBytes + 2*attrBytes, in: 20, want: headBytes + 2*attrBytes + 4,
		start: [2]int64{100, 5}, end: [2]int64{100, 9},
		args: [6]uint64{3, verbsIoctl, 0x1000},
	}
	s.out = s.want
	b := s.data[:0] // appended to in place
	message := func() {
		b = binary.NativeEndian.AppendUint16(b, uint16(s.head))
		b = binary.NativeEndian.AppendUint16(b, uapi.UVERBS_OBJECT_QP)
		b = binary.NativeEndian.AppendUint16(b, uapi.UVERBS_METHOD_QP_CREATE)
		b = binary.NativeEndian.AppendUint16(b, 2)
		b = binary.NativeEndian.AppendUint64(b, 0)
		b = binary.NativeEndian.AppendUint64(b, uint64(uapi.RDMA_DRIVER_RXE))
		for _, a := range [][3]uint64{{uapi.UVERBS_ATTR_CREATE_QP_CAP, 20, 0x2000}, {uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, 0x3000}} {
			b = binary.NativeEndian.AppendUint64(b, a[0]|a[1]<<16)
			b = binary.NativeEndian.AppendUint64(b, a[2])
		}
	}
	message()
	b = append(b, bytes.Repeat([]byte{7}, 20)...)
	message()
	binary.NativeEndian.PutUint32(s.data[len(b):], 0x11)
	return s
}

func TestRecord(t *testing.T) {
	s := aSlot()
	r, ok := s.record(42<<phaseShift|phaseEnded, table(uapi.RDMA_DRIVER_RXE))
	if !ok || r.Thread != 42 || !r.Ioctl || !r.Returned || r.End.Sub(r.Start) != 4 {
		t.Fatalf("record: %+v, %v", r, ok)
	}
	c, err := ioctl.Decode(s.args[2], r.Before)
	if err != nil || c.Err != nil || c.Verb() != "create_qp" {
		t.Fatalf("%+v, %v", c, err)
	}
	if c.Attrs[0].In == nil || c.Attrs[0].In.Err != nil || c.Attrs[0].In.Fields[0].Value.Num != 0x07070707 {
		t.Errorf("capabilities: %+v", c.Attrs[0].In)
	}
	c.DecodeResults(r.After)
	if v := c.Attrs[1].Out; v == nil || v.Err != nil || v.Num != 0x11 {
		t.Errorf("QP's number: %+v", v)
	}
	for _, addr := range []uint64{0xfff, 0x1000 + 60, 0x2000 + 17, 0x3000} {
		if r.Before(addr, make([]byte, 4)) == nil {
			t.Errorf("read from %#x, which was not recorded", addr)
		}
	}
}

// FuzzRecord reads records of arbitrary bytes.
func FuzzRecord(f *testing.F) {
	s := aSlot()
	f.Add(uint32(42<<phaseShift|phaseEnded), unsafe.Slice((*byte)(unsafe.Pointer(&s)), slotBytes))
	f.Add(uint32(42<<phaseShift|phaseCalling), unsafe.Slice((*byte)(unsafe.Pointer(&s)), slotBytes))
	methods := table(uapi.RDMA_DRIVER_MLX5)
	f.Fuzz(func(t *testing.T, state uint32, b []byte) {
		var s slot
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&s)), slotBytes), b)
		r, ok := s.record(state, methods)
		if !ok {
			return
		}
		if r.End.Before(r.Start) && r.Returned || r.Start.Year() > 9999 {
			t.Errorf("from %v to %v", r.Start, r.End)
		}
		c, err := ioctl.Decode(r.Args[2], r.Before)
		if err != nil {
			return
		}
		c.Args()
		c.DecodeResults(r.After)
		c.Results()
	})
}

// TestTable checks the table's entries for some verbs.
func TestTable(t *testing.T) {
	methods := table(uapi.RDMA_DRIVER_RXE)
	of := func(object, id uint16) method { return methods[int(object)<<methodsShift|int(id)] }
	qp := of(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE)
	if qp.in>>uapi.UVERBS_ATTR_CREATE_QP_CAP&1 == 0 || qp.out>>uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM&1 == 0 ||
		qp.known>>uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE&1 == 0 || qp.known>>attrs&1 == 0 || qp.in&qp.out != 0 {
		t.Errorf("create_qp: %+v", qp)
	}
	if m := of(uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC); m != (method{}) {
		t.Errorf("a method that opens a file is recorded: %+v", m)
	}
	write := of(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE)
	for command, want := range map[uint32]uint64{
		uapi.IB_USER_VERBS_CMD_REG_MR: 1, uapi.IB_USER_VERBS_CMD_MODIFY_QP: 1,
		uapi.IB_USER_VERBS_CMD_GET_CONTEXT: 0, uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: 0, 63: 0,
	} {
		if got := write.commands >> command & 1; got != want {
			t.Errorf("command %d: recorded %d, want %d", command, got, want)
		}
	}
	if write.in>>writeCmd&1 == 0 || writeCmd != uapi.UVERBS_ATTR_WRITE_CMD || verbsIoctl != uapi.RDMA_VERBS_IOCTL {
		t.Error("the assembly's constants differ from the schema's")
	}
}
