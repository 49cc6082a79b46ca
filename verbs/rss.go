package verbs

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An IndirectionTable lists the WQs over which packets are spread (struct
// ibv_rwq_ind_table). The lowest bits of a packet's hash are its index in the table.
type IndirectionTable struct {
	object
	num uint32
}

func (t *IndirectionTable) base() *object {
	if t == nil {
		return nil
	}
	return &t.object
}

// CreateIndirectionTable makes a table of WQs (ibv_create_rwq_ind_table). Their number is a
// power of two, up to DeviceAttr.RSS.MaxRWQIndirectionTableSize. A WQ may be listed several
// times. The WQs can't be closed before the table.
func (d *Device) CreateIndirectionTable(wqs ...*WQ) (*IndirectionTable, error) {
	const op = "create indirection table"
	if err := d.begin(op); err != nil {
		return nil, err
	}
	defer d.done()
	maker, err := d.wqs(op)
	if err != nil {
		return nil, err
	}
	limits, err := d.deviceLimits()
	if err != nil {
		return nil, err
	}
	most := limits.RSS.MaxRWQIndirectionTableSize
	switch n := len(wqs); {
	case most == 0:
		return nil, opErr(op, d.info.name, ErrNotSupported)
	case n == 0 || n&(n-1) != 0 || uint64(n) > uint64(most):
		return nil, invalid(op, "%d WQs are not a power of two up to %d", n, most)
	}
	parents := make([]*object, len(wqs))
	for i, wq := range wqs {
		parents[i] = wq.base()
	}
	return create(op, parents, func() (*IndirectionTable, error) { return d.newTable(op, maker, parents) })
}

func (d *Device) newTable(op string, maker provider.WQMaker, wqs []*object) (*IndirectionTable, error) {
	if wqs[0].dev != d {
		return nil, invalid(op, "the WQs belong to another Device")
	}
	var handles []byte
	for _, o := range wqs {
		handles = binary.NativeEndian.AppendUint32(handles, o.handle)
	}
	if len(wqs) == 1 {
		handles = append(handles, 0, 0, 0, 0) // the request's length is a multiple of 8
	}
	cmd := ioctl.NewWriteExCreateRwqIndTbl(handles)
	defer cmd.Release()
	cmd.Req.LogIndTblSize = uint32(bits.TrailingZeros(uint(len(wqs))))
	maker.NewTable(cmd)
	if err := cmd.Run(d.file); err != nil {
		return nil, d.failed(op, fmt.Sprintf("%d WQs", len(wqs)), err)
	}
	t := &IndirectionTable{num: cmd.Resp.IndTblNum}
	t.adopt(d, kindTable, cmd.Resp.IndTblHandle, t, wqs...)
	return t, nil
}

// Num returns the table's number in the device.
func (t *IndirectionTable) Num() uint32 {
	if t == nil {
		return 0
	}
	return t.num
}

// Close destroys the table (ibv_destroy_rwq_ind_table). It returns ErrBusy while there are
// QPs on it.
func (t *IndirectionTable) Close() error {
	return t.base().end("destroy indirection table",
		func() error { return t.destroy(ioctl.NewRwqIndTblDestroy()) },
		func() {})
}

// An RSSHash is a function that hashes a packet's headers (IBV_RX_HASH_FUNC_*).
type RSSHash uint8

// RSSToeplitz is the Toeplitz hash, as network cards compute it for receive side scaling.
const RSSToeplitz RSSHash = RSSHash(uapi.MLX5_RX_HASH_FUNC_TOEPLITZ)

func (h RSSHash) String() string { return uapi.EnumMlx5RxHashFunctionFlags.Short(uint64(h)) }

// RSSFields are the parts of a packet that are hashed (IBV_RX_HASH_*). IPv4 and IPv6 exclude
// each other, and so do TCP and UDP.
type RSSFields uint64

// The names state source or destination, the protocol, and whether an address or a port.
const (
	RSSSrcIPv4    RSSFields = RSSFields(uapi.MLX5_RX_HASH_SRC_IPV4)
	RSSDstIPv4    RSSFields = RSSFields(uapi.MLX5_RX_HASH_DST_IPV4)
	RSSSrcIPv6    RSSFields = RSSFields(uapi.MLX5_RX_HASH_SRC_IPV6)
	RSSDstIPv6    RSSFields = RSSFields(uapi.MLX5_RX_HASH_DST_IPV6)
	RSSSrcPortTCP RSSFields = RSSFields(uapi.MLX5_RX_HASH_SRC_PORT_TCP)
	RSSDstPortTCP RSSFields = RSSFields(uapi.MLX5_RX_HASH_DST_PORT_TCP)
	RSSSrcPortUDP RSSFields = RSSFields(uapi.MLX5_RX_HASH_SRC_PORT_UDP)
	RSSDstPortUDP RSSFields = RSSFields(uapi.MLX5_RX_HASH_DST_PORT_UDP)
	RSSIPsecSPI   RSSFields = RSSFields(uapi.MLX5_RX_HASH_IPSEC_SPI) // the security parameters index of ESP
	RSSInner      RSSFields = RSSFields(uapi.MLX5_RX_HASH_INNER)     // hash the packet inside a tunnel, not the outer packet
)

// String returns the fields' names joined with "|".
func (f RSSFields) String() string { return uapi.EnumMlx5RxHashFields.Short(uint64(f)) }

// RSSOptions are the arguments of CreateRSSQP (struct ibv_rx_hash_conf).
type RSSOptions struct {
	Table *IndirectionTable // the WQs
	Hash  RSSHash           // 0 stands for RSSToeplitz

	// Key is the hash's key: 40 bytes for RSSToeplitz. For packets of both directions to
	// hash alike, it must be symmetric, such as 0x6d, 0x5a repeated.
	Key []byte

	// Fields are the parts to hash. Without any, or if a packet lacks them, the hash is 0.
	Fields RSSFields

	// Value is the caller's own data, which QP.Value returns.
	Value any
}

// CreateRSSQP creates a RawPacket QP for receive side scaling: it spreads the packets that
// a Flow steers to it over a table of WQs, by a hash of their headers (ibv_create_qp_ex
// with IBV_QP_INIT_ATTR_RX_HASH). The QP has neither queues nor a state. It serves only
// QP.CreateFlow. It needs the capability CAP_NET_RAW.
func (pd *PD) CreateRSSQP(o RSSOptions) (*QP, error) {
	const op = "create RSS QP"
	parents := []*object{pd.base(), o.Table.base()}
	return create(op, parents, func() (*QP, error) { return pd.newRSSQP(op, &o, parents) })
}

// toeplitzKey is the length of the Toeplitz hash's key.
const toeplitzKey = 40

func (pd *PD) newRSSQP(op string, o *RSSOptions, parents []*object) (*QP, error) {
	d := pd.dev
	maker, err := d.wqs(op)
	if err != nil {
		return nil, err
	}
	if o.Hash == 0 {
		o.Hash = RSSToeplitz
	}
	switch {
	case o.Hash != RSSToeplitz:
		return nil, invalid(op, "there is no hash %d", uint8(o.Hash))
	case len(o.Key) != toeplitzKey:
		return nil, invalid(op, "the key has %d bytes, not %d", len(o.Key), toeplitzKey)
	}
	qp := &QP{pd: pd, typ: RawPacket, rss: true, value: o.Value}
	qp.batch.qp, qp.batch.n = qp, ended
	qp.id = d.newID()
	cmd := ioctl.NewQpCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.PdHandle(pd.handle)
	cmd.IndTableHandle(o.Table.handle)
	cmd.UserHandle(qp.id)
	cmd.Cap(uapi.IbUverbsQpCap{})
	cmd.Type(uapi.IB_UVERBS_QPT_RAW_PACKET)
	granted, num := cmd.RespCap(), cmd.RespQpNum()
	prov, err := maker.NewRSSQP(cmd, provider.RSSInit{Function: uint8(o.Hash), Fields: uint64(o.Fields), Key: o.Key})
	if err != nil {
		return nil, d.failed(op, "", err)
	}
	object := fmt.Sprintf("%v of %v", o.Hash, o.Fields)
	if err := cmd.Run(d.file); err != nil {
		prov.Release()
		return nil, d.failed(op, object, err).needsRaw()
	}
	if err := prov.Adopt(uint32(*handle), *num, granted); err != nil {
		d.undo(destroyQP, uint32(*handle), prov.Release)
		return nil, d.failed(op, object, err)
	}
	qp.setProvider(prov)
	qp.adopt(d, kindQP, uint32(*handle), qp, parents...)
	qp.renumber(*num)
	qp.setState(QPReset)
	return qp, nil
}
