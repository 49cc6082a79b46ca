package uapi

// An AttrKind is the way in which an attribute of an ioctl method carries its payload.
type AttrKind uint8

const (
	// AttrPtrIn is data for the kernel: in the attribute itself if it has at most 8 bytes,
	// otherwise behind a pointer. Constants and flags are AttrPtrIn with such a Type.
	AttrPtrIn AttrKind = iota + 1
	// AttrPtrOut is memory for data from the kernel, always behind a pointer.
	AttrPtrOut
	// AttrIDR is the handle of an object. With AccessNew the kernel writes it.
	AttrIDR
	// AttrIDRArray is a list of u32 handles, behind a pointer.
	AttrIDRArray
	// AttrFD is an object that is a file descriptor. With AccessNew the kernel creates it.
	AttrFD
	// AttrRawFD is a file descriptor that is not a uverbs object, such as a dma-buf.
	AttrRawFD
	// AttrEnumIn is AttrPtrIn, and the attribute's elem_id selects one of Elems.
	AttrEnumIn
)

func (k AttrKind) String() string {
	switch k {
	case AttrPtrIn:
		return "PTR_IN"
	case AttrPtrOut:
		return "PTR_OUT"
	case AttrIDR:
		return "IDR"
	case AttrIDRArray:
		return "IDRS_ARRAY"
	case AttrFD:
		return "FD"
	case AttrRawFD:
		return "RAW_FD"
	case AttrEnumIn:
		return "ENUM_IN"
	}
	return "unknown"
}

// An Access is a method's use of an attribute's object.
type Access uint8

const (
	AccessRead Access = iota + 1
	AccessWrite
	AccessNew
	AccessDestroy
)

func (a Access) String() string {
	switch a {
	case AccessRead:
		return "READ"
	case AccessWrite:
		return "WRITE"
	case AccessNew:
		return "NEW"
	case AccessDestroy:
		return "DESTROY"
	}
	return "none"
}

// IDRAnyObject is the Object of an attribute that takes a handle of any object type.
const IDRAnyObject = 0xFFFF

// An Attr describes one attribute of a method.
type Attr struct {
	ID     uint16
	Kind   AttrKind
	Access Access // AttrIDR, AttrIDRArray, AttrFD; else 0
	Object uint16 // AttrIDR, AttrIDRArray, AttrFD: the object's id

	Mandatory bool

	// ZeroTrailing: the payload may be longer than MaxLen if the rest is zero.
	ZeroTrailing bool

	// MinLen and MaxLen limit the payload's length, in bytes for AttrPtrIn and AttrPtrOut, in
	// handles for AttrIDRArray. MaxLen is negative if the protocol's 65535 is the only limit.
	MinLen, MaxLen int

	Name  string // "CQE"
	CName string // "UVERBS_ATTR_CREATE_CQ_CQE"

	Type  *Type  // the payload's type; nil for raw bytes
	Elems []Attr // AttrEnumIn: the payload for elem_id 0, 1, ...; else nil
}

// A Method describes a method of the ioctl.
type Method struct {
	ID    uint16
	Name  string // "CREATE"
	CName string // "UVERBS_METHOD_QP_CREATE"
	Verb  string // libibverbs' function without "ibv_": "create_qp"
	Attrs []Attr // ascending by ID: a driver's come last
}

// Attr returns the attribute with this id, or nil if there is none.
func (m *Method) Attr(id uint16) *Attr {
	for i := range m.Attrs {
		if m.Attrs[i].ID == id {
			return &m.Attrs[i]
		}
	}
	return nil
}

// An Object describes an object type and its methods.
type Object struct {
	ID      uint16
	Name    string    // "QP"
	CName   string    // "UVERBS_OBJECT_QP"
	Methods []*Method // ascending by ID: a driver's come last
}

// Method returns the method with this id, or nil if there is none.
func (o *Object) Method(id uint16) *Method {
	for _, m := range o.Methods {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// A TypeKind is the kind of a Type.
type TypeKind uint8

const (
	TypeBytes  TypeKind = iota // raw
	TypeUint                   // unsigned integer
	TypeInt                    // signed integer
	TypeBool                   // integer, 0 or 1
	TypeEnum                   // integer, a value of Enum
	TypeFlags                  // integer, a combination of values of Enum
	TypeHandle                 // integer, a handle of Object
	TypeFD                     // integer, a file descriptor
	TypePtr                    // integer, an address in the caller's memory
	TypeStruct                 // Struct
	TypeArray                  // Len times Elem
	TypeUnion                  // one of Struct's fields, all at offset 0
	TypeGID                    // 16 bytes, the GID in network order
	TypeMAC                    // 6 bytes
	TypeString                 // bytes up to a NUL
)

// A Type describes a value.
type Type struct {
	Kind      TypeKind
	Size      int    // bytes; 0 for the whole payload
	Hex       bool   // TypeUint: best shown in hexadecimal
	BigEndian bool   // integers: in network byte order instead of the host's
	Object    uint16 // TypeHandle
	Enum      *Enum  // TypeEnum, TypeFlags
	Struct    *Struct
	Elem      *Type // TypeArray
	Len       int   // TypeArray; negative for the whole payload
}

// A Struct describes a struct or union of the ABI.
type Struct struct {
	Name   string // "IbUverbsCreateQp"
	CName  string // "ib_uverbs_create_qp"
	Size   int
	Fields []Field
}

// Field returns the field with this C name, or nil if there is none.
func (s *Struct) Field(cname string) *Field {
	for i := range s.Fields {
		if s.Fields[i].CName == cname {
			return &s.Fields[i]
		}
	}
	return nil
}

// A Field describes a field of a struct.
type Field struct {
	Name   string // "QpType"
	CName  string // "qp_type"
	Offset int
	Size   int  // 0 for a flexible array, which extends to the end of the payload
	Type   Type // Type.Size is Size
}

// A WriteCommand describes a command that UVERBS_METHOD_INVOKE_WRITE runs.
type WriteCommand struct {
	ID     uint32 // with IB_USER_VERBS_CMD_FLAG_EXTENDED if Ex
	Object uint16
	Ex     bool
	UDATA  bool   // driver data follows Req and Resp in write()'s form
	Name   string // libibverbs' function without "ibv_": "create_qp", "modify_cq"
	CName  string // "IB_USER_VERBS_CMD_CREATE_QP"

	// ReqLen and RespLen are the minimum lengths of Req and Resp. For an Ex command, Req
	// and Resp may be longer, and the kernel may read or write less.
	ReqLen, RespLen int
	Req, Resp       *Struct // nil if there is none
}
