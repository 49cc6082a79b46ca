package rdmacm

import (
	"context"
	"encoding/binary"
	"math"
	"net/netip"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

const (
	opBind         = "bind"
	opListen       = "listen"
	opResolveAddr  = "resolve address"
	opResolveRoute = "resolve route"
	opSetPath      = "set path"
)

// Bind binds the ID to a local address (rdma_bind_addr), and to the device that
// has it, unless the address is unspecified. Port 0 stands for any free port: see
// LocalAddr. An IPv6 link-local address needs its zone.
func (id *cmID) Bind(addr netip.AddrPort) error { return id.bind(ipAddr{addr}) }

func (id *cmID) bind(addr sockaddr) error {
	if err := id.begin(opBind); err != nil {
		return err
	}
	defer id.end()
	f := newFrame()
	defer f.release()
	req := in[uapi.RdmaUcmBind](f)
	size, err := addr.put(opBind, &req.Addr)
	if err != nil {
		return err
	}
	req.Id, req.AddrSize = id.handle, size
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_BIND, f); err != nil {
		return bindError(addr, err)
	}
	if err := id.doAddrResolved(); err != nil {
		return opErr(opBind, "to "+addr.String(), err)
	}
	return nil
}

func bindError(addr sockaddr, err error) error {
	e := &OpError{Op: opBind, Object: "to " + addr.String(), Err: err, hint: localHint(addr, err)}
	if _, isIP := addr.(ipAddr); isIP && err == syscall.ENODEV {
		e.hint = hintNotLocal
	}
	return e
}

const (
	hintNotLocal = "no RDMA device of this host has the address; 'ibv info -v' lists the devices' addresses"
	hintZone     = "a link-local address needs its zone, as in fe80::1%eth0"
	hintNoDevice = "the interface that leads there has no RDMA device; 'ibv info -v' lists the devices' addresses"
)

// localHint returns a hint about an address of this end, or "".
func localHint(addr sockaddr, err error) string {
	_, isIP := addr.(ipAddr)
	switch {
	case !isIP && err == syscall.ENODEV:
		return ibAddrHint
	case err == syscall.EADDRNOTAVAIL:
		return hintNotLocal
	case err == syscall.EADDRINUSE:
		return "another ID has the port"
	case err == syscall.EINVAL && withoutZone(addr):
		return hintZone
	}
	return ""
}

// withoutZone reports whether the address lacks the zone that it needs.
func withoutZone(addr sockaddr) bool {
	ip, isIP := addr.(ipAddr)
	return isIP && ip.Addr().Is6() && ip.Addr().IsLinkLocalUnicast() && ip.Addr().Zone() == ""
}

// resolveError returns the error of resolving dst, with a hint about the source or the
// destination.
func resolveError(src, dst sockaddr, err error) error {
	e := &OpError{Op: opResolveAddr, Object: "of " + dst.String(), Err: err}
	if src != nil {
		e.Object += " from " + src.String()
		e.hint = localHint(src, err)
	}
	_, isIP := dst.(ipAddr)
	switch {
	case e.hint != "":
	case !isIP && err == syscall.ENODEV:
		e.hint = ibAddrHint
	case err == syscall.ENODEV:
		e.hint = hintNoDevice
	case err == syscall.EINVAL && withoutZone(dst):
		e.hint = hintZone
	}
	return e
}

// Listen starts listening (rdma_listen). If the ID is not bound, it listens on all
// addresses. backlog is the maximum number of requests that wait to be taken. 0
// stands for the kernel's limit (/proc/sys/net/rdma_ucm/max_backlog). The kernel
// ignores further requests, and the peers repeat them for about a minute. A SyncID
// rejects them.
func (id *cmID) Listen(backlog int) error {
	if backlog < 0 || backlog > math.MaxInt32 {
		return invalid(opListen, "backlog %d is out of range", backlog)
	}
	if err := id.begin(opListen); err != nil {
		return err
	}
	defer id.end()
	id.mu.Lock()
	if id.backlog = backlog; backlog == 0 {
		id.backlog = defaultBacklog
	}
	id.mu.Unlock()
	f := newFrame()
	defer f.release()
	*in[uapi.RdmaUcmListen](f) = uapi.RdmaUcmListen{Id: id.handle, Backlog: uint32(backlog)}
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_LISTEN, f); err != nil {
		return &OpError{Op: opListen, Object: "on " + id.LocalAddr().String(), Err: err, hint: localHint(ipAddr{id.LocalAddr()}, err)}
	}
	if err := id.doAddrResolved(); err != nil {
		return opErr(opListen, "", err)
	}
	return nil
}

// defaultBacklog is the kernel's default. It is for SyncIDs: they take
// requests from the kernel at once, and keep the backlog themselves.
const defaultBacklog = 1024

// ResolveAddr finds the device and the neighbour on the way to an address
// (rdma_resolve_addr). It binds the ID to src or, if src is not valid, to the
// address that the routing table chooses. The event is EventAddrResolved or
// EventAddrError. timeout limits how long the kernel waits for the neighbour. It
// is at least 1 ms.
func (id *ID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	return id.resolveAddr(source(src), ipAddr{dst}, timeout)
}

// ResolveAddr is like ID.ResolveAddr, but waits for EventAddrResolved.
func (id *SyncID) ResolveAddr(ctx context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	return id.resolveAddr(ctx, source(src), ipAddr{dst}, timeout)
}

// source returns nil for an address that is not valid.
func source(addr netip.AddrPort) sockaddr {
	if !addr.Addr().IsValid() {
		return nil
	}
	return ipAddr{addr}
}

func (id *ID) resolveAddr(src, dst sockaddr, timeout time.Duration) error {
	return id.do(opResolveAddr, func() error { return id.doResolveAddr(src, dst, timeout) })
}

func (id *SyncID) resolveAddr(ctx context.Context, src, dst sockaddr, timeout time.Duration) error {
	_, err := id.do(ctx, opResolveAddr, func() error { return id.doResolveAddr(src, dst, timeout) },
		func() string { return "of " + dst.String() }, EventAddrResolved)
	return err
}

// doResolveAddr resolves dst; src may be nil.
func (id *cmID) doResolveAddr(src, dst sockaddr, timeout time.Duration) (err error) {
	f := newFrame()
	defer f.release()
	req := in[uapi.RdmaUcmResolveAddr](f)
	req.Id = id.handle
	if req.TimeoutMs, err = milliseconds(opResolveAddr, timeout); err != nil {
		return err
	}
	if src != nil {
		if req.SrcSize, err = src.put(opResolveAddr, &req.SrcAddr); err != nil {
			return err
		}
	}
	if req.DstSize, err = dst.put(opResolveAddr, &req.DstAddr); err != nil {
		return err
	}
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR, f); err != nil {
		return resolveError(src, dst, err)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.bound.to = dst
	return nil
}

func milliseconds(op string, d time.Duration) (uint32, error) {
	ms := d.Milliseconds()
	if ms < 1 || ms > math.MaxInt32 {
		return 0, invalid(op, "timeout %v is not in 1 ms to %v", d, math.MaxInt32*time.Millisecond)
	}
	return uint32(ms), nil
}

// ResolveRoute finds the path to the resolved address (rdma_resolve_route). The
// event is EventRouteResolved or EventRouteError.
func (id *ID) ResolveRoute(timeout time.Duration) error {
	return id.do(opResolveRoute, func() error { return id.doResolveRoute(timeout) })
}

// ResolveRoute is like ID.ResolveRoute, but waits for EventRouteResolved.
func (id *SyncID) ResolveRoute(ctx context.Context, timeout time.Duration) error {
	_, err := id.do(ctx, opResolveRoute, func() error { return id.doResolveRoute(timeout) }, id.toPeer, EventRouteResolved)
	return err
}

func (id *cmID) doResolveRoute(timeout time.Duration) error {
	ms, err := milliseconds(opResolveRoute, timeout)
	if err != nil {
		return err
	}
	f := newFrame()
	defer f.release()
	*in[uapi.RdmaUcmResolveRoute](f) = uapi.RdmaUcmResolveRoute{Id: id.handle, TimeoutMs: ms}
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, f); err != nil {
		e := &OpError{Op: opResolveRoute, Object: id.toPeer(), Err: err}
		if err == syscall.ENODEV {
			e.hint = hintNoDevice
		}
		return e
	}
	return nil
}

// Addresses is the result of QueryAddr.
type Addresses struct {
	NodeGUID verbs.GUID     // of the device
	Port     int            // of the device, from 1; 0 before there is one
	PKey     uint16         // the partition; 0 over RoCE
	Local    netip.AddrPort // this end
	Remote   netip.AddrPort // the other end
}

// QueryAddr asks the kernel for the ID's addresses (RDMA_USER_CM_QUERY_ADDR).
func (id *cmID) QueryAddr() (Addresses, error) {
	const op = "query address"
	if err := id.begin(op); err != nil {
		return Addresses{}, err
	}
	defer id.end()
	a, _, err := id.doQueryAddr()
	if err != nil {
		return Addresses{}, opErr(op, "", err)
	}
	return a, nil
}

func (id *cmID) doQueryAddr() (Addresses, deviceKey, error) {
	f := newFrame()
	defer f.release()
	resp, err := id.query(f, uapi.RDMA_USER_CM_QUERY_ADDR)
	if err != nil {
		return Addresses{}, deviceKey{}, err
	}
	a := addresses(resp)
	a.Local, a.Remote = addrPort(&resp.SrcAddr), addrPort(&resp.DstAddr)
	return a, deviceKey{a.NodeGUID, resp.IbdevIndex}, nil
}

func (id *cmID) query(f *frame, option uint32) (*uapi.RdmaUcmQueryAddrResp, error) {
	resp, address := out[uapi.RdmaUcmQueryAddrResp](f, 0)
	resp.IbdevIndex = noIndex
	*in[uapi.RdmaUcmQuery](f) = uapi.RdmaUcmQuery{Response: address, Id: id.handle, Option: option}
	return resp, id.ch.run(uapi.RDMA_USER_CM_CMD_QUERY, f)
}

func addresses(resp *uapi.RdmaUcmQueryAddrResp) Addresses {
	return Addresses{NodeGUID: nodeGUID(resp.NodeGuid), Port: int(resp.PortNum), PKey: bigEndian16(resp.Pkey)}
}

// bigEndian16 converts a field that the kernel keeps in network byte order.
func bigEndian16(v uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	return binary.BigEndian.Uint16(b[:])
}

// addrResolved records the addresses that the kernel has found, and opens the
// device.
func (id *cmID) addrResolved() error {
	if !id.beginEvent() {
		return ErrClosed
	}
	defer id.end()
	return id.doAddrResolved()
}

func (id *cmID) doAddrResolved() error {
	a, key, err := id.doQueryAddr()
	if err != nil {
		return err
	}
	id.mu.Lock()
	id.bound.src, id.bound.dst = a.Local, a.Remote
	known := id.bound.dev != nil
	id.mu.Unlock()
	if known || a.Port == 0 { // not the GUID: an unconfigured one is 0
		return nil
	}
	dev, err := acquireDevice(key)
	if err != nil {
		return err
	}
	id.mu.Lock()
	if known = id.bound.dev != nil; !known { // it may have been set since then
		id.bound.dev, id.bound.port = dev, a.Port
	}
	id.mu.Unlock()
	if known {
		return dev.release()
	}
	return nil
}

// GIDs is the result of QueryGID: the GIDs of both ends, and the InfiniBand services of
// their port numbers.
type GIDs struct {
	Addresses // without Local and Remote

	LocalGID, RemoteGID         verbs.GID // the addresses of the ports
	LocalService, RemoteService uint64    // the service IDs: port space and port
}

// QueryGID asks the kernel for the ID's GIDs (RDMA_USER_CM_QUERY_GID).
func (id *cmID) QueryGID() (GIDs, error) {
	const op = "query GID"
	if err := id.begin(op); err != nil {
		return GIDs{}, err
	}
	defer id.end()
	f := newFrame()
	defer f.release()
	resp, err := id.query(f, uapi.RDMA_USER_CM_QUERY_GID)
	if err != nil {
		return GIDs{}, opErr(op, "", err)
	}
	g := GIDs{Addresses: addresses(resp)}
	g.LocalGID, g.LocalService = gidAndService(&resp.SrcAddr)
	g.RemoteGID, g.RemoteService = gidAndService(&resp.DstAddr)
	return g, nil
}

// A Path is a subnet administrator's path record (struct ibv_sa_path_rec;
// InfiniBand specification, 15.2.5.16). Over RoCE the kernel makes it up.
type Path struct {
	DGID, SGID     verbs.GID  // destination and source
	DLID, SLID     uint16     // InfiniBand only
	FlowLabel      uint32     // 20 bits
	HopLimit       uint8      // of the GRH
	TrafficClass   uint8      // of the GRH
	Reversible     bool       // answers take the same path
	PKey           uint16     // the partition
	SL             uint8      // service level
	MTU            verbs.MTU  // the path's maximum
	Rate           verbs.Rate // the path's maximum
	PacketLifeTime uint8      // 4.096 µs times 2 to the power of this
}

// maxPaths is the maximum number of an ID's paths: a primary and an alternate one.
const maxPaths = 2

const sizeofPathData = 72 // struct ib_path_rec_data

// QueryPath asks the kernel for the ID's paths (RDMA_USER_CM_QUERY_PATH). There
// are none before the route is resolved.
func (id *cmID) QueryPath() ([]Path, error) {
	const op = "query path"
	if err := id.begin(op); err != nil {
		return nil, err
	}
	defer id.end()
	f := newFrame()
	defer f.release()
	resp, address := out[uapi.RdmaUcmQueryPathResp](f, maxPaths*sizeofPathData)
	*in[uapi.RdmaUcmQuery](f) = uapi.RdmaUcmQuery{Response: address, Id: id.handle, Option: uapi.RDMA_USER_CM_QUERY_PATH}
	if err := id.ch.run(uapi.RDMA_USER_CM_CMD_QUERY, f); err != nil {
		return nil, opErr(op, "", err)
	}
	paths := make([]Path, min(resp.NumPaths, maxPaths))
	for i := range paths {
		record := f.answer(uapi.RdmaUcmQueryPathRespPathDataOffset+i*sizeofPathData, sizeofPathData)
		paths[i] = parsePath(record[8:]) // after the flags
	}
	return paths, nil
}

// SetPath sets the path to the peer (RDMA_OPTION_IB_PATH). A program that knows
// the path calls it in place of ResolveRoute. The event is EventRouteResolved. Over
// RoCE the kernel replaces some of the fields.
func (id *ID) SetPath(path Path) error {
	return id.do(opSetPath, func() error { return id.doSetPath(path) })
}

// SetPath is like ID.SetPath, but waits for EventRouteResolved.
func (id *SyncID) SetPath(ctx context.Context, path Path) error {
	_, err := id.do(ctx, opSetPath, func() error { return id.doSetPath(path) }, id.toPeer, EventRouteResolved)
	return err
}

func (id *cmID) doSetPath(path Path) error {
	record := uapi.IbPathRecData{Flags: uapi.IB_PATH_GMP | uapi.IB_PATH_PRIMARY | uapi.IB_PATH_BIDIRECTIONAL}
	b := path.bytes()
	for i := range record.PathRec {
		record.PathRec[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return doSetOption(id, opSetPath, uapi.RDMA_OPTION_IB, uapi.RDMA_OPTION_IB_PATH, record)
}

// bytes is parsePath's inverse.
func (p *Path) bytes() (b [64]byte) {
	const exactly = 2 << 6 // the selector for an exact value
	copy(b[8:], p.DGID[:])
	copy(b[24:], p.SGID[:])
	binary.BigEndian.PutUint16(b[40:], p.DLID)
	binary.BigEndian.PutUint16(b[42:], p.SLID)
	binary.BigEndian.PutUint32(b[44:], p.FlowLabel<<8|uint32(p.HopLimit))
	b[48] = p.TrafficClass
	b[49] = bool8(p.Reversible)<<7 | 1 // one path
	binary.BigEndian.PutUint16(b[50:], p.PKey)
	b[53] = p.SL & 0xf
	b[54], b[55], b[56] = exactly|byte(p.MTU), exactly|byte(p.Rate), exactly|p.PacketLifeTime
	return b
}

// parsePath reads a path record as it is on the wire.
func parsePath(b []byte) Path {
	flowHop := binary.BigEndian.Uint32(b[44:])
	return Path{
		DGID: verbs.GID(b[8:24]), SGID: verbs.GID(b[24:40]),
		DLID: binary.BigEndian.Uint16(b[40:]), SLID: binary.BigEndian.Uint16(b[42:]),
		FlowLabel: flowHop >> 8 & 0xfffff, HopLimit: uint8(flowHop), TrafficClass: b[48],
		Reversible: b[49]>>7 != 0, PKey: binary.BigEndian.Uint16(b[50:]),
		SL: b[53] & 0xf, MTU: verbs.MTU(b[54] & 0x3f), Rate: verbs.Rate(b[55] & 0x3f), PacketLifeTime: b[56] & 0x3f,
	}
}
