package verbs

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A PD is a protection domain: memory regions, queue pairs and the rest work
// together only within one.
type PD struct {
	object
}

func (pd *PD) base() *object {
	if pd == nil {
		return nil
	}
	return &pd.object
}

// AllocPD allocates a protection domain (ibv_alloc_pd).
func (c *Context) AllocPD() (*PD, error) {
	const op = "alloc PD"
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.done()
	cmd := ioctl.NewWrite(uapi.IB_USER_VERBS_CMD_ALLOC_PD)
	defer cmd.Release()
	ioctl.In[uapi.IbUverbsAllocPd](cmd, uapi.UVERBS_ATTR_CORE_IN)
	resp := ioctl.Out[uapi.IbUverbsAllocPdResp](cmd, uapi.UVERBS_ATTR_CORE_OUT)
	prov, err := c.prov.NewPD(cmd)
	if err != nil {
		return nil, c.failed(op, "", err)
	}
	if err := cmd.Run(c.file); err != nil {
		return nil, c.failed(op, "", err)
	}
	if err := prov.Adopt(); err != nil {
		destroyHandle(c, uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY, resp.PdHandle, 0)
		return nil, c.failed(op, "", err)
	}
	pd := new(PD)
	pd.adopt(c, kindPD, resp.PdHandle, pd)
	return pd, nil
}

// Context returns the device context that the PD belongs to.
func (pd *PD) Context() *Context {
	if pd == nil {
		return nil
	}
	return pd.ctx
}

// Close deallocates the PD (ibv_dealloc_pd). While objects are on it, it
// answers ErrBusy.
func (pd *PD) Close() error {
	return pd.base().end("dealloc PD",
		func() error { return pd.destroy(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY) },
		func() {})
}
