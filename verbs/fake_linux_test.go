package verbs

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A fakeKernel answers a Device's commands without a device: it creates any object, and
// reports zeros except for the values that tests need.
type fakeKernel struct {
	t      *testing.T
	events *os.File // asynchronous events are written here

	mu     sync.Mutex
	calls  []string // the verbs, in their order
	handle uint32   // the last one given out

	// on has functions that answer a verb in place of the kernel. If one returns an error
	// that isn't an errno, the kernel answers as usual. They run without mu.
	on map[string]func(*fakeCall) error

	// asked and done, if not nil, are called before and after each command is answered, done
	// with the handle of a new object. An error of asked refuses the command.
	asked func(*fakeCall) error
	done  func(f *fakeCall, handle uint32)
}

// errPassOn is the error with which a function of fakeKernel.on lets the kernel answer.
var errPassOn = errors.New("pass on")

// A fakeCall is one command.
type fakeCall struct {
	*ioctl.Call
	addr uint64
}

func (k *fakeKernel) answer(addr uint64) syscall.Errno {
	call, err := ioctl.Decode(addr, readOwn)
	if err == nil {
		err = call.Err
	}
	if err != nil {
		k.t.Error(err)
		return unix.EFAULT
	}
	f := &fakeCall{Call: call, addr: addr + uapi.IbUverbsIoctlHdrAttrsOffset}
	verb := call.Verb()
	if call.Method == nil {
		return unix.EPROTONOSUPPORT // Probe
	}
	gvisorSees(call)
	k.mu.Lock()
	k.calls = append(k.calls, verb)
	k.handle++
	handle, on := k.handle, k.on[verb]
	k.mu.Unlock()
	err = nil
	if k.asked != nil {
		err = k.asked(f)
	}
	if err == nil {
		if err = errPassOn; on != nil {
			err = on(f)
		}
	}
	if err == errPassOn {
		err = k.usual(f, verb, handle)
	}
	if err == nil && k.done != nil {
		k.done(f, handle)
	}
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		k.t.Errorf("%s: %v", verb, err)
	}
	return errno
}

// usual answers the commands that a test doesn't answer itself.
func (k *fakeKernel) usual(f *fakeCall, verb string, handle uint32) error {
	for i := range f.Attrs {
		a := &f.Attrs[i]
		if a.Spec != nil && a.Spec.Access == uapi.AccessNew && a.Spec.Kind == uapi.AttrIDR {
			f.object(a.Raw.AttrId, uint64(handle))
		}
	}
	switch verb {
	case "query_device_ex":
		resp := fakeDevice()
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &resp)
	case "alloc_async_fd":
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		k.events = w
		fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		r.Close()
		f.object(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, uint64(fd))
		return err
	case "create_comp_channel":
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsCreateCompChannelResp{Fd: uint32(fd)})
		return err
	case "alloc_pd":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsAllocPdResp{PdHandle: handle})
	case "alloc_mw":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsAllocMwResp{MwHandle: handle, Rkey: handle << 8})
	case "create_ah":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsCreateAhResp{AhHandle: handle})
	case "open_xrcd":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsOpenXrcdResp{XrcdHandle: handle})
	case "reg_mr":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsRegMrResp{MrHandle: handle, Lkey: handle << 8, Rkey: handle<<8 | 1})
	case "create_flow":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsCreateFlowResp{FlowHandle: handle})
	case "create_qp":
		return f.out(uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &handle)
	case "open_qp":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsCreateQpResp{QpHandle: handle})
	case "create_rwq_ind_table":
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsExCreateRwqIndTableResp{IndTblHandle: handle})
	}
	return nil
}

// fakeDevice has room for everything.
func fakeDevice() uapi.IbUverbsExQueryDeviceResp {
	return uapi.IbUverbsExQueryDeviceResp{Base: uapi.IbUverbsQueryDeviceResp{
		MaxMrSize: math.MaxUint64, MaxQpRdAtom: 5, MaxQpInitRdAtom: 4, MaxQp: 1 << 10, MaxQpWr: 1 << 10, MaxSge: 16, MaxCq: 1 << 10, MaxCqe: 1 << 10,
		MaxMr: 1 << 10, MaxPd: 1 << 10, MaxSrq: 1 << 10, MaxSrqWr: 1 << 10, MaxSrqSge: 16, PhysPortCnt: 2,
		DeviceCapFlags: uint32(uapi.IB_UVERBS_DEVICE_SRQ_RESIZE),
	}, TimestampMask: 1<<48 - 1}
}

// count returns the number of calls of a verb.
func (k *fakeKernel) count(verb string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, c := range k.calls {
		if c == verb {
			n++
		}
	}
	return n
}

// answerTo makes f answer a verb from now on, or the kernel if f is nil.
func (k *fakeKernel) answerTo(verb string, f func(*fakeCall) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.on[verb] = f
}

// event sends an asynchronous event about an object or a port.
func (k *fakeKernel) event(typ EventType, element uint64) {
	k.t.Helper()
	b := binary.NativeEndian.AppendUint64(nil, element)
	b = binary.NativeEndian.AppendUint32(b, uint32(typ))
	if _, err := k.events.Write(append(b, 0, 0, 0, 0)); err != nil {
		k.t.Error(err)
	}
}

func refuse(errno syscall.Errno) func(*fakeCall) error {
	return func(*fakeCall) error { return errno }
}

func (f *fakeCall) attr(id uint16) int {
	return slices.IndexFunc(f.Attrs, func(a ioctl.CallAttr) bool { return a.Raw.AttrId == id })
}

// out writes an output.
func (f *fakeCall) out(id uint16, v any) error {
	i := f.attr(id)
	if i < 0 {
		return nil
	}
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		return err
	}
	return writeOwn(f.Attrs[i].Raw.Data, b[:min(len(b), int(f.Attrs[i].Raw.Len))])
}

// object writes the handle of a new object.
func (f *fakeCall) object(id uint16, handle uint64) {
	if i := f.attr(id); i >= 0 {
		writeOwn(f.addr+uint64(i)*16+8, binary.NativeEndian.AppendUint64(nil, handle))
	}
}

// in reads an input. Bytes that the command doesn't have are zero.
func in[T any](f *fakeCall, id uint16) (v T) {
	i := f.attr(id)
	if i < 0 {
		return v
	}
	raw := &f.Attrs[i].Raw
	b := make([]byte, binary.Size(&v))
	if part := b[:min(len(b), int(raw.Len))]; raw.Len <= 8 {
		copy(part, binary.NativeEndian.AppendUint64(nil, raw.Data))
	} else if err := readOwn(raw.Data, part); err != nil {
		panic(err)
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &v); err != nil {
		panic(err)
	}
	return v
}

// inAll reads an input that is an array.
func inAll[T any](f *fakeCall, id uint16) []T {
	raw := &f.Attrs[f.attr(id)].Raw
	var one T
	all := make([]T, int(raw.Len)/binary.Size(&one))
	b := make([]byte, binary.Size(all))
	if raw.Len <= 8 {
		copy(b, binary.NativeEndian.AppendUint64(nil, raw.Data))
	} else if err := readOwn(raw.Data, b); err != nil {
		panic(err)
	}
	if _, err := binary.Decode(b, binary.NativeEndian, all); err != nil {
		panic(err)
	}
	return all
}

// handleOf returns the handle that a command names.
func (f *fakeCall) handleOf(id uint16) uint32 {
	if i := f.attr(id); i >= 0 {
		return uint32(f.Attrs[i].Raw.Data)
	}
	return 0
}

// readOwn and writeOwn copy this process's memory, as the kernel does.
func readOwn(addr uint64, b []byte) error  { return copyOwn(addr, b, unix.ProcessVMReadv) }
func writeOwn(addr uint64, b []byte) error { return copyOwn(addr, b, unix.ProcessVMWritev) }

func copyOwn(addr uint64, b []byte, call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := call(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

// fakeContext opens a fake device, and closes it at the end of the test.
func fakeContext(t *testing.T) (*Device, *fakeKernel) {
	t.Helper()
	d, k := openFake(t)
	t.Cleanup(func() {
		k.mu.Lock()
		clear(k.on)
		k.mu.Unlock()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		k.events.Close()
	})
	return d, k
}

func openFake(t *testing.T) (*Device, *fakeKernel) {
	t.Helper()
	d, k, err := tryFake(t, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d, k
}

// tryFake opens a device whose driver has the given version of the ABI, with a provider
// that supports versions from to to.
func tryFake(t *testing.T, version, from, to int) (*Device, *fakeKernel, error) {
	t.Helper()
	k := &fakeKernel{t: t, on: make(map[string]func(*fakeCall) error)}
	d, err := k.open(version, &provider.Provider{MinABI: from, MaxABI: to, NewContext: newFakeProvider})
	return d, k, err
}

// open opens a device whose driver has a version of the ABI, with a provider.
func (k *fakeKernel) open(version int, p *provider.Provider) (*Device, error) {
	syscalltest.SkipUnderEmulator(k.t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		k.t.Fatal(err)
	}
	p.Name, p.Driver = "fake", uapi.RDMA_DRIVER_UNKNOWN
	old := providers
	providers = func() []*provider.Provider { return []*provider.Provider{p} }
	defer func() { providers = old }()
	return (&DeviceInfo{name: "fake0", abiVersion: version}).open(ioctl.NewFile(kernel.Answering(fd, k.answer)))
}

// A fakeProvider has queues that accept every request and have no completions.
type fakeProvider struct {
	provider.Context
	qps   []*fakeQP
	cqs   []*fakeCQ
	srqs  []*fakeSRQ
	adopt error           // the result of the queues' Adopt
	lacks provider.Fields // of completions

	nullKey uint32
}

func newFakeProvider(*ioctl.File, ioctl.GetContext) (provider.Context, error) {
	return new(fakeProvider), nil
}

func (p *fakeProvider) Adopt() error { return nil }
func (p *fakeProvider) Release()     {}

func (p *fakeProvider) QueryDevice(ioctl.WriteExQueryDevice) func() provider.DeviceExtra { return nil }
func (p *fakeProvider) Clock() (uint64, bool)                                            { return 0, false }
func (p *fakeProvider) NullKey() (uint32, bool)                                          { return p.nullKey, p.nullKey != 0 }
func (p *fakeProvider) NewPD(ioctl.WriteAllocPd) (provider.PD, error)                    { return fakePD{}, nil }
func (p *fakeProvider) NewAH(_ ioctl.WriteCreateAh, init provider.AHInit) (provider.AH, error) {
	return fakeAH{}, nil
}

func (p *fakeProvider) NewCQ(_ ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	if init.Fields&p.lacks != 0 {
		return nil, provider.ErrNoField
	}
	q := &fakeCQ{init: *init, of: p}
	p.cqs = append(p.cqs, q)
	return q, nil
}

func (p *fakeProvider) NewSRQ(_ ioctl.SrqCreate, init *provider.SRQInit) (provider.SRQ, error) {
	q := &fakeSRQ{init: *init, of: p}
	p.srqs = append(p.srqs, q)
	return q, nil
}

func (p *fakeProvider) NewQP(_ ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	q := &fakeQP{init: *init, of: p}
	p.qps = append(p.qps, q)
	return q, nil
}

type fakePD struct{}

func (fakePD) Adopt() error { return nil }

type fakeAH struct{}

func (fakeAH) Local() bool                 { return false }
func (fakeAH) Adopt(*provider.AHRef) error { return nil }

// A fakeQP is a nullQP that can be adopted and released.
type fakeQP struct {
	nullQP
	init     provider.QPInit
	num      uint32
	moved    []uapi.IbQpState
	of       *fakeProvider
	released int
}

func (q *fakeQP) Adopt(_, qpn uint32, granted *uapi.IbUverbsQpCap) error {
	*granted = q.init.Cap
	q.num = qpn
	return q.of.adopt
}

func (q *fakeQP) ECE() (uint32, uint32)                        { return 0, 0 }
func (q *fakeQP) Modify() (cmd ioctl.WriteExModifyQp, ok bool) { return cmd, false }
func (q *fakeQP) Release()                                     { q.released++ }

func (q *fakeQP) Moved(to uapi.IbQpState) uint32 {
	q.moved = append(q.moved, to)
	return q.num
}

type fakeCQ struct {
	init          provider.CQInit
	ready         int // completions to be polled
	forgotten     []provider.QP
	forgottenSRQs int
	armed         int
	of            *fakeProvider
	released      int
}

func (q *fakeCQ) Adopt(uint32) error { return q.of.adopt }

func (q *fakeCQ) Poll(wc []provider.WC) (int, error) {
	n := min(q.ready, len(wc))
	q.ready -= n
	return n, nil
}

func (q *fakeCQ) PollEx(wc []provider.WCEx) (int, error) {
	n := min(q.ready, len(wc))
	q.ready -= n
	return n, nil
}

func (q *fakeCQ) Arm(bool, uint32) error {
	q.armed++
	return nil
}

func (q *fakeCQ) Forget(qp provider.QP)                    { q.forgotten = append(q.forgotten, qp) }
func (q *fakeCQ) ForgetSRQ(provider.SRQ)                   { q.forgottenSRQs++ }
func (q *fakeCQ) Resize(ioctl.WriteResizeCq, uint32) error { return nil }
func (q *fakeCQ) Remap() error                             { return nil }
func (q *fakeCQ) Release()                                 { q.released++ }

type fakeSRQ struct {
	init     provider.SRQInit
	posted   int
	remapped int
	of       *fakeProvider
	released int
}

func (q *fakeSRQ) Adopt(_ uint32, granted *provider.SRQInit) error {
	*granted = q.init
	return q.of.adopt
}

func (q *fakeSRQ) PostRecv(wrs []provider.RecvWR) (int, error) {
	q.posted += len(wrs)
	return len(wrs), nil
}

func (q *fakeSRQ) Modify(ioctl.WriteModifySrq) error { return nil }
func (q *fakeSRQ) Release()                          { q.released++ }

func (q *fakeSRQ) Remap() error {
	q.remapped++
	return nil
}

// fakeThings are one of each object of a fake Device.
type fakeThings struct {
	pd  *PD
	mr  *MR
	mw  *MW
	ch  *CompChannel
	cq  *CQ
	srq *SRQ
	qp  *QP // RC
}

func makeFakes(t *testing.T, d *Device) fakeThings {
	t.Helper()
	var x fakeThings
	x.pd = must(d.AllocPD())(t)
	x.mr = must(x.pd.RegMR(make([]byte, 4096), MROptions{Access: AccessLocalWrite | AccessMWBind}))(t)
	x.mw = must(x.pd.AllocMW(MWType1))(t)
	x.ch = must(d.CreateCompChannel())(t)
	x.cq = must(d.CreateCQ(CQOptions{MaxCQE: 16, Channel: x.ch, Fields: WCFieldTimestamp}))(t)
	x.srq = must(x.pd.CreateSRQ(SRQOptions{MaxWR: 16, MaxSGE: 1}))(t)
	x.qp = must(x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq, Cap: QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	return x
}

func (x fakeThings) all() []interface{ Close() error } {
	return []interface{ Close() error }{x.mw, x.qp, x.srq, x.cq, x.ch, x.mr, x.pd}
}
