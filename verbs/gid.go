package verbs

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A GID is the address of a port, in network byte order (union ibv_gid). On
// InfiniBand it is a subnet prefix and a GUID. On RoCE it is the IPv6 address, or the
// IPv4-mapped IPv6 address, of a network interface. GID(addr.As16()) converts an
// address to a GID.
type GID = ib.GID

// A GIDType is the protocol of a GID's packets (enum ibv_gid_type).
type GIDType uint8

// The zero GIDType is none of these. In a GIDSelector it stands for any type.
const (
	GIDTypeIB     GIDType = iota + 1 // InfiniBand, unencapsulated
	GIDTypeRoCEv1                    // Ethernet frames of their own type, within one subnet
	GIDTypeRoCEv2                    // UDP/IP packets, routable
)

// gidType converts the kernel's number (enum ib_uverbs_gid_type) to a GIDType.
func gidType(v uint32) GIDType { return GIDType(v) + GIDTypeIB - GIDType(uapi.IB_UVERBS_GID_TYPE_IB) }

func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return "Invalid gid type"
}

// A GIDEntry is an entry of a port's GID table (struct ibv_gid_entry).
type GIDEntry struct {
	GID     GID     // the address
	Port    int     // from 1
	Index   int     // in the port's table: AHAttr.SGIDIndex
	Type    GIDType // the protocol of its packets
	NetDev  string  // its network interface, "" for none
	IfIndex int     // the interface's index, 0 for none
}

func (e GIDEntry) String() string {
	s := fmt.Sprintf("port %d index %d: %v, %v", e.Port, e.Index, e.GID, e.Type)
	if e.NetDev != "" {
		s += ", " + e.NetDev
	}
	return s
}

// A GIDTable has all valid entries of a device's GID tables, ordered by port and
// index.
type GIDTable []GIDEntry

// A GIDSelector selects a GID. A zero field matches anything.
type GIDSelector struct {
	Port   int        // from 1
	Addr   netip.Addr // the IPv4 or IPv6 address that the GID stands for
	NetDev string     // the GID's network interface
	Type   GIDType    // 0 for any type
}

// String returns a description of the selector.
func (s GIDSelector) String() string {
	var words []string
	if s.Type != 0 {
		words = append(words, "of type "+s.Type.String())
	}
	if s.Addr.IsValid() {
		words = append(words, "with address "+s.Addr.String())
	}
	if s.NetDev != "" {
		words = append(words, "on interface "+s.NetDev)
	}
	if s.Port != 0 {
		words = append(words, fmt.Sprintf("on port %d", s.Port))
	}
	return strings.Join(words, " ")
}

func (s GIDSelector) match(e GIDEntry) bool {
	return (s.Port == 0 || s.Port == e.Port) &&
		(!s.Addr.IsValid() || s.Addr.WithZone("").Unmap() == e.GID.Addr()) &&
		(s.NetDev == "" || s.NetDev == e.NetDev) &&
		(s.Type == 0 || s.Type == e.Type)
}

// Find returns the entry that matches the selector. If several match, it returns the entry
// with the widest reach. It prefers RoCE v2 to RoCE v1, then IPv4 to other addresses, and
// link-local addresses come last. Of equal entries it returns the first.
func (t GIDTable) Find(s GIDSelector) (GIDEntry, error) {
	best := -1
	for i, e := range t {
		if s.match(e) && (best < 0 || e.rank() > t[best].rank()) {
			best = i
		}
	}
	if best >= 0 {
		return t[best], nil
	}
	var have []string
	for _, e := range t {
		have = append(have, e.String())
	}
	err := &OpError{Op: "find GID", Err: operr.Invalid("%s", strings.TrimSpace("there is no GID "+s.String()))}
	switch {
	case len(have) > 0:
		err.hint = "there are: " + strings.Join(have, "; ")
	default:
		err.hint = "the GID table is empty: is the port's network interface up, with an address?"
	}
	return GIDEntry{}, err
}

// rank returns a rank that grows with the distance that the entry's packets can go.
func (e GIDEntry) rank() int {
	n := 4 * int(e.Type)
	switch {
	case e.GID.IsIPv4Mapped():
		n += 2
	case !e.GID.Addr().IsLinkLocalUnicast():
		n++
	}
	return n
}

// GIDTable returns the valid entries of all ports' GID tables
// (ibv_query_gid_table; UVERBS_METHOD_QUERY_GID_TABLE, from Linux 5.10).
func (d *Device) GIDTable() (GIDTable, error) {
	table, err := d.gids("query GID table")
	if err != nil {
		return nil, err
	}
	d.info.nameNetDevs(table)
	return table, nil
}

// gids is like GIDTable, but leaves out the interfaces' names.
func (d *Device) gids(op string) (GIDTable, error) {
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	size := uapi.StructIbUverbsGidEntry.Size
	entries := make([]uapi.IbUverbsGidEntry, math.MaxUint16/size) // as many as an attribute holds
	cmd := ioctl.NewQueryGidTable()
	defer cmd.Release()
	cmd.EntrySize(uint64(size))
	cmd.Flags(0)
	cmd.RespEntries(entries)
	n := cmd.RespNumEntries()
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, d.info.name, err)
	}
	table := make(GIDTable, min(*n, uint64(len(entries))))
	for i := range table {
		table[i] = gidEntry(&entries[i])
	}
	return table, nil
}

// FindGID returns the GID that matches the selector: it calls GIDTable.Find on the device's
// GIDTable. A port has a GID for each address of its network interface and each protocol.
// The selector chooses.
func (d *Device) FindGID(s GIDSelector) (GIDEntry, error) {
	table, err := d.GIDTable()
	if err != nil {
		return GIDEntry{}, err
	}
	return table.Find(s)
}

// QueryGID returns one entry of a port's GID table (ibv_query_gid_ex). Ports count from 1, indices
// from 0 to PortAttr.GIDTableLen-1. For an index without an entry, the errno is ENODATA.
func (d *Device) QueryGID(port, index int) (GIDEntry, error) {
	e, err := d.gid(port, index)
	if err != nil {
		return GIDEntry{}, err
	}
	table := GIDTable{e}
	d.info.nameNetDevs(table)
	return table[0], nil
}

// gid is like QueryGID, but leaves out the interface's name.
func (d *Device) gid(port, index int) (GIDEntry, error) {
	const op = "query GID"
	attr, err := d.queryPort(op, port)
	if err != nil {
		return GIDEntry{}, err
	}
	if index < 0 || index >= attr.GIDTableLen {
		return GIDEntry{}, invalid(op, "GID index %d of port %d is not in 0 to %d", index, port, attr.GIDTableLen-1)
	}
	if err := d.begin(op); err != nil {
		return GIDEntry{}, err
	}
	defer d.done()
	cmd := ioctl.NewQueryGidEntry()
	defer cmd.Release()
	cmd.Port(uint32(port))
	cmd.GidIndex(uint32(index))
	cmd.Flags(0)
	entry := cmd.RespEntry()
	if err := cmd.Run(d.file); err != nil {
		e := d.failed(op, fmt.Sprintf("port %d, index %d", port, index), err)
		if e.hint == "" {
			e.hint = "'ibv info -v' lists the GIDs"
		}
		return GIDEntry{}, e
	}
	return gidEntry(entry), nil
}

// gidIndex returns the GID's current index. The table changes with the addresses of the
// interfaces, so a GID found earlier may have moved or be gone.
func (d *Device) gidIndex(op string, gid GIDEntry) (int, error) {
	table, err := d.gids(op)
	if err != nil {
		return 0, err
	}
	index := -1
	for _, e := range table {
		if e.Port == gid.Port && e.GID == gid.GID && e.Type == gid.Type && e.IfIndex == gid.IfIndex && (index < 0 || e.Index == gid.Index) {
			index = e.Index
		}
	}
	if index < 0 {
		return 0, &OpError{Op: op, Err: operr.Invalid("the GID is no longer in the table: %v", gid), hint: "find a GID again, and tell the peer"}
	}
	return index, nil
}

func gidEntry(e *uapi.IbUverbsGidEntry) GIDEntry {
	g := GIDEntry{
		Port:    int(e.PortNum),
		Index:   int(e.GidIndex),
		Type:    gidType(e.GidType),
		IfIndex: int(e.NetdevIfindex),
	}
	high, low := guidFromBE(e.Gid[0]), guidFromBE(e.Gid[1])
	copy(g.GID[:8], high[:])
	copy(g.GID[8:], low[:])
	return g
}
