package main

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
	"github.com/goverbs/goverbs/tests/internal/fakedev"
	"github.com/goverbs/goverbs/uapi"
)

// Properties of the device, with values that a ConnectX has too.
const (
	maxSQDesc   = 1024
	maxRQDesc   = 512
	firstQPN    = 0x100
	firstCQN    = 0x400
	firstKey    = 0x10
	pageSize    = 4096
	maxCQE      = 1<<22 - 1
	maxQueueLen = 1 << 15

	staticRegisters = 16
	noUserIndex     = 0xffffff           // of a QP, if completion queue entries have no user index
	guid            = 0x0100000003c90200 // 0002:c903:0000:0001, big endian
)

func (d *device) getContext(r *fakedev.Request) error {
	resp := uapi.Mlx5IbAllocUcontextResp{
		QpTabSize: 1 << 18, BfRegSize: uint32(d.bfRegSize), CacheLineSize: 64,
		MaxSqDescSz: maxSQDesc, MaxRqDescSz: maxRQDesc, MaxSendWqebb: maxQueueLen,
		MaxRecvWr: maxQueueLen, MaxSrqRecvWr: maxQueueLen, NumPorts: 1,
		CqeVersion: uint8(d.cqeVersion), LogUarSize: 12, NumUarsPerPage: uint32(d.uarsPerPage),
		CmdsSuppUhw: uint8(uapi.MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE), EthMinInline: uint8(uapi.MLX5_USER_INLINE_MODE_L2),
	}
	if d.noInline {
		resp.EthMinInline = uint8(uapi.MLX5_USER_INLINE_MODE_NONE)
	}
	if d.staticUARs {
		resp.TotBfregs = staticRegisters
	}
	resp.ResponseLength = uint32(len(fakedev.Bytes(&resp)))
	if err := r.Out(uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, fakedev.U32(1)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, fakedev.U64(0)); err != nil {
		return err
	}
	return r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&resp))
}

func (d *device) query() uapi.IbUverbsExQueryDeviceResp {
	resp := uapi.IbUverbsExQueryDeviceResp{
		Base: uapi.IbUverbsQueryDeviceResp{
			NodeGuid: guid, SysImageGuid: guid,
			FwVer: 20<<32 | 31<<16 | 2006, VendorId: 0x2c9, VendorPartId: 4123,
			MaxMrSize: 1 << 63, PageSizeCap: 1<<63 - pageSize,
			MaxQp: 1 << 18, MaxQpWr: maxQueueLen, MaxSge: 64, MaxSgeRd: 30,
			MaxCq: 1 << 24, MaxCqe: maxCQE, MaxMr: 1 << 24, MaxPd: 1 << 23,
			MaxQpRdAtom: 16, MaxResRdAtom: 1 << 22, MaxQpInitRdAtom: 16,
			AtomicCap:      uint32(uapi.IB_ATOMIC_HCA),
			DeviceCapFlags: uint32(uapi.IB_UVERBS_DEVICE_XRC | uapi.IB_UVERBS_DEVICE_MEM_WINDOW | uapi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B),
			MaxMw:          1 << 24, MaxAh: 1<<31 - 1, MaxSrq: 1 << 23, MaxSrqWr: maxQueueLen - 1, MaxSrqSge: 31,
			MaxPkeys: 128, PhysPortCnt: 1,
		},
	}
	if d.noAtomics {
		resp.Base.AtomicCap = uint32(uapi.IB_ATOMIC_NONE)
	}
	if !d.noChecksums {
		resp.Base.DeviceCapFlags |= uint32(uapi.IB_UVERBS_DEVICE_RAW_IP_CSUM)
	}
	resp.TimestampMask, resp.HcaCoreClock = 1<<64-1, 1_000_000
	resp.ResponseLength = uint32(len(fakedev.Bytes(&resp)))
	return resp
}

// queryOwn returns the driver-specific part of a device query.
func (d *device) queryOwn() uapi.Mlx5IbQueryDeviceResp {
	resp := uapi.Mlx5IbQueryDeviceResp{TsoCaps: uapi.Mlx5IbTsoCaps{MaxTso: uint32(d.maxTSO)}}
	if d.maxTSO > 0 {
		resp.TsoCaps.SupportedQpts = 1 << uapi.IB_UVERBS_QPT_RAW_PACKET
	}
	resp.ResponseLength = uint32(len(fakedev.Bytes(&resp)))
	return resp
}

// firmware answers only QUERY_HCA_CAP for atomics.
func (d *device) firmware(r *fakedev.Request) error {
	in := make([]byte, 16)
	if err := r.InBytes(uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in); err != nil {
		return err
	}
	const capOpcode, current, atomics = 0x100, 1, 3
	if binary.BigEndian.Uint16(in) != capOpcode || binary.BigEndian.Uint16(in[6:]) != atomics<<1|current {
		return unix.EINVAL
	}
	out := make([]byte, 16+4096)
	binary.BigEndian.PutUint16(out[16+18:], uint16(d.atomicOps))
	return r.Out(uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out)
}

// port returns the attributes of an InfiniBand port, which needs neither GIDs nor a netdev.
// The Ethernet port has none either, which is enough for raw packets.
func (d *device) port() uapi.IbUverbsQueryPortRespEx {
	link, flags := uapi.IB_LINK_LAYER_INFINIBAND, uint8(0)
	if d.ethernet {
		link = uapi.IB_LINK_LAYER_ETHERNET
	}
	if d.globalOnly {
		flags = uint8(uapi.IB_UVERBS_QPF_GRH_REQUIRED)
	}
	return uapi.IbUverbsQueryPortRespEx{LegacyResp: uapi.IbUverbsQueryPortResp{
		MaxMsgSz: 1 << 30, GidTblLen: 1, PkeyTblLen: 1, Lid: 1, SmLid: 1,
		State: 4, MaxMtu: 5, ActiveMtu: 5, MaxVlNum: 1, ActiveWidth: 2, ActiveSpeed: 32, PhysState: 5,
		LinkLayer: uint8(link), Flags: flags,
	}}
}

// allocUAR returns a page of UARs with consecutive numbers.
func (d *device) allocUAR(r *fakedev.Request) error {
	page := next(&d.handle)
	first := page * uint32(d.uarsPerPage)
	if err := r.Object(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, page); err != nil {
		return err
	}
	for id, b := range map[uint16][]byte{
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: fakedev.U64(uint64(rings.FirstUAR+first) * pageSize),
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: fakedev.U32(uint32(d.uarsPerPage) * pageSize),
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID:     fakedev.U32(first),
	} {
		if err := r.Out(id, b); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) createCQ(r *fakedev.Request) error {
	cmd, err := fakedev.In[uapi.Mlx5IbCreateCq](r, uapi.UVERBS_ATTR_UHW_IN)
	if err != nil {
		return err
	}
	cqe, err := fakedev.In[uint32](r, uapi.UVERBS_ATTR_CREATE_CQ_CQE)
	if err != nil {
		return err
	}
	flags, err := fakedev.In[uint32](r, uapi.UVERBS_ATTR_CREATE_CQ_FLAGS)
	if err != nil {
		return err
	}
	handle := next(&d.handle)
	q := rings.Queue{
		Kind: rings.CQ, Number: firstCQN + next(&d.cqn), Buf: cmd.BufAddr, DB: cmd.DbAddr, Stride: cmd.CqeSize, Len: 1, Flags: flags,
		UAR: rings.NoUAR,
	}
	if cmd.Flags&uint16(uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) != 0 {
		q.UAR = uint32(cmd.UarPageIndex)
	}
	for q.Len <= cqe {
		q.Len *= 2
	}
	d.remember(q)
	resp := uapi.Mlx5IbCreateCqResp{Cqn: q.Number}
	if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&resp)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, fakedev.U32(q.Len-1)); err != nil {
		return err
	}
	return r.Object(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE, handle)
}

func (d *device) createQP(r *fakedev.Request) error {
	cmd, err := fakedev.In[uapi.Mlx5IbCreateQp](r, uapi.UVERBS_ATTR_UHW_IN)
	if err != nil {
		return err
	}
	if none := cmd.Uidx == noUserIndex; none != (d.cqeVersion == 0) || !none && cmd.Uidx>>24 != 0 {
		return unix.EINVAL
	}
	granted, err := fakedev.In[uapi.IbUverbsQpCap](r, uapi.UVERBS_ATTR_CREATE_QP_CAP)
	if err != nil {
		return err
	}
	handle := next(&d.handle)
	q := rings.Queue{
		Kind: rings.QP, Number: firstQPN + next(&d.qpn), UserIndex: cmd.Uidx, DB: cmd.DbAddr,
		Buf: cmd.BufAddr + uint64(cmd.RqWqeCount)<<cmd.RqWqeShift, Stride: 64, Len: cmd.SqWqeCount,
		Recv: cmd.BufAddr, RecvStride: 1 << cmd.RqWqeShift, RecvLen: cmd.RqWqeCount,
		UAR: rings.NoUAR,
	}
	if cmd.Flags&uapi.MLX5_QP_FLAG_UAR_PAGE_INDEX != 0 {
		q.UAR = cmd.BfregIndex
	}
	if cmd.SqBufAddr != 0 { // a raw packet QP's send queue is separate
		q.Buf = cmd.SqBufAddr
	}
	d.remember(q)
	// Two of four registers of each page are for user space.
	register := q.Number % staticRegisters
	resp := uapi.Mlx5IbCreateQpResp{BfregIndex: register/2*4 + register%2}
	if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.Bytes(&resp)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP, fakedev.Bytes(&granted)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, fakedev.U32(q.Number)); err != nil {
		return err
	}
	return r.Object(uapi.UVERBS_ATTR_CREATE_QP_HANDLE, handle)
}

func (d *device) createSRQ(r *fakedev.Request) error {
	cmd, err := fakedev.In[uapi.Mlx5IbCreateSrq](r, uapi.UVERBS_ATTR_UHW_IN)
	if err != nil {
		return err
	}
	maxWR, err := fakedev.In[uint32](r, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR)
	if err != nil {
		return err
	}
	maxSGE, err := fakedev.In[uint32](r, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE)
	if err != nil {
		return err
	}
	handle := next(&d.handle)
	// The driver's layout: a header of 16 bytes before the entries.
	stride := uint32(32)
	for stride < 16+16*maxSGE {
		stride *= 2
	}
	q := rings.Queue{Kind: rings.SRQ, Number: firstQPN + next(&d.qpn), UserIndex: cmd.Uidx,
		Recv: cmd.BufAddr, DB: cmd.DbAddr, RecvStride: stride, RecvLen: 1}
	for q.RecvLen < maxWR+1 {
		q.RecvLen *= 2
	}
	d.remember(q)
	resp := uapi.Mlx5IbCreateSrqResp{Srqn: q.Number}
	for id, b := range map[uint16][]byte{
		uapi.UVERBS_ATTR_UHW_OUT:                 fakedev.Bytes(&resp),
		uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR:  fakedev.U32(maxWR),
		uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE: fakedev.U32(maxSGE),
	} {
		if err := r.Out(id, b); err != nil {
			return err
		}
	}
	return r.Object(uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE, handle)
}

func (d *device) regMR(r *fakedev.Request) error {
	key := (firstKey + next(&d.key)) << 8
	if err := r.Out(uapi.UVERBS_ATTR_REG_MR_RESP_LKEY, fakedev.U32(key)); err != nil {
		return err
	}
	if err := r.Out(uapi.UVERBS_ATTR_REG_MR_RESP_RKEY, fakedev.U32(key)); err != nil {
		return err
	}
	return r.Object(uapi.UVERBS_ATTR_REG_MR_HANDLE, next(&d.handle))
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
		resp, own := d.query(), d.queryOwn()
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
		if err := r.Out(uapi.UVERBS_ATTR_UHW_OUT, fakedev.U32(handle)); err != nil {
			return err
		}
		return out(fakedev.U32(handle))
	case "reg_mr":
		key := (firstKey + next(&d.key)) << 8
		return out(fakedev.Bytes(&uapi.IbUverbsRegMrResp{MrHandle: handle, Lkey: key, Rkey: key}))
	case "create_ah":
		return out(fakedev.U32(handle))
	case "alloc_mw":
		return out(fakedev.Bytes(&uapi.IbUverbsAllocMwResp{MwHandle: handle, Rkey: (firstKey + next(&d.key)) << 8}))
	case "create_comp_channel":
		return channel(r)
	}
	// All others change or destroy something, or return zeros.
	if i := r.Attr(uapi.UVERBS_ATTR_CORE_OUT); i >= 0 {
		return out(make([]byte, r.Attrs[i].Raw.Len))
	}
	return nil
}

// channel returns a completion channel, without any events, to the program.
func channel(r *fakedev.Request) error {
	fd, err := r.EventFile()
	if err != nil {
		return err
	}
	return r.Out(uapi.UVERBS_ATTR_CORE_OUT, fakedev.U32(fd))
}
