package verbs

import (
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A CompCounter counts successful and failed completions of QPs, without a CQ (struct
// ibv_comp_cntr). The device increments it.
type CompCounter struct {
	object
	prov provider.CompCounter // nil if the kernel reads the counter
}

func (k *CompCounter) base() *object {
	if k == nil {
		return nil
	}
	return &k.object
}

// CompCounterOps are the operations that a CompCounter counts
// (IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_*).
type CompCounterOps uint32

const (
	CountSends            CompCounterOps = CompCounterOps(uapi.IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_SEND)              // sends of the QP
	CountReceives         CompCounterOps = CompCounterOps(uapi.IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RECV)              // its receives
	CountRDMAReads        CompCounterOps = CompCounterOps(uapi.IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_READ)         // its RDMA reads
	CountRDMAWrites       CompCounterOps = CompCounterOps(uapi.IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE)        // its RDMA writes
	CountRemoteRDMAReads  CompCounterOps = CompCounterOps(uapi.IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ)  // the peer's reads of this side's memory
	CountRemoteRDMAWrites CompCounterOps = CompCounterOps(uapi.IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE) // the peer's writes to this side's memory

	compCounterOpsKnown = CountSends | CountReceives | CountRDMAReads | CountRDMAWrites | CountRemoteRDMAReads | CountRemoteRDMAWrites
)

// String returns the operations' names joined with "|".
func (o CompCounterOps) String() string {
	return uapi.EnumIbUverbsQpAttachCompCntrOp.Short(uint64(o))
}

// CompCounterCaps are the capabilities of CompCounters (struct ibv_comp_cntr_caps).
type CompCounterCaps struct {
	MaxCounters int            // the maximum number of counters
	MaxValue    uint64         // after which a counter wraps
	Ops         CompCounterOps // the operations that a counter can count
}

// CompCounterCaps returns the capabilities of the device's CompCounters
// (ibv_query_comp_cntr_caps). They need Linux 7.3. Without CompCounters, the error is
// ErrNotSupported.
func (d *Device) CompCounterCaps() (CompCounterCaps, error) {
	const op = "query completion counters"
	if err := d.begin(op); err != nil {
		return CompCounterCaps{}, err
	}
	defer d.done()
	cmd := ioctl.NewQueryCompCntrCaps()
	defer cmd.Release()
	counters, value, ops := cmd.MaxCounters(), cmd.MaxValue(), cmd.SupportedQpAttachOps()
	if err := cmd.Run(d.file); err != nil {
		return CompCounterCaps{}, d.failed(op, "", err)
	}
	return CompCounterCaps{MaxCounters: int(*counters), MaxValue: *value, Ops: CompCounterOps(*ops)}, nil
}

// CreateCompCounter creates a CompCounter with the value 0 (ibv_create_comp_cntr). Without
// CompCounters, the error is ErrNotSupported.
func (d *Device) CreateCompCounter() (*CompCounter, error) {
	const op = "create completion counter"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	cmd := ioctl.NewCompCntrCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	k := new(CompCounter)
	if p, ok := d.prov.(provider.CompCounterMaker); ok {
		var err error
		if k.prov, err = p.NewCompCounter(cmd); err != nil {
			return nil, d.failed(op, "", err)
		}
	}
	if err := cmd.Run(d.file); err != nil {
		k.release()
		return nil, d.failedToLock(op, "", err)
	}
	k.adopt(d, kindCompCounter, uint32(*handle), k)
	return k, nil
}

// Read returns how many operations have succeeded (ibv_read_comp_cntr).
func (k *CompCounter) Read() (uint64, error) { return k.read(uapi.IB_UVERBS_COMP_CNTR_ENTRY_COMP) }

// ReadErrors returns how many operations have failed (ibv_read_err_comp_cntr).
func (k *CompCounter) ReadErrors() (uint64, error) { return k.read(uapi.IB_UVERBS_COMP_CNTR_ENTRY_ERR) }

func (k *CompCounter) read(entry uapi.IbUverbsCompCntrEntry) (uint64, error) {
	const op = "read completion counter"
	if err := hold(op, k.base()); err != nil {
		return 0, err
	}
	defer k.drop()
	if k.prov != nil {
		return k.prov.Read(entry == uapi.IB_UVERBS_COMP_CNTR_ENTRY_ERR), nil
	}
	cmd := ioctl.NewCompCntrRead()
	defer cmd.Release()
	cmd.Handle(k.handle)
	cmd.Entry(entry)
	value := cmd.RespValue()
	if err := cmd.Run(k.dev.file); err != nil {
		return 0, k.dev.failed(op, "", err)
	}
	return *value, nil
}

// Set sets the value that Read returns (ibv_set_comp_cntr).
func (k *CompCounter) Set(value uint64) error {
	return k.modify(uapi.IB_UVERBS_COMP_CNTR_ENTRY_COMP, uapi.IB_UVERBS_COMP_CNTR_MODIFY_OP_SET, value)
}

// SetErrors sets the value that ReadErrors returns (ibv_set_err_comp_cntr).
func (k *CompCounter) SetErrors(value uint64) error {
	return k.modify(uapi.IB_UVERBS_COMP_CNTR_ENTRY_ERR, uapi.IB_UVERBS_COMP_CNTR_MODIFY_OP_SET, value)
}

// Add adds n to the value that Read returns (ibv_inc_comp_cntr).
func (k *CompCounter) Add(n uint64) error {
	return k.modify(uapi.IB_UVERBS_COMP_CNTR_ENTRY_COMP, uapi.IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, n)
}

// AddErrors adds n to the value that ReadErrors returns (ibv_inc_err_comp_cntr).
func (k *CompCounter) AddErrors(n uint64) error {
	return k.modify(uapi.IB_UVERBS_COMP_CNTR_ENTRY_ERR, uapi.IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, n)
}

func (k *CompCounter) modify(entry uapi.IbUverbsCompCntrEntry, how uapi.IbUverbsCompCntrModifyOp, value uint64) error {
	const op = "modify completion counter"
	if err := hold(op, k.base()); err != nil {
		return err
	}
	defer k.drop()
	cmd := ioctl.NewCompCntrModify()
	defer cmd.Release()
	cmd.Handle(k.handle)
	cmd.Entry(entry)
	cmd.Op(how)
	cmd.Value(value)
	if err := cmd.Run(k.dev.file); err != nil {
		return k.dev.failed(op, "", err)
	}
	return nil
}

// AttachCompCounter makes the counter count operations of the QP until the QP is closed
// (ibv_qp_attach_comp_cntr). The counter can't be closed before the QP.
func (qp *QP) AttachCompCounter(k *CompCounter, ops CompCounterOps) error {
	const op = "attach completion counter"
	if err := hold(op, qp.base(), k.base()); err != nil {
		return err
	}
	defer qp.drop()
	err := qp.attachCompCounter(op, k, ops)
	if err != nil {
		k.drop()
	}
	return err
}

func (qp *QP) attachCompCounter(op string, k *CompCounter, ops CompCounterOps) error {
	if ops == 0 || ops&^compCounterOpsKnown != 0 {
		return invalid(op, "operations %#x: none is selected, or one is unknown", uint32(ops))
	}
	cmd := ioctl.NewQpAttachCompCntr()
	defer cmd.Release()
	cmd.Handle(qp.handle)
	cmd.CntrHandle(k.handle)
	cmd.OpMask(uapi.IbUverbsQpAttachCompCntrOp(ops))
	if err := cmd.Run(qp.dev.file); err != nil {
		return qp.dev.failed(op, ops.String(), err)
	}
	qp.dev.mu.Lock()
	qp.parents = append(qp.parents, &k.object)
	qp.dev.mu.Unlock()
	return nil
}

// Close destroys the counter (ibv_destroy_comp_cntr). It returns ErrBusy while it is attached
// to a QP.
func (k *CompCounter) Close() error {
	return k.base().end("destroy completion counter",
		func() error { return k.destroy(ioctl.NewCompCntrDestroy()) },
		k.release)
}

func (k *CompCounter) release() {
	if k.prov != nil {
		k.prov.Release()
	}
}
