package selftest

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/verbs"
)

// A side is a device and the port that is tested.
type side struct {
	dev  *verbs.Device
	attr *verbs.DeviceAttr
	num  int // of the port
	port *verbs.PortAttr
	gid  verbs.GIDEntry
	mlx5 bool              // requests have mlx5's sizes
	efa  *efadv.DeviceAttr // nil: not an EFA adapter

	rights verbs.AccessFlags // the access that memory and queue pairs can have
}

// vendorMellanox is the OUI by which mlx5 devices report their vendor.
const vendorMellanox = 0x2c9

// openSide opens a device. Its number is 0 or 1.
func openSide(name string, port, gid, number int) (*side, error) {
	dev, err := verbs.Open(name)
	if err != nil {
		return nil, err
	}
	if dev.Info().Transport() == verbs.TransportIWARP {
		err := fmt.Errorf("%s: the self-test is %w over iWARP, which connects queue pairs through the connection manager only: see ibv rping and ibv write_bw -R", dev.Info().Name(), verbs.ErrNotSupported)
		return nil, errors.Join(err, dev.Close())
	}
	s := &side{dev: dev}
	if err := s.choose(port, gid, number); err != nil {
		dev.Close() // the first error counts
		return nil, fmt.Errorf("%s: %w", dev.Info().Name(), err)
	}
	return s, nil
}

// choose chooses the port and the GID.
func (s *side) choose(port, gid, number int) (err error) {
	if s.attr, err = s.dev.QueryDevice(); err != nil {
		return err
	}
	s.mlx5 = s.attr.VendorID == vendorMellanox
	s.rights = ^verbs.AccessFlags(0)
	if s.attr.AtomicCap == verbs.AtomicNone {
		s.rights &^= verbs.AccessRemoteAtomic
	}
	if efadv.Supported(s.dev) {
		if err := s.chooseEFA(); err != nil {
			return err
		}
	}
	for n := 1; n <= s.attr.PhysPortCnt; n++ {
		if port != 0 && n != port {
			continue
		}
		attr, err := s.dev.QueryPort(n)
		if err != nil {
			return err
		}
		if attr.State == verbs.PortActive {
			s.num, s.port = n, attr
			break
		}
	}
	switch {
	case s.port == nil && port == 0:
		return fmt.Errorf("no port is active")
	case s.port == nil:
		return fmt.Errorf("port %d isn't active, or isn't there", port)
	}
	if gid >= 0 && number == 0 {
		s.gid, err = s.dev.QueryGID(s.num, gid)
		return err
	}
	table, err := s.dev.GIDTable()
	if err != nil {
		return err
	}
	s.gid, err = table.Find(verbs.GIDSelector{Port: s.num})
	return err
}

// global reports whether paths need a GID.
func (s *side) global() bool {
	return s.port.LinkLayer != verbs.LinkLayerInfiniBand || s.port.GRHRequired
}

// pathTo returns the path to a port.
func (s *side) pathTo(to *side) verbs.AHAttr {
	a := verbs.AHAttr{DLID: to.port.LID, Port: s.num}
	if s.global() {
		a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = true, to.gid.GID, s.gid.Index, 64
	}
	return a
}

// mtu returns the MTU of the path between the sides.
func (r *run) mtu() int {
	return min(r.sides[0].port.ActiveMTU.Bytes(), r.sides[1].port.ActiveMTU.Bytes())
}

// message returns the length of the longest message between the sides.
func (r *run) message() int { return int(min(r.sides[0].port.MaxMsgSize, r.sides[1].port.MaxMsgSize)) }

// loopback reports whether both sides are one device.
func (r *run) loopback() bool { return r.sides[0] == r.sides[1] }
