package verbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// collect collects garbage until all present garbage is found. The collector ends the
// program if it finds pinned memory among it.
func collect() {
	for range 2 {
		found := make(chan struct{})
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(found) })
		runtime.GC()
		<-found
	}
}

// A ledger records the objects of a Device in the kernel and at its provider. It counts the
// steps of a verb, which are commands to the kernel and calls of the provider, and makes one of
// them fail.
type ledger struct {
	t *testing.T

	mu     sync.Mutex
	verb   int      // number of the running verb, from 1; 0 for none
	verbs  int      // number of verbs so far
	steps  []string // of the running verb
	fails  int      // the step that fails, from 0; -1 for none
	kernel []kernelObject
	parts  []*part
	groups map[uint32]int // multicast groups, by the handles of the QPs in them
	memory uint64         // address of the last registered memory
	gone   bool           // the device is gone

	contexts int // provider's contexts that have been adopted and not released
}

// A kernelObject is an object in the kernel.
type kernelObject struct {
	by     string // the command that has created it
	handle uint32
	verb   int
}

// A part is the provider's part of an object.
type part struct {
	l      *ledger
	name   string
	handle uint32 // the object's handle, 0 before there is an object
}

// step records a step of the running verb. It fails if this is the step to fail.
func (l *ledger) step(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.verb == 0 {
		return nil
	}
	l.steps = append(l.steps, name)
	if len(l.steps)-1 == l.fails {
		return unix.ENOMEM
	}
	return nil
}

// run runs a verb and fails a step of it. It returns the steps.
func (l *ledger) run(fails int, call verb) (steps []string, made []io.Closer, err error) {
	l.mu.Lock()
	l.verbs++
	l.verb, l.fails, l.steps = l.verbs, fails, nil
	l.mu.Unlock()
	made, err = call()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verb = 0
	return l.steps, made, err
}

// asked is called for each command before the kernel answers it.
func (l *ledger) asked(f *fakeCall) error {
	if err := l.step(f.Verb()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f.Verb() {
	case "destroy_qp":
		if l.groups[f.handleOf(uapi.UVERBS_ATTR_DESTROY_QP_HANDLE)] > 0 {
			return unix.EBUSY // the kernel destroys no QP in a group
		}
	case "detach_mcast":
		if l.groups[in[uapi.IbUverbsDetachMcast](f, uapi.UVERBS_ATTR_CORE_IN).QpHandle] == 0 {
			l.t.Error("detached from a group that the QP isn't in")
			return unix.EINVAL
		}
	}
	return nil
}

// done is called for each command that has succeeded.
func (l *ledger) done(f *fakeCall, handle uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	verb := f.Verb()
	switch verb {
	case "attach_mcast":
		l.groups[in[uapi.IbUverbsAttachMcast](f, uapi.UVERBS_ATTR_CORE_IN).QpHandle]++
	case "detach_mcast":
		l.groups[in[uapi.IbUverbsDetachMcast](f, uapi.UVERBS_ATTR_CORE_IN).QpHandle]--
	case "create_comp_channel", "alloc_async_fd": // files, which are counted separately
	default:
		for _, makes := range []string{"create_", "alloc_", "reg_", "open_"} {
			if strings.HasPrefix(verb, makes) {
				l.kernel = append(l.kernel, kernelObject{verb, handle, l.verb})
				for _, p := range l.parts {
					if p.handle == 0 {
						p.handle = handle
					}
				}
			}
		}
	}
	for _, a := range f.Attrs {
		if a.Spec.Access == uapi.AccessDestroy {
			l.destroyed(verb, uint32(a.Raw.Data))
		}
	}
}

// destroyed removes an object. The objects of one verb must be removed in the reverse order
// of their creation.
func (l *ledger) destroyed(verb string, handle uint32) {
	i := slices.IndexFunc(l.kernel, func(o kernelObject) bool { return o.handle == handle })
	if i < 0 {
		l.t.Errorf("%s destroys %d, which doesn't exist", verb, handle)
		return
	}
	for _, o := range l.kernel[i+1:] {
		if l.verb != 0 && l.kernel[i].verb == l.verb && o.verb == l.verb {
			l.t.Errorf("%s comes before the end of what %s has made later", verb, o.by)
		}
	}
	l.kernel = slices.Delete(l.kernel, i, i+1)
}

// part makes a provider's part, in two steps of which adopt is the second.
func (l *ledger) part(name string) (*part, error) {
	if err := l.step("new " + name); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &part{l: l, name: name}
	l.parts = append(l.parts, p)
	return p, nil
}

func (p *part) adopt() error { return p.l.step("adopt " + p.name) }

// release removes the part, whose object must be gone.
func (p *part) release() {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone && slices.ContainsFunc(l.kernel, func(o kernelObject) bool { return o.handle == p.handle }) {
		l.t.Errorf("the memory of a %s is released while the kernel has it", p.name)
	}
	i := slices.Index(l.parts, p)
	if i < 0 {
		l.t.Errorf("a %s is released twice", p.name)
		return
	}
	l.parts = slices.Delete(l.parts, i, i+1)
}

// state returns all existing objects, with their numbers of holds.
func (l *ledger) state(d *Device) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.kernel {
		all = append(all, fmt.Sprintf("%s %d in the kernel", o.by, o.handle))
	}
	for _, p := range l.parts {
		all = append(all, fmt.Sprintf("%s %d at the provider", p.name, p.handle))
	}
	for m := range d.members.all() {
		o := m.base()
		all = append(all, fmt.Sprintf("%v %d, held %d times, with %d parents", o.kind, o.handle, o.holds.Load(), len(o.parents)))
	}
	return append(all, fmt.Sprintf("a device held %d times, groups %v, %d files", d.holds.Load(), l.groups, files(l.t)))
}

// files counts this process's files.
func files(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// ours reports whether the address is in memory of MapMemory: it is mapped, and not inherited
// by children.
func ours(t *testing.T, addr uint64) bool {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= addr && addr < to
		} else if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return strings.Contains(flags, " dc")
		}
	}
	return false
}

// A failingProvider has all kinds of objects, and a ledger that makes its calls fail.
type failingProvider struct{ l *ledger }

func (p *failingProvider) Adopt() error {
	err := p.l.step("adopt context")
	if err == nil {
		p.l.contexts++
	}
	return err
}

func (p *failingProvider) Release()              { p.l.contexts-- }
func (*failingProvider) Clock() (uint64, bool)   { return 0, false }
func (*failingProvider) NullKey() (uint32, bool) { return 7, true }

func (*failingProvider) QueryDevice(ioctl.WriteExQueryDevice) func() provider.DeviceExtra {
	return func() provider.DeviceExtra {
		return provider.DeviceExtra{MinPacing: 1, MaxPacing: 100, PacingQPTs: 1 << RC}
	}
}

func (p *failingProvider) RegMR(cmd ioctl.WriteRegMr) error {
	p.l.memory = cmd.Req.Start
	return p.l.step("new MR")
}

func (p *failingProvider) ImportPD(uint32) error                 { return p.l.step("import PD") }
func (p *failingProvider) NewTable(ioctl.WriteExCreateRwqIndTbl) {}

func (p *failingProvider) CountFlow(ioctl.WriteExCreateFlow, []uint32) (func(), error) {
	part, err := p.l.part("list of counters")
	if err != nil {
		return nil, err
	}
	part.handle = 1 // it belongs to no object, so it takes the handle of none
	return part.release, nil
}

// of is the fakeProvider to which the queues of a failingProvider belong.
var of = new(fakeProvider)

type failingPD struct{ l *ledger }

func (p *failingProvider) NewPD(ioctl.WriteAllocPd) (provider.PD, error) {
	return failingPD{p.l}, p.l.step("new PD")
}

func (p failingPD) Adopt() error { return p.l.step("adopt PD") }

type failingAH struct{ l *ledger }

func (p *failingProvider) NewAH(_ ioctl.WriteCreateAh, init provider.AHInit) (provider.AH, error) {
	if _, err := init.Link(); err != nil {
		return nil, err
	}
	return failingAH{p.l}, p.l.step("new AH")
}

func (failingAH) Local() bool                   { return false }
func (a failingAH) Adopt(*provider.AHRef) error { return a.l.step("adopt AH") }

type failingDM struct {
	fakeDM
	*part
}

func (p *failingProvider) NewDM(ioctl.DmAlloc, int) (provider.DM, error) {
	if err := p.l.step("new DM"); err != nil {
		return nil, err
	}
	return &failingDM{fakeDM{}, &part{l: p.l, name: "DM"}}, nil
}

// Adopt makes the DM's part releasable.
func (d *failingDM) Adopt() error {
	err := d.adopt()
	if err == nil {
		l := d.l
		l.parts = append(l.parts, d.part)
		d.handle = l.kernel[len(l.kernel)-1].handle
	}
	return err
}

func (d *failingDM) Release() { d.release() }

func (p *failingProvider) ImportDM(uint32) (provider.DM, uint64, error) {
	if err := p.l.step("import DM"); err != nil {
		return nil, 0, err
	}
	d := &failingDM{fakeDM{}, &part{l: p.l, name: "DM"}}
	p.l.parts = append(p.l.parts, d.part)
	return d, 64, nil
}

type failingCQ struct {
	fakeCQ
	*part
}

func (p *failingProvider) NewCQ(_ ioctl.CqCreate, init *provider.CQInit) (provider.CQ, error) {
	part, err := p.l.part("CQ")
	if err != nil {
		return nil, err
	}
	return &failingCQ{fakeCQ{init: *init, of: of}, part}, nil
}

func (q *failingCQ) Adopt(uint32) error                       { return q.adopt() }
func (q *failingCQ) Resize(ioctl.WriteResizeCq, uint32) error { return q.l.step("resize CQ") }
func (q *failingCQ) Remap() error                             { return q.l.step("remap CQ") }
func (q *failingCQ) ForgetWQ(provider.WQ)                     {}
func (q *failingCQ) Release()                                 { q.release() }

type failingSRQ struct {
	fakeSRQ
	*part
	operated provider.QP
}

func (p *failingProvider) NewSRQ(_ ioctl.SrqCreate, init *provider.SRQInit) (provider.SRQ, error) {
	part, err := p.l.part("SRQ")
	if err != nil {
		return nil, err
	}
	return &failingSRQ{fakeSRQ: fakeSRQ{init: *init, of: of}, part: part}, nil
}

func (q *failingSRQ) Adopt(handle uint32, granted *provider.SRQInit) error {
	return errors.Join(q.fakeSRQ.Adopt(handle, granted), q.adopt())
}

func (q *failingSRQ) Modify(ioctl.WriteModifySrq) error            { return q.l.step("modify SRQ") }
func (q *failingSRQ) Remap() error                                 { return q.l.step("remap SRQ") }
func (q *failingSRQ) Operate(qp provider.QP)                       { q.operated = qp }
func (q *failingSRQ) PostTagOps(ops []provider.TagOp) (int, error) { return len(ops), nil }
func (q *failingSRQ) Release()                                     { q.release() }

type failingQP struct {
	fakeQP
	*part
}

func (p *failingProvider) NewQP(_ ioctl.QpCreate, init *provider.QPInit) (provider.QP, error) {
	part, err := p.l.part("QP")
	if err != nil {
		return nil, err
	}
	return &failingQP{fakeQP{init: *init, of: of}, part}, nil
}

func (p *failingProvider) NewRSSQP(ioctl.QpCreate, provider.RSSInit) (provider.QP, error) {
	part, err := p.l.part("QP")
	if err != nil {
		return nil, err
	}
	return &failingQP{fakeQP{of: of}, part}, nil
}

// OpenQP is called when the kernel has opened the QP.
func (p *failingProvider) OpenQP(num uint32) provider.QP {
	part, _ := (&ledger{t: p.l.t}).part("QP")
	part.l = p.l
	p.l.parts = append(p.l.parts, part)
	part.handle = p.l.kernel[len(p.l.kernel)-1].handle
	return &failingQP{fakeQP{num: num, of: of}, part}
}

func (q *failingQP) Adopt(handle, qpn uint32, granted *uapi.IbUverbsQpCap) error {
	return errors.Join(q.fakeQP.Adopt(handle, qpn, granted), q.adopt())
}

func (q *failingQP) Release() { q.release() }

type failingWQ struct {
	fakeWQ
	*part
}

func (p *failingProvider) NewWQ(_ ioctl.WqCreate, init provider.WQInit) (provider.WQ, error) {
	part, err := p.l.part("WQ")
	if err != nil {
		return nil, err
	}
	return &failingWQ{fakeWQ{&wqProvider{fakeProvider: of, init: init}}, part}, nil
}

func (q *failingWQ) Adopt(handle, number uint32, granted *provider.WQInit) error {
	return errors.Join(q.fakeWQ.Adopt(handle, number, granted), q.adopt())
}

func (q *failingWQ) Release() { q.release() }

// A failingDevice is a Device with a ledger, and objects from which others are created.
type failingDevice struct {
	*Device
	k *fakeKernel
	l *ledger

	pd   *PD
	ch   *CompChannel
	cq   *CQ
	xrcd *XRCD
}

// open opens a device whose provider and kernel the ledger makes fail.
func (l *ledger) open() (*Device, *fakeKernel, error) {
	k := &fakeKernel{t: l.t, asked: l.asked, done: l.done, on: map[string]func(*fakeCall) error{
		"query_device_ex": func(f *fakeCall) error {
			resp := fakeDevice()
			resp.MaxWqTypeRq, resp.RssCaps.MaxRwqIndirectionTableSize = 1<<10, 16
			resp.MaxDmSize = 1 << 10
			resp.TmCaps = uapi.IbUverbsTmCaps{MaxNumTags: 16, MaxOps: 16}
			resp.OdpCaps.GeneralCaps = uint64(ODPSupport | ODPSupportImplicit)
			return f.out(uapi.UVERBS_ATTR_CORE_OUT, &resp)
		},
		"query_gid_table": func(f *fakeCall) error {
			n := uint64(1)
			f.out(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &n)
			return f.out(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, &uapi.IbUverbsGidEntry{PortNum: 1, Gid: [2]uint64{1, 2}})
		},
	}}
	fakePort(k, LinkLayerInfiniBand, uapi.IbUverbsQueryPortResp{Lid: 1, ActiveMtu: uint8(MTU1024)})
	d, err := k.open(0, &provider.Provider{NewContext: func(*ioctl.File, ioctl.GetContext) (provider.Context, error) {
		return &failingProvider{l}, l.step("new context")
	}})
	return d, k, err
}

func newFailingDevice(t *testing.T) *failingDevice {
	l := &ledger{t: t, fails: -1, groups: make(map[uint32]int)}
	d, k, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	x := &failingDevice{Device: d, k: k, l: l}
	k.on["query_qp"] = func(f *fakeCall) error {
		handle := in[uapi.IbUverbsQueryQp](f, uapi.UVERBS_ATTR_CORE_IN).QpHandle
		for m := range d.members.all() {
			if qp, ok := m.(*QP); ok && qp.handle == handle {
				return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsQueryQpResp{QpState: uint8(qp.State())})
			}
		}
		return errPassOn
	}
	x.pd = must(d.AllocPD())(t)
	x.ch = must(d.CreateCompChannel())(t)
	x.cq = must(d.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	x.xrcd = must(d.OpenXRCD())(t)
	return x
}

// qp makes a QP in a state.
func (x *failingDevice) qp(typ QPType, state QPState) *QP {
	qp := must(x.pd.CreateQP(QPOptions{Type: typ, SendCQ: x.cq, RecvCQ: x.cq, Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))(x.l.t)
	qp.setState(state)
	return qp
}

// end closes the device.
func (x *failingDevice) end() {
	x.l.t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- x.Close() }()
	if err := soon(x.l.t, closed); err != nil {
		x.l.t.Error(err)
	}
	x.k.events.Close()
}

// must is must for a call that has no other result.
func (x *failingDevice) must(err error) {
	if err != nil {
		x.l.t.Helper()
		x.l.t.Fatal(err)
	}
}

// one is the result of a verb that makes one object.
func one[T io.Closer](x T, err error) ([]io.Closer, error) {
	if err != nil {
		return nil, err
	}
	return []io.Closer{x}, nil
}

// none is the result of a verb that makes nothing.
func none(err error) ([]io.Closer, error) { return nil, err }

// A verb returns its new objects, in the order of their creation.
type verb = func() ([]io.Closer, error)

// A verbCall is a verb on a failingDevice.
type verbCall struct {
	name  string
	steps string // in their order

	// prepare creates the objects that the verb needs.
	prepare func(*failingDevice) verb

	lasts  bool // the verb isn't undone at the end
	partly bool // a call that fails may have done a part
}

var verbCalls = []verbCall{
	// Verbs that create an object.
	{name: "alloc PD", steps: "new PD, alloc_pd, adopt PD", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.AllocPD()) }
	}},
	{name: "reg MR", steps: "query_device_ex, new MR, reg_mr", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.RegMR(make([]byte, 100), MROptions{})) }
	}},
	{name: "alloc MR", steps: "query_device_ex, new MR, reg_mr", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.AllocMR(100, MROptions{})) }
	}},
	{name: "reg MR with DMAH", steps: "query_device_ex, reg_mr_ex", prepare: func(x *failingDevice) verb {
		dmah := must(x.AllocDMAH(DMAHOptions{}))(x.l.t)
		return func() ([]io.Closer, error) { return one(x.pd.RegMR(make([]byte, 100), MROptions{DMAH: dmah})) }
	}},
	{name: "reg dma-buf MR", steps: "query_device_ex, reg_dmabuf_mr", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.RegDmabufMR(DmabufOptions{FD: 1, Length: 100})) }
	}},
	{name: "reg implicit MR", steps: "query_device_ex, reg_mr", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.RegImplicitMR(0)) }
	}},
	{name: "alloc null MR", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.AllocNullMR()) }
	}},
	{name: "get buffer", steps: "query_device_ex, new MR, reg_mr", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) {
			pool := must(x.pd.NewBufferPool(BufferPoolOptions{}))(x.l.t)
			b, err := pool.Get(100)
			if err != nil {
				x.must(pool.Close())
				return nil, err
			}
			b.Release()
			return one(pool, nil)
		}
	}},
	{name: "alloc DM", steps: "query_device_ex, new DM, alloc_dm, adopt DM", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.AllocDM(DMOptions{Length: 64})) }
	}},
	{name: "reg DM", steps: "reg_dm_mr", prepare: func(x *failingDevice) verb {
		dm := must(x.AllocDM(DMOptions{Length: 64}))(x.l.t)
		return func() ([]io.Closer, error) { return one(x.pd.RegDM(DMRegion{DM: dm}, 0)) }
	}},
	{name: "alloc DMAH", steps: "alloc_dmah", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.AllocDMAH(DMAHOptions{})) }
	}},
	{name: "alloc MW", steps: "alloc_mw", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.AllocMW(MWType1)) }
	}},
	{name: "open XRC domain", steps: "open_xrcd", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.OpenXRCD()) }
	}},
	{name: "open shared XRC domain", steps: "open_xrcd", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.OpenSharedXRCD(os.Stdin)) }
	}},
	{name: "create completion channel", steps: "create_comp_channel", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.CreateCompChannel()) }
	}},
	{name: "create CQ", steps: "query_device_ex, new CQ, create_cq, adopt CQ", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.CreateCQ(CQOptions{MaxCQE: 1})) }
	}},
	{name: "create CQ with channel and fields", steps: "query_device_ex, new CQ, create_cq, adopt CQ", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) {
			return one(x.CreateCQ(CQOptions{MaxCQE: 1, Channel: x.ch, Fields: WCFieldTimestamp}))
		}
	}},
	{name: "create SRQ", steps: "query_device_ex, new SRQ, create_srq, adopt SRQ", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.CreateSRQ(SRQOptions{MaxWR: 1})) }
	}},
	{name: "create XRC SRQ", steps: "query_device_ex, new SRQ, create_srq, adopt SRQ", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.CreateSRQ(SRQOptions{MaxWR: 1, XRCD: x.xrcd, CQ: x.cq})) }
	}},
	{name: "create SRQ that matches tags",
		steps: "query_device_ex, new SRQ, create_srq, adopt SRQ, new QP, create_qp, adopt QP, query_gid_table, query_port, modify_qp, modify_qp, modify_qp",
		prepare: func(x *failingDevice) verb {
			return func() ([]io.Closer, error) {
				return one(x.pd.CreateSRQ(SRQOptions{MaxWR: 1, CQ: x.cq, TagMatching: TagMatching{MaxTags: 1, MaxOps: 1}}))
			}
		}},
	{name: "create WQ", steps: "query_device_ex, new WQ, create_wq, adopt WQ", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.CreateWQ(WQOptions{CQ: x.cq, MaxWR: 1})) }
	}},
	{name: "create indirection table", steps: "query_device_ex, create_rwq_ind_table", prepare: func(x *failingDevice) verb {
		wq := must(x.pd.CreateWQ(WQOptions{CQ: x.cq, MaxWR: 1}))(x.l.t)
		return func() ([]io.Closer, error) { return one(x.CreateIndirectionTable(wq, wq)) }
	}},
	{name: "create RSS QP", steps: "new QP, create_qp, adopt QP", prepare: func(x *failingDevice) verb {
		table := must(x.CreateIndirectionTable(must(x.pd.CreateWQ(WQOptions{CQ: x.cq, MaxWR: 1}))(x.l.t)))(x.l.t)
		return func() ([]io.Closer, error) {
			return one(x.pd.CreateRSSQP(RSSOptions{Table: table, Key: make([]byte, 40)}))
		}
	}},
	{name: "create QP", steps: "query_device_ex, new QP, create_qp, adopt QP", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) {
			return one(x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq}))
		}
	}},
	{name: "create QP with SRQ", steps: "query_device_ex, new QP, create_qp, adopt QP", prepare: func(x *failingDevice) verb {
		srq := must(x.pd.CreateSRQ(SRQOptions{MaxWR: 1}))(x.l.t)
		return func() ([]io.Closer, error) {
			return one(x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq, SRQ: srq, ScatterToCQE: true}))
		}
	}},
	{name: "create XRC QP", steps: "query_device_ex, new QP, create_qp, adopt QP", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.xrcd.CreateQP(QPOptions{})) }
	}},
	{name: "open QP", steps: "open_qp, query_qp", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.xrcd.OpenQP(5)) }
	}},
	{name: "create AH", steps: "query_device_ex, query_port, new AH, create_ah, adopt AH", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) {
			x.links.Clear()
			return one(x.pd.CreateAH(AHAttr{Port: 1}))
		}
	}},
	{name: "create counters", steps: "create_counters", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.CreateCounters(CountPackets)) }
	}},
	{name: "create flow", steps: "new list of counters, create_flow", prepare: func(x *failingDevice) verb {
		qp, counters := x.qp(RawPacket, QPReset), must(x.CreateCounters(CountPackets))(x.l.t)
		return func() ([]io.Closer, error) {
			return one(qp.CreateFlow(FlowOptions{Specs: []FlowSpec{FlowEth{}, FlowCount{counters}}}))
		}
	}},
	{name: "create completion counter", steps: "create_comp_cntr", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.CreateCompCounter()) }
	}},
	{name: "import PD", steps: "import PD", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.ImportPD(5)) }
	}},
	{name: "import MR", steps: "query_mr", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.pd.ImportMR(5)) }
	}},
	{name: "import DM", steps: "import DM", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return one(x.ImportDM(5)) }
	}},
	{name: "make an object of a driver's package", steps: "create_counters", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) {
			call := must(driverVerbs{}.Begin("make", x.Device, x.pd, x.cq))(x.l.t)
			defer call.Done()
			cmd := ioctl.NewCountersCreate()
			defer cmd.Release()
			handle := cmd.Handle()
			if err := cmd.Run(call.File); err != nil {
				return nil, call.Fail("", err)
			}
			return one(call.Adopt(driverapi.Made{Handle: uint32(*handle), Destroy: func(_ *ioctl.File, handle uint32) error {
				return destroy(x.Device, ioctl.NewCountersDestroy(), handle)
			}}), nil)
		}
	}},

	// Verbs that change an object.
	{name: "move QP to INIT", steps: "query_device_ex, modify_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(UD, QPReset)
		return func() ([]io.Closer, error) {
			err := qp.Modify(QPAttr{State: QPInit, Port: 1}, RequiredMask(UD, QPReset, QPInit))
			return none(x.stateIs(qp, QPReset, QPInit, err))
		}
	}},
	{name: "move QP to RESET", steps: "modify_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(UD, QPInit)
		return func() ([]io.Closer, error) {
			return none(x.stateIs(qp, QPInit, QPReset, qp.Modify(QPAttr{State: QPReset}, QPAttrState)))
		}
	}},
	{name: "query QP", steps: "query_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(UD, QPInit)
		return func() ([]io.Closer, error) {
			_, _, err := qp.Query()
			return none(x.stateIs(qp, QPInit, QPInit, err))
		}
	}},
	{name: "connect QP", steps: "query_device_ex, query_port, modify_qp, modify_qp, modify_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(RC, QPReset)
		return x.connecting(qp, func() error {
			me, err := qp.Endpoint(GIDEntry{Port: 1})
			if err == nil {
				err = qp.Connect(me, ConnectOptions{})
			}
			return err
		})
	}},
	{name: "activate QP", steps: "query_device_ex, modify_qp, modify_qp, modify_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(UD, QPReset)
		return x.connecting(qp, func() error { return qp.Activate(ActivateOptions{Port: 1}) })
	}},
	{name: "activate DCT", steps: "query_device_ex, new QP, create_qp, adopt QP, query_port, modify_qp, modify_qp", prepare: func(x *failingDevice) verb {
		srq := must(x.pd.CreateSRQ(SRQOptions{MaxWR: 1}))(x.l.t)
		return func() ([]io.Closer, error) {
			qp, err := x.pd.CreateQP(QPOptions{Type: DCT, SendCQ: x.cq, RecvCQ: x.cq, SRQ: srq})
			if err != nil {
				return nil, err
			}
			if err := qp.Activate(ActivateOptions{Port: 1}); err != nil {
				x.must(qp.Close()) // it can't go back to RESET
				return nil, err
			}
			return one(qp, nil)
		}
	}},
	{name: "limit rate of QP", steps: "query_device_ex, modify_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(RC, QPRTS)
		return func() ([]io.Closer, error) { return none(qp.LimitRate(RateLimit{Rate: 10})) }
	}},
	{name: "attach multicast", steps: "attach_mcast", lasts: true, prepare: func(x *failingDevice) verb {
		qp := x.qp(UD, QPReset)
		return func() ([]io.Closer, error) { return none(qp.AttachMcast(group, 0)) }
	}},
	{name: "detach multicast", steps: "detach_mcast", lasts: true, prepare: func(x *failingDevice) verb {
		qp := x.qp(UD, QPReset)
		x.must(qp.AttachMcast(group, 0))
		return func() ([]io.Closer, error) { return none(qp.DetachMcast(group, 0)) }
	}},
	{name: "attach completion counter", steps: "qp_attach_comp_cntr", lasts: true, prepare: func(x *failingDevice) verb {
		qp, counter := x.qp(RC, QPReset), must(x.CreateCompCounter())(x.l.t)
		return func() ([]io.Closer, error) { return none(qp.AttachCompCounter(counter, CountSends)) }
	}},
	{name: "set completion counter", steps: "modify_comp_cntr", prepare: func(x *failingDevice) verb {
		counter := must(x.CreateCompCounter())(x.l.t)
		return func() ([]io.Closer, error) { return none(counter.Set(1)) }
	}},
	{name: "resize CQ", steps: "query_device_ex, resize CQ, resize_cq, remap CQ", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return none(x.cq.Resize(8)) }
	}},
	{name: "moderate CQ", steps: "query_device_ex, modify_cq", prepare: func(x *failingDevice) verb {
		return func() ([]io.Closer, error) { return none(x.cq.Moderate(1, 1)) }
	}},
	{name: "resize SRQ", steps: "query_device_ex, modify SRQ, modify_srq, remap SRQ", prepare: func(x *failingDevice) verb {
		srq := must(x.pd.CreateSRQ(SRQOptions{MaxWR: 1}))(x.l.t)
		return func() ([]io.Closer, error) { return none(srq.Resize(8)) }
	}},
	{name: "limit SRQ", steps: "query_device_ex, modify SRQ, modify_srq", prepare: func(x *failingDevice) verb {
		srq := must(x.pd.CreateSRQ(SRQOptions{MaxWR: 1}))(x.l.t)
		return func() ([]io.Closer, error) { return none(srq.SetLimit(1)) }
	}},
	{name: "move WQ", steps: "modify_wq", prepare: func(x *failingDevice) verb {
		wq := must(x.pd.CreateWQ(WQOptions{CQ: x.cq, MaxWR: 1}))(x.l.t)
		return func() ([]io.Closer, error) {
			err := wq.SetState(WQReady)
			if got, want := wq.State(), WQReady; err == nil && got != want || err != nil && got != WQReset {
				x.l.t.Errorf("the WQ is in %v after %v", got, err)
			}
			return none(err)
		}
	}},
	{name: "flags of WQ", steps: "modify_wq", prepare: func(x *failingDevice) verb {
		wq := must(x.pd.CreateWQ(WQOptions{CQ: x.cq, MaxWR: 1}))(x.l.t)
		return func() ([]io.Closer, error) { return none(wq.SetFlags(0, WQStripCVLAN)) }
	}},
	{name: "rereg MR", steps: "query_device_ex, rereg_mr", prepare: func(x *failingDevice) verb {
		mr := must(x.pd.RegMR(make([]byte, 100), MROptions{}))(x.l.t)
		return func() ([]io.Closer, error) {
			before, other := unsafe.SliceData(mr.Bytes()), make([]byte, 200)
			err := mr.Rereg(ReregOptions{Buf: other})
			if now := unsafe.SliceData(mr.Bytes()); err != nil && now != before || err == nil && now != unsafe.SliceData(other) {
				x.l.t.Errorf("after %v the MR has other memory", err)
			}
			return none(err)
		}
	}},
	{name: "rereg MR on another PD", steps: "query_device_ex, rereg_mr", lasts: true, prepare: func(x *failingDevice) verb {
		pd, mr, access := must(x.AllocPD())(x.l.t), must(x.pd.RegMR(make([]byte, 100), MROptions{}))(x.l.t), AccessLocalWrite
		return func() ([]io.Closer, error) {
			err := mr.Rereg(ReregOptions{Buf: make([]byte, 200), PD: pd, Access: &access})
			if held := pd.holds.Load(); err != nil && held != 0 || err == nil && held != 1 {
				x.l.t.Errorf("after %v the new PD is held %d times", err, held)
			}
			return none(err)
		}
	}},

	// Verbs that close an object.
	{name: "close PD", steps: "dealloc_pd", prepare: func(x *failingDevice) verb { return closing(x.AllocPD())(x) }, lasts: true},
	{name: "close MR", steps: "dereg_mr", prepare: func(x *failingDevice) verb {
		return closing(x.pd.RegMR(make([]byte, 100), MROptions{}))(x)
	}, lasts: true},
	{name: "close MR of AllocMR", steps: "dereg_mr", prepare: func(x *failingDevice) verb {
		return closing(x.pd.AllocMR(100, MROptions{}))(x)
	}, lasts: true},
	{name: "close DM", steps: "free_dm", prepare: func(x *failingDevice) verb {
		return closing(x.AllocDM(DMOptions{Length: 64}))(x)
	}, lasts: true},
	{name: "close CQ", steps: "destroy_cq", prepare: func(x *failingDevice) verb {
		return closing(x.CreateCQ(CQOptions{MaxCQE: 1}))(x)
	}, lasts: true},
	{name: "close SRQ", steps: "destroy_srq", prepare: func(x *failingDevice) verb {
		return closing(x.pd.CreateSRQ(SRQOptions{MaxWR: 1}))(x)
	}, lasts: true},
	{name: "close SRQ that matches tags", partly: true, steps: "destroy_qp, destroy_srq", prepare: func(x *failingDevice) verb {
		return closing(x.pd.CreateSRQ(SRQOptions{MaxWR: 1, CQ: x.cq, TagMatching: TagMatching{MaxTags: 1, MaxOps: 1}}))(x)
	}, lasts: true},
	{name: "close WQ", steps: "destroy_wq", prepare: func(x *failingDevice) verb {
		return closing(x.pd.CreateWQ(WQOptions{CQ: x.cq, MaxWR: 1}))(x)
	}, lasts: true},
	{name: "close QP", steps: "destroy_qp", prepare: func(x *failingDevice) verb { return closing(x.qp(RC, QPRTS), nil)(x) }, lasts: true},
	{name: "close QP in groups", partly: true, steps: "detach_mcast, detach_mcast, destroy_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(UD, QPRTS)
		x.must(errors.Join(qp.AttachMcast(group, 0), qp.AttachMcast(group, 1)))
		return closing(qp, nil)(x)
	}, lasts: true},
	{name: "close QP with completion counter", steps: "destroy_qp", prepare: func(x *failingDevice) verb {
		qp := x.qp(RC, QPRTS)
		x.must(qp.AttachCompCounter(must(x.CreateCompCounter())(x.l.t), CountSends))
		return closing(qp, nil)(x)
	}, lasts: true},
	{name: "close opened QP", steps: "destroy_qp", prepare: func(x *failingDevice) verb { return closing(x.xrcd.OpenQP(5))(x) }, lasts: true},
	{name: "close buffer pool", partly: true, steps: "dereg_mr", prepare: func(x *failingDevice) verb {
		pool := must(x.pd.NewBufferPool(BufferPoolOptions{}))(x.l.t)
		must(pool.Get(100))(x.l.t).Release()
		return closing(pool, nil)(x)
	}, lasts: true},
	{name: "close object of a driver's package", steps: "destroy_counters", prepare: func(x *failingDevice) verb {
		call := must(driverVerbs{}.Begin("make", x.pd))(x.l.t)
		defer call.Done()
		counters := must(x.CreateCounters(CountPackets))(x.l.t)
		return closing(call.Adopt(driverapi.Made{Handle: counters.handle, Destroy: func(*ioctl.File, uint32) error { return counters.Close() }}), nil)(x)
	}, lasts: true},
	{name: "close device", partly: true, lasts: true,
		steps: "dealloc_mw, destroy_qp, detach_mcast, destroy_qp, destroy_ah, destroy_srq, destroy_cq, dereg_mr, free_dm, close_xrcd, dealloc_pd",
		prepare: func(x *failingDevice) verb {
			must(x.pd.AllocMR(100, MROptions{}))(x.l.t)
			must(x.pd.AllocMW(MWType1))(x.l.t)
			must(x.pd.CreateAH(AHAttr{Port: 1}))(x.l.t)
			must(x.AllocDM(DMOptions{Length: 64}))(x.l.t)
			x.must(x.qp(UD, QPRTS).AttachMcast(group, 0))
			srq := must(x.pd.CreateSRQ(SRQOptions{MaxWR: 1}))(x.l.t)
			must(x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq, SRQ: srq}))(x.l.t)
			return func() ([]io.Closer, error) { return none(x.Close()) }
		}},
}

var group = GID{0: 0xff}

// closing prepares the end of an object.
func closing[T io.Closer](o T, err error) func(*failingDevice) verb {
	return func(x *failingDevice) verb {
		x.must(err)
		return func() ([]io.Closer, error) { return none(o.Close()) }
	}
}

// stateIs checks a QP's state after a change of it, which may have failed.
func (x *failingDevice) stateIs(qp *QP, from, to QPState, err error) error {
	if err != nil {
		to = from
	}
	if got := qp.State(); got != to {
		x.l.t.Errorf("the QP is in %v after %v", got, err)
	}
	return err
}

// connecting connects a QP. The QP is then in the state of the last successful modification.
// After a failure, it is reset as documented.
func (x *failingDevice) connecting(qp *QP, connect func() error) verb {
	return func() ([]io.Closer, error) {
		if qp.State() != QPReset {
			x.must(qp.Modify(QPAttr{State: QPReset}, QPAttrState))
		}
		x.l.steps = nil
		err := connect()
		to := QPReset
		for i, step := range x.l.steps {
			if step == "modify_qp" && i != x.l.fails {
				to++
			}
		}
		return none(x.stateIs(qp, to, to, err))
	}
}

// TestFailingSteps: an error at each step of each verb that creates, changes or closes an object
// leaves nothing behind: no object in the kernel, no part of the provider, no hold, nothing pinned or
// mapped. New objects are destroyed in the reverse order, memory last. The next call works.
func TestFailingSteps(t *testing.T) {
	for _, call := range verbCalls {
		t.Run(call.name, func(t *testing.T) {
			for n := 0; call.fail(t, n); n++ {
			}
		})
	}
}

// fail makes the call on a new device, and lets step n fail. It reports whether there is such a step.
func (c *verbCall) fail(t *testing.T, n int) bool {
	opened := files(t)
	x := newFailingDevice(t)
	l := x.l
	call := c.prepare(x)
	before := l.state(x.Device)
	x.limits.Store(nil)
	steps, made, err := l.run(n, call)
	failed := n < len(steps)
	if !failed {
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(steps, ", "); got != c.steps {
			t.Errorf("the steps are %s, want %s", got, c.steps)
		}
	} else {
		var op *OpError
		if busy := steps[n] == "detach_mcast"; !errors.Is(err, unix.ENOMEM) && !(busy && errors.Is(err, ErrBusy)) || !errors.As(err, &op) {
			t.Errorf("%s fails: %v", steps[n], err)
		}
		if now := l.state(x.Device); !c.partly && !slices.Equal(now, before) {
			t.Fatalf("after %s has failed:\n%s\nbefore:\n%s", steps[n], strings.Join(now, "\n"), strings.Join(before, "\n"))
		}
		if c.name == "alloc MR" && ours(t, l.memory) {
			t.Errorf("after %s has failed the memory is mapped", steps[n])
		}
		if _, made, err = l.run(-1, call); err != nil {
			t.Errorf("%s has failed, and then %v", steps[n], err)
		}
	}
	slices.Reverse(made)
	for _, o := range made {
		x.must(o.Close())
	}
	if now := l.state(x.Device); !c.lasts && !slices.Equal(now, before) {
		t.Fatalf("at the end:\n%s\nbefore:\n%s", strings.Join(now, "\n"), strings.Join(before, "\n"))
	}
	x.end()
	if len(l.kernel) != 0 || len(l.parts) != 0 || l.contexts != 0 || files(t) != opened {
		t.Errorf("after the device is closed: %v, %d parts, %d contexts, %d files, %d before", l.kernel, len(l.parts), l.contexts, files(t), opened)
	}
	if ours(t, l.memory) {
		t.Error("after the device is closed the memory is mapped")
	}
	collect()
	return failed
}

// TestUndoRefused: if the provider refuses an object and the kernel refuses to destroy it, its
// memory stays, because the device may still write to it; but not if the device is gone.
func TestUndoRefused(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EBUSY, unix.EIO} {
		for _, call := range verbCalls {
			what, ok := strings.CutPrefix(call.name, "create ")
			if !ok || what == "AH" || !strings.HasSuffix(call.steps, "adopt "+what) {
				continue
			}
			x := newFailingDevice(t)
			if errno == unix.EIO {
				x.k.on["query_device"], x.l.gone = refuse(errno), true
			}
			x.k.on["destroy_"+strings.ToLower(what)] = refuse(errno)
			parts := len(x.l.parts)
			do := call.prepare(x)
			x.limits.Store(nil)
			if _, _, err := x.l.run(strings.Count(call.steps, ","), do); !errors.Is(err, unix.ENOMEM) {
				t.Errorf("%s: %v", what, err)
			}
			if kept := len(x.l.parts) > parts; kept != (errno == unix.EBUSY) {
				t.Errorf("%s: the kernel says %v, and the memory is kept: %t", what, errno, kept)
			}
			clear(x.k.on)
			x.end()
		}
	}
}

// TestOpenFails: if opening a device fails at any step, nothing stays open.
func TestOpenFails(t *testing.T) {
	newFailingDevice(t).end() // makes the runtime open its own files
	opened, want := files(t), "new context, get_context, adopt context, alloc_async_fd"
	for n := 0; ; n++ {
		l := &ledger{t: t}
		var k *fakeKernel
		steps, made, err := l.run(n, func() ([]io.Closer, error) {
			var d *Device
			var err error
			d, k, err = l.open()
			return one(d, err)
		})
		if n == len(steps) {
			if got := strings.Join(steps, ", "); got != want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
			made[0].Close()
			k.events.Close()
			break
		}
		if !errors.Is(err, unix.ENOMEM) || l.contexts != 0 || files(t) != opened {
			t.Errorf("%s fails: %v, %d contexts, %d files, %d before", steps[n], err, l.contexts, files(t), opened)
		}
	}
	if now := files(t); now != opened {
		t.Errorf("%d files, %d before", now, opened)
	}
}

// TestTagsStay: an SRQ that the kernel refuses to destroy still works.
func TestTagsStay(t *testing.T) {
	x := newFailingDevice(t)
	defer x.end()
	srq := must(x.pd.CreateSRQ(SRQOptions{MaxWR: 1, CQ: x.cq, TagMatching: TagMatching{MaxTags: 1, MaxOps: 1}}))(t)
	if p := srq.prov.(*failingSRQ); p.operated != srq.tagQP.prov {
		t.Errorf("the SRQ's operations are those of %v", p.operated)
	}
	x.k.answerTo("destroy_qp", refuse(unix.EBUSY))
	if err := srq.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("the kernel refuses: %v", err)
	}
	if n, err := srq.PostTagOps(make([]TagOp, 1)); n != 1 || err != nil {
		t.Errorf("after a Close that was refused: %d, %v", n, err)
	}
	x.k.answerTo("destroy_qp", nil)
	if err := srq.Close(); err != nil {
		t.Error(err)
	}
	if _, err := srq.PostTagOps(make([]TagOp, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestResizedWithoutQueue: a queue that the kernel has resized and the provider can't map has the kernel's size.
func TestResizedWithoutQueue(t *testing.T) {
	x := newFailingDevice(t)
	defer x.end()
	srq := must(x.pd.CreateSRQ(SRQOptions{MaxWR: 1}))(t)
	x.k.answerTo("resize_cq", func(f *fakeCall) error {
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsResizeCqResp{Cqe: 9})
	})
	for _, fails := range []int{1, 2} { // the limits are known
		for _, resize := range []func() error{func() error { return x.cq.Resize(8) }, func() error { return srq.Resize(8) }} {
			steps, _, err := x.l.run(fails, func() ([]io.Closer, error) { return none(resize()) })
			if !errors.Is(err, unix.ENOMEM) {
				t.Errorf("%v: %v", steps, err)
			}
		}
		if cqe, wr := x.cq.MaxCQE(), srq.MaxWR(); (cqe == 9) != (fails == 2) || (wr == 8) != (fails == 2) {
			t.Errorf("step %d has failed: %d completions, %d receives", fails, cqe, wr)
		}
	}
}
