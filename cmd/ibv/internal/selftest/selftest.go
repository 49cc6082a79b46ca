// Package selftest proves that goverbs works on a device: it exchanges data in loopback on
// one port, or between two devices of the host, with its own objects only. It changes no
// setting, and registers no flow that takes other programs' packets.
//
// The test consists of groups of a few checks. A check creates the objects that it needs, and
// closes them. A failure has the object, the expected and the actual result.
//
// # Time
//
// Each group has a share of the time. Checks that are needed once, such as each operation with
// each length, always run. Checks that find more when they are repeated, such as posts,
// have a planned number, and end earlier if the time is up. The group is then "shortened",
// not "passed", and the report has the number reached. So a device in an emulator, which is
// a hundred times slower, passes the same checks in about the same time.
//
// A completion counts as lost when none has arrived within the patience, and another pair of
// queues has then done a round trip. So a slow machine doesn't fail.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/version"
	"github.com/goverbs/goverbs/verbs"
)

// Options are the parameters of a run.
type Options struct {
	Devices  []string      // one device, or two that reach each other
	Port     int           // 0 for the first active one
	GID      int           // index of the first device's GID; negative for the GID that most programs take
	Time     time.Duration // of all groups together
	Patience time.Duration // how long nothing may complete
	Seed     uint64
	Groups   []string // empty for all
	Args     []string // for the report

	// Progress is called during checks. It may be nil.
	Progress func(group, check string, done, planned int, unit string)
}

// A group is a subject, with its share of the time.
type group struct {
	name  string
	about string
	share int
	run   func(*run)
}

var groups = []group{
	{"identity", "what the device and the kernel say they are", 1, identity},
	{"data", "each operation, transport, length and layout, byte by byte", 22, data},
	{"doorbells", "each size of request at each offset of the ring, and many goroutines", 18, doorbells},
	{"wraps", "receive queues, shared ones and tiny ones that wrap; flush and reuse", 14, wraps},
	{"counters", "completions, until each counter of a queue has wrapped", 5, counters},
	{"cqs", "completion queues: sizes, compression, resizing under load, events, overrun", 14, cqs},
	{"syndromes", "each error provoked, and what is reported", 6, syndromes},
	{"memory", "kinds of memory, keys and windows", 6, memory},
	{"clocks", "the device's clock and timestamps", 3, clocks},
	{"addresses", "each address of the port", 4, addresses},
	{"raw", "Ethernet frames with an EtherType for experiments, to the port's own address", 2, raw},
	{"combining", "copies of requests in the device's registers", 1, combining},
	{"peers", "messages to and from rdma-core's ping-pongs, where they are installed", 4, peers},
	{"speed", "beside perftest, where it is installed", 4, speed},
	{"host", "the kernel's log, the objects and the port's counters, before and after", 1, host},
}

// GroupNames lists the groups, and the subject of each.
func GroupNames() (names, about []string) {
	for _, g := range groups {
		names = append(names, g.name)
		about = append(about, g.about)
	}
	return names, about
}

// A run is a group in progress.
type run struct {
	ctx      context.Context
	o        *Options
	sides    [2]*side // the same one twice in loopback
	g        *Group
	until    time.Time // when the group's time ends
	before   *hostState
	timeouts atomic.Int32

	singing sync.Mutex // guards what canary points to
	canary  *canary
}

// Run runs the groups. It returns an error if a device can't be opened or doesn't reach the
// other. All other failures are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	begin := time.Now()
	hide := newHider()
	hide.host()
	rep := &Report{Format: 1, Between: "loopback", Options: o.Args, Seed: o.Seed, Patience: o.Patience.String()}
	rep.describeHost()
	r := &run{ctx: ctx, o: &o}
	var opened []*side
	refuse := func(err error) (*Report, error) {
		for _, s := range opened {
			err = errors.Join(err, s.dev.Close())
		}
		return nil, err
	}
	for i, name := range o.Devices {
		s, err := openSide(name, o.Port, o.GID, i)
		if err != nil {
			return refuse(err)
		}
		hide.device(s.dev)
		opened = append(opened, s)
		rep.Devices = append(rep.Devices, s.dev.Info().Name())
	}
	r.sides = [2]*side{opened[0], opened[0]}
	if len(opened) == 2 {
		r.sides[1] = opened[1]
		rep.Between = "two devices"
	}
	if err := r.reach(); err != nil {
		return refuse(err)
	}
	r.before = readHost(r.sides)
	selected, shares := 0, 0
	for _, g := range groups {
		if o.selects(g.name) {
			selected++
			shares += g.share
		}
	}
	for _, g := range groups {
		if !o.selects(g.name) {
			continue
		}
		began := time.Now()
		r.g = &Group{Name: g.name, NotThere: []string{}, Failures: []Failure{}, Facts: []Fact{}}
		r.until = began.Add(o.Time * time.Duration(g.share) / time.Duration(max(shares, 1)))
		r.timeouts.Store(0)
		if ctx.Err() == nil {
			r.start(g)
		}
		r.g.Seconds = time.Since(began).Seconds()
		r.g.conclude(ctx.Err() != nil)
		hide.group(r.g)
		rep.Groups = append(rep.Groups, r.g)
	}
	r.retire()
	for _, s := range opened {
		if err := s.dev.Close(); err != nil {
			g := rep.Groups[len(rep.Groups)-1]
			g.Failures = append(g.Failures, Failure{Group: g.Name, Check: "close", Object: rep.Devices[0], Expected: "to close with all its objects", Seen: hide.text(err.Error())})
			g.Status = Failed
		}
	}
	rep.Seconds = time.Since(begin).Seconds()
	rep.conclude()
	return rep, nil
}

// start runs a group's checks: those for EFA, if one of the devices is such an adapter.
func (r *run) start(g group) {
	if r.sides[0].efa == nil && r.sides[1].efa == nil {
		g.run(r)
		return
	}
	run, why := efaGroups(g.name)
	if run == nil {
		r.lacks(why)
		return
	}
	run(r)
}

func (o *Options) selects(name string) bool {
	return len(o.Groups) == 0 || slices.Contains(o.Groups, name)
}

// Limits after which a failing group ends, because more failures give no more information.
const (
	maxFailures = 12
	maxTimeouts = 3
)

// over reports whether the group has to end.
func (r *run) over() bool {
	return r.ctx.Err() != nil || len(r.g.Failures) >= maxFailures || r.timeouts.Load() >= maxTimeouts
}

// timeUp reports whether the group's time has ended, for checks that repeat as often as possible.
func (r *run) timeUp() bool { return r.over() || time.Now().After(r.until) }

// planned sets the planned number of the group, and its unit.
func (r *run) planned(n int, unit string) { r.g.Planned, r.g.Unit = n, unit }

// share returns the end of a share of the group's remaining time: one n-th.
func (r *run) share(n int) time.Time { return time.Now().Add(time.Until(r.until) / time.Duration(n)) }

// An absence is the reason why something can't be tested here.
type absence struct{ why string }

func (a *absence) Error() string { return a.why }

func notThere(format string, args ...any) error { return &absence{fmt.Sprintf(format, args...)} }

// lacks records a missing feature, once in a group.
func (r *run) lacks(what string) {
	if !slices.Contains(r.g.NotThere, what) {
		r.g.NotThere = append(r.g.NotThere, what)
	}
}

// unlessThere turns a refusal of a feature that the device lacks into an absence.
func unlessThere(err error, what string) error {
	if errors.Is(err, verbs.ErrNotSupported) {
		return notThere("%s", what)
	}
	return err
}

// A check is one of a group's checks in progress. Its objects are closed at its end.
type check struct {
	*run
	name    string
	plan    int    // this check's part of the group's planned number, if its feature is there
	object  string // the object under test, for errors that don't name it
	closers []closer
	wcs     []verbs.WC
}

type closer struct {
	what  string
	close func() error
}

// check runs one check and records its result.
func (r *run) check(name string, f func(c *check) error) {
	if r.over() {
		return
	}
	c := &check{run: r, name: name}
	c.report()
	err := c.guarded(f)
	if closing := c.close(); err == nil {
		err = closing
	}
	var absent *absence
	switch {
	case err == nil:
		r.g.Passed++
	case r.ctx.Err() != nil:
	case errors.As(err, &absent):
		r.g.Planned -= c.plan
		r.lacks(strings.TrimPrefix(absent.why, name+": "))
	default:
		c.fail(err)
	}
}

// guarded turns a panic into an error.
func (c *check) guarded(f func(c *check) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Failure{Object: c.what(), Expected: "no panic", Seen: fmt.Sprintf("panic: %v", v), Details: strings.Split(string(debug.Stack()), "\n")}
		}
	}()
	return f(c)
}

// fail records a failure.
func (c *check) fail(err error) {
	var f *Failure
	if !errors.As(err, &f) {
		f = &Failure{Object: c.what(), Expected: "success", Seen: err.Error()}
	}
	f.Group, f.Check = c.g.Name, c.name
	c.g.Failures = append(c.g.Failures, *f)
}

// at sets the object under test.
func (c *check) at(format string, args ...any) { c.object = fmt.Sprintf(format, args...) }

func (c *check) what() string {
	if c.object == "" {
		return c.name
	}
	return c.object
}

// done adds n to the group's count.
func (c *check) done(n int) {
	c.g.Done += n
	c.report()
}

func (c *check) report() {
	if c.o.Progress != nil {
		c.o.Progress(c.g.Name, c.name, c.g.Done, c.g.Planned, c.g.Unit)
	}
}

// closing registers an object to be closed at the check's end.
func (c *check) closing(what string, f func() error) {
	c.closers = append(c.closers, closer{what, f})
}

// close closes the check's objects, the last one first.
func (c *check) close() (err error) {
	for _, x := range slices.Backward(c.closers) {
		if e := x.close(); e != nil && err == nil {
			err = &Failure{Object: x.what, Expected: "to close", Seen: e.Error()}
		}
	}
	c.closers = nil
	return err
}

func (r *Report) describeHost() {
	r.Version, r.Go, r.Arch, r.CPUs = version.Module(), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU()
	r.Kernel, r.Memlock, r.PageSize = kernelRelease(), memlock(), pageSize()
}
