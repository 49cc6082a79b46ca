// Package diags queries an InfiniBand subnet, and prints the answers, as the programs of
// infiniband-diags do.
package diags

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/sa"
	"github.com/goverbs/goverbs/umad"
)

// Attributes of subnet management.
const (
	attrNodeDescription  = 0x10
	attrNodeInfo         = 0x11
	attrSwitchInfo       = 0x12
	attrGUIDInfo         = 0x14
	attrPortInfo         = 0x15
	attrPKeyTable        = 0x16
	attrServiceLevels    = 0x17
	attrArbitration      = 0x18
	attrSMInfo           = 0x20
	attrPortInfoExtended = 0x33
)

// A Target is a queried port: named by its LID, or by a route.
type Target struct {
	LID   uint16
	Route []byte // 0, then the outgoing port of each node on the way; nil: by LID
}

// String returns the target as libibmad prints it.
func (t Target) String() string {
	if t.Route == nil {
		return fmt.Sprintf("Lid %d", t.LID)
	}
	var hops []string
	for _, port := range t.Route {
		hops = append(hops, strconv.Itoa(int(port)))
	}
	return fmt.Sprintf("DR path slid 65535; dlid 65535; %s", strings.Join(hops, ","))
}

const maxLID = 0xbfff

// ByLID parses a LID.
func ByLID(text string) (Target, error) {
	lid, err := strconv.ParseUint(text, 0, 16)
	if err != nil || lid == 0 || lid > maxLID {
		return Target{}, fmt.Errorf("%q is no LID: a number from 1 to %d", text, maxLID)
	}
	return Target{LID: uint16(lid)}, nil
}

// ByRoute parses a route, such as 0,1,4.
func ByRoute(text string) (Target, error) {
	t := Target{}
	for _, hop := range strings.Split(text, ",") {
		port, err := strconv.ParseUint(hop, 10, 8)
		if err != nil {
			return t, fmt.Errorf("%q is no route: numbers of ports, with commas between", text)
		}
		t.Route = append(t.Route, byte(port))
	}
	if len(t.Route) > 63 {
		return t, fmt.Errorf("a route of %d hops, not up to 63", len(t.Route)-1)
	}
	return t, nil
}

// A Client sends queries from one port.
type Client struct {
	Timeout time.Duration // of a request, before it is sent again
	MKey    uint64        // of requests for subnet management
	SM      Target        // the subnet manager, if not the one that the port knows
	SMKey   uint64        // of requests for subnet administration

	names  names
	smps   int // requests for subnet management so far
	name   umad.Name
	quiet  func() // ends what is said while the client waits
	port   *umad.Port
	agents map[umad.Class]*umad.Agent
	sa     *sa.Client   // nil before it is used
	pma    *monitor.PMA // nil before it is used
}

// retries is how often a request is sent again. libibmad sends it three times in all.
const retries = 2

// Open returns a client on a port. An empty device, or port 0, selects the first active port.
func Open(device string, port int) (*Client, error) {
	name, err := choose(device, port)
	if err != nil {
		return nil, err
	}
	p, err := umad.Open(name.Device, name.Port)
	if err != nil {
		return nil, err
	}
	return &Client{Timeout: time.Second, name: name, quiet: cli.Waits("waiting for MADs at port %d of %s", name.Port, name.Device), port: p, agents: make(map[umad.Class]*umad.Agent)}, nil
}

// Close closes the client.
func (c *Client) Close() error {
	c.quiet()
	return c.port.Close()
}

func choose(device string, port int) (umad.Name, error) {
	all, err := umad.Ports()
	if err != nil {
		return umad.Name{}, err
	}
	all = slices.DeleteFunc(all, func(n umad.Name) bool {
		return device != "" && n.Device != device || port != 0 && n.Port != port
	})
	if len(all) == 0 {
		return umad.Name{}, errors.New("there is no such port, or it has no MADs")
	}
	for _, n := range all {
		p, err := (monitor.Host{}).Port(context.Background(), n.Device, n.Port)
		if err == nil && p.State == ib.PortActive && p.LinkLayer == ib.LinkLayerInfiniBand {
			return n, nil
		}
	}
	if device == "" {
		return umad.Name{}, errors.New("no InfiniBand port is active")
	}
	return all[0], nil
}

// attribute returns a port's attribute from sysfs, or "".
func attribute(n umad.Name, name string) string {
	b, _ := os.ReadFile(filepath.Join("/sys/class/infiniband", n.Device, "ports", strconv.Itoa(n.Port), name))
	return strings.TrimSpace(string(b))
}

// lid returns a LID from sysfs.
func (c *Client) lid(name string) (Target, error) {
	t, err := ByLID(attribute(c.name, name))
	if err != nil {
		return t, fmt.Errorf("%v has no LID in %s", c.name, name)
	}
	return t, nil
}

// Self returns the client's own port.
func (c *Client) Self() (Target, error) { return c.lid("lid") }

// Manager returns the port of the subnet manager.
func (c *Client) Manager() (Target, error) {
	if c.SM.LID != 0 {
		return c.SM, nil
	}
	return c.lid("sm_lid")
}

// PortNumber returns the number of the client's own port.
func (c *Client) PortNumber() int { return c.name.Port }

func (c *Client) agent(o umad.AgentOptions) (*umad.Agent, error) {
	if a := c.agents[o.Class]; a != nil {
		return a, nil
	}
	a, err := c.port.Register(o)
	if err == nil {
		c.agents[o.Class] = a
	}
	return a, err
}

// performance returns the client for counters.
func (c *Client) performance() (*monitor.PMA, error) {
	if c.pma != nil {
		return c.pma, nil
	}
	p, err := monitor.NewPMA(c.port, monitor.PMAOptions{Timeout: c.Timeout, Retries: retries})
	if err == nil {
		c.pma = p
	}
	return p, err
}

// A request reads or sets an attribute of subnet management.
type request struct {
	method   umad.Method
	attr     uint16
	modifier uint32
	data     []byte // to be set
}

// The offsets of an attribute's data in a MAD.
const (
	dataOffset = 64
	dataEnd    = dataOffset + 64
)

// do sends a request, and returns the data of the answer.
func (c *Client) do(ctx context.Context, t Target, r request) ([]byte, error) {
	m := umad.Message{Addr: umad.Addr{LID: t.LID}, MAD: make([]byte, umad.Size), Timeout: c.Timeout, Retries: retries}
	h := umad.Header{Class: umad.ClassSubnet, Version: 1, Method: r.method, Attr: r.attr, Modifier: r.modifier}
	binary.BigEndian.PutUint64(m.MAD[24:], c.MKey)
	if t.Route != nil {
		h.Class, h.Hops = umad.ClassDirected, uint16(len(t.Route)-1)
		m.Addr.LID = umad.PermissiveLID
		binary.BigEndian.PutUint32(m.MAD[32:], umad.PermissiveLID<<16|umad.PermissiveLID)
		copy(m.MAD[128:192], t.Route)
	}
	h.Put(m.MAD)
	copy(m.MAD[dataOffset:dataEnd], r.data)
	a, err := c.agent(umad.AgentOptions{Class: h.Class})
	if err != nil {
		return nil, err
	}
	c.smps++
	answer, err := a.Do(ctx, m)
	if err != nil {
		return nil, err
	}
	if len(answer.MAD) < dataEnd {
		return nil, umad.ErrMalformed
	}
	return answer.MAD[dataOffset:dataEnd], nil
}

// subnet reads an attribute of subnet management.
func (c *Client) subnet(ctx context.Context, t Target, attr uint16, modifier uint32) ([]byte, error) {
	return c.do(ctx, t, request{method: umad.MethodGet, attr: attr, modifier: modifier})
}
