// Fakeefa runs a program with a fake EFA device:
//
//	fakeefa [FLAG...] COMMAND [ARGUMENT...]
//
// The program finds efa_0, opens it, and creates queues on it. Fakeefa answers its uverbs calls
// instead of the kernel. The device's memory is that of the file that the program has opened:
// mapping the file a second time shows what a driver has written to queues and doorbells, and
// lets the program write completions. So the bytes that drivers write, and the cost of posts
// and polls, can be observed on any machine. See package fakedev.
package main

import (
	"flag"
	"log"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tests/internal/fakedev"
	"github.com/goverbs/goverbs/uapi"
)

func main() {
	dev := new(device)
	flag.UintVar(&dev.maxBatch, "max-tx-batch", 0, "64-byte `blocks` of sends that the device can be told of at a time, 0 for any number")
	flag.UintVar(&dev.minSQ, "min-sq-wr", 0, "the least `number` of sends of a queue")
	flag.UintVar(&dev.longInline, "inline", 32, "the greatest `number` of bytes of inline data")
	flag.BoolVar(&dev.verbose, "v", false, "print each call")
	fakedev.Main("fakeefa", dev)
}

// These are the locations of the device's queues in the file. The i-th QP and CQ, from 1,
// have space of their own. The player in tests/efabytes uses the same numbers.
const (
	room    = 1 << 24
	cqRoom  = 1 << 34 // where CQs begin
	recvAt  = 1 << 22
	bellsAt = 1 << 23
	page    = 4096

	sqBell = bellsAt // page of the doorbell of sends, at sqBellAt in it
	rqBell = bellsAt + page
	cqBell = bellsAt

	sqBellAt, rqBellAt, cqBellAt = 0x10, 0x20, 0x40
)

// sizeOfCQE is an ioctl of this device only: it returns the size of a completion of the last
// CQ.
const sizeOfCQE = 0xefa

// A device answers as Linux with an EFA would, as far as that is possible without hardware. It
// doesn't check requests.
type device struct {
	maxBatch, minSQ uint
	longInline      uint
	verbose         bool

	handle, qpn, cqn, ahn uint32
	cqe                   uint32 // size of the last CQ's entries
}

// Files returns the files of an EFA.
func (d *device) Files() map[string]string {
	const (
		verbs = "infiniband_verbs/"
		ib    = "infiniband/efa_0/"
		alias = "pci:v00001D0Fd0000EFA1sv00001D0Fsd0000EFA1bc02sc00i00\n"
	)
	return map[string]string{
		verbs + "abi_version":             "6\n",
		verbs + "uverbs0/abi_version":     "1\n",
		verbs + "uverbs0/dev":             "1:5\n",
		verbs + "uverbs0/ibdev":           "efa_0\n",
		verbs + "uverbs0/device/modalias": alias,
		ib + "device/modalias":            alias,
		ib + "fw_ver":                     "0.0.0.0\n",
		ib + "node_guid":                  "0000:0000:0000:0001\n",
		ib + "node_type":                  "5: unspecified\n",
		ib + "ports/1/gids/0":             "fe80:0000:0000:0000:0000:0000:0000:0001\n",
		ib + "ports/1/pkeys/0":            "0xffff\n",
		ib + "sys_image_guid":             "0000:0000:0000:0001\n",
	}
}

func (d *device) Ioctl(c *fakedev.Call) error {
	if c.Number == sizeOfCQE {
		return c.Process.Write(c.Arg, fakedev.U32(d.cqe))
	}
	r, err := c.Request()
	if err != nil {
		return err
	}
	err = d.answer(r)
	if d.verbose {
		log.Printf("%s: %v", r.Verb(), err)
	}
	return err
}

func next(n *uint32) uint32 {
	*n++
	return *n
}

func (d *device) answer(r *fakedev.Request) error {
	h := &r.Header
	if h.DriverId != uint32(uapi.RDMA_DRIVER_EFA) {
		return unix.EINVAL
	}
	switch method := [2]uint16{h.ObjectId, h.MethodId}; method {
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}:
		return d.write(r)
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}:
		return d.getContext(r)
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT}:
		port := d.port()
		return r.Out(uapi.UVERBS_ATTR_QUERY_PORT_RESP, fakedev.Bytes(&port))
	case [2]uint16{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}:
		return r.File(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}:
		return d.createCQ(r)
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}:
		return d.createQP(r)
	}
	if r.Method != nil && r.Method.Name == "DESTROY" {
		return r.OutZero()
	}
	return unix.EPROTONOSUPPORT
}

func (d *device) getContext(r *fakedev.Request) error {
	resp := uapi.EfaIbvAllocUcontextResp{
		CmdsSuppUdataMask: uint32(uapi.EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE | uapi.EFA_USER_CMDS_SUPP_UDATA_CREATE_AH),
		SubCqsPerCq:       1, InlineBufSize: 32, InlineBufSizeEx: uint16(d.longInline), MaxLlqSize: 1 << 18, MaxTxBatch: uint16(d.maxBatch), MinSqWr: uint16(d.minSQ),
	}
	if err := r.Out(uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, fakedev.U32(1)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, fakedev.U64(0)); err != nil {
		return err
	}
	return r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&resp))
}

func (d *device) query() uapi.IbUverbsExQueryDeviceResp {
	resp := uapi.IbUverbsExQueryDeviceResp{Base: uapi.IbUverbsQueryDeviceResp{
		VendorId: 0x1d0f, VendorPartId: 0xefa1, MaxMrSize: 1 << 40, PageSizeCap: 1<<31 - page,
		MaxQp: 256, MaxQpWr: 4096, MaxSge: 2, MaxSgeRd: 1, MaxCq: 512, MaxCqe: 1 << 15, MaxMr: 1 << 16, MaxPd: 256, MaxAh: 1 << 12,
		MaxPkeys: 1, PhysPortCnt: 1,
	}}
	resp.ResponseLength = uint32(len(fakedev.Bytes(&resp)))
	return resp
}

func (d *device) port() uapi.IbUverbsQueryPortRespEx {
	return uapi.IbUverbsQueryPortRespEx{LegacyResp: uapi.IbUverbsQueryPortResp{
		MaxMsgSz: 4096, GidTblLen: 1, PkeyTblLen: 1, State: 4, MaxMtu: 5, ActiveMtu: 5, MaxVlNum: 1, ActiveWidth: 2, ActiveSpeed: 32, PhysState: 5,
	}}
}

func (d *device) createCQ(r *fakedev.Request) error {
	cmd, err := fakedev.In[uapi.EfaIbvCreateCq](r, uapi.UVERBS_ATTR_UHW_IN)
	if err != nil {
		return err
	}
	cqe, err := fakedev.In[uint32](r, uapi.UVERBS_ATTR_CREATE_CQ_CQE)
	if err != nil {
		return err
	}
	d.cqe = cmd.CqEntrySize
	at := cqRoom + uint64(next(&d.cqn))*room
	resp := uapi.EfaIbvCreateCqResp{QMmapKey: at, QMmapSize: (uint64(cqe*cmd.CqEntrySize) + page - 1) &^ (page - 1), CqIdx: uint16(d.cqn)}
	if cmd.Flags&uapi.EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL != 0 {
		resp.CompMask, resp.DbMmapKey, resp.DbOff = uapi.EFA_CREATE_CQ_RESP_DB_OFF, at+cqBell, cqBellAt
	}
	if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&resp)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, fakedev.U32(cqe)); err != nil {
		return err
	}
	return r.Object(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE, next(&d.handle))
}

func (d *device) createQP(r *fakedev.Request) error {
	cmd, err := fakedev.In[uapi.EfaIbvCreateQp](r, uapi.UVERBS_ATTR_UHW_IN)
	if err != nil {
		return err
	}
	granted, err := fakedev.In[uapi.IbUverbsQpCap](r, uapi.UVERBS_ATTR_CREATE_QP_CAP)
	if err != nil {
		return err
	}
	at := uint64(next(&d.qpn)) * room
	resp := uapi.EfaIbvCreateQpResp{
		LlqDescMmapKey: at, SqDbMmapKey: at + sqBell, SqDbOffset: sqBellAt, RqDbMmapKey: at + rqBell, RqDbOffset: rqBellAt,
		RqMmapKey: at + recvAt, RqMmapSize: (uint64(cmd.RqRingSize) + page - 1) &^ (page - 1),
	}
	if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&resp)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP, fakedev.Bytes(&granted)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, fakedev.U32(d.qpn)); err != nil {
		return err
	}
	return r.Object(uapi.UVERBS_ATTR_CREATE_QP_HANDLE, next(&d.handle))
}

// write answers a command of the write ABI.
func (d *device) write(r *fakedev.Request) error {
	if r.Write == nil {
		return unix.EOPNOTSUPP
	}
	out := func(b []byte) error { return r.Out(uapi.UVERBS_ATTR_CORE_OUT, b) }
	handle := next(&d.handle)
	switch r.Write.Name {
	case "query_device_ex":
		resp := d.query()
		own := uapi.EfaIbvExQueryDeviceResp{MaxSqWr: 4096, MaxRqWr: 4096, MaxSqSge: 2, MaxRqSge: 2, MaxRdmaSize: 1 << 30,
			DeviceCaps: uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ | uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE | uapi.EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS}
		if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&own)); err != nil {
			return err
		}
		return out(fakedev.Bytes(&resp))
	case "query_device":
		resp := d.query()
		return out(fakedev.Bytes(&resp.Base))
	case "query_port":
		resp := d.port()
		return out(fakedev.Bytes(&resp.LegacyResp))
	case "alloc_pd":
		own := uapi.EfaIbvAllocPdResp{Pdn: uint16(handle)}
		if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&own)); err != nil {
			return err
		}
		return out(fakedev.U32(handle))
	case "create_ah":
		own := uapi.EfaIbvCreateAhResp{EfaAddressHandle: uint16(0x40 + next(&d.ahn))}
		if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&own)); err != nil {
			return err
		}
		return out(fakedev.U32(handle))
	case "create_comp_channel":
		fd, err := r.EventFile()
		if err != nil {
			return err
		}
		return out(fakedev.U32(fd))
	}
	// All others change or destroy something, or return zeros.
	if i := r.Attr(uapi.UVERBS_ATTR_CORE_OUT); i >= 0 {
		return out(make([]byte, r.Attrs[i].Raw.Len))
	}
	return nil
}
