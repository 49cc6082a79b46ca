package verbs

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An MWType is the type of a memory window (InfiniBand specification 10.6.7.2).
type MWType uint8

const (
	MWType1 MWType = 1 // bound with QP.BindMW, on any QP of the PD
	MWType2 MWType = 2 // bound with OpBindMW, and tied to that QP
)

func (m MWType) String() string { return uapi.EnumIbMwType.Short(uint64(m)) }

// An MW is a memory window: it gives peers access to a part of an MR. Work requests grant
// and revoke the access.
type MW struct {
	ref provider.MWRef // first: see noescape.go
	object
}

func (mw *MW) base() *object {
	if mw == nil {
		return nil
	}
	return &mw.object
}

// AllocMW allocates a memory window (ibv_alloc_mw).
func (pd *PD) AllocMW(t MWType) (*MW, error) {
	const op = "alloc MW"
	return create(op, []*object{pd.base()}, func() (*MW, error) { return pd.newMW(op, t) })
}

func (pd *PD) newMW(op string, t MWType) (*MW, error) {
	if t != MWType1 && t != MWType2 {
		return nil, invalid(op, "type %d is neither 1 nor 2", t)
	}
	cmd := ioctl.NewWriteAllocMw()
	defer cmd.Release()
	cmd.Req.PdHandle, cmd.Req.MwType = pd.handle, uint8(t)
	if err := cmd.Run(pd.dev.file); err != nil {
		return nil, pd.dev.failed(op, "", err)
	}
	mw := new(MW)
	mw.ref.Type = uint8(t)
	mw.ref.RKey.Store(cmd.Resp.Rkey)
	mw.adopt(pd.dev, kindMW, cmd.Resp.MwHandle, mw, &pd.object)
	return mw, nil
}

// Type returns the window's type.
func (mw *MW) Type() MWType {
	if mw == nil {
		return 0
	}
	return MWType(mw.ref.Type)
}

// RKey returns the window's key. Each BindMW gives a type 1 window a new key. For type
// 2, OpBindMW sets the key.
func (mw *MW) RKey() uint32 {
	if mw == nil {
		return 0
	}
	return mw.ref.RKey.Load()
}

// Remote returns the window's key and the address of its first byte, for a peer, as of the last
// bind. Like RKey, it changes when a bind is posted, and is valid only after the bind's completion.
func (mw *MW) Remote() Remote {
	if mw == nil {
		return Remote{}
	}
	return Remote{Addr: mw.ref.Addr.Load(), RKey: mw.ref.RKey.Load()}
}

// NextRKey returns key with its lowest byte, which the consumer owns, incremented
// (ibv_inc_rkey). It is the usual NewRKey for OpBindMW.
func NextRKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

// Close invalidates and deallocates the window (ibv_dealloc_mw).
func (mw *MW) Close() error {
	return mw.base().end("dealloc MW",
		func() error { return mw.destroy(ioctl.NewMwDestroy()) },
		func() {})
}
