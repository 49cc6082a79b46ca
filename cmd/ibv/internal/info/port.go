package info

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/verbs"
)

func describePort(s *sheet.Sheet, c *verbs.Device, port int, verbose bool, gids verbs.GIDTable) error {
	a, err := c.QueryPort(port)
	if err != nil {
		return err
	}
	s.Put("\t\tport:\t%d\n", port)
	s.Put("\t\t\tstate:\t\t\t%s (%d)\n", stateWord(a.State), a.State)
	s.Put("\t\t\tmax_mtu:\t\t%s (%d)\n", a.MaxMTU, a.MaxMTU)
	s.Put("\t\t\tactive_mtu:\t\t%s (%d)\n", a.ActiveMTU, a.ActiveMTU)
	s.Put("\t\t\tsm_lid:\t\t\t%d\n", a.SMLID)
	s.Put("\t\t\tport_lid:\t\t%d\n", a.LID)
	s.Put("\t\t\tport_lmc:\t\t0x%02x\n", a.LMC)
	s.Put("\t\t\tlink_layer:\t\t%s\n", a.LinkLayer)
	if verbose {
		if err := describePortDetails(s, c, port, a); err != nil {
			return err
		}
		describeGIDs(s, port, a.LinkLayer, gids)
	}
	s.Note("\n")
	return nil
}

// stateWord returns ibv_devinfo's name of a state.
func stateWord(s verbs.PortState) string {
	if s < verbs.PortDown || s > verbs.PortActive {
		return "invalid state"
	}
	return "PORT_" + s.String()
}

// physStateWord returns ibv_devinfo's name of a physical state.
func physStateWord(s verbs.PhysState) string {
	switch {
	case s < verbs.PhysSleep || s > verbs.PhysTest:
		return "invalid physical state"
	case s == verbs.PhysTraining:
		return "PORT_CONFIGURATION TRAINING"
	case s == verbs.PhysTest:
		return "PHY TEST"
	}
	return s.String()
}

func describePortDetails(s *sheet.Sheet, c *verbs.Device, port int, a *verbs.PortAttr) error {
	s.Put("\t\t\tmax_msg_sz:\t\t0x%x\n", a.MaxMsgSize)
	s.Note("\t\t\tport_cap_flags:\t\t0x%08x\n", uint32(a.PortCapFlags))
	s.SetFlags("port_cap_flags", uint64(a.PortCapFlags), a.PortCapFlags)
	s.Put("\t\t\tport_cap_flags2:\t0x%04x\n", a.PortCapFlags2)
	s.Put("\t\t\tmax_vl_num:\t\t%s (%d)\n", a.MaxVLNum, a.MaxVLNum)
	s.Put("\t\t\tbad_pkey_cntr:\t\t0x%x\n", a.BadPKeyCounter)
	s.Put("\t\t\tqkey_viol_cntr:\t\t0x%x\n", a.QKeyViolCounter)
	s.Put("\t\t\tsm_sl:\t\t\t%d\n", a.SMSL)
	s.Put("\t\t\tpkey_tbl_len:\t\t%d\n", a.PKeyTableLen)
	s.Put("\t\t\tgid_tbl_len:\t\t%d\n", a.GIDTableLen)
	s.Put("\t\t\tsubnet_timeout:\t\t%d\n", a.SubnetTimeout)
	s.Put("\t\t\tinit_type_reply:\t%d\n", a.InitTypeReply)
	s.Put("\t\t\tactive_width:\t\t%s (%d)\n", a.ActiveWidth, a.ActiveWidth)
	s.Put("\t\t\tactive_speed:\t\t%s (%d)\n", a.ActiveSpeed, a.ActiveSpeed)
	switch speed, err := c.QueryPortSpeed(port); {
	case err == nil:
		s.Put("\t\t\teffective_speed:\t%.1f Gbps\n", float64(speed)/10)
	case !errors.Is(err, verbs.ErrNotSupported):
		return err
	}
	if c.Info().Transport() == verbs.TransportIB {
		s.Put("\t\t\tphys_state:\t\t%s (%d)\n", physStateWord(a.PhysState), a.PhysState)
	}
	return nil
}

// describeGIDs adds the port's GIDs. As in ibv_devinfo, the text leaves out GIDs
// whose second half is zero.
func describeGIDs(s *sheet.Sheet, port int, link verbs.LinkLayer, gids verbs.GIDTable) {
	list := []*sheet.Sheet{}
	for _, e := range gids {
		if e.Port != port {
			continue
		}
		if !bytes.Equal(e.GID[8:], make([]byte, 8)) {
			s.Note("\t\t\tGID[%3d]:\t\t%s\n", e.Index, gidText(e, link))
		}
		g := s.Element()
		g.Set("index", e.Index)
		g.Set("gid", e.GID)
		g.Set("type", e.Type)
		g.Set("netdev", e.NetDev)
		list = append(list, g)
	}
	s.Set("gids", list)
}

func gidText(e verbs.GIDEntry, link verbs.LinkLayer) string {
	if e.Type == verbs.GIDTypeRoCEv2 {
		return fmt.Sprintf("%v, %v", e.GID, e.Type)
	}
	var groups []byte
	for i := 0; i < len(e.GID); i += 2 {
		groups = fmt.Appendf(groups, ":%x", e.GID[i:i+2])
	}
	text := string(groups[1:])
	if link == verbs.LinkLayerEthernet {
		text += ", " + verbs.GIDTypeRoCEv1.String() // ibv_devinfo does this for InfiniBand, too
	}
	return text
}
