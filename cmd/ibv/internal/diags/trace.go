package diags

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

const attrForwarding = 0x19 // LinearForwardingTable

// A hop is a node on the way, and its port by which it was reached.
type hop struct{ node, description, port []byte }

func (c *Client) hop(ctx context.Context, t Target) (h hop, err error) {
	if h.node, err = c.subnet(ctx, t, attrNodeInfo, 0); err != nil {
		return h, err
	}
	if h.description, err = c.subnet(ctx, t, attrNodeDescription, 0); err != nil {
		return h, err
	}
	h.description = c.names.of(h.get("Guid"), h.description)
	h.port, err = c.subnet(ctx, t, attrPortInfo, 0)
	return h, err
}

func (h hop) get(name string) uint64 { return find(nodeInfo, name).value(h.node) }
func (h hop) isSwitch() bool         { return h.get("NodeType") == aSwitch }

func (h hop) kind() string {
	if name, ok := list(1, "ca", "switch", "router")[h.get("NodeType")]; ok {
		return name
	}
	return "???"
}

// put puts the node, the port by which it was reached, and the port by which the one before it was left.
func (h hop) put(in uint64, out byte) {
	cli.Put("type", h.kind(), "guid", fmt.Sprintf("0x%016x", h.get("Guid")), "port", in, "left_by_port", out,
		"lid", find(portInfo, "Lid").value(h.port), "NodeDescription", cString(h.description))
}

// lids returns the port's LIDs and the node's description.
func (h hop) lids() string {
	first := find(portInfo, "Lid").value(h.port)
	last := first + 1<<find(portInfo, "LMC").value(h.port) - 1
	return fmt.Sprintf("lid %d-%d \"%s\"", first, last, cString(h.description))
}

// end prints the first or the last port of the path.
func (h hop) end(w io.Writer, word string, short bool) {
	port := h.get("LocalPort")
	if h.isSwitch() {
		port = 0
	}
	if word == "From" {
		h.put(port, 0)
	}
	if short {
		fmt.Fprintf(w, "%s {0x%016x}[%d]\n", word, h.get("Guid"), port)
		return
	}
	fmt.Fprintf(w, "%s %s {0x%016x} portnum %d %s\n", word, h.kind(), h.get("Guid"), port, h.lids())
}

// Trace prints the path from one port to another, by the switches' tables, as ibtracert does. With short,
// it prints the short form.
func (c *Client) Trace(ctx context.Context, w io.Writer, from, to Target, short bool) error {
	first, err := c.hop(ctx, from)
	if err != nil {
		return err
	}
	last, err := c.hop(ctx, to)
	if err != nil {
		return err
	}
	route := []byte{0}
	at, err := c.hop(ctx, Target{Route: route})
	if err != nil {
		return err
	}
	// Directed routes begin here.
	if route, err = c.walk(ctx, route, at, from, first, func(byte, uint64, hop) {}); err != nil {
		return err
	}
	first.end(w, "From", short)
	_, err = c.walk(ctx, route, first, to, last, func(out byte, in uint64, at hop) {
		at.put(in, out)
		if short {
			fmt.Fprintf(w, "[%d] -> {0x%016x}[%d]\n", out, at.get("PortGuid"), in)
		} else {
			fmt.Fprintf(w, "[%d] -> %s port {0x%016x}[%d] %s\n", out, at.kind(), at.get("PortGuid"), in, at.lids())
		}
	})
	if err != nil {
		return err
	}
	last.end(w, "To", short)
	return nil
}

// walk follows the path from a node, reached by route, to a port. It calls each for the nodes on the path,
// with their incoming ports and the ports by which the previous nodes are left. It returns the route to the port.
func (c *Client) walk(ctx context.Context, route []byte, at hop, to Target, last hop, each func(out byte, in uint64, at hop)) ([]byte, error) {
	for begins := true; at.get("PortGuid") != last.get("PortGuid"); begins = false {
		out, back := byte(at.get("LocalPort")), uint64(0)
		switch {
		case at.isSwitch():
			const perBlock = 64
			table, err := c.subnet(ctx, Target{Route: route}, attrForwarding, uint32(to.LID/perBlock))
			if err != nil {
				return nil, err
			}
			if out = table[to.LID%perBlock]; out == 0 || uint64(out) > at.get("NumPorts") {
				return nil, fmt.Errorf("the table of the switch %s has no way to LID %d: port %d", at.lids(), to.LID, out)
			}
			route = append(route, out)
		case !begins:
			return nil, fmt.Errorf("the way leads to %s, which isn't a switch", at.lids())
		case len(route) == 1:
			route = append(route, out)
		default:
			// No route leads through an adapter. So the node at the other end of its link is the
			// previous node of the route.
			back = uint64(route[len(route)-1])
			route = route[:len(route)-1]
		}
		const longest = 64
		if len(route) == longest {
			return nil, errors.New("the way has no end")
		}
		var err error
		if at, err = c.hop(ctx, Target{Route: route}); err != nil {
			return nil, err
		}
		in := back
		if in == 0 {
			in = at.get("LocalPort")
		}
		each(out, in, at)
	}
	return route, nil
}
