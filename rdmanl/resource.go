package rdmanl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/uapi"
)

// A Detail selects how much the kernel reports about objects.
type Detail uint8

const (
	DetailCommon Detail = 0 // the attributes that all drivers have in common
	DetailDriver Detail = 1 // also the driver's own attributes, for which it may ask the device
)

// An Owner is the creator of an object, and the driver's own attributes of the object.
type Owner struct {
	// PID is the process, if it still exists and is visible in this PID namespace. Kernels such as
	// 6.1 report the thread that has created the object instead: see Process.
	PID Optional[uint32]
	// Kernel is the module, for an object of the kernel's own.
	Kernel Optional[string]
	// Driver has the driver's data. Older kernels always send it, newer ones only with the detail
	// DetailDriver.
	Driver []DriverAttr
}

// Comm returns the name of the process or of the module. A process has none if it has ended
// meanwhile, or if /proc doesn't show it.
func (o *Owner) Comm() (name string, ok bool) {
	if name, ok := o.Kernel.Get(); ok {
		return name, true
	}
	pid, ok := o.PID.Get()
	if !ok {
		return "", false
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(comm), "\n"), err == nil
}

// Process returns the process that PID is a thread of, which may be PID itself. There is none for
// an object of the kernel, if the thread has ended, or if /proc doesn't show it.
func (o *Owner) Process() (pid uint32, ok bool) {
	thread, ok := o.PID.Get()
	if !ok {
		return 0, false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			return uint32(n), err == nil
		}
	}
	return 0, false
}

// A DriverAttr is a driver's own attribute of an object. Its value is a string, an int32, an
// int64, a uint32 or a uint64.
type DriverAttr struct {
	Name  string // the driver's
	Value any    // see above
	Hex   bool   // a number that people read in hexadecimal
}

// A field is an attribute of an object, and where its value goes: a pointer of a type that
// decoder.store knows.
type field struct {
	kind uint16
	to   any
}

// object decodes an object. The first field identifies it, so the kernel must send that one.
func (d *decoder) object(b []byte, missing string, o *Owner, fields ...field) {
	fields = append(fields,
		field{uapi.RDMA_NLDEV_ATTR_RES_PID, &o.PID},
		field{uapi.RDMA_NLDEV_ATTR_RES_KERN_NAME, &o.Kernel},
		field{uapi.RDMA_NLDEV_ATTR_DRIVER, &o.Driver},
	)
	identified := false
	d.each(b, func(kind uint16, v []byte) {
		if i := slices.IndexFunc(fields, func(f field) bool { return f.kind == kind }); i >= 0 {
			d.store(fields[i].to, v)
			identified = identified || i == 0
		}
	})
	d.need(identified, "%s", missing)
}

// store decodes a value to a field of an object.
func (d *decoder) store(to any, v []byte) {
	switch to := to.(type) {
	case *uint32:
		*to = d.u32(v)
	case *Optional[uint32]:
		*to = Some(d.u32(v))
	case *Optional[uint64]:
		*to = Some(d.u64(v))
	case *Optional[bool]:
		*to = Some(d.u8(v) != 0)
	case *Optional[string]:
		*to = Some(d.text(v))
	case *Optional[ib.QPType]:
		*to = Some(ib.QPType(d.u8(v)))
	case *Optional[ib.QPState]:
		*to = Some(ib.QPState(d.u8(v)))
	case *Optional[ib.MigState]:
		*to = Some(ib.MigState(d.u8(v)))
	case *Optional[PollContext]:
		*to = Some(PollContext(d.u8(v)))
	case *Optional[SRQType]:
		*to = Some(SRQType(d.u8(v)))
	case *Optional[CMState]:
		*to = Some(CMState(d.u8(v)))
	case *Optional[PortSpace]:
		*to = Some(PortSpace(d.u32(v)))
	case *Optional[CounterMode]:
		*to = Some(CounterMode(d.u32(v)))
	case *Optional[netip.AddrPort]:
		*to = decodeAddress(d, v)
	case *[]uint32: // the numbers of QPs
		d.each(v, func(_ uint16, entry []byte) {
			d.each(entry, func(kind uint16, v []byte) {
				if kind == uapi.RDMA_NLDEV_ATTR_RES_LQPN {
					*to = append(*to, d.u32(v))
				}
			})
		})
	case *[]QPRange:
		d.each(v, func(_ uint16, entry []byte) { *to = append(*to, decodeRange(d, entry)) })
	case *[]DriverAttr:
		*to = decodeDriver(d, v)
	default:
		panic(fmt.Sprintf("rdmanl: a field of the type %T", to))
	}
}

// decodeDriver decodes the driver's attributes. Each has a name, sometimes a format to print,
// and a value.
func decodeDriver(d *decoder, b []byte) []DriverAttr {
	var all []DriverAttr
	var a DriverAttr
	named := false
	d.each(b, func(kind uint16, v []byte) {
		switch {
		case !named:
			if kind != uapi.RDMA_NLDEV_ATTR_DRIVER_STRING {
				d.fail("a driver's value without a name")
			}
			a, named = DriverAttr{Name: d.text(v)}, true
			return
		case kind == uapi.RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE:
			a.Hex = d.u8(v) == uint8(uapi.RDMA_NLDEV_PRINT_TYPE_HEX)
			return
		case kind == uapi.RDMA_NLDEV_ATTR_DRIVER_STRING:
			a.Value = d.text(v)
		case kind == uapi.RDMA_NLDEV_ATTR_DRIVER_S32:
			a.Value = int32(d.u32(v))
		case kind == uapi.RDMA_NLDEV_ATTR_DRIVER_U32:
			a.Value = d.u32(v)
		case kind == uapi.RDMA_NLDEV_ATTR_DRIVER_S64:
			a.Value = int64(d.u64(v))
		case kind == uapi.RDMA_NLDEV_ATTR_DRIVER_U64:
			a.Value = d.u64(v)
		default:
			named = false // an unknown kind of value, from a newer kernel
			return
		}
		all, named = append(all, a), false
	})
	return all
}

// A QP is a queue pair.
type QP struct {
	Number    uint32                // the device's
	Port      Optional[uint32]      // a QP that is not initialised has none
	RemoteQPN Optional[uint32]      // connected QPs only, as RQPSN
	Type      Optional[ib.QPType]   // the transport
	Subtype   Optional[string]      // of a QP of the type DRIVER
	State     Optional[ib.QPState]  // of the verbs
	RQPSN     Optional[uint32]      // of the next packet received
	SQPSN     Optional[uint32]      // of the next packet sent
	PathMig   Optional[ib.MigState] // to the alternate path
	PD        Optional[uint32]      // the ID of its PD
	Owner
}

func decodeQP(d *decoder, b []byte) (q QP) {
	d.object(b, "a QP without a number", &q.Owner,
		field{uapi.RDMA_NLDEV_ATTR_RES_LQPN, &q.Number},
		field{uapi.RDMA_NLDEV_ATTR_PORT_INDEX, &q.Port},
		field{uapi.RDMA_NLDEV_ATTR_RES_RQPN, &q.RemoteQPN},
		field{uapi.RDMA_NLDEV_ATTR_RES_TYPE, &q.Type},
		field{uapi.RDMA_NLDEV_ATTR_RES_SUBTYPE, &q.Subtype},
		field{uapi.RDMA_NLDEV_ATTR_RES_STATE, &q.State},
		field{uapi.RDMA_NLDEV_ATTR_RES_RQ_PSN, &q.RQPSN},
		field{uapi.RDMA_NLDEV_ATTR_RES_SQ_PSN, &q.SQPSN},
		field{uapi.RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, &q.PathMig},
		field{uapi.RDMA_NLDEV_ATTR_RES_PDN, &q.PD},
	)
	return q
}

// A CQ is a completion queue.
type CQ struct {
	ID      uint32                // the kernel's, not the device's
	Entries Optional[uint32]      // its capacity
	Users   Optional[uint64]      // objects that use it
	PollCtx Optional[PollContext] // of a CQ of the kernel
	DIM     Optional[bool]        // it moderates itself
	Context Optional[uint32]      // the ID of its Context
	Owner
}

func decodeCQ(d *decoder, b []byte) (c CQ) {
	d.object(b, "a CQ without an ID", &c.Owner,
		field{uapi.RDMA_NLDEV_ATTR_RES_CQN, &c.ID},
		field{uapi.RDMA_NLDEV_ATTR_RES_CQE, &c.Entries},
		field{uapi.RDMA_NLDEV_ATTR_RES_USECNT, &c.Users},
		field{uapi.RDMA_NLDEV_ATTR_RES_POLL_CTX, &c.PollCtx},
		field{uapi.RDMA_NLDEV_ATTR_DEV_DIM, &c.DIM},
		field{uapi.RDMA_NLDEV_ATTR_RES_CTXN, &c.Context},
	)
	return c
}

// An MR is a memory region. The kernel reports its keys and its address only to CAP_NET_ADMIN, and
// the address only if the driver does.
type MR struct {
	ID     uint32           // the kernel's, not a key
	RKey   Optional[uint32] // the remote key
	LKey   Optional[uint32] // the local key
	IOVA   Optional[uint64] // the first address
	Length Optional[uint64] // in bytes
	PD     Optional[uint32] // the ID of its PD
	Owner
}

func decodeMR(d *decoder, b []byte) (m MR) {
	d.object(b, "an MR without an ID", &m.Owner,
		field{uapi.RDMA_NLDEV_ATTR_RES_MRN, &m.ID},
		field{uapi.RDMA_NLDEV_ATTR_RES_RKEY, &m.RKey},
		field{uapi.RDMA_NLDEV_ATTR_RES_LKEY, &m.LKey},
		field{uapi.RDMA_NLDEV_ATTR_RES_IOVA, &m.IOVA},
		field{uapi.RDMA_NLDEV_ATTR_RES_MRLEN, &m.Length},
		field{uapi.RDMA_NLDEV_ATTR_RES_PDN, &m.PD},
	)
	return m
}

// A PD is a protection domain. The kernel reports its keys only to CAP_NET_ADMIN.
type PD struct {
	ID               uint32           // the kernel's
	LocalDMALKey     Optional[uint32] // the key for all of the kernel's memory
	Users            Optional[uint64] // objects that use it
	UnsafeGlobalRKey Optional[uint32] // the same for peers
	Context          Optional[uint32] // the ID of its Context
	Owner
}

func decodePD(d *decoder, b []byte) (p PD) {
	d.object(b, "a PD without an ID", &p.Owner,
		field{uapi.RDMA_NLDEV_ATTR_RES_PDN, &p.ID},
		field{uapi.RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY, &p.LocalDMALKey},
		field{uapi.RDMA_NLDEV_ATTR_RES_USECNT, &p.Users},
		field{uapi.RDMA_NLDEV_ATTR_RES_UNSAFE_GLOBAL_RKEY, &p.UnsafeGlobalRKey},
		field{uapi.RDMA_NLDEV_ATTR_RES_CTXN, &p.Context},
	)
	return p
}

// A Context is a device that a process has opened.
type Context struct {
	ID uint32 // the kernel's
	Owner
}

func decodeContext(d *decoder, b []byte) (c Context) {
	d.object(b, "a context without an ID", &c.Owner,
		field{uapi.RDMA_NLDEV_ATTR_RES_CTXN, &c.ID},
	)
	return c
}

// An SRQ is a shared receive queue.
type SRQ struct {
	ID   uint32            // the kernel's
	Type Optional[SRQType] // what it is for
	QPs  []QPRange         // the QPs that it serves
	PD   Optional[uint32]  // the ID of its PD
	CQ   Optional[uint32]  // the ID of its CQ, of an XRC SRQ
	Owner
}

// A QPRange is QPs with successive numbers.
type QPRange struct {
	First, Last uint32 // their numbers
}

func decodeSRQ(d *decoder, b []byte) (s SRQ) {
	d.object(b, "an SRQ without an ID", &s.Owner,
		field{uapi.RDMA_NLDEV_ATTR_RES_SRQN, &s.ID},
		field{uapi.RDMA_NLDEV_ATTR_RES_TYPE, &s.Type},
		field{uapi.RDMA_NLDEV_ATTR_RES_QP, &s.QPs},
		field{uapi.RDMA_NLDEV_ATTR_RES_PDN, &s.PD},
		field{uapi.RDMA_NLDEV_ATTR_RES_CQN, &s.CQ},
	)
	return s
}

// decodeRange decodes the number of one QP, or the numbers of several.
func decodeRange(d *decoder, b []byte) QPRange {
	var r QPRange
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_RES_LQPN:
			r = QPRange{d.u32(v), d.u32(v)}
		case uapi.RDMA_NLDEV_ATTR_MIN_RANGE:
			r.First = d.u32(v)
		case uapi.RDMA_NLDEV_ATTR_MAX_RANGE:
			r.Last = d.u32(v)
		}
	})
	d.need(r.First <= r.Last, "a range of QPs that ends before it begins")
	return r
}

// A CMID is an ID of the connection manager.
type CMID struct {
	ID        uint32              // the kernel's
	Port      Optional[uint32]    // once it is bound to one
	QPN       Optional[uint32]    // of its QP
	QPType    Optional[ib.QPType] // with QPN
	State     Optional[CMState]   // the progress of the connection
	PortSpace Optional[PortSpace] // of its addresses
	// Source and Dest are the addresses. For a native InfiniBand address, the address is the
	// GID, and the port is the last two bytes of the service ID.
	Source, Dest Optional[netip.AddrPort]
	Owner
}

func decodeCMID(d *decoder, b []byte) (c CMID) {
	d.object(b, "an ID of the connection manager without a number", &c.Owner,
		field{uapi.RDMA_NLDEV_ATTR_RES_CM_IDN, &c.ID},
		field{uapi.RDMA_NLDEV_ATTR_PORT_INDEX, &c.Port},
		field{uapi.RDMA_NLDEV_ATTR_RES_LQPN, &c.QPN},
		field{uapi.RDMA_NLDEV_ATTR_RES_TYPE, &c.QPType},
		field{uapi.RDMA_NLDEV_ATTR_RES_STATE, &c.State},
		field{uapi.RDMA_NLDEV_ATTR_RES_PS, &c.PortSpace},
		field{uapi.RDMA_NLDEV_ATTR_RES_SRC_ADDR, &c.Source},
		field{uapi.RDMA_NLDEV_ATTR_RES_DST_ADDR, &c.Dest},
	)
	return c
}

// decodeAddress decodes a struct __kernel_sockaddr_storage. It returns nothing for a family that
// it doesn't know.
func decodeAddress(d *decoder, v []byte) Optional[netip.AddrPort] {
	const size, inet, inet6, ib = 128, 2, 10, 27
	if !d.sized(v, size) {
		return Optional[netip.AddrPort]{}
	}
	port := binary.BigEndian.Uint16(v[2:])
	switch binary.NativeEndian.Uint16(v) {
	case inet:
		return Some(netip.AddrPortFrom(netip.AddrFrom4([4]byte(v[4:])), port))
	case inet6:
		return Some(netip.AddrPortFrom(netip.AddrFrom16([16]byte(v[8:])), port))
	case ib: // struct sockaddr_ib has the service ID after the GID
		return Some(netip.AddrPortFrom(netip.AddrFrom16([16]byte(v[8:])), binary.BigEndian.Uint16(v[30:])))
	}
	return Optional[netip.AddrPort]{}
}

// objects lists objects of one kind.
func objects[T any](ctx context.Context, kind string, command, table uint16, dev uint32, detail Detail, decode func(d *decoder, b []byte) T) ([]T, error) {
	r := list(command).device(dev)
	if detail != DetailCommon {
		r.u8(uapi.RDMA_NLDEV_ATTR_DRIVER_DETAILS, uint8(detail))
	}
	return tables(ctx, "list "+kind, onDevice(dev), dev, r, table, decode)
}

// tables asks for a list of tables, and decodes their entries. A kernel or device that lacks the
// table refuses with EINVAL.
func tables[T any](ctx context.Context, op, object string, dev uint32, r *request, table uint16, decode func(d *decoder, b []byte) T) ([]T, error) {
	bodies, err := ask(ctx, r)
	if err == nil {
		var d decoder
		all := entries(&d, bodies, table, decode)
		if err = d.err; err == nil {
			return all, nil
		}
	}
	return nil, opErr(op, object, unsupported(ctx, dev, err))
}

// unsupported returns ErrUnsupported for an EINVAL, if the device exists: the kernel or the device
// lacks the operation.
func unsupported(ctx context.Context, dev uint32, err error) error {
	if err = explain(ctx, dev, err); errors.Is(err, syscall.EINVAL) && !errors.Is(err, ErrNoDevice) {
		return fmt.Errorf("%w by the device, or the kernel (%w)", errors.ErrUnsupported, err)
	}
	return err
}

// QPs returns the queue pairs on a device, including the kernel's.
func QPs(ctx context.Context, dev uint32, detail Detail) ([]QP, error) {
	return objects(ctx, "QPs", uapi.RDMA_NLDEV_CMD_RES_QP_GET, uapi.RDMA_NLDEV_ATTR_RES_QP, dev, detail, decodeQP)
}

// CQs returns the completion queues on a device.
func CQs(ctx context.Context, dev uint32, detail Detail) ([]CQ, error) {
	return objects(ctx, "CQs", uapi.RDMA_NLDEV_CMD_RES_CQ_GET, uapi.RDMA_NLDEV_ATTR_RES_CQ, dev, detail, decodeCQ)
}

// MRs returns the memory regions on a device.
func MRs(ctx context.Context, dev uint32, detail Detail) ([]MR, error) {
	return objects(ctx, "MRs", uapi.RDMA_NLDEV_CMD_RES_MR_GET, uapi.RDMA_NLDEV_ATTR_RES_MR, dev, detail, decodeMR)
}

// PDs returns the protection domains on a device.
func PDs(ctx context.Context, dev uint32, detail Detail) ([]PD, error) {
	return objects(ctx, "PDs", uapi.RDMA_NLDEV_CMD_RES_PD_GET, uapi.RDMA_NLDEV_ATTR_RES_PD, dev, detail, decodePD)
}

// Contexts returns the processes that have opened a device, with a Context for each time.
func Contexts(ctx context.Context, dev uint32, detail Detail) ([]Context, error) {
	return objects(ctx, "contexts", uapi.RDMA_NLDEV_CMD_RES_CTX_GET, uapi.RDMA_NLDEV_ATTR_RES_CTX, dev, detail, decodeContext)
}

// SRQs returns the shared receive queues on a device.
func SRQs(ctx context.Context, dev uint32, detail Detail) ([]SRQ, error) {
	return objects(ctx, "SRQs", uapi.RDMA_NLDEV_CMD_RES_SRQ_GET, uapi.RDMA_NLDEV_ATTR_RES_SRQ, dev, detail, decodeSRQ)
}

// CMIDs returns the IDs of the connection manager that are bound to a device.
func CMIDs(ctx context.Context, dev uint32, detail Detail) ([]CMID, error) {
	return objects(ctx, "CM IDs", uapi.RDMA_NLDEV_CMD_RES_CM_ID_GET, uapi.RDMA_NLDEV_ATTR_RES_CM_ID, dev, detail, decodeCMID)
}

// A Count is the number of objects of one kind on a device.
type Count struct {
	Name string           // "qp", "mr" and so on
	Now  uint64           // at this moment
	Max  Optional[uint64] // the device's limit
}

func decodeCount(d *decoder, b []byte) Count {
	var c Count
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME:
			c.Name = d.text(v)
		case uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR:
			c.Now = d.u64(v)
		case uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_MAX:
			c.Max = Some(d.u64(v))
		}
	})
	d.need(c.Name != "", "a count without a name")
	return c
}

func decodeCounts(d *decoder, b []byte) []Count {
	return entries(d, [][]byte{b}, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY, decodeCount)
}

// Counts returns how many objects of each kind exist on a device.
func Counts(ctx context.Context, dev uint32) ([]Count, error) {
	bodies, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_RES_GET).device(dev))
	if err == nil {
		var counts []Count
		if counts, err = decodeOne(bodies, decodeCounts); err == nil {
			return counts, nil
		}
	}
	return nil, opErr("count objects", onDevice(dev), explain(ctx, dev, err))
}

// A RawKind is a kind of object that Raw takes.
type RawKind uint8

// The kinds of objects for Raw.
const (
	RawQP RawKind = iota
	RawCQ
	RawMR
	RawSRQ
)

var rawKinds = []struct {
	name               string
	command, id, table uint16
}{
	RawQP:  {"QP", uapi.RDMA_NLDEV_CMD_RES_QP_GET_RAW, uapi.RDMA_NLDEV_ATTR_RES_LQPN, uapi.RDMA_NLDEV_ATTR_RES_QP},
	RawCQ:  {"CQ", uapi.RDMA_NLDEV_CMD_RES_CQ_GET_RAW, uapi.RDMA_NLDEV_ATTR_RES_CQN, uapi.RDMA_NLDEV_ATTR_RES_CQ},
	RawMR:  {"MR", uapi.RDMA_NLDEV_CMD_RES_MR_GET_RAW, uapi.RDMA_NLDEV_ATTR_RES_MRN, uapi.RDMA_NLDEV_ATTR_RES_MR},
	RawSRQ: {"SRQ", uapi.RDMA_NLDEV_CMD_RES_SRQ_GET_RAW, uapi.RDMA_NLDEV_ATTR_RES_SRQN, uapi.RDMA_NLDEV_ATTR_RES_SRQ},
}

// Raw returns the device's own description of an object, such as a ConnectX's QP context. The ID is
// that of the object, or the number of a QP. This needs CAP_NET_ADMIN and the driver's support. A QP in
// RESET has no port, and the kernel returns nothing of it: the error is EAGAIN. Raws has it.
func Raw(ctx context.Context, dev uint32, kind RawKind, id uint32) ([]byte, error) {
	const op = "get the raw data of"
	if int(kind) >= len(rawKinds) {
		return nil, invalid(op, onDevice(dev), "there is no kind of object %d", kind)
	}
	k := rawKinds[kind]
	object := fmt.Sprintf("%s %d %s", k.name, id, onDevice(dev))
	ports := uint32(0)
	if kind == RawQP {
		// The kernel wants to know the QP's port, and refuses others with EAGAIN.
		d, err := GetDevice(ctx, dev)
		if err != nil {
			return nil, opErr(op, object, err)
		}
		ports = d.Ports
	}
	for port := min(ports, 1); ; port++ {
		r := get(k.command).device(dev).u32(k.id, id)
		if port > 0 {
			r.u32(uapi.RDMA_NLDEV_ATTR_PORT_INDEX, port)
		}
		bodies, err := ask(ctx, r)
		if err == nil {
			var raw []byte
			if raw, err = decodeOne(bodies, decodeRaw); err == nil {
				return raw, nil
			}
		}
		if port >= ports || !errors.Is(err, syscall.EAGAIN) {
			return nil, opErr(op, object, explain(ctx, dev, err))
		}
	}
}

// Raws returns what Raw returns, for all objects of one kind on a device. Each tells in the device's own
// format which object it is.
func Raws(ctx context.Context, dev uint32, kind RawKind) ([][]byte, error) {
	const op = "get the raw data of all"
	if int(kind) >= len(rawKinds) {
		return nil, invalid(op, onDevice(dev), "%d is no kind of object", kind)
	}
	k := rawKinds[kind]
	return tables(ctx, op+" "+k.name+"s", onDevice(dev), dev, list(k.command).device(dev), k.table, decodeRaw)
}

func decodeRaw(d *decoder, b []byte) []byte {
	var raw []byte
	d.each(b, func(kind uint16, v []byte) {
		if kind == uapi.RDMA_NLDEV_ATTR_RES_RAW {
			raw = v
		}
	})
	d.need(raw != nil, "no raw data")
	return raw
}
