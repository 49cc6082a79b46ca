package diags

import (
	"context"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/umad"
)

// A Change has the values that sminfo sets in a subnet manager, if its modifier isn't 0.
type Change struct {
	Modifier        uint32
	Activity        uint32
	Priority, State uint8
}

// SMInfo asks a subnet manager for its state, or sets it, and prints the answer as sminfo does.
func (c *Client) SMInfo(ctx context.Context, w io.Writer, t Target, change Change) error {
	r := request{method: umad.MethodGet, attr: attrSMInfo, modifier: change.Modifier, data: make([]byte, 64)}
	if change.Modifier != 0 {
		r.method = umad.MethodSet
	}
	find(smInfo, "SmActivity").put(r.data, uint64(change.Activity))
	find(smInfo, "SmPriority").put(r.data, uint64(change.Priority))
	find(smInfo, "SmState").put(r.data, uint64(change.State))
	b, err := c.do(ctx, t, r)
	if err != nil {
		return err
	}
	states := []string{"SMINFO_NOTACT", "SMINFO_DISCOVER", "SMINFO_STANDBY", "SMINFO_MASTER"}
	state, name := find(smInfo, "SmState").value(b), "???"
	if state < uint64(len(states)) {
		name = states[state]
	}
	guid, activity, priority := find(smInfo, "SmInfoGuid").value(b), find(smInfo, "SmActivity").value(b), find(smInfo, "SmPriority").value(b)
	fmt.Fprintf(w, "sminfo: sm lid %d sm guid %#x, activity count %d priority %d state %d %s\n", t.LID, guid, activity, priority, state, name)
	cli.Put("sm_lid", t.LID, "sm_guid", fmt.Sprintf("0x%016x", guid), "activity_count", activity, "priority", priority, "state", name)
	return nil
}
