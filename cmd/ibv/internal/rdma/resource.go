package rdma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmanl"
)

// Resource is the command resource.
func Resource() *cli.Command {
	return command(new(flags), runResource, cli.Command{
		Name:    "resource",
		Summary: "count the objects on devices, or list them with their owners",
		Forms: []string{
			"[-j] [show [DEVICE]]",
			"[-dd] [-j] show qp|cm_id [link DEVICE[/PORT]] [NAME VALUE]...",
			"[-dd] [-j] show cq|mr|pd|ctx|srq [dev DEVICE] [NAME VALUE]...",
		},
		Words: []string{"show"},
		About: `Count the objects on RDMA devices, or list them with the processes and kernel modules
that own them, as rdma resource does. NAME and VALUE choose objects by what is printed
of them. VALUE can be several values and ranges, separated by commas. The kernel tells
keys only to root.`,
		Examples: []cli.Example{{"ibv resource\nibv resource show qp state RTS,ERR\nibv resource show mr dev rxe0 pid 3217"}},
		Programs: []cli.Program{{Name: "rdma resource", Differs: differs}},
	})
}

func runResource(ctx context.Context, f *flags, words []string) error {
	rest, ok := show(expand(words, "show", "list"))
	if !ok {
		return cli.Usagef("%q is not show", words[0])
	}
	if len(rest) > 0 {
		if kind, ok := resourceKinds[rest[0]]; ok {
			return kind.show(ctx, f, rest[1:])
		}
	}
	devices, err := someDevices(ctx, rest)
	if errors.Is(err, rdmanl.ErrNoDevice) && len(rest) > 0 {
		return fmt.Errorf("%w; objects are %s", err, cli.Or(slices.Sorted(maps.Keys(resourceKinds))))
	}
	if err != nil {
		return err
	}
	var sheets []*sheet.Sheet
	for _, d := range devices {
		counts, err := rdmanl.Counts(ctx, d.Index)
		if err != nil {
			return err
		}
		s := sheet.New()
		field(s, "ifindex", "%d:", d.Index)
		field(s, "ifname", "%s:", d.Name)
		for _, c := range counts {
			field(s, c.Name, stranger.Text(c.Name)+" %d", c.Now)
		}
		sheets = append(sheets, s)
	}
	return f.write(sheets)
}

// A resourceKind is a kind of object.
type resourceKind struct {
	ports   bool     // its objects are on ports
	filters []string // names of the values that select objects
	list    func(ctx context.Context, at place) ([]*sheet.Sheet, error)
	states  []string
}

// A place is a device, and the level of detail for its objects.
type place struct {
	rdmanl.Device
	detail rdmanl.Detail
}

var resourceKinds = map[string]*resourceKind{
	"qp": {true, []string{"lqpn", "rqpn", "type", "state", "rq-psn", "sq-psn", "path-mig-state", "pdn", "pid", "comm"},
		sheetsOf(rdmanl.QPs, qpSheet), namesUpTo(ib.QPErr)},
	"cm_id": {true, []string{"cm-idn", "lqpn", "qp-type", "state", "ps", "pid", "comm", "src-addr", "dst-addr"},
		sheetsOf(rdmanl.CMIDs, cmIDSheet), namesUpTo(rdmanl.CMState(10))},
	"cq":  {false, []string{"cqn", "cqe", "users", "poll-ctx", "ctxn", "pid", "comm"}, sheetsOf(rdmanl.CQs, cqSheet), nil},
	"mr":  {false, []string{"mrn", "rkey", "lkey", "mrlen", "pdn", "pid", "comm"}, sheetsOf(rdmanl.MRs, mrSheet), nil},
	"pd":  {false, []string{"pdn", "users", "ctxn", "pid", "comm"}, sheetsOf(rdmanl.PDs, pdSheet), nil},
	"ctx": {false, []string{"ctxn", "pid", "comm"}, sheetsOf(rdmanl.Contexts, ctxSheet), nil},
	"srq": {false, []string{"srqn", "type", "pdn", "cqn", "pid", "comm"}, sheetsOf(rdmanl.SRQs, srqSheet), nil},
}

// namesUpTo returns the names of an enumeration.
func namesUpTo[T ~uint8 | ~uint32](last T) (all []string) {
	for i := T(0); i <= last; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// sheetsOf lists objects and describes them.
func sheetsOf[T any](list func(context.Context, uint32, rdmanl.Detail) ([]T, error), describe func(place, T) *sheet.Sheet) func(context.Context, place) ([]*sheet.Sheet, error) {
	return func(ctx context.Context, at place) ([]*sheet.Sheet, error) {
		objects, err := list(ctx, at.Index, at.detail)
		var sheets []*sheet.Sheet
		for _, o := range objects {
			sheets = append(sheets, describe(at, o))
		}
		return sheets, err
	}
}

func (k *resourceKind) show(ctx context.Context, f *flags, words []string) error {
	where := "dev"
	if k.ports {
		where = "link"
	}
	var name []string
	if len(words) > 0 && words[0] == where {
		if len(words) == 1 {
			return cli.Usagef("%s needs a device", where)
		}
		name, words = words[1:2], words[2:]
	}
	filters, err := k.parseFilters(words)
	if err != nil {
		return err
	}
	var devices []rdmanl.Device
	port := uint32(0)
	if k.ports {
		devices, port, err = somePorts(ctx, name)
	} else {
		devices, err = someDevices(ctx, name)
	}
	if err != nil {
		return err
	}
	detail := rdmanl.DetailCommon
	if f.details > 1 {
		detail = rdmanl.DetailDriver
	}
	var sheets []*sheet.Sheet
	for _, d := range devices {
		objects, err := k.list(ctx, place{d, detail})
		if err != nil {
			return err
		}
		objects = slices.DeleteFunc(objects, func(s *sheet.Sheet) bool { return port > 0 && sheetPort(s) != port || !filters.match(s) })
		// Objects without a port come first, as with rdma.
		slices.SortStableFunc(objects, func(a, b *sheet.Sheet) int { return int(sheetPort(a)) - int(sheetPort(b)) })
		sheets = append(sheets, objects...)
	}
	return f.write(sheets)
}

// sheetPort returns the port of an object, 0 if it has none.
func sheetPort(s *sheet.Sheet) uint32 {
	port, _ := s.Value("port").(uint32)
	return port
}

// filters are the values of selected objects, by name.
type filters map[string][]string

func (k *resourceKind) parseFilters(words []string) (filters, error) {
	f := make(filters)
	for ; len(words) > 0; words = words[2:] {
		switch {
		case !slices.Contains(k.filters, words[0]):
			return nil, cli.Usagef("%q is none of %s", words[0], strings.Join(k.filters, ", "))
		case len(words) == 1:
			return nil, cli.Usagef("%s needs a value", words[0])
		}
		f[words[0]] = strings.Split(words[1], ",")
		for _, v := range f["state"] {
			if !slices.ContainsFunc(k.states, func(s string) bool { return strings.EqualFold(s, v) }) {
				return nil, cli.Usagef("%q is no state: %s", v, strings.Join(k.states, ", "))
			}
		}
	}
	return f, nil
}

// match reports whether an object has one of the values of each name.
func (f filters) match(s *sheet.Sheet) bool {
	for name, values := range f {
		has := s.Value(name)
		if has == nil || !slices.ContainsFunc(values, func(v string) bool { return inRange(fmt.Sprint(has), v) }) {
			return false
		}
	}
	return true
}

// inRange reports whether a value is v, or in the range v, such as "3-7".
func inRange(value, v string) bool {
	if strings.EqualFold(value, v) {
		return true
	}
	first, last, ok := strings.Cut(v, "-")
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(value, 10, 64)
	low, lowErr := strconv.ParseUint(first, 10, 64)
	high, highErr := strconv.ParseUint(last, 10, 64)
	return err == nil && lowErr == nil && highErr == nil && low <= n && n <= high
}

// onDevice begins the description of an object on a device.
func onDevice(at place) *sheet.Sheet {
	s := sheet.New()
	s.Set("ifindex", at.Index)
	field(s, "ifname", "dev %s", at.Name)
	return s
}

// onPort begins the description of an object that may be on a port.
func onPort(at place, port rdmanl.Optional[uint32]) *sheet.Sheet {
	s := sheet.New()
	s.Set("ifindex", at.Index)
	s.Set("ifname", stranger.Text(at.Name))
	name := "-"
	if n, ok := port.Get(); ok {
		s.Set("port", n)
		name = strconv.Itoa(int(n))
	}
	s.Note("link %s/%s ", stranger.Text(at.Name), name)
	return s
}

// owned completes the description of an object with its owner and the driver's values.
func owned(s *sheet.Sheet, at place, o rdmanl.Owner) *sheet.Sheet {
	owner(s, o)
	return driverValues(s, at, o)
}

// owner adds the process or module that created an object.
func owner(s *sheet.Sheet, o rdmanl.Owner) {
	maybe(s, "pid", "pid %d", o.PID)
	if name, ok := o.Comm(); ok {
		name = stranger.Text(name)
		s.Set("comm", name)
		if _, process := o.PID.Get(); !process {
			name = "[" + name + "]"
		}
		s.Note("comm %s ", name)
	}
}

// driverValues adds the driver's own values, on a separate line, if they are requested.
func driverValues(s *sheet.Sheet, at place, o rdmanl.Owner) *sheet.Sheet {
	if at.detail != rdmanl.DetailDriver {
		return s
	}
	for i, a := range o.Driver {
		if i == 0 {
			s.Note("\n    ")
		}
		name := "drv_" + stranger.Text(a.Name)
		layout := name + " %v"
		if a.Hex {
			layout = name + " %#x"
		}
		field(s, name, layout, a.Value)
	}
	return s
}

// key adds a number in hexadecimal.
func key[T uint32 | uint64](s *sheet.Sheet, name string, value rdmanl.Optional[T]) {
	if v, ok := value.Get(); ok {
		s.Note("%s 0x%x ", name, v)
		s.Set(name, fmt.Sprintf("%x", v))
	}
}

func qpSheet(at place, q rdmanl.QP) *sheet.Sheet {
	s := onPort(at, q.Port)
	field(s, "lqpn", "lqpn %d", q.Number)
	maybe(s, "rqpn", "rqpn %d", q.RemoteQPN)
	maybe(s, "type", "type %v", q.Type)
	maybe(s, "subtype", "subtype %s", q.Subtype)
	maybe(s, "state", "state %v", q.State)
	maybe(s, "rq-psn", "rq-psn %d", q.RQPSN)
	maybe(s, "sq-psn", "sq-psn %d", q.SQPSN)
	maybe(s, "path-mig-state", "path-mig-state %v", q.PathMig)
	maybe(s, "pdn", "pdn %d", q.PD)
	return owned(s, at, q.Owner)
}

func cmIDSheet(at place, c rdmanl.CMID) *sheet.Sheet {
	s := onPort(at, c.Port)
	field(s, "cm-idn", "cm-idn %d", c.ID)
	maybe(s, "lqpn", "lqpn %d", c.QPN)
	maybe(s, "qp-type", "qp-type %v", c.QPType)
	maybe(s, "state", "state %v", c.State)
	maybe(s, "ps", "ps %v", c.PortSpace)
	owner(s, c.Owner)
	address(s, "src-addr", c.Source)
	address(s, "dst-addr", c.Dest)
	return driverValues(s, at, c.Owner)
}

// address adds an address. rdma writes IPv6 addresses without brackets.
func address(s *sheet.Sheet, name string, value rdmanl.Optional[netip.AddrPort]) {
	if a, ok := value.Get(); ok {
		field(s, name, name+" %s", fmt.Sprintf("%v:%d", a.Addr(), a.Port()))
	}
}

func cqSheet(at place, c rdmanl.CQ) *sheet.Sheet {
	s := onDevice(at)
	field(s, "cqn", "cqn %d", c.ID)
	maybe(s, "cqe", "cqe %d", c.Entries)
	maybe(s, "users", "users %d", c.Users)
	maybe(s, "poll-ctx", "poll-ctx %v", c.PollCtx)
	switched(s, "adaptive-moderation", c.DIM)
	maybe(s, "ctxn", "ctxn %d", c.Context)
	return owned(s, at, c.Owner)
}

func mrSheet(at place, m rdmanl.MR) *sheet.Sheet {
	s := onDevice(at)
	field(s, "mrn", "mrn %d", m.ID)
	key(s, "rkey", m.RKey)
	key(s, "lkey", m.LKey)
	key(s, "iova", m.IOVA)
	maybe(s, "mrlen", "mrlen %d", m.Length)
	maybe(s, "pdn", "pdn %d", m.PD)
	return owned(s, at, m.Owner)
}

func pdSheet(at place, p rdmanl.PD) *sheet.Sheet {
	s := onDevice(at)
	field(s, "pdn", "pdn %d", p.ID)
	key(s, "local_dma_lkey", p.LocalDMALKey)
	maybe(s, "users", "users %d", p.Users)
	key(s, "unsafe_global_rkey", p.UnsafeGlobalRKey)
	maybe(s, "ctxn", "ctxn %d", p.Context)
	return owned(s, at, p.Owner)
}

func ctxSheet(at place, c rdmanl.Context) *sheet.Sheet {
	s := onDevice(at)
	field(s, "ctxn", "ctxn %d", c.ID)
	return owned(s, at, c.Owner)
}

func srqSheet(at place, r rdmanl.SRQ) *sheet.Sheet {
	s := onDevice(at)
	field(s, "srqn", "srqn %d", r.ID)
	maybe(s, "type", "type %v", r.Type)
	if len(r.QPs) > 0 {
		var numbers []string
		for _, q := range r.QPs {
			n := strconv.Itoa(int(q.First))
			if q.First != q.Last {
				n += "-" + strconv.Itoa(int(q.Last))
			}
			numbers = append(numbers, n)
		}
		s.Note("lqpn %s ", strings.Join(numbers, ","))
		s.Set("lqpn", numbers)
	}
	maybe(s, "pdn", "pdn %d", r.PD)
	maybe(s, "cqn", "cqn %d", r.CQ)
	return owned(s, at, r.Owner)
}
