package mkey

import "encoding/binary"

// UMR is a work request that changes a key (MLX5_OPCODE_UMR).
type UMR struct {
	Key        uint32 // umr_mkey of the control segment; only its index matters
	Ctrl       []byte // struct mlx5_wqe_umr_ctrl_seg, CtrlSize bytes
	Mkey       []byte // struct mlx5_mkey_seg, ContextSize bytes
	Rest       []byte // the rest of the WQE: inline translations, or a data segment that points to them
	Privileged bool   // posted to a QP of type MLX5_QP_ST_REG_UMR, which changes keys of any PD
}

// CtrlSize is the size of a UMR control segment.
const CtrlSize = 48

// Flags of the UMR control segment, MLX5_UMR_* and
// MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN.
const (
	umrCheckQPN     = 1 << 3
	umrOffset       = 1 << 4
	umrCheckFree    = 1 << 5
	umrCheckNotFree = 1 << 6
	umrInline       = 1 << 7
)

// Bits of the mkey mask, MLX5_MKEY_MASK_*.
const (
	maskLen          = 1 << 0
	maskPageSize     = 1 << 1
	maskStart        = 1 << 6
	maskPD           = 1 << 7
	maskRinval       = 1 << 8
	maskBSF          = 1 << 12
	maskKey          = 1 << 13
	maskQPN          = 1 << 14
	maskLR           = 1 << 17 // then the other rights, in Access's order
	maskSmallFence   = 1 << 23
	maskRelaxedWrite = 1 << 25
	maskFree         = 1 << 29
	maskRelaxedRead  = 1 << 47

	maskAccess = 0x1f * maskLR
	maskKnown  = maskLen | maskPageSize | maskStart | maskPD | maskRinval | maskBSF | maskKey | maskQPN | maskAccess |
		maskSmallFence | maskRelaxedWrite | maskFree | maskRelaxedRead
)

// UMR changes a key on behalf of a QP and its PD. On a Fault, nothing is changed.
func (t *Table) UMR(qpn, pd uint32, u UMR) Fault {
	c := t.keys[u.Key>>8]
	if c == nil {
		return FaultKey
	}
	if len(u.Ctrl) < CtrlSize || len(u.Mkey) < ContextSize || !c.UMREnabled {
		return FaultState
	}
	if c.PD != pd && !u.Privileged {
		return FaultPD
	}
	be := binary.BigEndian
	flags, mask := u.Ctrl[0], be.Uint64(u.Ctrl[8:])
	if flags&umrCheckFree != 0 && !c.Free ||
		flags&(umrCheckNotFree|umrCheckQPN) != 0 && c.Free ||
		flags&umrCheckQPN != 0 && c.QPN != AnyQP && c.QPN != qpn {
		return FaultState
	}
	next := *c
	if f := next.change(u.Mkey, mask); f != FaultNone {
		return f
	}
	if next.PD != c.PD && !u.Privileged {
		return FaultPD
	}

	var at uint64
	if flags&umrOffset != 0 {
		at = uint64(be.Uint16(u.Ctrl[6:])) | uint64(be.Uint32(u.Ctrl[16:]))<<16
		at *= klmSize
	}
	xlt, f := t.translations(qpn, pd, u, flags&umrInline != 0)
	if f != FaultNone {
		return f
	}
	if at+uint64(len(xlt)) > uint64(c.room()) {
		return FaultState
	}
	if !next.Free && next.Mode == KLM && at == 0 {
		if f := t.checkList(&next, xlt); f != FaultNone {
			return f
		}
	}
	if need := int(at) + len(xlt); len(xlt) > 0 && need > len(next.XLT) {
		next.XLT = append(next.XLT, make([]byte, need-len(next.XLT))...)
	}
	copy(next.XLT[min(int(at), len(next.XLT)):], xlt)
	*c = next
	return FaultNone
}

// change sets the fields that mask names from the mkey segment.
func (c *Context) change(seg []byte, mask uint64) Fault {
	if mask&^maskKnown != 0 || mask&maskBSF != 0 && seg[12]&mkcBSF != 0 {
		return FaultState // signatures
	}
	s := decode(seg)
	if mask&maskLen != 0 {
		c.Len, c.Length64 = s.Len, s.Length64
	}
	if mask&maskPageSize != 0 {
		c.PageShift = s.PageShift
	}
	if mask&maskStart != 0 {
		c.Start = s.Start
	}
	if mask&maskPD != 0 {
		c.PD = s.PD
	}
	if mask&maskRinval != 0 {
		c.RemoteInvalidate = s.RemoteInvalidate
	}
	if mask&maskKey != 0 {
		c.Key = s.Key
	}
	if mask&maskQPN != 0 {
		c.QPN = s.QPN
	}
	if mask&maskRelaxedWrite != 0 {
		c.RelaxedWrite = s.RelaxedWrite
	}
	if mask&maskRelaxedRead != 0 {
		c.RelaxedRead = s.RelaxedRead
	}
	if mask&maskFree != 0 {
		c.Free = s.Free
	}
	rights := Access(mask & maskAccess / maskLR)
	c.Access = c.Access&^rights | s.Access&rights
	return FaultNone
}

// translations returns the translations that the work request contains or points to.
func (t *Table) translations(qpn, pd uint32, u UMR, inline bool) ([]byte, Fault) {
	be := binary.BigEndian
	n := int(be.Uint16(u.Ctrl[4:])) * klmSize
	switch {
	case n == 0:
		return nil, FaultNone
	case inline && len(u.Rest) >= n:
		return u.Rest[:n], FaultNone
	case inline || len(u.Rest) < 16:
		return nil, FaultState
	}
	lkey, addr := be.Uint32(u.Rest[4:]), be.Uint64(u.Rest[8:])
	parts, f := t.Resolve(nil, lkey, pd, qpn, addr, n, LocalRead)
	if len(parts) == 1 {
		return parts[0], f
	}
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b, f
}

// checkList checks that the keys on which a window or a list will be based allow it. A
// bind that requests too much must fail itself, not a later access.
func (t *Table) checkList(c *Context, xlt []byte) Fault {
	be := binary.BigEndian
	for e := xlt; len(e) >= klmSize; e = e[klmSize:] {
		n := uint64(be.Uint32(e))
		if be.Uint32(e[4:]) == pattern {
			return FaultNone // checked at use
		}
		if n == 0 {
			continue
		}
		in, f := t.open(be.Uint32(e[4:]), c.PD, AnyQP, c.Access.below())
		if f != FaultNone {
			return f
		}
		if !in.covers(be.Uint64(e[8:]), n) {
			return FaultBounds
		}
	}
	return FaultNone
}
