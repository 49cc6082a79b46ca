package verbs

import (
	"math"

	"github.com/goverbs/goverbs/provider"
)

// AllocNullMR allocates an MR without memory (ibv_alloc_null_mr). Writes to it are lost,
// and reads return zeros. With it, a receive's list can skip a part of each message. Its
// addresses begin at 0 and have no end: MR.SGE takes any offset. It has no RKey. Only mlx5
// has null MRs; with other drivers the error is ErrNotSupported.
func (pd *PD) AllocNullMR() (*MR, error) {
	const op = "alloc null MR"
	if err := hold(op, pd.base()); err != nil {
		return nil, err
	}
	var key uint32
	keyer, ok := pd.dev.prov.(provider.NullKeyer)
	if ok {
		key, ok = keyer.NullKey()
	}
	if !ok {
		pd.drop()
		return nil, opErr(op, pd.dev.info.name, ErrNotSupported)
	}
	mr := &MR{null: true, length: math.MaxUint64, access: AccessLocalWrite, ref: provider.MRRef{LKey: key}}
	mr.adopt(pd.dev, kindMR, 0, mr, &pd.object)
	return mr, nil
}
