package ioctl

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// image is a process's memory: bytes from imageBase on, and nothing else.
type image []byte

const imageBase = 0x10000

var errFault = errors.New("bad address")

func (m image) read(addr uint64, b []byte) error {
	off := addr - imageBase
	if addr < imageBase || off > uint64(len(m)) || uint64(len(b)) > uint64(len(m))-off {
		return errFault
	}
	copy(b, m[off:])
	return nil
}

// at returns the address of the next byte that will be appended.
func (m image) at() uint64 { return imageBase + uint64(len(m)) }

// newImage returns an image that begins with a call; payloads may be appended.
func newImage(driver uapi.RdmaDriverId, object, method uint16, attrs ...uapi.IbUverbsAttr) image {
	h := uapi.IbUverbsIoctlHdr{
		Length:   uint16(hdrSize + attrLen*len(attrs)),
		ObjectId: object,
		MethodId: method,
		NumAttrs: uint16(len(attrs)),
		DriverId: uint32(driver),
	}
	m := image{}
	m = append(m, encode(h)...)
	for i := range attrs {
		m = append(m, encode(attrs[i])...)
	}
	return m
}

// encode returns v's bytes as the kernel sees them.
func encode(v any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

// walk returns the number of bytes and values in v.
func walk(v *Value) int {
	n := 1 + len(v.Bytes)
	for i := range v.Fields {
		n += walk(&v.Fields[i].Value)
	}
	for i := range v.Elems {
		n += walk(&v.Elems[i])
	}
	return n
}

func FuzzDecode(f *testing.F) {
	valid := newImage(uapi.RDMA_DRIVER_RXE, uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE,
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_WRITE_CMD, Len: 8, Data: uint64(uapi.IB_USER_VERBS_CMD_CREATE_QP)},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_IN, Len: 64, Data: imageBase},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_CORE_OUT, Len: 64, Data: imageBase, Flags: uapi.UVERBS_ATTR_F_VALID_OUTPUT},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_IN, Len: 32, Data: imageBase},
		uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_OUT, Len: 32, Data: imageBase, Flags: uapi.UVERBS_ATTR_F_VALID_OUTPUT})
	valid = append(valid, make([]byte, 200)...)
	f.Add([]byte(valid), []byte(valid))
	f.Add([]byte{}, []byte{})
	f.Add([]byte(valid[:hdrSize-1]), []byte(valid))
	f.Add([]byte(valid[:hdrSize+3]), []byte(valid))

	// One header claims more attributes than there are, and one claims fewer.
	lie := append(image{}, valid...)
	binary.NativeEndian.PutUint16(lie[6:], 0xffff)
	f.Add([]byte(lie), []byte(lie))
	lie = append(image{}, valid...)
	binary.NativeEndian.PutUint16(lie, 0)
	f.Add([]byte(lie), []byte(lie))

	// Invalid lengths and pointers, for every method of the core and of the drivers whose
	// structs are known.
	for _, driver := range []uapi.RdmaDriverId{uapi.RDMA_DRIVER_RXE, uapi.RDMA_DRIVER_MLX5, 0xffff} {
		for object := range uint16(uapi.UVERBS_OBJECT_DMABUF + 2) {
			for method := range uint16(10) {
				var attrs []uapi.IbUverbsAttr
				for id := range uint16(20) {
					attrs = append(attrs, uapi.IbUverbsAttr{AttrId: id, Len: 8 + 7*id*method, Flags: 2, Data: imageBase + uint64(id)})
				}
				attrs = append(attrs, uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_UHW_IN, Len: 0xffff, Data: ^uint64(0)})
				m := newImage(driver, object, method, attrs...)
				f.Add([]byte(m), []byte(m[:len(m)/2]))
			}
		}
	}

	f.Fuzz(func(t *testing.T, entry, exit []byte) {
		var read int
		mem := func(m image) Memory {
			return func(addr uint64, b []byte) error {
				read += len(b)
				return m.read(addr, b)
			}
		}
		c, err := Decode(imageBase, mem(entry))
		if err != nil {
			if len(entry) >= hdrSize {
				t.Fatalf("no call although there is a header: %v", err)
			}
			return
		}
		if c.Err == nil && len(c.Attrs) != int(c.Header.NumAttrs) {
			t.Fatalf("%d attributes of %d, without an error", len(c.Attrs), c.Header.NumAttrs)
		}
		c.DecodeResults(mem(exit))
		if most := 2*maxPayload + hdrSize + 2*attrLen*len(c.Attrs) + attrLen*0x10000; read > most {
			t.Fatalf("read %d bytes for %d attributes", read, len(c.Attrs))
		}
		size := 0
		for _, v := range append(c.Args(), c.Results()...) {
			if v.Name == "" {
				t.Errorf("a value without a name in %s", c.Verb())
			}
			size += walk(&v.Value)
		}
		if size > 100*(read+1) {
			t.Errorf("%d bytes read became %d", read, size)
		}
		if c.Verb() == "" || c.ObjectName() == "" || c.MethodName() == "" {
			t.Errorf("no name: %q %q %q", c.Verb(), c.ObjectName(), c.MethodName())
		}
	})
}
