package ioctl

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/uapi"
)

// plain converts values to a form that a test can write down: numbers, short names, strings
// of bytes, maps and slices.
func plain(v *Value) any {
	if v.Err != nil {
		return v.Err
	}
	switch v.Kind() {
	case uapi.TypeStruct, uapi.TypeUnion:
		return plainFields(v.Fields)
	case uapi.TypeArray:
		out := []any{}
		for i := range v.Elems {
			out = append(out, plain(&v.Elems[i]))
		}
		return out
	case uapi.TypeEnum, uapi.TypeFlags:
		return v.Type.Enum.Short(v.Num)
	case uapi.TypeBytes, uapi.TypeGID, uapi.TypeMAC, uapi.TypeString:
		return string(v.Bytes)
	case uapi.TypeInt, uapi.TypeFD:
		return int(int64(v.Num))
	}
	return int(v.Num)
}

type fields = map[string]any

func plainFields(f []NamedValue) fields {
	out := fields{}
	for i := range f {
		out[f[i].Name] = plain(&f[i].Value)
	}
	return out
}

// payload appends v to the memory and returns an attribute that points there.
func (m *image) payload(i int, v any) {
	b := encode(v)
	a := hdrSize + attrLen*i
	copy((*m)[a+2:], encode(uint16(len(b))))
	copy((*m)[a+8:], encode(m.at()))
	*m = append(*m, b...)
}

// set writes attribute i's flags and data, as the kernel does.
func (m image) set(i int, flags uint16, data uint64) {
	a := hdrSize + attrLen*i
	copy(m[a+4:], encode(flags))
	if data != 0 {
		copy(m[a+8:], encode(data))
	}
}

func decode(t *testing.T, m image) *Call {
	t.Helper()
	c, err := Decode(imageBase, m.read)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func check(t *testing.T, what string, got []NamedValue, want fields) {
	t.Helper()
	if diff := cmp.Diff(want, plainFields(got), cmp.Comparer(errors.Is)); diff != "" {
		t.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
}

const validOutput = uapi.UVERBS_ATTR_F_MANDATORY | uapi.UVERBS_ATTR_F_VALID_OUTPUT

func TestDecodeMethod(t *testing.T) {
	m := newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_HANDLE},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, Data: 3},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_TYPE, Len: 8, Data: uint64(uapi.IB_UVERBS_QPT_UD)},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_FLAGS, Len: 4, Data: uint64(uapi.IB_UVERBS_QP_CREATE_SCATTER_FCS | uapi.IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | 1<<20)},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_EVENT_FD, Data: ^uint64(0)},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_CAP},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_OUT},
	)
	m.payload(5, uapi.IbUverbsQpCap{MaxSendWr: 1, MaxRecvWr: 2, MaxSendSge: 3, MaxRecvSge: 4, MaxInlineData: 5})
	m.payload(6, uapi.IbUverbsQpCap{MaxSendWr: 10, MaxRecvWr: 20, MaxSendSge: 30, MaxRecvSge: 40, MaxInlineData: 50})
	m.payload(7, uint32(0x11))
	m.payload(8, uapi.RxeCreateQpResp{SqMi: uapi.Mminfo{Offset: 0x1000, Size: 64}})
	c := decode(t, m)
	if c.Verb() != "create_qp" || c.ObjectName() != "QP" || c.MethodName() != "UVERBS_METHOD_QP_CREATE" || c.Driver() != "RXE" || c.Err != nil {
		t.Errorf("decoded as %s %s %s %s, %v", c.Verb(), c.ObjectName(), c.MethodName(), c.Driver(), c.Err)
	}
	check(t, "inputs", c.Args(), fields{
		"pd": 3, "type": "UD", "flags": "SCATTER_FCS|CVLAN_STRIPPING|0x100000", "event_fd": -1,
		"cap": fields{"max_send_wr": 1, "max_recv_wr": 2, "max_send_sge": 3, "max_recv_sge": 4, "max_inline_data": 5},
	})
	if out := c.Results(); len(out) != 0 {
		t.Errorf("outputs before the call: %v", plainFields(out))
	}

	// The driver's part is not marked as written.
	m.set(0, uapi.UVERBS_ATTR_F_MANDATORY, 7)
	m.set(6, validOutput, 0)
	m.set(7, validOutput, 0)
	c.DecodeResults(m.read)
	caps := fields{"max_send_wr": 10, "max_recv_wr": 20, "max_send_sge": 30, "max_recv_sge": 40, "max_inline_data": 50}
	check(t, "outputs", c.Results(), fields{"qp": 7, "cap": caps, "qp_num": 0x11})
	if name := c.Results()[0].Name; name != "qp" {
		t.Errorf("the first output is %s, want the new qp", name)
	}

	m.set(8, uapi.UVERBS_ATTR_F_VALID_OUTPUT, 0)
	c.DecodeResults(m.read)
	check(t, "outputs", c.Results(), fields{"qp": 7, "cap": caps, "qp_num": 0x11, "driver": fields{
		"rq_mi": fields{"offset": 0, "size": 0}, "sq_mi": fields{"offset": 0x1000, "size": 64}}})
}

func writeImage(driver uapi.RdmaDriverId, command uint32, attrs ...uapi.IbUverbsAttr) image {
	return newImage(driver, uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE,
		append([]uapi.IbUverbsAttr{{AttrId: uapi.UVERBS_ATTR_WRITE_CMD, Len: 8, Data: uint64(command)}}, attrs...)...)
}

func TestDecodeWriteCommand(t *testing.T) {
	m := writeImage(uapi.RDMA_DRIVER_MLX5, uapi.IB_USER_VERBS_CMD_CREATE_QP,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_IN},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_OUT},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_IN},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_OUT})
	m.payload(1, uapi.IbUverbsCreateQp{Response: 0xdead, PdHandle: 3, SendCqHandle: 4, RecvCqHandle: 5, MaxSendWr: 6, QpType: uint8(uapi.IB_UVERBS_QPT_RC)})
	m.payload(2, uapi.IbUverbsCreateQpResp{QpHandle: 8, Qpn: 0x99})
	// A driver's struct as an old libmlx5 gives it: the end is not there.
	m.payload(3, []uint64{0x7000, 0x8000, 64})
	m.payload(4, uint32(17))
	c := decode(t, m)
	if c.Verb() != "create_qp" || c.Driver() != "MLX5" || c.ObjectName() != "DEVICE" {
		t.Errorf("decoded as %s %s %s", c.Verb(), c.Driver(), c.ObjectName())
	}
	check(t, "inputs", c.Args(), fields{
		"user_handle": 0, "pd": 3, "send_cq": 4, "recv_cq": 5, "srq": 0, "max_send_wr": 6, "max_recv_wr": 0,
		"max_send_sge": 0, "max_recv_sge": 0, "max_inline_data": 0, "sq_sig_all": 0, "qp_type": "RC", "is_srq": 0,
		"driver": fields{"buf_addr": 0x7000, "db_addr": 0x8000, "sq_wqe_count": 64, "rq_wqe_count": 0},
	})
	m.set(2, validOutput, 0)
	m.set(4, validOutput, 0)
	c.DecodeResults(m.read)
	check(t, "outputs", c.Results(), fields{
		"qp": 8, "qpn": 0x99, "max_send_wr": 0, "max_recv_wr": 0, "max_send_sge": 0, "max_recv_sge": 0, "max_inline_data": 0,
		"driver": fields{"bfreg_index": 17},
	})
}

func TestDecodeExtendedWriteCommand(t *testing.T) {
	m := writeImage(uapi.RDMA_DRIVER_RXE, uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED|uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_IN},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_OUT})
	m.payload(1, uapi.IbUverbsExModifyQp{
		Base: uapi.IbUverbsModifyQp{
			QpHandle: 8, AttrMask: uint32(uapi.IB_QP_STATE | uapi.IB_QP_AV | uapi.IB_QP_RATE_LIMIT), QpState: uint8(uapi.IB_QPS_RTR),
			Timeout: 14, // not in the mask
			Dest:    uapi.IbUverbsQpDest{Dgid: [16]uint8{0xfe, 0x80, 15: 1}, SgidIndex: 1, IsGlobal: 1, PortNum: 1},
		},
		RateLimit: 77,
	})
	m.payload(2, uapi.IbUverbsExModifyQpResp{ResponseLength: 8})
	c := decode(t, m)
	args := c.Args()
	var names []string
	for _, a := range args {
		names = append(names, a.Name)
	}
	if diff := cmp.Diff([]string{"qp", "attr_mask", "dest", "qp_state", "rate_limit"}, names); c.Verb() != "modify_qp" || diff != "" {
		t.Fatalf("%s: inputs differ (-want +got):\n%s", c.Verb(), diff)
	}
	got := plainFields(args)
	delete(got, "dest")
	if diff := cmp.Diff(fields{"qp": 8, "attr_mask": "STATE|AV|RATE_LIMIT", "qp_state": "RTR", "rate_limit": 77}, got); diff != "" {
		t.Errorf("inputs differ (-want +got):\n%s", diff)
	}
	dest := plain(&args[2].Value).(fields)
	if dest["dgid"] != "\xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" || dest["sgid_index"] != 1 {
		t.Errorf("dest is %v", dest)
	}
	m.set(2, validOutput, 0)
	c.DecodeResults(m.read)
	check(t, "outputs", c.Results(), fields{"comp_mask": 0, "response_length": 8})
}

// TestDecodeUnknown checks that data unknown to the schema is not dropped.
func TestDecodeUnknown(t *testing.T) {
	m := newImage(0x77, 0x2222, 5,
		uapi.IbUverbsAttr{AttrId: 1, Len: 3, Data: 0x030201},
		uapi.IbUverbsAttr{AttrId: 0x1002, Data: 42},
		uapi.IbUverbsAttr{AttrId: 3})
	m.payload(2, [12]byte{11: 9})
	c := decode(t, m)
	if c.Verb() != "object_0x2222_method_0x5" || c.ObjectName() != "object_0x2222" || c.MethodName() != "0x5" || c.Driver() != "119" {
		t.Errorf("decoded as %s %s %s %s", c.Verb(), c.ObjectName(), c.MethodName(), c.Driver())
	}
	check(t, "inputs", c.Args(), fields{"attr_0x1": "\x01\x02\x03", "attr_0x1002": 42, "attr_0x3": string(append(make([]byte, 11), 9))})

	// A known object with an unknown method, and a known method with unknown attributes.
	c = decode(t, newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_PD, 0x900))
	if c.Verb() != "pd_method_0x900" || c.Method != nil {
		t.Errorf("decoded as %s", c.Verb())
	}
	c = decode(t, newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, Data: 1},
		uapi.IbUverbsAttr{AttrId: 0x1FFF, Data: 2}))
	check(t, "inputs", c.Args(), fields{"pd": 1, "attr_0x1fff": 2})

	// A write command that does not exist.
	m = writeImage(uapi.RDMA_DRIVER_RXE, 0xffff, uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_IN, Len: 2, Data: 0x4241})
	c = decode(t, m)
	if c.Verb() != "invoke_write" {
		t.Errorf("decoded as %s", c.Verb())
	}
	check(t, "inputs", c.Args(), fields{"write_cmd": "65535", "core_in": "AB"})
}

// TestDecodeHostile decodes invalid lengths and pointers.
func TestDecodeHostile(t *testing.T) {
	if c, err := Decode(imageBase-1, image{}.read); !errors.Is(err, errFault) {
		t.Errorf("without a header: %v, %v", c, err)
	}

	valid := newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, Data: 1})
	c := decode(t, valid[:len(valid)-1])
	if c.Verb() != "dealloc_pd" || !errors.Is(c.Err, errFault) || len(c.Attrs) != 0 {
		t.Errorf("cut attributes: %s, %v, %d attributes", c.Verb(), c.Err, len(c.Attrs))
	}

	for _, header := range []struct{ length, attrs uint16 }{{0, 1}, {40, 0}, {40, 0xffff}, {0xffff, 1}, {24, 0x1000}} {
		m := append(image{}, valid...)
		copy(m, encode(header.length))
		copy(m[6:], encode(header.attrs))
		c := decode(t, m)
		if c.Verb() != "dealloc_pd" || c.Err == nil || len(c.Attrs) != 0 {
			t.Errorf("length %d, %d attributes: %s, %v, %d attributes", header.length, header.attrs, c.Verb(), c.Err, len(c.Attrs))
		}
	}

	// Many large payloads: the length of the data read is limited.
	many := make([]uapi.IbUverbsAttr, 200)
	for i := range many {
		many[i] = uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_IN, Len: 0xffff, Data: imageBase}
	}
	read := 0
	c, err := Decode(imageBase, func(addr uint64, b []byte) error {
		read += len(b)
		m := append(newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE, many...), make([]byte, 1<<16)...)
		return m.read(addr, b)
	})
	if err != nil || len(c.Attrs) != len(many) || read > maxPayload+hdrSize+attrLen*len(many) {
		t.Errorf("%v, %d attributes, %d bytes read", err, len(c.Attrs), read)
	}
	if last := c.Attrs[len(many)-1].In; !errors.Is(last.Err, errPayloadTooLong) {
		t.Errorf("the last payload is %v", last)
	}

	// A payload and a result that can't be read.
	m := newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_CAP, Len: 20, Data: 0x10},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, Len: 4, Data: 0x10, Flags: validOutput})
	c = decode(t, m)
	c.DecodeResults(m.read)
	check(t, "inputs", c.Args(), fields{"cap": errFault})
	check(t, "outputs", c.Results(), fields{"qp_num": errFault})
	c.DecodeResults(image{}.read)
	check(t, "outputs", c.Results(), fields{"qp_num": errFault})

	// A payload too short for its type stays bytes.
	m = newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_CQ_CQE, Len: 2, Data: 0x4241},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR})
	check(t, "inputs", decode(t, m).Args(), fields{"cqe": "AB", "comp_vector": ""})
}

// TestVerbNames compares with libibverbs' names where they are not obvious.
func TestVerbNames(t *testing.T) {
	for _, test := range []struct {
		object, method uint16
		want           string
	}{
		{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY, "dealloc_pd"},
		{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY, "dereg_mr"},
		{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR, "reg_dmabuf_mr"},
		{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_DM_MR_REG, "reg_dm_mr"},
		{uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY, "dealloc_mw"},
		{uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY, "close_xrcd"},
		{uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY, "destroy_ah"},
		{uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY, "destroy_rwq_ind_table"},
		{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE, "free_dm"},
		{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_ENTRY, "query_gid_ex"},
		{uapi.UVERBS_OBJECT_COUNTERS, uapi.UVERBS_METHOD_COUNTERS_READ, "read_counters"},
	} {
		if got := decode(t, newImage(uapi.RDMA_DRIVER_RXE, test.object, test.method)).Verb(); got != test.want {
			t.Errorf("object %d, method %d is %s, want %s", test.object, test.method, got, test.want)
		}
	}
	for _, test := range []struct {
		command uint32
		want    string
	}{
		{uapi.IB_USER_VERBS_CMD_ALLOC_PD, "alloc_pd"},
		{uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED | uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE, "query_device_ex"},
		{uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED | uapi.IB_USER_VERBS_EX_CMD_MODIFY_CQ, "modify_cq"},
	} {
		if got := decode(t, writeImage(uapi.RDMA_DRIVER_RXE, test.command)).Verb(); got != test.want {
			t.Errorf("command %#x is %s, want %s", test.command, got, test.want)
		}
	}
}
