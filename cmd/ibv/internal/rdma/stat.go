package rdma

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/doctor"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/rdmanl"
)

// Stat is the command stat.
func Stat() *cli.Command {
	f := &flags{interval: time.Second}
	return command(f, runStat, cli.Command{
		Name:    "stat",
		Summary: "show and watch counters, and choose what is counted",
		Forms: []string{
			"[-j] [show [link DEVICE[/PORT]]]",
			"--watch [-i INTERVAL] [-n COUNT] [-j] [show [link DEVICE[/PORT]]]",
			"mr [-j] [show [dev DEVICE]]",
			"mode [-j] [supported] [link DEVICE[/PORT]]",
			"set link DEVICE/PORT optional-counters NAME[,NAME]...",
			"unset link DEVICE/PORT optional-counters",
			"qp [-j] [show|mode] [link DEVICE[/PORT]]",
			"qp set link DEVICE/PORT auto off",
			"qp set link DEVICE/PORT auto type|pid|type,pid on",
			"qp bind link DEVICE/PORT lqpn QPN [cntn COUNTER]",
			"qp unbind link DEVICE/PORT cntn COUNTER [lqpn QPN]",
		},
		Words: []string{"show", "qp", "mr", "mode", "set", "unset"},
		About: `Show the counters of ports, memory regions and queue pairs, or choose what is counted,
as rdma statistic does. A queue pair can have a counter of its own, if the adapter can,
bound by hand or automatically. Changes need root, or CAP_NET_ADMIN.

With --watch, the counters that grow are shown with their rates, until interrupted:
also those of the link, such as port_xmit_data, which is in bytes here. Each time has
a JSON array of its own. Those that mean trouble are marked with an exclamation mark,
and say what it is: ibv doctor finds its cause.`,
		Options: []cli.Option{
			cli.Flag(0, "watch", "show what grows", &f.watch),
			cli.Opt('i', "interval", "INTERVAL", "how often (default 1s)", cli.Period(&f.interval)),
			cli.Opt('n', "count", "COUNT", "end after this many times", cli.Int(&f.count, 0, math.MaxInt32)),
		},
		Programs: []cli.Program{{Name: "rdma statistic", Differs: differs}},
	})
}

func runStat(ctx context.Context, f *flags, words []string) error {
	words = expand(words, "show", "list", "qp", "mr", "mode", "set", "unset")
	if rest, ok := show(words); ok {
		where, err := on("link", rest)
		switch {
		case err != nil:
			return err
		case f.watch:
			return watchCounters(ctx, f, where)
		}
		return showCounters(ctx, f, where)
	}
	if f.watch {
		return cli.Usagef("--watch is for the counters of ports")
	}
	switch words[0] {
	case "qp":
		return runStatQP(ctx, f, words[1:])
	case "mr":
		return showMRCounters(ctx, f, words[1:])
	case "mode":
		return showOptional(ctx, f, words[1:])
	case "set":
		values, err := pairs(words[1:], "link", "optional-counters")
		if err != nil {
			return err
		}
		return onOnePort(ctx, values[0], func(dev, port uint32) error {
			return rdmanl.SetOptionalCounters(ctx, dev, port, strings.Split(values[1], ",")...)
		})
	case "unset":
		if len(words) != 4 || words[1] != "link" || words[3] != "optional-counters" {
			return cli.Usagef("unset needs link DEVICE/PORT optional-counters")
		}
		return onOnePort(ctx, words[2], func(dev, port uint32) error { return rdmanl.SetOptionalCounters(ctx, dev, port) })
	}
	return cli.Usagef("%q is none of show, qp, mr, mode, set and unset", words[0])
}

// onOnePort calls do with the port that a word such as "rxe0/1" names.
func onOnePort(ctx context.Context, word string, do func(dev, port uint32) error) error {
	devices, port, err := somePorts(ctx, []string{word})
	if err != nil {
		return err
	}
	if port == 0 {
		return cli.Usagef("%q is not a device and a port, such as rxe0/1", word)
	}
	return do(devices[0].Index, port)
}

// eachPort calls do with the ports that words name, or with all ports. It ignores devices that don't support
// the call, unless a device is named.
func eachPort(ctx context.Context, words []string, do func(d rdmanl.Device, port uint32) error) error {
	devices, only, err := somePorts(ctx, words)
	if err != nil {
		return err
	}
	for _, d := range devices {
		for port := uint32(1); port <= d.Ports; port++ {
			if only != 0 && port != only {
				continue
			}
			if err := do(d, port); err != nil && (len(words) > 0 || !errors.Is(err, errors.ErrUnsupported)) {
				return err
			}
		}
	}
	return nil
}

// ofPort begins the description of a port.
func ofPort(d rdmanl.Device, port uint32) *sheet.Sheet {
	s := sheet.New()
	s.Set("ifname", d.Name)
	s.Set("port", port)
	s.Note("link %s/%d ", stranger.Text(d.Name), port)
	return s
}

// counters adds counters, each on a line of its own, unless the output is compact.
func (f *flags) counters(s *sheet.Sheet, all []rdmanl.Counter) {
	for _, c := range all {
		name := stranger.Text(c.Name)
		if !f.compact {
			s.Note("\n    ")
		}
		field(s, name, name+" %d", c.Value)
	}
}

func showCounters(ctx context.Context, f *flags, words []string) error {
	var sheets []*sheet.Sheet
	err := eachPort(ctx, words, func(d rdmanl.Device, port uint32) error {
		all, err := rdmanl.Counters(ctx, d.Index, port)
		if err == nil {
			s := ofPort(d, port)
			f.counters(s, all)
			sheets = append(sheets, s)
		}
		return err
	})
	if err != nil {
		return err
	}
	return f.write(sheets)
}

// watchCounters shows the counters that grow.
func watchCounters(ctx context.Context, f *flags, words []string) error {
	type which struct {
		device string
		port   uint32
		name   string
		source monitor.Source // two sources may have a counter of the same name
	}
	sample := func() (map[which]uint64, []which, error) {
		values := make(map[which]uint64)
		var order []which
		err := eachPort(ctx, words, func(d rdmanl.Device, port uint32) error {
			all, err := (monitor.Host{}).Counters(ctx, d.Name, int(port))
			for _, c := range all {
				w := which{d.Name, port, c.Name, c.Source}
				order, values[w] = append(order, w), c.Value
			}
			return err
		})
		return values, order, err
	}
	before, _, err := sample()
	if err != nil {
		return err
	}
	then := time.Now()
	defer cli.Waits("nothing grows")()
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for n := 0; f.count == 0 || n < f.count; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		after, order, err := sample()
		if err != nil {
			return err
		}
		now := time.Now()
		var sheets []*sheet.Sheet
		for _, w := range order {
			if old, ok := before[w]; ok && after[w] > old {
				rate := float64(after[w]-old) / now.Sub(then).Seconds()
				sheets = append(sheets, growth(rdmanl.Device{Name: w.device}, w.port, rdmanl.Counter{Name: w.name, Value: after[w]}, rate))
			}
		}
		if err := f.write(sheets); err != nil {
			return err
		}
		before, then = after, now
	}
	return nil
}

// growth describes a counter that grows.
func growth(d rdmanl.Device, port uint32, c rdmanl.Counter, rate float64) *sheet.Sheet {
	s := ofPort(d, port)
	field(s, "counter", "counter %s", c.Name)
	field(s, "value", "value %d", c.Value)
	s.Note("+%s/s ", strconv.FormatFloat(rate, 'f', -1, 32))
	s.Set("rate", rate)
	if k := doctor.Trouble(c.Name); k != nil {
		field(s, "trouble", "trouble ! %s", k.Title)
	}
	return s
}

func showMRCounters(ctx context.Context, f *flags, words []string) error {
	if rest, ok := show(words); ok {
		words = rest
	}
	where, err := on("dev", words)
	if err != nil {
		return err
	}
	devices, err := someDevices(ctx, where)
	if err != nil {
		return err
	}
	var sheets []*sheet.Sheet
	for _, d := range devices {
		all, err := rdmanl.CountersOfMRs(ctx, d.Index)
		if err != nil {
			return err
		}
		for _, m := range all {
			s := onDevice(place{Device: d})
			field(s, "mrn", "mrn %d", m.ID)
			f.counters(s, m.Counters)
			sheets = append(sheets, s)
		}
	}
	return f.write(sheets)
}

// showOptional shows the optional counters: those switched on, or all.
func showOptional(ctx context.Context, f *flags, words []string) error {
	supported := len(words) > 0 && words[0] == "supported"
	if supported {
		words = words[1:]
	}
	where, err := on("link", words)
	if err != nil {
		return err
	}
	name := "optional-counters"
	if supported {
		name = "supported " + name
	}
	var sheets []*sheet.Sheet
	err = eachPort(ctx, where, func(d rdmanl.Device, port uint32) error {
		all, err := rdmanl.OptionalCounters(ctx, d.Index, port)
		var names []string
		for _, c := range all {
			if supported || c.Enabled {
				names = append(names, stranger.Text(c.Name))
			}
		}
		if len(names) > 0 {
			s := ofPort(d, port)
			s.Set(name, names)
			s.Note("%s \n    %s", name, strings.Join(names, ",\n    "))
			sheets = append(sheets, s)
		}
		return err
	})
	if err != nil {
		return err
	}
	return f.write(sheets)
}

// on returns the words after "link" or "dev", if the word is present.
func on(place string, words []string) (where []string, err error) {
	if len(words) == 0 {
		return nil, nil
	}
	return pairs(words, place)
}

func runStatQP(ctx context.Context, f *flags, words []string) error {
	words = expand(words, "show", "list", "set", "bind", "unbind", "mode")
	if len(words) > 0 && slices.Contains([]string{"set", "bind", "unbind"}, words[0]) {
		if len(words) < 3 || words[1] != "link" {
			return cli.Usagef("%s needs link DEVICE/PORT", words[0])
		}
		switch rest := words[3:]; words[0] {
		case "set":
			return setAuto(ctx, words[2], rest)
		case "bind":
			return bind(ctx, words[2], rest)
		default:
			return unbind(ctx, words[2], rest)
		}
	}
	describe := qpCounterSheets
	if len(words) > 0 && words[0] == "mode" {
		words, describe = words[1:], countingSheets
	} else if rest, ok := show(words); ok {
		words = rest
	}
	where, err := on("link", words)
	if err != nil {
		return err
	}
	var sheets []*sheet.Sheet
	err = eachPort(ctx, where, func(d rdmanl.Device, port uint32) error {
		all, err := describe(ctx, f, d, port)
		sheets = append(sheets, all...)
		return err
	})
	if err != nil {
		return err
	}
	return f.write(sheets)
}

func qpCounterSheets(ctx context.Context, f *flags, d rdmanl.Device, port uint32) ([]*sheet.Sheet, error) {
	all, err := rdmanl.QPCounters(ctx, d.Index, port)
	var sheets []*sheet.Sheet
	for _, c := range all {
		s := onPort(place{Device: d}, rdmanl.Some(c.Port))
		field(s, "cntn", "cntn %d", c.ID)
		maybe(s, "qp-type", "qp-type %v", c.QPType)
		owner(s, c.Owner)
		f.counters(s, c.Counters)
		qps := make([]string, len(c.QPs))
		for i, n := range c.QPs {
			qps[i] = strconv.Itoa(int(n))
		}
		s.Set("lqpn", append([]uint32{}, c.QPs...))
		s.Note("\n    LQPN: <%s>", strings.Join(qps, ","))
		sheets = append(sheets, s)
	}
	return sheets, err
}

func countingSheets(ctx context.Context, _ *flags, d rdmanl.Device, port uint32) ([]*sheet.Sheet, error) {
	c, err := rdmanl.GetCounting(ctx, d.Index, port)
	if err != nil {
		return nil, err
	}
	s := onPort(place{Device: d}, rdmanl.Some(port))
	mode := "qp auto off"
	if mask := c.Auto.Or(0); c.Mode.Or(rdmanl.CounterNone) == rdmanl.CounterAuto && mask != 0 {
		mode = fmt.Sprintf("qp auto %v on", mask)
		if on, ok := c.Optional.Get(); ok {
			mode += " optional-counters " + map[bool]string{true: "on", false: "off"}[on]
		}
	}
	field(s, "mode", "mode %s", mode)
	return []*sheet.Sheet{s}, nil
}

func setAuto(ctx context.Context, where string, words []string) error {
	if len(words) == 2 && words[0] == "auto" && words[1] == "off" {
		return onOnePort(ctx, where, func(dev, port uint32) error { return rdmanl.SetAutoCounting(ctx, dev, port, 0) })
	}
	if len(words) != 3 || words[0] != "auto" || words[2] != "on" {
		return cli.Usagef("set needs auto off, or auto type|pid|type,pid on")
	}
	mask := rdmanl.AutoMask(0)
	for name := range strings.SplitSeq(words[1], ",") {
		switch name {
		case "type":
			mask |= rdmanl.AutoType
		case "pid":
			mask |= rdmanl.AutoPID
		default:
			return cli.Usagef("%q is neither type nor pid", name)
		}
	}
	return onOnePort(ctx, where, func(dev, port uint32) error { return rdmanl.SetAutoCounting(ctx, dev, port, mask) })
}

func bind(ctx context.Context, where string, words []string) error {
	qpn, counter, err := twoNumbers(words, "lqpn", "cntn")
	if err != nil {
		return err
	}
	return onOnePort(ctx, where, func(dev, port uint32) error {
		if counter != nil {
			return rdmanl.BindQPTo(ctx, dev, port, qpn, *counter)
		}
		_, err := rdmanl.BindQP(ctx, dev, port, qpn)
		return err
	})
}

func unbind(ctx context.Context, where string, words []string) error {
	counter, qpn, err := twoNumbers(words, "cntn", "lqpn")
	if err != nil {
		return err
	}
	return onOnePort(ctx, where, func(dev, port uint32) error {
		if qpn != nil {
			return rdmanl.UnbindQP(ctx, dev, port, *qpn, counter)
		}
		all, err := rdmanl.QPCounters(ctx, dev, port)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(c rdmanl.QPCounter) bool { return c.ID == counter })
		if i < 0 {
			return fmt.Errorf("there is no counter %d on %s", counter, where)
		}
		for _, qpn := range all[i].QPs {
			if err := rdmanl.UnbindQP(ctx, dev, port, qpn, counter); err != nil {
				return err
			}
		}
		return nil
	})
}

// twoNumbers parses words that name one number, or two.
func twoNumbers(words []string, first, second string) (a uint32, b *uint32, err error) {
	names := []string{first, second}
	if len(words) <= 2 {
		names = names[:1]
	}
	values, err := pairs(words, names...)
	if err != nil {
		return 0, nil, err
	}
	for i, v := range values {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return 0, nil, cli.Usagef("%s %s is not a number", names[i], v)
		}
		if i == 0 {
			a = uint32(n)
		} else {
			b = new(uint32)
			*b = uint32(n)
		}
	}
	return a, b, nil
}
