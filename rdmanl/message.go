package rdmanl

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/uapi"
)

// These constants are from <linux/netlink.h>. Package unix has them for Linux only, and this
// file is tested everywhere.
const (
	headerSize = 16 // struct nlmsghdr
	attrSize   = 4  // struct nlattr

	typeError = 2 // NLMSG_ERROR
	typeDone  = 3 // NLMSG_DONE

	flagRequest     = 0x1   // NLM_F_REQUEST
	flagAck         = 0x4   // NLM_F_ACK
	flagInterrupted = 0x10  // NLM_F_DUMP_INTR
	flagCapped      = 0x100 // NLM_F_CAPPED
	flagAckTLVs     = 0x200 // NLM_F_ACK_TLVS
	flagDump        = 0x300 // NLM_F_DUMP

	attrKind   = 0x3fff // NLA_TYPE_MASK
	attrNested = 0x8000 // NLA_F_NESTED
	errorMsg   = 1      // NLMSGERR_ATTR_MSG
)

// A request is a message to the kernel.
type request struct {
	command uint16
	flags   uint16
	attrs   []byte
}

// get is a request for one message, or for a change.
func get(command uint16) *request { return &request{command, flagRequest | flagAck, nil} }

// list is a request for any number of messages.
func list(command uint16) *request { return &request{command, flagRequest | flagAck | flagDump, nil} }

func (r *request) attr(kind uint16, data []byte) *request {
	r.attrs = binary.NativeEndian.AppendUint16(r.attrs, uint16(attrSize+len(data)))
	r.attrs = binary.NativeEndian.AppendUint16(r.attrs, kind)
	r.attrs = append(r.attrs, data...)
	r.attrs = append(r.attrs, make([]byte, -len(data)&3)...)
	return r
}

func (r *request) u8(kind uint16, v uint8) *request { return r.attr(kind, []byte{v}) }

func (r *request) u32(kind uint16, v uint32) *request {
	return r.attr(kind, binary.NativeEndian.AppendUint32(nil, v))
}

func (r *request) text(kind uint16, s string) *request { return r.attr(kind, append([]byte(s), 0)) }

// device adds the index of a device.
func (r *request) device(index uint32) *request {
	return r.u32(uapi.RDMA_NLDEV_ATTR_DEV_INDEX, index)
}

// port adds the index of a device, and a port's number.
func (r *request) port(index, port uint32) *request {
	return r.device(index).u32(uapi.RDMA_NLDEV_ATTR_PORT_INDEX, port)
}

// encode returns the message. Its sender is 0, which stands for this socket.
func (r *request) encode(sequence uint32) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(headerSize+len(r.attrs)))
	m = binary.NativeEndian.AppendUint16(m, uapi.RDMA_NL_NLDEV<<10|r.command)
	m = binary.NativeEndian.AppendUint16(m, r.flags)
	m = binary.NativeEndian.AppendUint32(m, sequence)
	m = binary.NativeEndian.AppendUint32(m, 0)
	return append(m, r.attrs...)
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrAnswer, fmt.Sprintf(format, args...))
}

// An answer collects the kernel's answer to one request.
type answer struct {
	sequence uint32
	bodies   [][]byte // the attributes of each message
	changed  bool     // the list changed while the kernel wrote it
}

// add adds any number of messages that were received at once. done reports whether the answer
// is complete.
func (a *answer) add(b []byte) (done bool, err error) {
	if len(b) == 0 {
		return false, malformed("nothing was received")
	}
	for len(b) > 0 {
		if len(b) < headerSize {
			return false, malformed("a message of %d bytes", len(b))
		}
		size := uint64(binary.NativeEndian.Uint32(b))
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		if size < headerSize || size > uint64(len(b)) {
			return false, malformed("a message says that it has %d bytes, of %d", size, len(b))
		}
		mine := binary.NativeEndian.Uint32(b[8:]) == a.sequence
		body := b[headerSize:size]
		b = b[min(size+-size&3, uint64(len(b))):]
		if !mine {
			continue // from a request that was given up
		}
		a.changed = a.changed || flags&flagInterrupted != 0
		switch {
		case kind == typeError || kind == typeDone:
			return true, verdict(body, kind, flags)
		case kind>>10 != uapi.RDMA_NL_NLDEV:
			return false, malformed("a message of type %#x", kind)
		}
		a.bodies = append(a.bodies, slices.Clone(body))
	}
	return false, nil
}

// verdict returns the error of the message that ends an answer: nil after success.
func verdict(body []byte, kind, flags uint16) error {
	if len(body) < 4 {
		if kind == typeDone {
			return nil
		}
		return malformed("an error of %d bytes", len(body))
	}
	code := int32(binary.NativeEndian.Uint32(body))
	if code == 0 {
		return nil
	}
	if code > 0 || code < -4095 {
		return malformed("%d instead of an errno", code)
	}
	errno := syscall.Errno(-code)
	if flags&flagAckTLVs != 0 {
		if why := explanation(body[4:], kind, flags); why != "" {
			return &refusal{errno, why}
		}
	}
	return errno
}

// explanation returns the text that follows an errno, if there is one. In an error, the request
// or its header precedes the text.
func explanation(b []byte, kind, flags uint16) string {
	if kind == typeError {
		if len(b) < headerSize {
			return ""
		}
		size := uint64(headerSize)
		if flags&flagCapped == 0 {
			size = uint64(binary.NativeEndian.Uint32(b))
		}
		if size < headerSize || size > uint64(len(b)) {
			return ""
		}
		b = b[min(size+-size&3, uint64(len(b))):]
	}
	var d decoder
	why := ""
	d.each(b, func(kind uint16, v []byte) {
		if kind == errorMsg {
			why = d.text(v)
		}
	})
	return why
}

// A decoder decodes attributes. It keeps the first error, and returns zero values afterwards.
type decoder struct{ err error }

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = malformed(format, args...)
	}
}

// need fails unless a message has a required attribute.
func (d *decoder) need(has bool, format string, args ...any) {
	if !has {
		d.fail(format, args...)
	}
}

// each calls see with the attributes in b, until an attribute is malformed.
func (d *decoder) each(b []byte, see func(kind uint16, v []byte)) {
	for len(b) > 0 && d.err == nil {
		if len(b) < attrSize {
			d.fail("%d bytes after the last attribute", len(b))
			return
		}
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])&attrKind
		if size < attrSize || size > len(b) {
			d.fail("attribute %d says that it has %d bytes, of %d", kind, size, len(b))
			return
		}
		see(kind, b[attrSize:size])
		b = b[min(size+-size&3, len(b)):]
	}
}

// sized reports whether a number has the right size.
func (d *decoder) sized(v []byte, size int) bool {
	if len(v) != size {
		d.fail("a number of %d bytes instead of %d", len(v), size)
	}
	return d.err == nil
}

func (d *decoder) u8(v []byte) uint8 {
	if !d.sized(v, 1) {
		return 0
	}
	return v[0]
}

func (d *decoder) u32(v []byte) uint32 {
	if !d.sized(v, 4) {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

func (d *decoder) u64(v []byte) uint64 {
	if !d.sized(v, 8) {
		return 0
	}
	return binary.NativeEndian.Uint64(v)
}

// text decodes a string. The kernel's strings end with a zero.
func (d *decoder) text(v []byte) string {
	s, _, _ := strings.Cut(string(v), "\x00")
	return s
}

// decodeAll decodes each message of an answer.
func decodeAll[T any](bodies [][]byte, decode func(d *decoder, b []byte) T) ([]T, error) {
	var d decoder
	var all []T
	for _, b := range bodies {
		all = append(all, decode(&d, b))
	}
	if d.err != nil {
		return nil, d.err
	}
	return all, nil
}

// decodeOne decodes the one message of an answer.
func decodeOne[T any](bodies [][]byte, decode func(d *decoder, b []byte) T) (T, error) {
	var none T
	if len(bodies) != 1 {
		return none, malformed("%d messages instead of one", len(bodies))
	}
	all, err := decodeAll(bodies, decode)
	if err != nil {
		return none, err
	}
	return all[0], nil
}

// entries decodes the entries of a table in messages, as far as they have that table.
func entries[T any](d *decoder, messages [][]byte, table uint16, decode func(d *decoder, b []byte) T) (all []T) {
	each := func(see func(entry []byte)) {
		for _, b := range messages {
			d.each(b, func(kind uint16, v []byte) {
				if kind == table {
					d.each(v, func(_ uint16, entry []byte) { see(entry) })
				}
			})
		}
	}
	n := 0
	each(func([]byte) { n++ })
	all = slices.Grow(all, n) // there may be thousands of large ones
	each(func(entry []byte) { all = append(all, decode(d, entry)) })
	return all
}
