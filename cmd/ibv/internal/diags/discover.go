package diags

import (
	"context"
	"fmt"
	"slices"
)

// A Fabric has the nodes that can be reached from a port.
type Fabric struct {
	from  *node
	nodes []*node // in the order in which they were found
	hops  int     // of the longest route
	smps  int     // requests that finding them took
}

// A node is an adapter, a switch or a router.
type node struct {
	info, description, switches []byte
	ports                       map[int]*port
}

// A port has its own attributes, and the port at the other end of its link, if that was found.
type port struct {
	node   *node
	number int
	guid   uint64
	info   []byte
	remote *port
}

func (n *node) get(name string) uint64 { return find(nodeInfo, name).value(n.info) }
func (p *port) get(name string) uint64 { return find(portInfo, name).value(p.info) }

func (n *node) isSwitch() bool { return n.get("NodeType") == aSwitch }
func (n *node) name() string   { return cString(n.description) }

// id returns the node's identifier in a topology: its type and its GUID.
func (n *node) id() string {
	letter, ok := map[uint64]string{1: "H", 2: "S", 3: "R"}[n.get("NodeType")]
	if !ok {
		letter = "?"
	}
	return fmt.Sprintf(`"%s-%016x"`, letter, n.get("Guid"))
}

// lid returns the port's LID. All ports of a switch have the same LID.
func (p *port) lid() uint64 {
	if zero := p.node.ports[0]; p.node.isSwitch() && zero != nil {
		return zero.get("Lid")
	}
	return p.get("Lid")
}

// all returns the node's ports that were found, by number.
func (n *node) all() []*port {
	var ports []*port
	for _, p := range n.ports {
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b *port) int { return a.number - b.number })
	return ports
}

// Discover finds all nodes that can be reached, by directed routes.
func (c *Client) Discover(ctx context.Context) (*Fabric, error) {
	f := &Fabric{}
	known := make(map[uint64]*node)
	type step struct {
		route []byte
		from  *port // the port whose link leads there; nil at the start
	}
	for steps := []step{{route: []byte{0}}}; len(steps) > 0; steps = steps[1:] {
		s := steps[0]
		if s.from != nil && s.from.remote != nil {
			continue // found from the other end
		}
		t := Target{Route: s.route}
		info, err := c.subnet(ctx, t, attrNodeInfo, 0)
		if err != nil {
			if s.from == nil || ctx.Err() != nil {
				return nil, err
			}
			continue // no answer from there
		}
		guid := find(nodeInfo, "Guid").value(info)
		n, isNew := known[guid], false
		if n == nil {
			n, isNew = &node{info: info, ports: make(map[int]*port)}, true
		}
		arrived := int(find(nodeInfo, "LocalPort").value(info))
		if err := c.explore(ctx, t, n, isNew, arrived, find(nodeInfo, "PortGuid").value(info)); err != nil {
			if s.from == nil || ctx.Err() != nil {
				return nil, err
			}
			continue // it was removed meanwhile
		}
		f.hops = max(f.hops, len(s.route)-1)
		if len(known) == maxLID {
			return nil, fmt.Errorf("more than %d nodes, which is more than there are LIDs", maxLID)
		}
		if isNew {
			known[guid] = n
			f.nodes = append(f.nodes, n)
		}
		if at := n.ports[arrived]; s.from != nil && at != nil {
			s.from.remote, at.remote = at, s.from
		}
		if s.from == nil {
			f.from = n
		}
		if !isNew || len(s.route) > 62 || s.from != nil && !n.isSwitch() {
			continue
		}
		const linkUp = 5
		for _, p := range n.all() {
			if p.number != 0 && p.remote == nil && p.get("PhysLinkState") == linkUp {
				steps = append(steps, step{append(slices.Clone(s.route), byte(p.number)), p})
			}
		}
	}
	f.smps = c.smps
	return f, nil
}

// keep drops all nodes but one: that at the end of a route, or that of the port with a GUID. Without either, it drops
// none.
func (f *Fabric) keep(ctx context.Context, c *Client, at Target, guid uint64) error {
	if at.Route != nil {
		info, err := c.subnet(ctx, at, attrNodeInfo, 0)
		if err != nil {
			return err
		}
		guid = find(nodeInfo, "PortGuid").value(info)
	}
	if guid == 0 {
		return nil
	}
	f.nodes = slices.DeleteFunc(f.nodes, func(n *node) bool {
		return !slices.ContainsFunc(n.all(), func(p *port) bool { return p.guid == guid })
	})
	if len(f.nodes) == 0 {
		return fmt.Errorf("the subnet has no port with the GUID %#016x", guid)
	}
	return nil
}

// explore queries a node's ports: all ports of a switch, and only the reached port of other nodes.
func (c *Client) explore(ctx context.Context, t Target, n *node, isNew bool, arrived int, guid uint64) (err error) {
	first, last := arrived, arrived
	if isNew {
		if n.description, err = c.subnet(ctx, t, attrNodeDescription, 0); err != nil {
			return err
		}
		n.description = c.names.of(n.get("Guid"), n.description)
		if n.isSwitch() {
			if n.switches, err = c.subnet(ctx, t, attrSwitchInfo, 0); err != nil {
				return err
			}
			first, last = 0, int(n.get("NumPorts"))
		}
	} else if n.isSwitch() || n.ports[arrived] != nil {
		return nil
	}
	for number := first; number <= last; number++ {
		info, err := c.subnet(ctx, t, attrPortInfo, uint32(number))
		if err != nil {
			return err
		}
		n.ports[number] = &port{node: n, number: number, guid: guid, info: info}
	}
	return nil
}
