package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An AHAttr describes the path to a peer (struct ibv_ah_attr). Over RoCE, IsGlobal must be
// set, DLID is not used, and SL is not a service level.
type AHAttr struct {
	IsGlobal     bool   // the fields from DGID to FlowLabel are used
	DGID         GID    // the peer's GID
	SGIDIndex    int    // the source GID's index in the port's table, 0 to 255
	HopLimit     uint8  // how many routers a packet may pass
	TrafficClass uint8  // 8 bits: DSCP and ECN over RoCE v2
	FlowLabel    uint32 // 20 bits

	DLID        uint16 // the peer's LID; InfiniBand only
	SL          uint8  // 0 to 15
	SrcPathBits uint8  // added to the port's LID, where the port has several (PortAttr.LMC)
	StaticRate  Rate   // limits the rate of sends; 0 for the port's rate
	Port        int    // from 1
}

// GRHLen is the length of a global routing header in bytes. The buffer of each UD receive
// begins with such a header. The flag WCGRH reports whether the header is valid.
const GRHLen = 40

// check returns an error for values that don't fit the kernel's structs.
func (a *AHAttr) check(op string, d *Device) error {
	if err := d.checkPort(op, a.Port); err != nil {
		return err
	}
	switch {
	case a.SGIDIndex < 0 || a.SGIDIndex > 0xff:
		return invalid(op, "source GID index %d is not in 0 to 255", a.SGIDIndex)
	case a.FlowLabel > 0xfffff:
		return invalid(op, "flow label %#x has more than 20 bits", a.FlowLabel)
	case a.SL > 15:
		return invalid(op, "service level %d is not in 0 to 15", a.SL)
	}
	return nil
}

func bool8(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// dest returns the attribute in MODIFY_QP's form.
func (a *AHAttr) dest() uapi.IbUverbsQpDest {
	return uapi.IbUverbsQpDest{
		Dgid: a.DGID, FlowLabel: a.FlowLabel, Dlid: a.DLID, SgidIndex: uint8(a.SGIDIndex),
		HopLimit: a.HopLimit, TrafficClass: a.TrafficClass, Sl: a.SL, SrcPathBits: a.SrcPathBits,
		StaticRate: uint8(a.StaticRate), IsGlobal: bool8(a.IsGlobal), PortNum: uint8(a.Port),
	}
}

func ahAttrFromDest(d *uapi.IbUverbsQpDest) AHAttr {
	return AHAttr{
		IsGlobal: d.IsGlobal != 0, DGID: d.Dgid, SGIDIndex: int(d.SgidIndex), HopLimit: d.HopLimit,
		TrafficClass: d.TrafficClass, FlowLabel: d.FlowLabel, DLID: d.Dlid, SL: d.Sl,
		SrcPathBits: d.SrcPathBits, StaticRate: Rate(d.StaticRate), Port: int(d.PortNum),
	}
}

// An AH is an address handle: the destination of a UD work request.
type AH struct {
	ref provider.AHRef // first: see noescape.go
	object
	pd    *PD
	local bool // the kernel has no handle for it
}

func (ah *AH) base() *object {
	if ah == nil {
		return nil
	}
	return &ah.object
}

// CreateAH creates an address handle (ibv_create_ah). Over RoCE, the kernel asks the network
// for the peer's MAC address if it doesn't know it, and CreateAH waits for the answer.
func (pd *PD) CreateAH(a AHAttr) (*AH, error) {
	const op = "create AH"
	return create(op, []*object{pd.base()}, func() (*AH, error) { return pd.newAH(op, &a) })
}

func (pd *PD) newAH(op string, a *AHAttr) (*AH, error) {
	d := pd.dev
	if d.iwarp() {
		return nil, lacking(op, errIWARPDatagrams)
	}
	if err := a.check(op, d); err != nil {
		return nil, err
	}
	attr := uapi.IbUverbsAhAttr{
		Grh: uapi.IbUverbsGlobalRoute{
			Dgid: a.DGID, FlowLabel: a.FlowLabel, SgidIndex: uint8(a.SGIDIndex),
			HopLimit: a.HopLimit, TrafficClass: a.TrafficClass,
		},
		Dlid: a.DLID, Sl: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: uint8(a.StaticRate),
		IsGlobal: bool8(a.IsGlobal), PortNum: uint8(a.Port),
	}
	cmd := ioctl.NewWriteCreateAh()
	defer cmd.Release()
	cmd.Req.UserHandle, cmd.Req.PdHandle, cmd.Req.Attr = d.newID(), pd.handle, attr
	prov, err := d.prov.NewAH(cmd, provider.AHInit{Attr: attr, Link: d.linkOf(a)})
	if err != nil {
		return nil, d.failed(op, "", err)
	}
	ah := &AH{local: prov.Local()}
	if !ah.local {
		if err := cmd.Run(d.file); err != nil {
			e := d.failedPath(op, fmt.Sprintf("port %d", a.Port), a, err)
			if !a.IsGlobal && e.hint == "" {
				e.hint = "over RoCE an address is global: set IsGlobal"
			}
			return nil, e
		}
	}
	if err := prov.Adopt(&ah.ref); err != nil {
		if !ah.local {
			destroy(d, ioctl.NewAhDestroy(), cmd.Resp.AhHandle)
		}
		return nil, d.failed(op, "", err)
	}
	ah.pd = pd
	ah.adopt(d, kindAH, cmd.Resp.AhHandle, ah, &pd.object)
	return ah, nil
}

// linkOf returns a function that returns the link properties of the address's port and, on
// Ethernet, the type of its source GID.
func (d *Device) linkOf(a *AHAttr) func() (provider.Link, error) {
	port, sgidIndex, isGlobal := a.Port, a.SGIDIndex, a.IsGlobal // copies, so that a doesn't escape to the heap
	return func() (provider.Link, error) { return d.link(port, sgidIndex, isGlobal) }
}

func (d *Device) link(port, sgidIndex int, isGlobal bool) (provider.Link, error) {
	known, ok := d.links.Load(port)
	if !ok {
		attr, err := d.QueryPort(port)
		if err != nil {
			return provider.Link{}, err
		}
		known = provider.Link{Ethernet: attr.LinkLayer == LinkLayerEthernet, GRHRequired: attr.GRHRequired}
		d.links.Store(port, known)
	}
	l := known.(provider.Link)
	if !l.Ethernet || !isGlobal {
		return l, nil
	}
	e, err := d.gid(port, sgidIndex)
	l.RoCEV2 = e.Type == GIDTypeRoCEv2
	return l, err
}

// CreateAHFromWC creates an address handle for the reply to a UD message
// (ibv_create_ah_from_wc). It takes the arguments of AHAttrFromWC.
func (pd *PD) CreateAHFromWC(wc *WC, grh []byte, port int) (*AH, error) {
	if err := hold("create AH from WC", pd.base()); err != nil {
		return nil, err
	}
	defer pd.drop()
	a, err := pd.dev.AHAttrFromWC(wc, grh, port)
	if err != nil {
		return nil, err
	}
	return pd.CreateAH(a)
}

// AHAttrFromWC returns the path to the sender of a UD message (ibv_init_ah_from_wc). wc is the
// receive's completion, grh the first 40 bytes of the receive buffer, and port the port that the
// message arrived on. Over RoCE v2 on IPv4, the IP header is in the last 20 bytes of grh.
//
// An AHAttr is comparable, so a server can keep its AHs in a map from AHAttr to *AH. AHAttr
// and WC.SrcQP together identify a sender.
func (d *Device) AHAttrFromWC(wc *WC, grh []byte, port int) (AHAttr, error) {
	const op = "find path from WC"
	if err := d.begin(op); err != nil {
		return AHAttr{}, err
	}
	defer d.done()
	if wc == nil {
		return AHAttr{}, invalid(op, "no work completion")
	}
	a := AHAttr{DLID: wc.SLID, SL: wc.SL, SrcPathBits: wc.DLIDPathBits, Port: port}
	if wc.Flags&WCGRH == 0 {
		return a, nil
	}
	if len(grh) < GRHLen {
		return AHAttr{}, invalid(op, "the GRH has %d bytes, not 40", len(grh))
	}
	dst, v2, err := a.setReply([GRHLen]byte(grh))
	if err != nil {
		return AHAttr{}, invalid(op, "%v", err)
	}
	// The reply is sent from the message's destination address.
	table, err := d.GIDTable()
	if err != nil {
		return AHAttr{}, err
	}
	for _, e := range table {
		if e.Port == port && e.GID == dst && (e.Type == GIDTypeRoCEv2) == v2 {
			a.IsGlobal, a.SGIDIndex = true, e.Index
			return a, nil
		}
	}
	return AHAttr{}, invalid(op, "the message was sent to GID %v, which port %d does not have", dst, port)
}

// ecn is the mask of a traffic class's congestion notification bits.
const ecn = 3

// setReply sets the path of the reply to a message with this header. It returns the message's
// destination GID, and whether the message came over RoCE v2.
func (a *AHAttr) setReply(grh [GRHLen]byte) (dst GID, v2 bool, err error) {
	if ip := grh[20:]; isIPv4(grh) {
		a.TrafficClass, a.HopLimit = ip[1]&^ecn, ip[8]
		a.DGID = gidFromIPv4([4]byte(ip[12:16]))
		return gidFromIPv4([4]byte(ip[16:20])), true, nil
	}
	first := binary.BigEndian.Uint32(grh[:])
	if version := first >> 28; version != 6 {
		return dst, false, fmt.Errorf("the GRH has IP version %d", version)
	}
	// An IPv6 header. InfiniBand's GRH has the same layout.
	a.TrafficClass, a.FlowLabel = uint8(first>>20)&^ecn, first&0xfffff
	a.HopLimit = grh[7]
	a.DGID = GID(grh[8:24])
	const udp, bth = 17, 0x1b
	switch next := grh[6]; next {
	case udp, bth:
		return GID(grh[24:40]), next == udp, nil
	default:
		return dst, false, fmt.Errorf("the GRH is followed by protocol %d: this is not an RDMA packet", next)
	}
}

// isIPv4 reports whether the header is that of RoCE v2 over IPv4. The IPv4 header is in the
// last 20 bytes. The other bytes are undefined and may look like IPv6, so a correct IPv4
// checksum decides.
func isIPv4(grh [GRHLen]byte) bool {
	ip := grh[20:]
	if grh[0]>>4 != 6 {
		return ip[0]>>4 == 4
	}
	if ip[0] != 0x45 { // RoCE v2 uses no options
		return false
	}
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	return sum%0xffff == 0 // ones' complement has two zeros, 0 and 0xffff
}

// gidFromIPv4 returns the IPv4-mapped GID.
func gidFromIPv4(ip [4]byte) GID {
	g := GID{10: 0xff, 11: 0xff}
	copy(g[12:], ip[:])
	return g
}

// Close destroys the address handle (ibv_destroy_ah). All work requests that use it
// must have completed.
func (ah *AH) Close() error {
	return ah.base().end("destroy AH",
		func() error {
			if ah.local {
				return nil
			}
			return ah.destroy(ioctl.NewAhDestroy())
		},
		func() {})
}

// FlowLabelUDPPort returns the UDP source port, 0xc000 to 0xffff, of RoCE v2 packets with a
// flow label, where the driver derives the port from the label (ibv_flow_label_to_udp_sport).
// Routers choose among equal paths by the port.
func FlowLabelUDPPort(label uint32) uint16 {
	return uint16(label&0x3fff ^ label>>14&0x3f | 0xc000)
}
