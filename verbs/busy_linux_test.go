package verbs

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// TestCloseBesideBatch: while a batch is being built, closing a QP or moving it to RESET
// fails at once.
func TestCloseBesideBatch(t *testing.T) {
	for _, single := range []bool{false, true} {
		d, k := fakeContext(t)
		x := makeFakes(t, d)
		x.qp.sendMu.single = single
		x.qp.Sends(func(b *SendBuilder) error {
			b.Send(1, 0, SGE{})
			done := make(chan [2]error)
			go func() { // another goroutine than the one that builds the batch
				closed := x.qp.Close()
				done <- [2]error{closed, x.qp.Modify(QPAttr{State: QPReset}, QPAttrState)}
			}()
			for i, err := range <-done {
				if !errors.Is(err, ErrBusy) {
					t.Errorf("single %v, %d: %v, want ErrBusy", single, i, err)
				}
			}
			if err := d.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("single %v: closing the context: %v, want ErrBusy", single, err)
			}
			if n := k.count("destroy_qp") + k.count("modify_qp"); n != 0 {
				t.Errorf("single %v: the kernel was asked %d times", single, n)
			}
			return errors.New("no")
		})
		if err := x.qp.Close(); err != nil || k.count("destroy_qp") != 1 {
			t.Errorf("single %v: after the batch: %v", single, err)
		}
	}
}

// TestCloseWaitsForVerbs: one Close of the Device is enough, whatever verbs run. An object
// that a verb creates meanwhile is closed, too.
func TestCloseWaitsForVerbs(t *testing.T) {
	for range 10 {
		for _, tt := range []struct {
			verb   string
			before string // the last step of Close before it must wait
			run    func(*Device, fakeThings) error
		}{
			{"query_device_ex", "dealloc_pd", func(d *Device, _ fakeThings) error { _, err := d.QueryDevice(); return err }},
			{"query_qp", "dealloc_mw", func(_ *Device, x fakeThings) error { _, _, err := x.qp.Query(); return err }},
			{"modify_qp", "dealloc_mw", func(_ *Device, x fakeThings) error { return x.qp.Modify(QPAttr{State: QPReset}, QPAttrState) }},
			{"alloc_pd", "dealloc_pd", func(d *Device, _ fakeThings) error { _, err := d.AllocPD(); return err }},
			{"create_qp", "destroy_srq", func(_ *Device, x fakeThings) error {
				_, err := x.pd.CreateQP(QPOptions{Type: UC, SendCQ: x.cq, RecvCQ: x.cq})
				return err
			}},
			{"reg_mr", "dereg_mr", func(_ *Device, x fakeThings) error { _, err := x.pd.RegMR(make([]byte, 10), MROptions{}); return err }},
			{"destroy_qp", "dealloc_mw", func(_ *Device, x fakeThings) error { return x.qp.Close() }},
		} {
			closeBeside(t, tt.verb, tt.before, tt.run)
		}
	}
}

func closeBeside(t *testing.T, verb, before string, run func(*Device, fakeThings) error) {
	t.Helper()
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	running, proceed := make(chan struct{}), make(chan struct{})
	k.answerTo(verb, func(*fakeCall) error {
		k.answerTo(verb, nil)
		close(running)
		<-proceed
		return errPassOn
	})
	done := make(chan error, 3)
	go func() { done <- run(d, x) }()
	<-running
	for range 2 {
		go func() { done <- d.Close() }()
	}
	yield(func() bool { return k.count(before) > 0 })
	for range 100 {
		runtime.Gosched() // so that Close begins to wait
	}
	if err := d.begin("begin"); !errors.Is(err, ErrClosed) {
		t.Errorf("%s: what begins while closing: %v", verb, err)
	}
	close(proceed)
	for range 3 {
		if err := soon(t, done); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	for _, p := range [][2]string{{"create_qp", "destroy_qp"}, {"reg_mr", "dereg_mr"}, {"alloc_pd", "dealloc_pd"}} {
		if made, ended := k.count(p[0]), k.count(p[1]); made == 0 || made != ended {
			t.Errorf("%s: %d %s, %d %s", verb, made, p[0], ended, p[1])
		}
	}
}

// TestCloseOrder: the remaining objects are closed, users before the objects that they use.
func TestCloseOrder(t *testing.T) {
	d, k := fakeContext(t)
	makeFakes(t, d)
	made := len(k.calls)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{"dealloc_mw", "destroy_qp", "destroy_srq", "destroy_cq", "dereg_mr", "dealloc_pd"}
	if got := k.calls[made:]; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestBusyUntilUnused: closing an object in use returns ErrBusy, and succeeds once it isn't in use.
func TestBusyUntilUnused(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	for _, o := range []interface{ Close() error }{x.pd, x.cq, x.ch} {
		if err := o.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("%T: %v, want ErrBusy", o, err)
		}
	}
	running, proceed := make(chan struct{}), make(chan struct{})
	k.answerTo("query_srq", func(*fakeCall) error {
		close(running)
		<-proceed
		return errPassOn
	})
	done := make(chan error)
	go func() { _, err := x.srq.Query(); done <- err }()
	<-running
	if err := x.srq.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("beside a verb: %v, want ErrBusy", err)
	}
	close(proceed)
	if err := soon(t, done); err != nil {
		t.Error(err)
	}
	for _, o := range x.all() {
		if err := o.Close(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
		if err := o.Close(); err != nil {
			t.Errorf("%T, again: %v", o, err)
		}
	}
}

// TestQueryBesideModify: a Query that began before a Modify doesn't overwrite the Modify's result.
func TestQueryBesideModify(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	x.qp.typ = UD // RTR needs nothing
	x.qp.setState(QPInit)
	done := make(chan error, 1)
	k.answerTo("query_qp", func(f *fakeCall) error {
		go func() { done <- x.qp.Modify(QPAttr{State: QPRTR}, QPAttrState) }()
		if x.qp.modify.TryLock() { // the Modify may run now, so wait for it
			x.qp.modify.Unlock()
			done <- <-done
		}
		return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsQueryQpResp{QpState: uint8(QPInit)})
	})
	if a, _, err := x.qp.Query(); err != nil || a.State != QPInit {
		t.Errorf("%v, %v", a.State, err)
	}
	if err := soon(t, done); err != nil {
		t.Error(err)
	}
	if s := x.qp.State(); s != QPRTR {
		t.Errorf("the state is %v, want RTR", s)
	}
}

// TestOpenedIsKept: an unreferenced Device stays alive until it is closed, since the device
// may write to its memory, even when nothing watches the device any more.
func TestOpenedIsKept(t *testing.T) {
	var device weak.Pointer[Device]
	func() {
		d, k := openFake(t)
		makeFakes(t, d)
		k.answerTo("query_device", refuse(unix.EIO))
		d.isGone()
		<-d.events.ended
		device = weak.Make(d)
	}()
	for range 3 {
		runtime.GC()
	}
	d := device.Value()
	if d == nil {
		t.Fatal("it was forgotten")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := opened.Load(d); ok {
		t.Error("it is kept after Close")
	}
}
