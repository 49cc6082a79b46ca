package doctor

import (
	"bytes"
	"net"
	"syscall"
)

// VLAN asks rtnetlink (linux/if_link.h): the link's IFLA_LINKINFO has its kind, and for a
// VLAN its number.
func (system) VLAN(netDev string) int {
	const linkInfo, infoKind, infoData, vlanID = 18, 1, 2, 1
	i, err := net.InterfaceByName(netDev)
	if err != nil {
		return 0
	}
	reply, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return 0
	}
	messages, err := syscall.ParseNetlinkMessage(reply)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		// struct ifinfomsg has the interface's index at 4.
		if m.Header.Type != syscall.RTM_NEWLINK || len(m.Data) < syscall.SizeofIfInfomsg || native.Uint32(m.Data[4:]) != uint32(i.Index) {
			continue
		}
		info := attribute(attribute(m.Data[syscall.SizeofIfInfomsg:], linkInfo), infoKind)
		if string(bytes.TrimRight(info, "\x00")) != "vlan" {
			return 0
		}
		if id := attribute(attribute(attribute(m.Data[syscall.SizeofIfInfomsg:], linkInfo), infoData), vlanID); len(id) >= 2 {
			return int(native.Uint16(id))
		}
	}
	return 0
}

// attribute returns a netlink attribute's value, nil if there is none.
func attribute(b []byte, typ uint16) []byte {
	for len(b) >= 4 {
		n := int(native.Uint16(b))
		if n < 4 || n > len(b) {
			return nil
		}
		if native.Uint16(b[2:])&0x3fff == typ {
			return b[4:n]
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}
