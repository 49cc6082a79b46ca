package faults

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

// A loss is a way to lose a device and to get it back.
type loss struct {
	name string

	// registers: memory is registered meanwhile. A registration that the device doesn't
	// complete blocks its caller in the kernel for ever, at least up to Linux 6.1
	// (mlx5r_umr_post_send_wait).
	registers bool

	// away returns once the kernel has noticed. EventDeviceFatal closes told.
	away func(t *testing.T, address string, told <-chan struct{})
	back func(t *testing.T)
}

// victim is the index of the HCA that is lost.
const victim = 1

var device = rdmatest.Devices[victim]

var losses = []loss{
	{
		name:      "removed in good order",
		registers: true,
		away:      func(t *testing.T, address string, _ <-chan struct{}) { remove(t, address) },
		back:      func(t *testing.T) { rescan(t) },
	},
	{
		name: "pulled out",
		away: func(t *testing.T, address string, told <-chan struct{}) {
			ask(t, control.Request{Do: "vanish", HCA: victim})
			// The driver notices by itself. Until then, each command takes a minute to time out.
			select {
			case <-told:
			case <-time.After(2 * rdmatest.Patience):
				t.Error("no event reports that the device is gone")
			}
			remove(t, address)
		},
		back: func(t *testing.T) {
			ask(t, control.Request{Do: "return", HCA: victim})
			rescan(t)
		},
	},
	{
		// The driver resets it, and removes the device to do so.
		name: "broken",
		away: func(t *testing.T, _ string, _ <-chan struct{}) { ask(t, control.Request{Do: "fatal", HCA: victim}) },
		back: func(*testing.T) {},
	},
}

func write(t *testing.T, file string) {
	t.Helper()
	rdmatest.Check(t, os.WriteFile(file, []byte("1"), 0))
}

// remove makes the kernel unbind a device. The write returns once the device is unbound.
func remove(t *testing.T, address string) {
	t.Helper()
	write(t, "/sys/bus/pci/devices/"+address+"/remove")
}

func rescan(t *testing.T) {
	t.Helper()
	write(t, "/sys/bus/pci/rescan")
}

// returned opens the device once it is back with an active port.
func returned(t *testing.T) *verbs.Device {
	t.Helper()
	for deadline := time.Now().Add(4 * rdmatest.Patience); ; time.Sleep(50 * time.Millisecond) {
		c, err := verbs.Open(device)
		if err == nil {
			var port *verbs.PortAttr
			if port, err = c.QueryPort(rdmatest.Port); err == nil && port.State == verbs.PortActive {
				return c
			}
			rdmatest.Close(t, c)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the device is not back: %v", err)
		}
	}
}

// A load is a set of goroutines that use a device until they learn that it is gone.
type load struct {
	group  sync.WaitGroup
	rounds [3]atomic.Int64 // of the goroutines that move data
	stop   atomic.Bool
}

// run calls f until it reports that the device is gone. Any other error fails the test.
func (l *load) run(t *testing.T, name string, f func() error) {
	l.group.Go(func() {
		for !l.stop.Load() {
			if err := f(); errors.Is(err, verbs.ErrDeviceRemoved) {
				return
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
		}
		t.Errorf("%s never learned of it", name)
	})
}

// until calls f until it returns completions or an error.
func (l *load) until(f func() (int, error)) error {
	for !l.stop.Load() {
		if n, err := f(); n > 0 || err != nil {
			return err
		}
		time.Sleep(10 * time.Microsecond)
	}
	return nil
}

// traffic sends from A to B forever. Requests may be flushed while the kernel destroys
// the queue pairs. That is no error: traffic continues to wait for completions.
func (l *load) traffic(t *testing.T, name string, rounds *atomic.Int64, p *rdmatest.Pair, wait func(cq *verbs.CQ, wc []verbs.WC) (int, error)) {
	broken := false
	var wc [1]verbs.WC
	one := func(cq *verbs.CQ) error {
		err := l.until(func() (int, error) { return wait(cq, wc[:]) })
		broken = broken || err == nil && wc[0].Status != verbs.WCSuccess
		return err
	}
	l.run(t, name, func() error {
		if broken {
			return one(p.B.CQ)
		}
		if _, err := p.B.QP.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{p.B.MR.SGE(0, 4096)}}); err != nil {
			return err
		}
		if _, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 4096)}}); err != nil {
			return err
		}
		if err := one(p.A.CQ); err != nil || broken {
			return err
		}
		rounds.Add(1)
		return one(p.B.CQ)
	})
}

// TestLost loses the device, in each way, while queue pairs run on it and goroutines
// wait. All of them learn of the loss, the remaining objects can be closed, and the device
// that comes back works as a new one.
func TestLost(t *testing.T) {
	for i, how := range losses {
		if testing.Short() && i > 1 {
			break
		}
		t.Run(how.name, func(t *testing.T) {
			fds := rdmatest.FDs(t)
			c := returned(t)
			path := rdmatest.Must(filepath.EvalSymlinks("/sys/class/infiniband/" + device + "/device"))(t)
			spec := rdmatest.Default()
			spec.Channel = true
			polled, slept, idle := rdmatest.PairOn(t, c, spec), rdmatest.PairOn(t, c, spec), rdmatest.PairOn(t, c, spec)

			l := new(load)
			l.traffic(t, "poll", &l.rounds[0], polled, (*verbs.CQ).Poll)
			l.traffic(t, "poll wait", &l.rounds[1], slept, func(cq *verbs.CQ, wc []verbs.WC) (int, error) {
				return cq.PollWait(t.Context(), wc)
			})
			l.run(t, "make", func() error {
				l.rounds[2].Add(1)
				err := makeAndClose(c, polled.PD, how.registers)
				if errors.Is(err, syscall.ENOLINK) || errors.Is(err, syscall.ETIMEDOUT) {
					return nil // the driver can't reach the device; the removal follows
				}
				return err
			})
			l.run(t, "wait", func() error { _, err := idle.A.Chan.Wait(t.Context()); return err })
			l.run(t, "idle poll wait", func() error {
				_, err := idle.B.CQ.PollWait(t.Context(), make([]verbs.WC, 1))
				return err
			})
			told := make(chan struct{})
			var once sync.Once
			events := c.Events(t.Context())
			l.run(t, "async event", func() (err error) {
				var e verbs.Event
				for e, err = range events {
					if err == nil && e.Type == verbs.EventDeviceFatal {
						once.Do(func() { close(told) })
					}
				}
				return err
			})

			working := func() bool {
				for i := range l.rounds {
					if l.rounds[i].Load() < 20 {
						return false
					}
				}
				return true
			}
			for deadline := time.Now().Add(rdmatest.Patience); !working(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) || t.Failed() {
					t.Fatal("the load doesn't run")
				}
			}
			how.away(t, filepath.Base(path), told)

			ended := make(chan struct{})
			go func() { l.group.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(4 * rdmatest.Patience):
				l.stop.Store(true)
				t.Fatal("a goroutine didn't learn of it")
			}
			select {
			case <-told:
			default:
				t.Error("no event reported that the device is gone")
			}
			refused(t, c, idle)
			for _, p := range []*rdmatest.Pair{polled, slept, idle} {
				for _, e := range []*rdmatest.End{p.A, p.B} {
					for _, x := range []interface{ Close() error }{e.QP, e.CQ, e.Chan, e.MR} {
						rdmatest.Close(t, x)
					}
				}
				rdmatest.Close(t, p.PD)
			}
			rdmatest.Close(t, c)
			if n := rdmatest.FDs(t); n != fds {
				t.Errorf("%d file descriptors were open, now %d", fds, n)
			}

			how.back(t)
			c = returned(t)
			again := rdmatest.PairOn(t, c, spec)
			again.B.Recv(t, 1, 0, 64)
			again.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte("back")})
			rdmatest.PollOK(t, again.A.CQ, 1)
			rdmatest.PollOK(t, again.B.CQ, 1)
			if got := string(again.B.MR.Bytes()[:4]); got != "back" {
				t.Errorf("received %q", got)
			}
			rdmatest.Close(t, c)
		})
	}
}

// makeAndClose creates and closes an object of the device.
func makeAndClose(c *verbs.Device, pd *verbs.PD, mr bool) error {
	var x interface{ Close() error }
	var err error
	if mr {
		x, err = pd.AllocMR(1<<16, verbs.MROptions{Access: rdmatest.All})
	} else {
		x, err = c.CreateCQ(verbs.CQOptions{MaxCQE: 16})
	}
	if err != nil {
		return err
	}
	return x.Close()
}

// refused checks that every verb on a lost device fails with the reason.
func refused(t *testing.T, c *verbs.Device, p *rdmatest.Pair) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	for name, f := range map[string]func() error{
		"async event": func() (err error) {
			for _, err = range c.Events(ctx) {
			}
			return err
		},
		"wait":         func() error { _, err := p.A.Chan.Wait(ctx); return err },
		"poll":         func() error { _, err := p.B.CQ.Poll(make([]verbs.WC, 1)); return err },
		"poll wait":    func() error { _, err := p.B.CQ.PollWait(ctx, make([]verbs.WC, 1)); return err },
		"arm":          func() error { return p.B.CQ.Arm(false) },
		"alloc PD":     func() error { _, err := c.AllocPD(); return err },
		"alloc MR":     func() error { _, err := p.PD.AllocMR(100, verbs.MROptions{}); return err },
		"query device": func() error { _, err := c.QueryDevice(); return err },
		"query QP":     func() error { _, _, err := p.A.QP.Query(); return err },
		"create CQ":    func() error { _, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 1}); return err },
		"post": func() error {
			_, err := p.A.QP.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte{1}})
			return err
		},
		"post receive": func() error { _, err := p.A.QP.PostRecv(verbs.RecvWR{}); return err },
	} {
		if err := f(); !errors.Is(err, verbs.ErrDeviceRemoved) {
			t.Errorf("%s on a device that is gone: %v", name, err)
		}
	}
}
