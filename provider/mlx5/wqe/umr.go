package wqe

// The segments of the UMR that binds a memory window or invalidates a key.
const (
	umrControlSegs = 3
	umrMKeySegs    = 4
	umrKLMSegs     = 4 // one entry, padded to a block

	// UMRSegments is the number of segments of a bind, without the control segment.
	UMRSegments = umrControlSegs + umrMKeySegs + umrKLMSegs
	// UMRCloseSegments is the number of segments of an invalidation, without the control
	// segment.
	UMRCloseSegments = umrControlSegs + umrMKeySegs
)

// Flags and masks of a UMR control segment (MLX5_WQE_UMR_CTRL_*).
const (
	umrInline            = 1 << 7
	umrCheckFree         = 1 << 5
	umrTranslationOffset = 1 << 4
	umrCheckQPN          = 1 << 3

	umrMaskLen         = 1 << 0
	umrMaskStart       = 1 << 6
	umrMaskKey         = 1 << 13
	umrMaskQPN         = 1 << 14
	umrMaskLocalWrite  = 1 << 18
	umrMaskRemoteRead  = 1 << 19
	umrMaskRemoteWrite = 1 << 20
	umrMaskAtomic      = 1 << 21
	umrMaskFree        = 1 << 29
)

// The access rights of a key (MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*).
const (
	UMRAtomic      = 1 << 6
	UMRRemoteWrite = 1 << 5
	UMRRemoteRead  = 1 << 4
	UMRLocalWrite  = 1 << 3
)

const mkeyFree = 1 << 6

// A Bind has the parameters of a UMR that binds a memory window. Length 0 closes the
// window.
type Bind struct {
	Type2     bool
	Key       uint8  // the low byte of the new key
	QPN       uint32 // of the QP to which a type 2 window is tied
	LKey      uint32 // of the region
	Addr, Len uint64
	Access    uint8 // UMR*
}

// UMR writes the segments of a bind after the control segment, and returns their number.
func UMR(s []Segment, b *Bind) int {
	const none = 0xffffff
	open := b.Len != 0
	flags := uint64(umrInline | umrTranslationOffset)
	mask := uint64(umrMaskFree | umrMaskKey)
	octowords, qpn, free := uint64(0), uint64(none), uint64(mkeyFree)
	if b.Type2 {
		mask |= umrMaskQPN
	}
	if open {
		// One entry, rounded up to a multiple of 8 as the device requires, and counted in
		// pairs.
		octowords, free = 4, 0
		mask |= umrMaskLen | umrMaskStart | umrMaskLocalWrite | umrMaskRemoteRead | umrMaskRemoteWrite | umrMaskAtomic
		if b.Type2 {
			flags |= umrCheckFree
			qpn = uint64(b.QPN)
		}
	} else if b.Type2 {
		flags |= umrCheckQPN
	}
	s = s[:UMRCloseSegments:len(s)]
	s[0] = Segment{be64(flags<<56 | octowords<<16), be64(mask)}
	s[1], s[2] = Segment{}, Segment{}
	s[3] = Segment{be64(free<<56 | uint64(b.Access)<<40 | qpn<<8 | uint64(b.Key)), 0}
	s[4] = Segment{be64(b.Addr), be64(b.Len)}
	s[5], s[6] = Segment{}, Segment{}
	if !open {
		return UMRCloseSegments
	}
	s = s[:UMRSegments]
	s[7].Data(uint32(b.Len), b.LKey, b.Addr)
	s[8], s[9], s[10] = Segment{}, Segment{}, Segment{}
	return UMRSegments
}
