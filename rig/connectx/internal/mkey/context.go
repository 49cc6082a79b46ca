package mkey

import (
	"encoding/binary"
	"slices"
)

// ContextSize is the size of an mkc.
const ContextSize = 64

// Byte offsets and bits of an mkc, struct mlx5_ifc_mkc_bits.
const (
	mkcFree         = 0x40 // of byte 0
	mkcModeHigh     = 0x1c
	mkcRelaxedWrite = 0x04 // of byte 1
	mkcUMREnabled   = 0x80 // of byte 2
	mkcAccess       = 0x7c
	mkcModeLow      = 0x03
	mkcQPN          = 4
	mkcLength64     = 0x80 // of byte 12
	mkcBSF          = 0x40
	mkcRinval       = 0x01
	mkcPD           = 12
	mkcStart        = 16
	mkcLen          = 24
	mkcOctowords    = 52
	mkcPageSize     = 59
	mkcRelaxedRead  = 0x40 // of byte 59
	mkcPageShift    = 0x3f // five bits, and a sixth since umr_log_entity_size_5
)

// Decode decodes the 64 bytes of an mkc, and the translations that follow it in
// CREATE_MKEY (klm_pas_mtt: translations_octword_actual_size octowords).
func Decode(mkc, xlt []byte) (Context, error) {
	if len(mkc) < ContextSize || mkc[12]&mkcBSF != 0 { // signatures aren't supported
		return Context{}, ErrBadParam
	}
	c := decode(mkc)
	c.XLT = slices.Clone(xlt)
	return c, nil
}

func decode(mkc []byte) Context {
	be := binary.BigEndian
	return Context{
		Mode:             Mode(mkc[0]&mkcModeHigh | mkc[2]&mkcModeLow),
		Free:             mkc[0]&mkcFree != 0,
		UMREnabled:       mkc[2]&mkcUMREnabled != 0,
		RemoteInvalidate: mkc[12]&mkcRinval != 0,
		Length64:         mkc[12]&mkcLength64 != 0,
		RelaxedWrite:     mkc[1]&mkcRelaxedWrite != 0,
		RelaxedRead:      mkc[mkcPageSize]&mkcRelaxedRead != 0,
		Key:              mkc[7],
		Access:           Access(mkc[2] & mkcAccess >> 2),
		PD:               be.Uint32(mkc[mkcPD:]) & 0xffffff,
		QPN:              be.Uint32(mkc[mkcQPN:]) >> 8,
		Start:            be.Uint64(mkc[mkcStart:]),
		Len:              be.Uint64(mkc[mkcLen:]),
		PageShift:        uint(mkc[mkcPageSize] & mkcPageShift),
		Octowords:        be.Uint32(mkc[mkcOctowords:]),
	}
}

// Encode writes the context as an mkc of 64 bytes, for QUERY_MKEY.
func (c *Context) Encode(mkc []byte) {
	be := binary.BigEndian
	clear(mkc[:ContextSize])
	be.PutUint32(mkc[mkcQPN:], c.QPN<<8|uint32(c.Key))
	be.PutUint32(mkc[mkcPD:], c.PD)
	be.PutUint64(mkc[mkcStart:], c.Start)
	be.PutUint64(mkc[mkcLen:], c.Len)
	be.PutUint32(mkc[mkcOctowords:], c.Octowords)
	mkc[0] = byte(c.Mode) & mkcModeHigh
	mkc[2] = byte(c.Access)<<2 | byte(c.Mode)&mkcModeLow
	mkc[mkcPageSize] = byte(c.PageShift)
	for _, b := range []struct {
		set bool
		at  int
		bit byte
	}{
		{c.Free, 0, mkcFree},
		{c.RelaxedWrite, 1, mkcRelaxedWrite},
		{c.UMREnabled, 2, mkcUMREnabled},
		{c.Length64, 12, mkcLength64},
		{c.RemoteInvalidate, 12, mkcRinval},
		{c.RelaxedRead, mkcPageSize, mkcRelaxedRead},
	} {
		if b.set {
			mkc[b.at] |= b.bit
		}
	}
}
