// Package mlx5 is the provider for ConnectX adapters (the kernel's mlx5_ib),
// the part that libmlx5 is in rdma-core.
//
// Queues lie in this process's memory, which the kernel pins and shows the
// adapter. A post writes work queue entries, then a doorbell record in memory
// that says how far the queue is filled; for sends the adapter is then told
// through a mapped register page (UAR), either of the WQE's first 8 bytes or,
// where that is one small WQE, of all of it (BlueFlame). Completions are read
// from the completion queue's ring, where an owner bit tells new from old.
//
// Programs use package verbs, which links this provider.
//
// # What differs from libmlx5
//
// The adapter sees the same bytes and doorbells (tests/mlx5bytes) but for:
//
//   - A WQE's bytes that mean nothing are zero where libmlx5 leaves what was
//     there: segments are stored whole.
//   - The order in which an SRQ's places are used: versions of libmlx5 differ in
//     it, too.
//   - A WQE that goes on at the ring's begin is not copied to the register: the
//     doorbell alone is rung for it.
//   - On amd64 no LFENCE follows the load of a CQE's owner byte (udma_from_device_barrier):
//     the processor loads from ordinary memory in order, and the compiler is kept
//     from doing otherwise.
//   - A resize of a CQ ends with its consumer index in the record, so that the
//     adapter knows at once that its mark in the old ring is consumed.
//   - Short messages come in CQEs (scatter to CQE) only where a program asks for
//     that: Poll copies them to an address, whatever is there by then.
//   - Queues whose messages would need WQEs of 64 segments are refused: a WQE's head
//     can say 63. Libmlx5 grants them for UD and raw packets.
//   - A raw packet without data is refused however it is posted, and so is data to be
//     segmented that is longer than the device takes.
//   - A CQE that can't be told of ends a poll after the completions before it, which
//     libmlx5 then loses.
//   - A context asks for no DEVX, and for doorbell registers as QPs need them:
//     eight that are one QP's each, then eight that QPs share behind a lock.
//     libmlx5 gives out four without lock, unless the environment says otherwise.
//   - Of the environment, MLX5_SHUT_UP_BF, MLX5_TOTAL_UUARS and
//     MLX5_NUM_LOW_LAT_UUARS count, and nothing else.
package mlx5

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/internal/mmio"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Provider describes the provider.
var Provider = provider.Provider{
	Name:       "mlx5",
	Driver:     uapi.RDMA_DRIVER_MLX5,
	MinABI:     uapi.MLX5_IB_UVERBS_ABI_VERSION,
	MaxABI:     uapi.MLX5_IB_UVERBS_ABI_VERSION,
	NewContext: newContext,
}

// A context is an opened device.
type context struct {
	file *ioctl.File
	resp *uapi.Mlx5IbAllocUcontextResp

	cqeVersion uint8
	limits     limits
	uars       uars
	records    records
	index      index
	clock      clock
	masked     maskedAtomics
	// ahInKernel: the kernel finds the peer's MAC address. queryExtra: it says more
	// of the device.
	ahInKernel, queryExtra bool
	ece                    bool
	// ethInline is how many bytes of each raw packet the device wants inline.
	ethInline int
}

// limits bound queues, in bytes and entries.
type limits struct {
	sendWQE, recvWQE     int // bytes of one
	sendBlocks, recvWQEs int // of a queue
	srqWQEs              int
}

// cqeVersion1 has the number that this side gave a QP in each CQE.
const cqeVersion1 = 1

func newContext(f *ioctl.File, cmd ioctl.GetContext) (provider.Context, error) {
	if !mmio.Supported {
		return nil, fmt.Errorf("mlx5: on %s this library doesn't know how to order memory accesses towards the adapter; it does on amd64 and arm64", runtime.GOARCH)
	}
	env, err := readEnvironment()
	if err != nil {
		return nil, err
	}
	// The registers are for kernels that give a fixed set of them. Those since 5.6
	// give pages on demand instead.
	*cmd.Mlx5().In() = uapi.Mlx5IbAllocUcontextReqV2{
		TotalNumBfregs:      uint32(env.registers),
		NumLowLatencyBfregs: uint32(env.lowLatency),
		MaxCqeVersion:       cqeVersion1,
		LibCaps:             uint64(uapi.MLX5_LIB_CAP_4K_UAR | uapi.MLX5_LIB_CAP_DYN_UAR),
	}
	c := &context{file: f, resp: cmd.Mlx5().Out()}
	c.uars.choose(&env)
	return c, nil
}

// minResponse is what every kernel with the ioctl interface answers.
const minResponse = uint32(unsafe.Offsetof(uapi.Mlx5IbAllocUcontextResp{}.NumDynBfregs))

var errShortResponse = errors.New("mlx5: the kernel's answer is shorter than the driver's ABI says")

func (c *context) Adopt() error {
	r := *c.resp
	c.resp = nil
	if r.ResponseLength < minResponse {
		return errShortResponse
	}
	if r.CqeVersion > cqeVersion1 {
		return fmt.Errorf("mlx5: the kernel chose CQE version %d, this library knows 0 and 1", r.CqeVersion)
	}
	if r.MaxSqDescSz == 0 || r.MaxRqDescSz == 0 || r.MaxSendWqebb == 0 || r.LogUarSize > 16 {
		return errShortResponse
	}
	c.cqeVersion = r.CqeVersion
	c.limits = limits{
		sendWQE: int(r.MaxSqDescSz), recvWQE: int(r.MaxRqDescSz),
		sendBlocks: int(r.MaxSendWqebb), recvWQEs: int(r.MaxRecvWr), srqWQEs: int(r.MaxSrqRecvWr),
	}
	mask := uapi.Mlx5IbAllocUcontextRespMask(r.CompMask)
	c.ece = mask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE != 0
	c.ahInKernel = uapi.Mlx5UserCmdsSuppUhw(r.CmdsSuppUhw)&uapi.MLX5_USER_CMDS_SUPP_UHW_CREATE_AH != 0
	c.queryExtra = uapi.Mlx5UserCmdsSuppUhw(r.CmdsSuppUhw)&uapi.MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE != 0
	c.ethInline = ethInline(uapi.Mlx5UserInlineMode(r.EthMinInline))
	if err := c.uars.open(c.file, &r); err != nil {
		c.Release()
		return err
	}
	if mask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET != 0 {
		c.clock.open(c.file, r.HcaCoreClockOffset)
	}
	return nil
}

func (c *context) QueryDevice(cmd ioctl.WriteExQueryDevice) func() provider.DeviceExtra {
	if !c.queryExtra {
		return nil
	}
	resp := cmd.Mlx5().Out()
	return func() provider.DeviceExtra {
		return provider.DeviceExtra{
			MaxTSO: resp.TsoCaps.MaxTso, TSOQPTs: resp.TsoCaps.SupportedQpts,
			RSSFunctions: resp.RssCaps.RxHashFunction, RSSFields: resp.RssCaps.RxHashFieldsMask,
			MinPacing: resp.PacketPacingCaps.QpRateLimitMin, MaxPacing: resp.PacketPacingCaps.QpRateLimitMax,
			PacingQPTs:     resp.PacketPacingCaps.SupportedQpts,
			CompressedCQEs: resp.CqeCompCaps.MaxNum, CQEFormats: resp.CqeCompCaps.SupportedFormat,
		}
	}
}

func (c *context) Release() {
	c.clock.release()
	c.uars.release(c.file)
	c.records.release()
}

// pd is a protection domain.
type pd struct {
	resp *uapi.Mlx5IbAllocPdResp
	pdn  uint32
}

func (c *context) NewPD(cmd ioctl.WriteAllocPd) (provider.PD, error) {
	return &pd{resp: cmd.Mlx5().Out()}, nil
}

func (p *pd) Adopt() error {
	p.pdn, p.resp = p.resp.Pdn, nil
	return nil
}
