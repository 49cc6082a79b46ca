package rdma

import (
	"context"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmanl"
)

// Link is the command link.
func Link() *cli.Command {
	return command(new(flags), runLink, cli.Command{
		Name:    "link",
		Summary: "list links, add and delete those of Soft-RoCE and soft-iWARP",
		Forms:   []string{"[-d] [-j] [show [DEVICE[/PORT]]]", "add NAME type TYPE netdev INTERFACE", "delete NAME"},
		Words:   []string{"show", "add", "delete"},
		About: `List the ports of RDMA devices, or make and remove devices in software, as rdma link
does. TYPE is rxe for Soft-RoCE, which every network interface can have, or siw for
soft-iWARP. The kernel loads the driver by itself. Both need root, or CAP_NET_ADMIN.`,
		Examples: []cli.Example{{"ibv link\nibv link add rxe0 type rxe netdev eth0\nibv link delete rxe0"}},
		Programs: []cli.Program{{Name: "rdma link", Differs: differs}},
	})
}

func runLink(ctx context.Context, f *flags, words []string) error {
	words = expand(words, "add", "delete", "show", "list")
	if rest, ok := show(words); ok {
		return showLinks(ctx, f, rest)
	}
	switch rest := words[1:]; words[0] {
	case "add":
		if len(rest) == 0 {
			return cli.Usagef("add needs a name")
		}
		values, err := pairs(rest[1:], "type", "netdev")
		if err != nil {
			return err
		}
		return rdmanl.AddLink(ctx, rdmanl.LinkOptions{Name: rest[0], Type: values[0], Netdev: values[1]})
	case "delete":
		if len(rest) == 0 {
			return cli.Usagef("delete needs a name")
		}
		if len(rest) > 1 {
			return unexpected(rest[1:])
		}
		d, err := rdmanl.FindDevice(ctx, rest[0])
		if err != nil {
			return err
		}
		return rdmanl.DeleteLink(ctx, d.Index)
	}
	return cli.Usagef("%q is none of show, add and delete", words[0])
}

func showLinks(ctx context.Context, f *flags, words []string) error {
	devices, port, err := somePorts(ctx, words)
	if err != nil {
		return err
	}
	var sheets []*sheet.Sheet
	for _, d := range devices {
		links, err := rdmanl.Links(ctx, d.Index)
		if err != nil {
			return err
		}
		for _, l := range links {
			if port == 0 || l.Port == port {
				sheets = append(sheets, linkSheet(l, f.details > 0))
			}
		}
	}
	return f.write(sheets)
}

func linkSheet(l rdmanl.Link, details bool) *sheet.Sheet {
	s := sheet.New()
	s.Set("ifindex", l.Index)
	s.Set("ifname", l.Device)
	s.Set("port", l.Port)
	s.Note("link %s/%d ", stranger.Text(l.Device), l.Port)
	maybe(s, "subnet_prefix", "subnet_prefix %v", l.SubnetPrefix)
	maybe(s, "lid", "lid %d", l.LID)
	maybe(s, "sm_lid", "sm_lid %d", l.SMLID)
	maybe(s, "lmc", "lmc %d", l.LMC)
	maybe(s, "state", "state %v", l.State)
	if phys, ok := l.PhysState.Get(); ok {
		field(s, "physical_state", "physical_state %s", physWord(phys))
	}
	maybe(s, "netdev", "netdev %s", l.Netdev)
	if index, ok := l.NetdevIndex.Get(); ok {
		s.Set("netdev_index", index)
		if details {
			s.Note("netdev_index %d ", index)
		}
	}
	if caps, ok := l.Caps.Get(); ok && details {
		names(s, "caps", caps.Names())
	}
	return s
}

// physWord returns rdma(8)'s name of a physical state.
func physWord(s ib.PhysState) string {
	switch s {
	case ib.PhysTraining:
		return "ARMED"
	case ib.PhysLinkErrorRecovery:
		return "LINK_ERROR_RECOVER"
	}
	return s.String()
}
