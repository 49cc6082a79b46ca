package diags

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// The parts of an address to print.
const (
	ShowGID = 1 << iota
	ShowLID
	ShowDecimal // the LID, in decimal
)

// Address prints a port's address as ibaddr does.
func (c *Client) Address(ctx context.Context, w io.Writer, t Target, port, what int) error {
	node, err := c.subnet(ctx, t, attrNodeInfo, 0)
	if err != nil {
		return err
	}
	info, err := c.subnet(ctx, t, attrPortInfo, uint32(port))
	if err != nil {
		return err
	}
	address := netip.AddrFrom16(gid(find(portInfo, "GidPrefix").value(info), find(nodeInfo, "PortGuid").value(node)))
	if what&ShowGID != 0 {
		fmt.Fprintf(w, "GID %v ", address)
	}
	first := find(portInfo, "Lid").value(info)
	last := first + 1<<find(portInfo, "LMC").value(info) - 1
	switch {
	case what&ShowDecimal != 0:
		fmt.Fprintf(w, "LID start %d end %d", first, last)
	case what&ShowLID != 0:
		fmt.Fprintf(w, "LID start %#x end %#x", first, last)
	}
	fmt.Fprintln(w)
	cli.Put("gid", address.String(), "lid_start", first, "lid_end", last)
	return nil
}
