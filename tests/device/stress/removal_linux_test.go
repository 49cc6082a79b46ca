package stress

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// extraDevice creates rxe9, a separate device that the test may remove.
func extraDevice(t *testing.T) {
	t.Helper()
	rdmatest.ExtraRXE(t, "rxe9", "stress0", "192.168.99.1")
}

// TestDeviceRemovedUnderLoad removes a device while queue pairs run on it and goroutines wait.
func TestDeviceRemovedUnderLoad(t *testing.T) {
	rdmatest.CheckLeaks(t)
	extraDevice(t)
	c := rdmatest.Must(verbs.Open("rxe9"))(t)
	p := channelPair(t, c)
	exchange(t, p)
	// The first event after a removal reports it, to each subscriber. Then there are no
	// more.
	first := make(chan verbs.Event)
	var subscribers sync.WaitGroup
	for range 2 {
		events := c.Events(t.Context())
		subscribers.Go(func() {
			n := 0
			for e, err := range events {
				if n++; n == 1 && err == nil {
					first <- e
				} else if n != 2 || !errors.Is(err, verbs.ErrDeviceRemoved) {
					t.Errorf("subscriber's result %d is %+v, %v", n, e, err)
				}
			}
		})
	}
	waits := make(chan error, 2)
	go func() { _, err := p.A.Chan.Wait(t.Context()); waits <- err }()
	go func() { _, err := p.B.CQ.PollWait(t.Context(), make([]verbs.WC, 1)); waits <- err }()

	// This command returns once the device's last user has closed it.
	removal := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "link", "delete", "rxe9")
	timeout := time.After(rdmatest.Patience)
	for range 4 {
		select {
		case e := <-first:
			if e.Type != verbs.EventDeviceFatal {
				t.Errorf("the event is %+v", e)
			}
		case err := <-waits:
			if !errors.Is(err, verbs.ErrDeviceRemoved) {
				t.Errorf("a wait ended with %v", err)
			}
		case <-timeout:
			t.Fatal("no goroutine learned of the removal")
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	for name, f := range map[string]func() error{
		"async event": func() (err error) {
			for _, err = range c.Events(ctx) {
			}
			return err
		},
		"wait":         func() error { _, err := p.A.Chan.Wait(ctx); return err },
		"poll wait":    func() error { _, err := p.B.CQ.PollWait(ctx, make([]verbs.WC, 1)); return err },
		"alloc PD":     func() error { _, err := c.AllocPD(); return err },
		"alloc MR":     func() error { _, err := p.PD.AllocMR(100, verbs.MROptions{}); return err },
		"query device": func() error { _, err := c.QueryDevice(); return err },
		"query QP":     func() error { _, _, err := p.A.QP.Query(); return err },
		"modify QP": func() error {
			return p.A.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState)
		},
		"create CQ": func() error { _, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 1}); return err },
		"post": func() error {
			_, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{1}})
			return err
		},
	} {
		if err := f(); !errors.Is(err, verbs.ErrDeviceRemoved) {
			t.Errorf("%s on a removed device: %v", name, err)
		}
	}
	subscribers.Wait() // before Close, after which the reason is another one
	for _, x := range []interface{ Close() error }{p.A.QP, p.A.CQ, p.A.MR, p.A.Chan} {
		rdmatest.Close(t, x)
	}
	rdmatest.Close(t, c)
	removal.Succeeds(t)
	if _, err := verbs.Open("rxe9"); !errors.Is(err, verbs.ErrNoDevice) {
		t.Errorf("opening a removed device: %v", err)
	}
}

// TestRemovedBehindOtherNode: a container may have a separate node for the device, which
// remains when the device is removed. A program that only polls must learn of the removal
// even so.
func TestRemovedBehindOtherNode(t *testing.T) {
	rdmatest.CheckLeaks(t)
	extraDevice(t)
	var node string
	devices := rdmatest.Must(verbs.Devices())(t)
	for _, d := range devices {
		if d.Name() == "rxe9" {
			node = d.Node()
		}
	}
	var st unix.Stat_t
	rdmatest.Check(t, unix.Stat(node, &st))
	dir := filepath.Dir(node)
	rdmatest.Check(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	unmounted := false
	unmount := func() {
		if !unmounted {
			unmounted = true
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
	defer unmount()
	rdmatest.Check(t, unix.Mknod(node, unix.S_IFCHR|0o600, int(st.Rdev)))
	c := rdmatest.Must(verbs.Open("rxe9"))(t)
	unmount()
	p := channelPair(t, c)
	exchange(t, p)
	ended := make(chan error)
	go func() {
		wc := make([]verbs.WC, 1)
		for {
			if _, err := p.A.CQ.Poll(wc); err != nil {
				ended <- err
				return
			}
			runtime.Gosched()
		}
	}()
	removal := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "link", "delete", "rxe9")
	select {
	case err := <-ended:
		if !errors.Is(err, verbs.ErrDeviceRemoved) {
			t.Errorf("polling ends with %v", err)
		}
	case <-time.After(rdmatest.Patience):
		t.Error("a polling program didn't learn of the removal")
	}
	rdmatest.Close(t, c)
	removal.Succeeds(t)
}

// TestCloseBesideVerbs: one call of Close is enough, whatever else is running.
func TestCloseBesideVerbs(t *testing.T) {
	for range 20 {
		c := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
		p := channelPair(t, c)
		var group sync.WaitGroup
		var begun sync.WaitGroup
		for _, f := range []func() error{
			func() error { _, _, err := p.A.QP.Query(); return err },
			func() error { _, err := c.QueryDevice(); return err },
			func() error { _, err := p.PD.AllocMR(4096, verbs.MROptions{Access: rdmatest.All}); return err },
			func() error { _, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 4}); return err },
			func() error { _, err := p.B.CQ.PollWait(t.Context(), make([]verbs.WC, 1)); return err },
		} {
			begun.Add(1)
			group.Go(func() {
				for i := 0; ; i++ {
					if i == 0 {
						begun.Done()
					}
					if err := f(); err != nil {
						if !errors.Is(err, verbs.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		begun.Wait()
		rdmatest.Close(t, c)
		group.Wait()
	}
}

// TestPortEvents takes the port's link down and up.
func TestPortEvents(t *testing.T) {
	extraDevice(t)
	c := rdmatest.Must(verbs.Open("rxe9"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	events := c.Events(ctx)
	wait := func(want verbs.EventType) {
		t.Helper()
		for e, err := range events {
			if err != nil {
				t.Fatalf("waiting for %v: %v", want, err)
			}
			if e.Port != 1 || e.QP != nil {
				t.Errorf("%+v", e)
			}
			if e.Type == want {
				return
			}
			// Other events, such as GID changes, come too.
		}
	}
	rdmatest.Command(t, "ip link set stress0 down")
	wait(verbs.EventPortErr)
	if a, err := c.QueryPort(1); err != nil || a.State == verbs.PortActive {
		t.Errorf("%v, %v", a.State, err)
	}
	rdmatest.Command(t, "ip link set stress0 up")
	wait(verbs.EventPortActive)
	rdmatest.Close(t, c)
	rdmatest.Command(t, rdmatest.Program(t, "ibv")+" link delete rxe9")
}
