package uapi

import (
	"regexp"
	"slices"
	"testing"
)

// allObjects returns the objects of mlx5 and efa, which together have everything.
func allObjects() []*Object {
	var objects []*Object
	for id := range uint16(len(coreObjects)) {
		mlx5, efa := LookupObject(RDMA_DRIVER_MLX5, id), LookupObject(RDMA_DRIVER_EFA, id)
		if objects = append(objects, mlx5); efa != mlx5 {
			objects = append(objects, efa)
		}
	}
	return append(objects, mlx5Objects[:]...)
}

// Numbers in the headers that no method of the kernels 6.1 and 7.3 uses.
var reservedIDs = []string{
	"UVERBS_METHOD_FLOW_ACTION_ESP_CREATE",
	"UVERBS_METHOD_FLOW_ACTION_ESP_MODIFY",
	"UVERBS_ATTR_CREATE_FLOW_ACTION_ESP_HANDLE",
	"UVERBS_ATTR_FLOW_ACTION_ESP_ATTRS",
	"UVERBS_ATTR_FLOW_ACTION_ESP_ESN",
	"UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT",
	"UVERBS_ATTR_FLOW_ACTION_ESP_REPLAY",
	"UVERBS_ATTR_FLOW_ACTION_ESP_ENCAP",
	"UVERBS_ATTR_MODIFY_FLOW_ACTION_ESP_HANDLE",
	"MLX5_IB_ATTR_CREATE_FLOW_ACTION_FLAGS",
	"IB_USER_VERBS_CMD_MODIFY_AH",
	"IB_USER_VERBS_CMD_QUERY_AH",
	"IB_USER_VERBS_CMD_REG_SMR",
	"IB_USER_VERBS_CMD_QUERY_MR",
	"IB_USER_VERBS_CMD_BIND_MW",
	"IB_USER_VERBS_CMD_PEEK_CQ",
}

// Every object, method, attribute and command that the headers number is in the
// schema with its number, and nothing else is.
func TestSchemaIsComplete(t *testing.T) {
	schema := map[string]uint64{}
	for _, o := range allObjects() {
		schema[o.CName] = uint64(o.ID)
		for _, m := range o.Methods {
			schema[m.CName] = uint64(m.ID)
			for _, a := range m.Attrs {
				schema[a.CName] = uint64(a.ID)
			}
		}
	}
	for _, c := range writeCommands {
		schema[c.CName] = uint64(c.ID &^ IB_USER_VERBS_CMD_FLAG_EXTENDED)
	}
	isID := regexp.MustCompile(`^(UVERBS|MLX5_IB|EFA_IB)_(OBJECT|METHOD|ATTR)_|^IB_USER_VERBS_(EX_)?CMD_`)
	notID := regexp.MustCompile(`^UVERBS_ATTR_F_|^MLX5_IB_ATTR_CREATE_FLOW_FLAGS_|^IB_USER_VERBS_CMD_(THRESHOLD|COMMAND_MASK|FLAG_EXTENDED)$`)
	n := 0
	for _, c := range cConsts {
		if !isID.MatchString(c.CName) || notID.MatchString(c.CName) {
			continue
		}
		n++
		id, ok := schema[c.CName]
		switch reserved := slices.Contains(reservedIDs, c.CName); {
		case reserved && ok:
			t.Errorf("%s is in the schema and in the list of reserved numbers", c.CName)
		case !reserved && !ok:
			t.Errorf("%s is not in the schema", c.CName)
		case ok && id != c.Value:
			t.Errorf("%s is %#x in the schema, %#x in the headers", c.CName, id, c.Value)
		}
		delete(schema, c.CName)
	}
	if len(schema) > 0 {
		t.Errorf("in the schema, not in the headers: %v", schema)
	}
	if n < 400 {
		t.Errorf("the headers have only %d numbers", n)
	}
}

func TestSchemaIsSound(t *testing.T) {
	for i, o := range coreObjects {
		if int(o.ID) != i {
			t.Errorf("%s is at %d", o.CName, i)
		}
	}
	for _, o := range allObjects() {
		if len(o.Methods) == 0 && o.ID != UVERBS_OBJECT_COMP_CHANNEL {
			t.Errorf("%s has no methods", o.CName)
		}
		if !slices.IsSortedFunc(o.Methods, func(a, b *Method) int { return int(a.ID) - int(b.ID) }) {
			t.Errorf("%s: the methods are not sorted", o.CName)
		}
		for i, m := range o.Methods {
			if i > 0 && m.ID == o.Methods[i-1].ID {
				t.Errorf("%s: %s and %s have the same id", o.CName, m.Name, o.Methods[i-1].Name)
			}
			if m.Name == "" || m.Verb == "" {
				t.Errorf("%s lacks a name", m.CName)
			}
			for j := range m.Attrs {
				checkAttr(t, o, m, j)
			}
		}
	}
}

func checkAttr(t *testing.T, o *Object, m *Method, i int) {
	a := &m.Attrs[i]
	errorf := func(why string) { t.Errorf("%s %s: %s", m.CName, a.CName, why) }
	if i > 0 && m.Attrs[i-1].ID >= a.ID {
		errorf("not sorted, or twice")
	}
	if a.Name == "" {
		errorf("no name")
	}
	if m.Attr(a.ID) != a {
		errorf("not found by id")
	}
	switch a.Kind {
	case AttrIDR, AttrFD, AttrIDRArray:
		if a.Access == 0 {
			errorf("no access")
		}
		if a.Object != IDRAnyObject && LookupObject(RDMA_DRIVER_MLX5, a.Object) == nil {
			errorf("of an unknown object")
		}
		if (a.Access == AccessNew || a.Access == AccessDestroy) && a.Object != o.ID {
			errorf("makes or destroys another kind of object than its method's")
		}
	case AttrPtrIn, AttrPtrOut:
		if a.Access != 0 || a.Elems != nil {
			errorf("a pointer with an access or elements")
		}
		if a.MaxLen >= 0 && a.MinLen > a.MaxLen {
			errorf("MinLen > MaxLen")
		}
		if a.Type != nil && a.Type.Size != 0 && a.Type.Size != a.MaxLen {
			errorf("its type has another size")
		}
	case AttrEnumIn:
		if len(a.Elems) == 0 {
			errorf("no elements")
		}
		for id, e := range a.Elems {
			if int(e.ID) != id || e.Kind != AttrPtrIn {
				errorf("a wrong element")
			}
		}
	case AttrRawFD:
	default:
		errorf("no kind")
	}
}

// The schema of some methods that every program uses, as read by hand in the kernel's sources.
func TestSchemaSamples(t *testing.T) {
	attr := func(driver RdmaDriverId, object, method, id uint16) Attr {
		t.Helper()
		m := LookupMethod(driver, object, method)
		if m == nil || m.Attr(id) == nil {
			t.Fatalf("(%#x, %#x) has no attribute %#x", object, method, id)
		}
		return *m.Attr(id)
	}
	a := attr(RDMA_DRIVER_RXE, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)
	if a.Kind != AttrIDR || a.Object != UVERBS_OBJECT_CQ || a.Access != AccessRead || a.Mandatory || a.Name != "SEND_CQ_HANDLE" {
		t.Errorf("%+v", a)
	}
	a = attr(RDMA_DRIVER_RXE, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, UVERBS_ATTR_CREATE_QP_TYPE)
	if a.Kind != AttrPtrIn || !a.Mandatory || a.MinLen != 8 || a.MaxLen != 8 || a.Type.Kind != TypeEnum || a.Type.Enum.Short(2) != "RC" {
		t.Errorf("%+v", a)
	}
	a = attr(RDMA_DRIVER_RXE, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, UVERBS_ATTR_CREATE_QP_CAP)
	if a.Kind != AttrPtrIn || !a.Mandatory || !a.ZeroTrailing || a.MinLen != 20 || a.MaxLen != 20 || a.Type.Struct != StructIbUverbsQpCap {
		t.Errorf("%+v", a)
	}
	a = attr(RDMA_DRIVER_RXE, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_MR, UVERBS_ATTR_REG_MR_ACCESS_FLAGS)
	if a.MinLen != 4 || a.MaxLen != 8 || a.Type.Kind != TypeFlags || a.Type.Enum.Short(5) != "LOCAL_WRITE|REMOTE_READ" {
		t.Errorf("%+v", a)
	}
	a = attr(RDMA_DRIVER_MLX5, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX)
	if a.Kind != AttrPtrIn || a.MinLen != 4 || a.ID != 0x1002 {
		t.Errorf("%+v", a)
	}
	if m := LookupMethod(RDMA_DRIVER_RXE, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE); m.Attr(MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX) != nil {
		t.Error("rxe has an attribute of mlx5")
	}
	a = attr(RDMA_DRIVER_MLX5, UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS)
	if a.Kind != AttrIDRArray || a.MinLen != 1 || a.MaxLen != 2 || a.Object != UVERBS_OBJECT_FLOW_ACTION {
		t.Errorf("%+v", a)
	}
	a = attr(RDMA_DRIVER_EFA, UVERBS_OBJECT_MR, EFA_IB_METHOD_MR_QUERY, EFA_IB_ATTR_QUERY_MR_RESP_RECV_IC_ID)
	if a.Kind != AttrPtrOut || !a.Mandatory || a.MinLen != 2 || a.MaxLen != 2 || a.ID != 0x1002 {
		t.Errorf("%+v", a)
	}
	if m := LookupMethod(RDMA_DRIVER_MLX5, UVERBS_OBJECT_MR, EFA_IB_METHOD_MR_QUERY); m != nil {
		t.Error("mlx5 has a method of efa")
	}
	a = attr(RDMA_DRIVER_UNKNOWN, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, UVERBS_ATTR_UHW_OUT)
	if a.Kind != AttrPtrOut || a.Mandatory || a.MaxLen >= 0 {
		t.Errorf("%+v", a)
	}
}

func TestLookupUnknown(t *testing.T) {
	for _, id := range []uint16{uint16(len(coreObjects)), 0x0fff, 0x1000 + uint16(len(mlx5Objects)), 0x2000, 0xffff} {
		if o := LookupObject(RDMA_DRIVER_MLX5, id); o != nil {
			t.Errorf("object %#x is %s", id, o.CName)
		}
	}
	if o := LookupObject(RDMA_DRIVER_RXE, MLX5_IB_OBJECT_DEVX); o != nil {
		t.Errorf("rxe has %s", o.CName)
	}
	if m := LookupMethod(RDMA_DRIVER_RXE, UVERBS_OBJECT_QP, 99); m != nil {
		t.Errorf("method 99 of QP is %s", m.CName)
	}
	if v := VerbName(99, 99); v != "" {
		t.Errorf("verb (99, 99) is %s", v)
	}
	if c := LookupWriteCommand(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_REG_MR); c != nil {
		t.Errorf("the extended REG_MR is %s", c.CName)
	}
}

func TestWriteCommands(t *testing.T) {
	for i := range writeCommands {
		c := &writeCommands[i]
		if LookupWriteCommand(c.ID) != c {
			t.Errorf("%s is not found by its id", c.CName)
		}
		if c.Ex != (c.ID&IB_USER_VERBS_CMD_FLAG_EXTENDED != 0) {
			t.Errorf("%s: Ex does not fit the id", c.CName)
		}
		if c.Req == nil || c.ReqLen > c.Req.Size || c.Resp != nil && c.RespLen > c.Resp.Size {
			t.Errorf("%s: a wrong length", c.CName)
		}
		if !c.Ex && (c.ReqLen != c.Req.Size || (c.Resp != nil) != (c.Req.Field("response") != nil)) {
			t.Errorf("%s: a wrong request", c.CName)
		}
		if LookupObject(RDMA_DRIVER_UNKNOWN, c.Object) == nil {
			t.Errorf("%s: no object", c.CName)
		}
	}
	c := LookupWriteCommand(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_QP)
	if c == nil || c.Name != "create_qp_ex" || c.Req != StructIbUverbsExCreateQp || c.ReqLen != 52 || c.RespLen != 40 {
		t.Errorf("%+v", c)
	}
	c = LookupWriteCommand(IB_USER_VERBS_CMD_ALLOC_PD)
	if c == nil || c.Name != "alloc_pd" || !c.UDATA || c.Req.Size != 8 || c.Resp.Size != 4 || c.Object != UVERBS_OBJECT_PD {
		t.Errorf("%+v", c)
	}
}

// Every verb with a driver's struct is the name of a method or command.
func TestDriverData(t *testing.T) {
	verbs := map[string]bool{}
	for _, o := range coreObjects {
		for _, m := range o.Methods {
			verbs[m.Verb] = true
		}
	}
	for _, c := range writeCommands {
		verbs[c.Name] = true
	}
	for _, d := range driverStructs {
		if !verbs[d.verb] {
			t.Errorf("no verb %s", d.verb)
		}
		if in, out := DriverData(d.driver, d.verb); in != d.in || out != d.out {
			t.Errorf("%v %s is there twice", d.driver, d.verb)
		}
	}
	if in, out := DriverData(RDMA_DRIVER_RXE, "create_qp"); in != nil || out != StructRxeCreateQpResp {
		t.Errorf("rxe create_qp: %v, %v", in, out)
	}
	if in, out := DriverData(RDMA_DRIVER_MLX5, VerbName(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)); in != StructMlx5IbCreateCq || out != StructMlx5IbCreateCqResp {
		t.Errorf("mlx5 create_cq: %v, %v", in, out)
	}
	if in, out := DriverData(RDMA_DRIVER_SIW, "reg_mr"); in != StructSiwUreqRegMr || out != StructSiwUrespRegMr {
		t.Errorf("siw reg_mr: %v, %v", in, out)
	}
	if in, out := DriverData(RDMA_DRIVER_EFA, "create_qp"); in != StructEfaIbvCreateQp || out != StructEfaIbvCreateQpResp {
		t.Errorf("efa create_qp: %v, %v", in, out)
	}
	if in, out := DriverData(RDMA_DRIVER_ERDMA, "create_qp"); in != nil || out != nil {
		t.Errorf("erdma create_qp: %v, %v", in, out)
	}
}

// Fields have their meanings.
func TestFieldMeanings(t *testing.T) {
	field := func(s *Struct, cname string) Field {
		t.Helper()
		f := s.Field(cname)
		if f == nil {
			t.Fatalf("%s has no field %s", s.CName, cname)
		}
		return *f
	}
	if f := field(StructIbUverbsModifyQp, "qp_state"); f.Type.Kind != TypeEnum || f.Type.Enum != EnumIbQpState || f.Size != 1 {
		t.Errorf("%+v", f)
	}
	if f := field(StructIbUverbsModifyQp, "attr_mask"); f.Type.Kind != TypeFlags || f.Type.Enum != EnumIbQpAttrMask {
		t.Errorf("%+v", f)
	}
	if f := field(StructIbUverbsModifyQp, "qp_handle"); f.Type.Kind != TypeHandle || f.Type.Object != UVERBS_OBJECT_QP {
		t.Errorf("%+v", f)
	}
	if f := field(StructIbUverbsQpDest, "dgid"); f.Type.Kind != TypeGID || f.Size != 16 {
		t.Errorf("%+v", f)
	}
	if f := field(StructIbUverbsQueryDeviceResp, "node_guid"); !f.Type.BigEndian || !f.Type.Hex {
		t.Errorf("%+v", f)
	}
	if f := field(StructIbUverbsRegMr, "start"); f.Type.Kind != TypePtr {
		t.Errorf("%+v", f)
	}
	if f := field(StructIbUverbsCreateCq, "comp_channel"); f.Type.Kind != TypeFD {
		t.Errorf("%+v", f)
	}
	if f := field(StructIbUverbsExCreateRwqIndTable, "wq_handles"); f.Size != 0 || f.Type.Kind != TypeArray || f.Type.Len != -1 || f.Type.Elem.Object != UVERBS_OBJECT_WQ {
		t.Errorf("%+v", f)
	}
	if f := field(StructRxeSendWr, "wr"); f.Type.Kind != TypeUnion || f.Type.Struct.Field("rdma").Type.Struct != StructRxeSendWrWrRdma {
		t.Errorf("%+v", f)
	}
	if f := field(StructMlx5IbCreateQp, "flags"); f.Type.Enum.Short(1<<10) != "UAR_PAGE_INDEX" {
		t.Errorf("%+v", f)
	}
	if f := StructMlx5IbCreateQp.Field("nothing"); f != nil {
		t.Errorf("%+v", f)
	}
}
