package mlx5dv

import (
	"fmt"
	"io"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A Match is a set of bits in packets' headers: struct mlx5_ifc_fte_match_param of the PRM,
// whose end may be left out. A matcher's Match selects the bits to compare. A flow's Match
// has their values.
type Match []byte

// maxMatch is the length of struct mlx5_ib_match_params.
const maxMatch = 640

// Criteria select the parts of a Match that are used.
type Criteria uint8

const (
	MatchOuter Criteria = 1 << iota // the headers of the packet, or of its tunnel
	MatchMisc                       // GRE, VXLAN and so on
	MatchInner                      // the headers inside a tunnel
	MatchMisc2                      // registers and MPLS
	MatchMisc3                      // TCP's numbers, ICMP, VXLAN-GPE, GTP-U
)

// MatcherOptions are the arguments of CreateMatcher (struct mlx5dv_flow_matcher_attr).
type MatcherOptions struct {
	Mask     Match    // the bits that flows compare
	Criteria Criteria // the parts of the mask that are used
	Priority int      // 0, the highest, to 65535; kernels support fewer
	Egress   bool     // for packets that the adapter sends
}

// A Matcher selects the bits of packets that its flows compare (struct mlx5dv_flow_matcher).
type Matcher struct{ object driverapi.Object }

// CreateMatcher makes a Matcher (mlx5dv_create_flow_matcher). It needs the capability
// CAP_NET_RAW, and an Ethernet port.
func CreateMatcher(dev *verbs.Device, o MatcherOptions) (*Matcher, error) {
	const op = "create flow matcher"
	switch {
	case len(o.Mask) == 0 || len(o.Mask) > maxMatch || len(o.Mask)%4 != 0:
		return nil, invalid(op, "a mask of %d bytes: up to %d, in multiples of 4", len(o.Mask), maxMatch)
	case o.Priority < 0 || o.Priority > 0xffff:
		return nil, invalid(op, "priority %d is not in 0 to 65535", o.Priority)
	}
	call, err := begin(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5FlowMatcherCreate()
	defer cmd.Release()
	handle := cmd.CreateHandle()
	cmd.MatchMask(o.Mask)
	cmd.MatchCriteria(uint8(o.Criteria))
	// The type of the flow is that with a priority. The attribute's data is the priority.
	cmd.FlowType(0, []byte{byte(o.Priority), byte(o.Priority >> 8)})
	if o.Egress {
		cmd.FlowFlags(uapi.IB_FLOW_ATTR_FLAGS_EGRESS)
	}
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail("", err)
	}
	return &Matcher{call.Adopt(driverapi.Made{
		Name: "flow matcher", Op: "destroy flow matcher", Handle: uint32(*handle),
		Destroy: func(f *ioctl.File, handle uint32) error {
			cmd := ioctl.NewMlx5FlowMatcherDestroy()
			defer cmd.Release()
			cmd.Handle(handle)
			return cmd.Run(f)
		},
	})}, nil
}

// Close destroys the matcher (mlx5dv_destroy_flow_matcher). It returns verbs.ErrBusy while it
// has flows.
func (m *Matcher) Close() error {
	if m == nil {
		return nil
	}
	return m.object.Close()
}

// FlowOptions select packets and determine what happens to them (struct
// mlx5dv_flow_action_attr).
type FlowOptions struct {
	Value   Match         // the bits that are compared
	QP      *verbs.QP     // where the packets go; nil for Object, or to drop them
	Object  *Object       // where they go: a TIR, or a flow table
	Actions []*FlowAction // at most two, each of another kind
	Tag     uint32        // as verbs.FlowTag; 0 for none
	Counter *Object       // a firmware flow counter, which counts the packets; or nil
	Drop    bool          // drop the packets
}

// A Flow steers packets.
type Flow struct{ object driverapi.Object }

// CreateFlow steers the packets whose bits have this value (mlx5dv_create_flow).
func (m *Matcher) CreateFlow(o FlowOptions) (*Flow, error) {
	const op = "create flow"
	destinations := 0
	for _, given := range []bool{o.QP != nil, o.Object != nil, o.Drop} {
		if given {
			destinations++
		}
	}
	switch {
	case m == nil:
		return nil, invalid(op, "the matcher is nil")
	case destinations != 1:
		return nil, invalid(op, "a flow takes one of QP, Object and Drop")
	case len(o.Value) == 0 || len(o.Value) > maxMatch || len(o.Value)%4 != 0:
		return nil, invalid(op, "a value of %d bytes: up to %d, in multiples of 4", len(o.Value), maxMatch)
	case len(o.Actions) > 2:
		return nil, invalid(op, "%d actions: the maximum is 2", len(o.Actions))
	}
	on := []io.Closer{m.object}
	if o.QP != nil {
		on = append(on, o.QP)
	}
	for _, x := range []*Object{o.Object, o.Counter} {
		if x != nil {
			on = append(on, x.object)
		}
	}
	for i, a := range o.Actions {
		if a == nil {
			return nil, invalid(op, "action %d is nil", i)
		}
		on = append(on, a.object)
	}
	call, err := begin(op, on...)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5CreateFlow()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.MatchValue(o.Value)
	cmd.Matcher(call.Handles[0])
	next := 1
	if o.QP != nil {
		cmd.DestQp(call.Handles[next])
		next++
	}
	if o.Object != nil {
		cmd.DestDevx(call.Handles[next])
		next++
	}
	if o.Counter != nil {
		cmd.ArrCountersDevx(call.Handles[next : next+1])
		next++
	}
	if len(o.Actions) > 0 {
		cmd.ArrFlowActions(call.Handles[next:])
	}
	if o.Tag != 0 {
		cmd.Tag(o.Tag)
	}
	if o.Drop {
		cmd.Flags(uapi.MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP)
	}
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail("", err)
	}
	return &Flow{call.Adopt(driverapi.Made{
		Name: "flow", Op: "destroy flow", Handle: uint32(*handle),
		Destroy: func(f *ioctl.File, handle uint32) error {
			cmd := ioctl.NewMlx5DestroyFlow()
			defer cmd.Release()
			cmd.Handle(handle)
			return cmd.Run(f)
		},
	})}, nil
}

// Close destroys the flow.
func (f *Flow) Close() error {
	if f == nil {
		return nil
	}
	return f.object.Close()
}

// A FlowTable is a kind of flow table of the adapter (MLX5_IB_UAPI_FLOW_TABLE_TYPE_*).
type FlowTable uint8

const (
	TableReceive       FlowTable = FlowTable(uapi.MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX)  // received packets
	TableSend          FlowTable = FlowTable(uapi.MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX)  // sent packets
	TableFDB           FlowTable = FlowTable(uapi.MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB)     // of the switch between functions
	TableRDMAReceive   FlowTable = FlowTable(uapi.MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_RX) // received RoCE packets
	TableRDMASend      FlowTable = FlowTable(uapi.MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX) // sent RoCE packets
	maxFlowActionBytes           = 0xffff
)

func (t FlowTable) String() string { return uapi.EnumMlx5IbUapiFlowTableType.Short(uint64(t)) }

// A FlowAction changes packets of flows.
type FlowAction struct{ object driverapi.Object }

// ModifyHeader makes an action that changes fields of headers, by the PRM's set_action_in and
// the like, of 8 bytes each (mlx5dv_create_flow_action_modify_header).
func ModifyHeader(dev *verbs.Device, table FlowTable, actions []byte) (*FlowAction, error) {
	const op = "create modify-header action"
	if len(actions) == 0 || len(actions)%8 != 0 || len(actions) > maxFlowActionBytes {
		return nil, invalid(op, "%d bytes of actions, of 8 bytes each", len(actions))
	}
	call, err := begin(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5FlowActionCreateModifyHeader()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.ActionsPrm(actions)
	cmd.FtType(uapi.Mlx5IbUapiFlowTableType(table))
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail(table.String(), err)
	}
	return newFlowAction(call, uint32(*handle)), nil
}

// A Reformat is a way to add or remove a tunnel's headers
// (MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_*).
type Reformat uint8

const (
	ReformatL2TunnelToL2 Reformat = Reformat(uapi.MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2) // remove a tunnel from around an Ethernet header
	ReformatL2ToL2Tunnel Reformat = Reformat(uapi.MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL) // add a tunnel around the Ethernet header
	ReformatL3TunnelToL2 Reformat = Reformat(uapi.MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2) // remove a tunnel, and add an Ethernet header
	ReformatL2ToL3Tunnel Reformat = Reformat(uapi.MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL) // replace the Ethernet header by a tunnel
)

func (r Reformat) String() string {
	return fmt.Sprint(uapi.Mlx5IbUapiFlowActionPacketReformatType(r))
}

// ReformatPacket makes an action that adds or removes headers, which data contains
// (mlx5dv_create_flow_action_packet_reformat). Some kinds take no data.
func ReformatPacket(dev *verbs.Device, table FlowTable, kind Reformat, data []byte) (*FlowAction, error) {
	const op = "create packet-reformat action"
	if len(data) > maxFlowActionBytes {
		return nil, invalid(op, "%d bytes of headers", len(data))
	}
	call, err := begin(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5FlowActionCreatePacketReformat()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.Type(uapi.Mlx5IbUapiFlowActionPacketReformatType(kind))
	cmd.FtType(uapi.Mlx5IbUapiFlowTableType(table))
	if len(data) > 0 {
		cmd.DataBuf(data)
	}
	if err := cmd.Run(call.File); err != nil {
		return nil, call.Fail(kind.String(), err)
	}
	return newFlowAction(call, uint32(*handle)), nil
}

func newFlowAction(call *driverapi.Call, handle uint32) *FlowAction {
	return &FlowAction{call.Adopt(driverapi.Made{
		Name: "flow action", Op: "destroy flow action", Handle: handle,
		Destroy: func(f *ioctl.File, handle uint32) error {
			cmd := ioctl.NewFlowActionDestroy()
			defer cmd.Release()
			cmd.Handle(handle)
			return cmd.Run(f)
		},
	})}
}

// Close destroys the action (ibv_destroy_flow_action). It returns verbs.ErrBusy while flows
// use it.
func (a *FlowAction) Close() error {
	if a == nil {
		return nil
	}
	return a.object.Close()
}
