// Package mlx5 is the provider for ConnectX adapters (the kernel's mlx5_ib). It
// corresponds to libmlx5 in rdma-core.
//
// Queues are memory of this process, which the kernel pins and maps for the adapter. A post
// writes work queue entries (WQEs), then the queue's fill level to a doorbell record in
// memory. For sends it then writes to a mapped register page (UAR): either the WQE's first
// 8 bytes or, for one small WQE, all of it (BlueFlame). Completions are read from the
// completion queue's ring, where an owner bit distinguishes new entries from old ones. The
// usual requests are encoded in short.go, all others in send.go.
//
// Programs use package verbs, which links this provider.
//
// # What differs from libmlx5
//
// The adapter sees the same bytes and doorbells (tests/mlx5bytes), with these
// exceptions:
//
//   - Unused bytes of a WQE are zero, because segments are stored whole. libmlx5 leaves
//     the old contents there.
//   - An SRQ's entries are used in the order of memory, as in libmlx5 since 2023. Older
//     versions use them in the order of their completion.
//   - A WQE that wraps around the end of the ring is not copied to the register: only
//     the doorbell is rung for it.
//   - On amd64 no LFENCE follows the load of a CQE's owner byte
//     (udma_from_device_barrier). The processor loads from ordinary memory in order, and
//     the compiler is prevented from reordering.
//   - A resize of a CQ ends with writing its consumer index to the record. So the adapter
//     sees at once that its mark in the old ring is consumed.
//   - Short messages arrive in CQEs (scatter to CQE) only if the program requests that,
//     and Poll copies them only to registered memory. libmlx5 writes to any address.
//   - Queues whose messages would need WQEs of 64 segments are refused: the control
//     segment can express 63. libmlx5 grants them for UD and raw packets.
//   - A raw packet without data is always refused. So is data for segmentation that is
//     longer than the device's limit.
//   - A CQ with compressed completions takes no queue pair with an SRQ, or whose receives complete
//     in any order, unless its format identifies each completion's receive. libmlx5 assumes that the
//     receives are used in the order of memory.
//   - If receives complete in any order, no post overwrites an incomplete receive, however far it lags
//     behind the others. libmlx5 only counts completions.
//   - An invalid CQE ends a poll after the completions before it. libmlx5 loses those
//     completions.
//   - A context uses DEVX only if the program requests it, and allocates doorbell registers on
//     demand: one for each QP with SingleOwner; for other QPs, eight for one QP each, then eight
//     that QPs share behind a lock. libmlx5 hands out four without a lock, and one for each thread
//     domain. The program or the environment may change these numbers.
//   - On amd64, a doorbell in memory that isn't write-combining has no fences around it.
//   - Only these environment variables are used: MLX5_SHUT_UP_BF, MLX5_TOTAL_UUARS and
//     MLX5_NUM_LOW_LAT_UUARS.
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

	ImportContext: importContext,
}

// A context is an opened device.
type context struct {
	file *ioctl.File
	req  *uapi.Mlx5IbAllocUcontextReqV2 // until the command has run
	resp *uapi.Mlx5IbAllocUcontextResp

	devx bool // commands for the firmware are allowed

	cqeVersion uint8
	limits     limits
	uars       uars
	records    records
	index      index
	clock      clock
	wall       wall
	masked     maskedAtomics
	// ahInKernel: the kernel resolves the peer's MAC address. queryExtra: the kernel
	// reports more properties of the device.
	ahInKernel, queryExtra bool
	ece                    bool
	realTime               bool // queues can have timestamps of a real-time clock
	// nullKey is the key of null MRs; 0 if the adapter has none.
	nullKey uint32
	// ethInline is the number of bytes of each raw packet that must be inline.
	ethInline int
}

// limits are the limits of queues, in bytes and entries.
type limits struct {
	sendWQE, recvWQE     int // bytes of a WQE
	sendBlocks, recvWQEs int // blocks and WQEs of a queue
	srqWQEs              int
}

// cqeVersion1 is the version in which each CQE has the QP's user index.
const cqeVersion1 = 1

func newContext(f *ioctl.File, cmd ioctl.GetContext) (provider.Context, error) {
	env, err := prepare()
	if err != nil {
		return nil, err
	}
	// Kernels before 5.6 allocate these fixed numbers of registers. Since 5.6 kernels
	// allocate pages on demand.
	req := cmd.Mlx5().In()
	*req = uapi.Mlx5IbAllocUcontextReqV2{
		TotalNumBfregs:      uint32(env.registers),
		NumLowLatencyBfregs: uint32(env.lowLatency),
		MaxCqeVersion:       cqeVersion1,
		LibCaps:             uint64(uapi.MLX5_LIB_CAP_4K_UAR | uapi.MLX5_LIB_CAP_DYN_UAR),
	}
	c := contextOn(f, cmd.Mlx5().Out(), &env)
	c.req = req
	return c, nil
}

// prepare checks the machine, and reads the environment.
func prepare() (environment, error) {
	if !mmio.Supported {
		return environment{}, fmt.Errorf("mlx5: not supported on %s: the memory barriers that the adapter needs are implemented for amd64 and arm64", runtime.GOARCH)
	}
	return readEnvironment()
}

func contextOn(f *ioctl.File, resp *uapi.Mlx5IbAllocUcontextResp, env *environment) *context {
	c := &context{file: f, resp: resp}
	c.uars.choose(env)
	return c
}

// minResponse is the length of the shortest response of kernels with ioctls.
const minResponse = uint32(unsafe.Offsetof(uapi.Mlx5IbAllocUcontextResp{}.NumDynBfregs))

var errShortResponse = errors.New("mlx5: the kernel's answer is shorter than the driver's ABI says")

func (c *context) Adopt() error {
	r := *c.resp
	c.req, c.resp = nil, nil
	if r.ResponseLength < minResponse {
		return errShortResponse
	}
	if r.CqeVersion > cqeVersion1 {
		return fmt.Errorf("mlx5: the kernel chose CQE version %d, this library supports 0 and 1", r.CqeVersion)
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
	if mask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY != 0 {
		c.nullKey = r.DumpFillMkey
	}
	c.ece = mask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE != 0
	c.realTime = mask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS != 0
	c.ahInKernel = uapi.Mlx5UserCmdsSuppUhw(r.CmdsSuppUhw)&uapi.MLX5_USER_CMDS_SUPP_UHW_CREATE_AH != 0
	c.queryExtra = uapi.Mlx5UserCmdsSuppUhw(r.CmdsSuppUhw)&uapi.MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE != 0
	c.wall.offered = r.ClockInfoVersions>>uapi.MLX5_IB_CLOCK_INFO_V1&1 != 0
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
			PacingBurst:    uapi.Mlx5IbPacketPacingCapFlags(resp.PacketPacingCaps.CapFlags)&uapi.MLX5_IB_PP_SUPPORT_BURST != 0,
			CompressedCQEs: resp.CqeCompCaps.MaxNum, CQEFormats: resp.CqeCompCaps.SupportedFormat,
		}
	}
}

func (c *context) NullKey() (uint32, bool) { return c.nullKey, c.nullKey != 0 }

func (c *context) Release() {
	c.clock.release()
	c.wall.release()
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
