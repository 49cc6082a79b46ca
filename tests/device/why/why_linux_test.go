// Package why plants hangs into programs in Go and C, and has `ibv why` find their causes. Programs
// that are well, busy or idle, have no finding.
package why

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/umad"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	rdmatest.Main(m, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth)
}

var device = rdmatest.Device

// A report is what the tests need of the JSON.
type report struct {
	Findings []struct {
		ID       string
		QPs      []uint32
		Guilty   string
		What     string
		Evidence []struct{ Source, Value string }
	}
	QPs []struct {
		Number    uint32
		Condition string
		State     string
	}
	Unseen []string
}

// why runs ibv why, and checks its status.
func why(t *testing.T, args ...string) *report {
	t.Helper()
	return whyBy(t, nil, args...)
}

// nobody runs a command without rights.
var nobody = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}

// whyBy is why, run by another command.
func whyBy(t *testing.T, by []string, args ...string) *report {
	t.Helper()
	line := slices.Concat(by, []string{rdmatest.Program(t, "ibv"), "why", "--json", "-i", "2s"}, args)
	p := rdmatest.StartCmd(t, exec.Command(line[0], line[1:]...))
	status := p.Wait().ExitCode()
	r := new(report)
	if err := json.Unmarshal([]byte(p.Stdout()), r); err != nil || p.Stderr() != "" {
		t.Fatalf("%v: %v", err, p)
	}
	if want := min(len(r.Findings), 1); status != want {
		t.Fatalf("status %d, want %d: %v", status, want, p)
	}
	return r
}

// found returns the findings, with names for queue pairs that have some.
func (r *report) found(names map[uint32]string) string {
	var all []string
	for _, f := range r.Findings {
		text := f.ID
		for _, n := range f.QPs {
			if name := names[n]; name != "" {
				text += " " + name
			}
		}
		all = append(all, text)
	}
	return sorted(strings.Join(all, ", "))
}

// sorted sorts findings.
func sorted(found string) string {
	all := strings.Split(found, ", ")
	slices.Sort(all)
	return strings.Join(all, ", ")
}

var (
	here     = strconv.Itoa(os.Getpid())
	mlx5     = rdmatest.KindOf() == rdmatest.MLX5
	ethernet = rdmatest.RoCE
	netDev   = rdmatest.NetDev(device)
	send     = verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
)

// A plant is a hang.
type plant struct {
	name  string
	on    bool // this device
	quick bool // also in a quick run
	spec  func(*rdmatest.Spec)
	do    func(t *testing.T, p *rdmatest.Pair)
	want  string // the findings, with the ends A and B
	peer  string // with --peer: a finding, and the beginning of the sentence that names the guilty side
}

func sends(t *testing.T, p *rdmatest.Pair) {
	wr := send
	wr.SGL = []verbs.SGE{p.A.MR.SGE(0, 8)}
	p.A.Send(t, wr)
}

// exchange sends a message that B doesn't poll.
func exchange(t *testing.T, p *rdmatest.Pair) {
	p.B.Recv(t, 1, 0, 8)
	sends(t, p)
	rdmatest.PollOK(t, p.A.CQ, 1)
}

func shell(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", line, err, out)
	}
}

// ask asks the adapter of the device, and undoes it at the end.
func ask(t *testing.T, r, undo control.Request) {
	t.Helper()
	rdmatest.Check(t, r.Ask())
	t.Cleanup(func() { rdmatest.Check(t, undo.Ask()) })
}

func toErr(t *testing.T, e *rdmatest.End) {
	rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.QPAttrState))
}

// active waits until the port is as it was.
func active(t *testing.T, dev *verbs.Device) {
	rdmatest.UntilNot(t, "the port is down", func() bool {
		return rdmatest.Must(dev.QueryPort(rdmatest.Port))(t).State != verbs.PortActive
	})
}

func plants() []plant {
	port := func(up bool) control.Request { return control.Request{Do: "port", Up: up} }
	return []plant{
		{"no receive posted", true, true, nil, sends, "no-receive B, peer-not-ready A", "peer-not-ready 127.0.0.1: "},
		{"no receive posted to the SRQ", true, false, func(s *rdmatest.Spec) { s.SRQ = true }, sends, "no-receive B, peer-not-ready A", "peer-not-ready 127.0.0.1: "},
		{"peer gone", true, true, nil, func(t *testing.T, p *rdmatest.Pair) {
			rdmatest.Check(t, p.B.QP.Close())
			sends(t, p)
		}, "no-ack A", "no-ack 127.0.0.1: the queue pair is gone"},
		{"peer never connected", true, false, func(s *rdmatest.Spec) { s.B.Idle = true }, sends, "no-ack A", "no-ack 127.0.0.1: the queue pair is gone"},
		{"peer in error", true, true, nil, func(t *testing.T, p *rdmatest.Pair) {
			toErr(t, p.B)
			sends(t, p)
		}, "in-error B, no-ack A", "no-ack 127.0.0.1: QP"},
		{"in error", true, false, func(s *rdmatest.Spec) {
			s.A.Tune = func(a *verbs.QPAttr) { a.Timeout, a.RetryCount = 8, 1 }
		}, func(t *testing.T, p *rdmatest.Pair) {
			rdmatest.Check(t, p.B.QP.Close())
			sends(t, p)
			rdmatest.UntilNot(t, "the request hasn't failed", func() bool {
				a, _, err := p.A.QP.Query()
				rdmatest.Check(t, err)
				return a.State != verbs.QPErr
			})
		}, "in-error A", "in-error 127.0.0.1: the queue pair is gone"},
		{"port down", true, false, nil, func(t *testing.T, p *rdmatest.Pair) {
			t.Cleanup(func() { active(t, p.Ctx) })
			if ethernet {
				shell(t, "ip link set "+netDev+" down")
				t.Cleanup(func() { shell(t, "ip link set "+netDev+" up") })
			} else {
				ask(t, port(false), port(true))
			}
			rdmatest.UntilNot(t, "the port is up", func() bool {
				return rdmatest.Must(p.Ctx.QueryPort(rdmatest.Port))(t).State == verbs.PortActive
			})
		}, "port-down A B", "port-down here"},
		{"completions not polled", mlx5, true, func(s *rdmatest.Spec) { s.CQE = 15 }, func(t *testing.T, p *rdmatest.Pair) {
			for range 15 {
				exchange(t, p)
			}
		}, "not-polled B", "not-polled 127.0.0.1"},
		{"CQ overrun", mlx5, false, func(s *rdmatest.Spec) { s.CQE = 7 }, func(t *testing.T, p *rdmatest.Pair) {
			for i := range 9 {
				p.B.Recv(t, uint64(i), 0, 8)
			}
			for range 9 {
				wr := send
				wr.Flags, wr.SGL = 0, []verbs.SGE{p.A.MR.SGE(0, 8)}
				p.A.Send(t, wr)
			}
		}, "cq-overrun B, no-ack A", "no-ack 127.0.0.1: CQ"},
		{"network lost", mlx5, true, nil, func(t *testing.T, p *rdmatest.Pair) {
			p.B.Recv(t, 1, 0, 8)
			ask(t, control.Request{Do: "faults", Drop: 1}, control.Request{Do: "faults"})
			sends(t, p)
		}, "no-ack A", "no-ack network: "},
		{"drained", !mlx5, false, nil, func(t *testing.T, p *rdmatest.Pair) {
			rdmatest.Check(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPSQD}, verbs.QPAttrState))
			sends(t, p)
		}, "draining A", "draining here"},
		{"doorbell lost", mlx5, false, func(s *rdmatest.Spec) { s.Cap.MaxSendWR = 64 }, func(t *testing.T, p *rdmatest.Pair) {
			const deaf = 37 // the adapter doesn't hear the doorbell of this block
			for range deaf {
				exchange(t, p)
				rdmatest.PollOK(t, p.B.CQ, 1)
			}
			ask(t, control.Request{Do: "mutate", Kind: "doorbell-deaf"}, control.Request{Do: "mutate"})
			sends(t, p)
		}, "not-taken A", "not-taken here"},
		{"armed once", mlx5, false, func(s *rdmatest.Spec) { s.Channel = true }, func(t *testing.T, p *rdmatest.Pair) {
			rdmatest.Check(t, p.B.CQ.Arm(false))
			exchange(t, p)
			exchange(t, p)
			rdmatest.PollOK(t, p.B.CQ, 1)
			sleeper(t, p.Ctx)
		}, "not-armed B", "not-armed 127.0.0.1"},
		{"sleeping on another channel", mlx5, false, func(s *rdmatest.Spec) { s.Channel = true }, func(t *testing.T, p *rdmatest.Pair) {
			rdmatest.Check(t, p.B.CQ.Arm(false))
			exchange(t, p)
			sleeper(t, p.Ctx)
		}, "not-woken B", "not-woken 127.0.0.1"},
		{"address removed", mlx5 && ethernet, false, nil, func(t *testing.T, p *rdmatest.Pair) {
			const addr = "10.99.0.1"
			shell(t, "ip address add "+addr+"/24 dev "+netDev)
			remove := sync.OnceFunc(func() { shell(t, "ip address del "+addr+"/24 dev "+netDev) })
			t.Cleanup(remove)
			from := gid(t, p.Ctx, verbs.GIDSelector{Addr: netip.MustParseAddr(addr), Type: verbs.GIDTypeRoCEv2, Port: rdmatest.Port})
			again(t, p, func(a *verbs.QPAttr) { a.AH.SGIDIndex = from.Index })
			remove()
			rdmatest.UntilNot(t, "the GID is there", func() bool {
				e, err := p.Ctx.QueryGID(rdmatest.Port, from.Index)
				return err == nil && e.GID == from.GID
			})
			sends(t, p)
		}, "gid-gone A", "gid-gone here"},
		{"removed from the partition", mlx5 && !ethernet, false, nil, func(t *testing.T, p *rdmatest.Pair) {
			partitions(t, p.Ctx, 0x8001)
			leave := sync.OnceFunc(func() { partitions(t, p.Ctx) })
			t.Cleanup(leave)
			member := func(a *verbs.QPAttr) { a.PKeyIndex = 1 }
			reconnect(t, p, member, member)
			exchange(t, p)
			leave()
			p.B.Recv(t, 1, 0, 8)
			sends(t, p)
		}, "pkey-gone A", "pkey-gone here"},
		{"paused by flow control", mlx5, false, nil, func(t *testing.T, p *rdmatest.Pair) {
			p.B.Recv(t, 1, 0, 8)
			ask(t, control.Request{Do: "pause", Up: true}, control.Request{Do: "pause"})
			sends(t, p)
		}, "paused A", "paused network: "},
		{"MTU made smaller", mlx5 && ethernet, false, nil, func(t *testing.T, p *rdmatest.Pair) {
			mtu := rdmatest.Must(net.InterfaceByName(netDev))(t).MTU
			rdmatest.Check(t, p.B.QP.Close())
			shell(t, "ip link set mtu 700 dev "+netDev)
			t.Cleanup(func() { shell(t, fmt.Sprintf("ip link set mtu %d dev %s", mtu, netDev)) })
			sends(t, p)
		}, "mtu-large A", "mtu-large here"},
	}
}

// partitions gives the port's table of P_Keys other entries from 1 on, as a subnet manager does.
func partitions(t *testing.T, dev *verbs.Device, keys ...uint16) {
	t.Helper()
	shell(t, "modprobe ib_umad")
	port := rdmatest.Must(umad.Open(device, rdmatest.Port))(t)
	defer rdmatest.Close(t, port)
	agent := rdmatest.Must(port.Register(umad.AgentOptions{Class: umad.ClassDirected}))(t)
	const table, data, entries = 0x16, 64, 32
	mad := make([]byte, umad.Size)
	h := umad.Header{Class: umad.ClassDirected, Version: 1, Method: umad.MethodSet, Attr: table}
	h.Put(mad)
	binary.BigEndian.PutUint32(mad[32:], umad.PermissiveLID<<16|umad.PermissiveLID) // to this port
	keys = append([]uint16{0xffff}, keys...)
	for i, key := range keys {
		binary.BigEndian.PutUint16(mad[data+2*i:], key)
	}
	rdmatest.Must(agent.Do(context.Background(), umad.Message{Addr: umad.Addr{LID: umad.PermissiveLID}, MAD: mad, Timeout: rdmatest.Patience}))(t)
	keys = append(keys, make([]uint16, entries-len(keys))...)
	rdmatest.UntilNot(t, "the driver doesn't know the partitions", func() bool {
		return slices.ContainsFunc([]int{0, 1}, func(i int) bool {
			return rdmatest.Must(dev.QueryPKey(rdmatest.Port, i))(t) != keys[i]
		})
	})
}

// again connects A once more, to a queue pair that doesn't answer.
func again(t *testing.T, p *rdmatest.Pair, tune func(*verbs.QPAttr)) {
	t.Helper()
	n := p.B.QP.Num()
	rdmatest.Check(t, p.B.QP.Close())
	rdmatest.Check(t, p.A.QP.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState))
	p.A.Spec.Tune = tune
	p.ToRTS(t, p.A, n)
}

// reconnect connects both ends once more.
func reconnect(t *testing.T, p *rdmatest.Pair, a, b func(*verbs.QPAttr)) {
	t.Helper()
	p.A.Spec.Tune, p.B.Spec.Tune = a, b
	for _, e := range []*rdmatest.End{p.A, p.B} {
		rdmatest.Check(t, e.QP.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.QPAttrState))
	}
	p.ToRTS(t, p.A, p.B.QP.Num())
	p.ToRTS(t, p.B, p.A.QP.Num())
}

// gid waits for a GID.
func gid(t *testing.T, dev *verbs.Device, s verbs.GIDSelector) (e verbs.GIDEntry) {
	t.Helper()
	rdmatest.UntilNot(t, fmt.Sprintf("there is no GID %v", s), func() bool {
		var err error
		e, err = dev.FindGID(s)
		return err != nil
	})
	return e
}

// sleeper has a thread sleep in a completion channel without a completion queue, as a program in C
// sleeps, until the test ends.
func sleeper(t *testing.T, dev *verbs.Device) {
	t.Helper()
	c := rdmatest.Must(dev.CreateCompChannel())(t)
	fd := -1
	rdmatest.Check(t, rdmatest.Must(c.SyscallConn())(t).Control(func(own uintptr) { fd, _ = unix.Dup(int(own)) }))
	rdmatest.Check(t, unix.SetNonblock(fd, false))
	thread, done := make(chan int), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		thread <- unix.Gettid()
		_, _ = unix.Read(fd, make([]byte, 8))
	}()
	tid := <-thread
	t.Cleanup(func() {
		// The read that a signal interrupts begins anew, and no longer blocks.
		rdmatest.Check(t, unix.SetNonblock(fd, true))
		rdmatest.UntilNot(t, "the thread sleeps", func() bool {
			select {
			case <-done:
				return false
			default:
				_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // it may have ended
				return true
			}
		})
		rdmatest.Check(t, unix.Close(fd))
	})
	rdmatest.UntilNot(t, "the thread doesn't sleep yet", func() bool {
		where := rdmatest.Must(os.ReadFile(fmt.Sprintf("/proc/self/task/%d/wchan", tid)))(t)
		return !strings.HasPrefix(string(where), "ib_uverbs")
	})
}

func TestHangs(t *testing.T) {
	for _, x := range plants() {
		if !x.on || testing.Short() && !x.quick {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			s := rdmatest.Default()
			if x.spec != nil {
				x.spec(&s)
			}
			p := rdmatest.NewPair(t, s)
			names := map[uint32]string{p.A.QP.Num(): "A", p.B.QP.Num(): "B"}
			x.do(t, p)
			r := why(t, here)
			// On a slow machine, A has spent its retries before.
			got, late := r.found(names), strings.Replace(x.want, "no-ack A", "in-error A", 1)
			if got != x.want && got != sorted(late) {
				t.Errorf("found %q, want %q: %+v", got, x.want, r)
			}
			if testing.Short() && !mlx5 {
				return
			}
			serve(t)
			r = why(t, "--peer", "127.0.0.1", here)
			id, guilty, _ := strings.Cut(x.peer, " ")
			for _, f := range r.Findings {
				switch {
				case !slices.Contains(f.QPs, p.A.QP.Num()):
				case f.ID == id && strings.HasPrefix(f.Guilty, guilty), f.ID == "in-error" && id == "no-ack":
					return
				case f.ID == id:
					t.Errorf("%s is blamed on %q, want %q", id, f.Guilty, guilty)
					return
				}
			}
			t.Errorf("with the peer: %+v", r)
		})
	}
}

// TestWhyRoCEv1: one end sends as RoCE v1, and the other takes v2 only.
func TestWhyRoCEv1(t *testing.T) {
	dev := rdmatest.Must(verbs.Open(fmt.Sprintf("mlx5_%d", slices.Index(strings.Split(os.Getenv(rdmatest.ProfileVariable), ","), "rocev1"))))(t)
	t.Cleanup(func() { rdmatest.Close(t, dev) })
	p := rdmatest.PairOn(t, dev, rdmatest.Default())
	v2 := func(*verbs.QPAttr) {} // as it is
	v1 := func(a *verbs.QPAttr) {
		a.AH.SGIDIndex = gid(t, dev, verbs.GIDSelector{Addr: p.GID.GID.Addr().Unmap(), Type: verbs.GIDTypeRoCEv1, Port: rdmatest.Port}).Index
		a.Timeout = 20 // the retries outlast the looks
	}
	check := func(want string) {
		t.Helper()
		r := why(t, here)
		if got := r.found(map[uint32]string{p.A.QP.Num(): "A", p.B.QP.Num(): "B"}); got != want {
			t.Errorf("found %q, want %q: %+v", got, want, r)
		}
	}
	works := func(times int) {
		t.Helper()
		for range times {
			exchange(t, p)
			rdmatest.PollOK(t, p.B.CQ, 1)
		}
	}
	works(1)
	reconnect(t, p, v1, v2)
	p.B.Recv(t, 1, 0, 8)
	sends(t, p)
	check("gid-type A")
	// Where v1 has worked, it isn't the cause.
	reconnect(t, p, v1, v1)
	works(40)
	check("")
	rdmatest.Check(t, p.B.QP.Close())
	sends(t, p)
	check("no-ack A")
}

var _ = rdmatest.Test(TestWhyRoCEv1, rdmatest.OnMLX5Eth, rdmatest.Mixed)

// A victim is a run of c/victim.c.
type victim struct {
	*rdmatest.Process
	in    io.WriteCloser
	names map[uint32]string // of its queue pairs
}

func newVictim(t *testing.T, mode string) *victim {
	t.Helper()
	index := 0
	if ethernet {
		index = gidIndex(t)
	}
	c := exec.Command(rdmatest.CProgram(t, "c/victim.c"), device, strconv.Itoa(index), mode)
	in := rdmatest.Must(c.StdinPipe())(t)
	v := &victim{rdmatest.StartCmd(t, c), in, nil}
	var a, b uint32
	if _, err := fmt.Sscan(v.Line(t), &a, &b); err != nil {
		t.Fatalf("%v: %v", err, v)
	}
	v.names = map[uint32]string{a: "A", b: "B"}
	return v
}

// gidIndex returns the index of the device's GID.
func gidIndex(t *testing.T) int {
	c := rdmatest.Must(verbs.Open(device))(t)
	defer rdmatest.Close(t, c)
	return rdmatest.GID(t, c).Index
}

// TestHangsC: the same for a program in C, which has also such hangs as a program in Go can't have: it sleeps in the
// kernel until an event comes.
func TestHangsC(t *testing.T) {
	for _, x := range []struct {
		mode string
		on   bool
		want string
	}{
		{"no-receive", true, "no-receive B, peer-not-ready A"},
		{"unpolled", mlx5, "not-polled B"},
		{"overrun", mlx5, "cq-overrun B, no-ack A"},
		{"unarmed", mlx5, "not-armed B"},
		{"wrong-channel", mlx5, "not-woken B"},
		{"asleep", mlx5, "not-woken B"}, // if its event is lost
	} {
		if !x.on {
			continue
		}
		t.Run(x.mode, func(t *testing.T) {
			v := newVictim(t, x.mode)
			if x.mode == "asleep" {
				ask(t, control.Request{Do: "mutate", Kind: "event-lost", N: 1}, control.Request{Do: "mutate"})
				_, err := fmt.Fprintln(v.in)
				rdmatest.Check(t, err)
			}
			// It hangs a moment after it has said so.
			var r *report
			v.Until(t, func() bool {
				r = why(t, strconv.Itoa(v.PID()))
				return len(r.Findings) > 0
			})
			if got, late := r.found(v.names), strings.Replace(x.want, "no-ack A", "in-error A", 1); got != x.want && got != sorted(late) {
				t.Errorf("found %q, want %q: %+v", got, x.want, r)
			}
		})
	}
}

var _ = rdmatest.Test(TestHangsC, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Long)

// TestWhyHealthyC: programs in C that work, wait or do nothing have no finding.
func TestWhyHealthyC(t *testing.T) {
	for _, mode := range []string{"unconnected", "idle", "asleep", "spinning", "few", "polling", "events", "writing", "deep"} {
		t.Run(mode, func(t *testing.T) {
			v := newVictim(t, mode)
			rdmatest.Check(t, v.in.Close())
			if r := why(t, strconv.Itoa(v.PID())); len(r.Findings) != 0 || len(r.QPs) != 2 {
				t.Errorf("%+v", r)
			}
		})
	}
}

var _ = rdmatest.Test(TestWhyHealthyC, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Long)

// TestWhyTransports: so have programs in Go over all kinds of queue pairs.
func TestWhyTransports(t *testing.T) {
	for name, change := range map[string]func(*rdmatest.Spec){
		"UC": func(s *rdmatest.Spec) {
			s.Type, s.A.QP, s.B.QP = verbs.UC, verbs.AccessRemoteWrite, verbs.AccessRemoteWrite
		},
		"UD":      func(s *rdmatest.Spec) { s.Type = verbs.UD },
		"SRQ":     func(s *rdmatest.Spec) { s.SRQ = true },
		"channel": func(s *rdmatest.Spec) { s.Channel = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := rdmatest.Default()
			change(&s)
			p := rdmatest.NewPair(t, s)
			if r := why(t, here); len(r.Findings) != 0 || len(r.QPs) != 2 {
				t.Errorf("idle: %+v", r)
			}
			whileBusy(t, p, func() {
				if r := why(t, here); len(r.Findings) != 0 {
					t.Errorf("busy: %+v", r)
				}
			})
		})
	}
}

var _ = rdmatest.Test(TestWhyTransports, rdmatest.OnRXE, rdmatest.OnMLX5, rdmatest.OnMLX5Eth, rdmatest.Long)

// whileBusy calls f while messages go from A to B.
func whileBusy(t *testing.T, p *rdmatest.Pair, f func()) {
	const grh = 40 // bytes before a datagram
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			p.B.Recv(t, 1, 0, grh+8)
			wr := send
			wr.SGL = []verbs.SGE{p.A.MR.SGE(0, 8)}
			if p.A.AH != nil {
				wr.AH, wr.RemoteQPN, wr.RemoteQKey = p.A.AH, p.B.QP.Num(), rdmatest.QKey
			}
			p.A.Send(t, wr)
			rdmatest.PollOK(t, p.A.CQ, 1)
			rdmatest.PollOK(t, p.B.CQ, 1)
		}
	}()
	f()
	close(stop)
	<-done
}

// serve starts a server.
func serve(t *testing.T) {
	t.Helper()
	s := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "why", "--serve", "-b", "127.0.0.1")
	if line := s.Line(t); line != "listening on port 18517" {
		t.Fatal(line)
	}
}

// programs starts the two ends of a program of C.
func programs(t *testing.T, args ...string) (server, client *rdmatest.Process) {
	t.Helper()
	const port = 18515
	server = rdmatest.Start(t, append(args, "-d", rdmatest.Devices[0])...)
	server.Until(t, func() bool { return rdmatest.Listening(port) })
	client = rdmatest.Start(t, append(args, "-d", rdmatest.Devices[1], "127.0.0.1")...)
	// The client sends when its queue pair moves. Before, the process may have none.
	client.Until(t, func() bool {
		for _, q := range why(t, rdmatest.Devices[1]).QPs {
			if q.Condition == "moving" {
				return true
			}
		}
		return false
	})
	return server, client
}

// TestWhyPrograms: programs of C are well until something happens to them.
func TestWhyPrograms(t *testing.T) {
	server, client := programs(t, "ib_write_bw", "-u", "20", "-D", "1000")
	if r := why(t); len(r.Findings) != 0 {
		t.Errorf("while they are well: %+v", r)
	}
	client.Signal(syscall.SIGSTOP)
	if r := why(t, strconv.Itoa(client.PID())); r.found(nil) != "stopped" {
		t.Errorf("stopped: %+v", r)
	}
	client.Signal(syscall.SIGCONT)
	client.Until(t, func() bool { return len(why(t).Findings) == 0 })
	const hca = 1 // of the client
	ask(t, control.Request{Do: "pause", HCA: hca, Up: true}, control.Request{Do: "pause", HCA: hca})
	client.Until(t, func() bool { return why(t).found(nil) == "paused" })
	rdmatest.Check(t, control.Request{Do: "pause", HCA: hca}.Ask())
	client.Until(t, func() bool { return len(why(t).Findings) == 0 })
	server.Kill()
	client.Until(t, func() bool { return why(t, strconv.Itoa(client.PID())).found(nil) == "no-ack" })
}

var _ = rdmatest.Test(TestWhyPrograms, rdmatest.OnMLX5, rdmatest.Long)

// TestWhyFatal: the firmware has failed, and the driver was told not to reset the device by itself.
func TestWhyFatal(t *testing.T) {
	const hca = 1
	device := rdmatest.Devices[hca]
	path := rdmatest.Must(filepath.EvalSymlinks("/sys/class/infiniband/" + device + "/device"))(t)
	reporter := " pci/" + filepath.Base(path) + " reporter fw_fatal"
	shell(t, "devlink health set"+reporter+" auto_recover false")
	rdmatest.Check(t, control.Request{Do: "fatal", HCA: hca}.Ask())
	t.Cleanup(func() {
		shell(t, "devlink health recover"+reporter)
		shell(t, "devlink health set"+reporter+" auto_recover true")
		rdmatest.UntilNot(t, "the device isn't back", func() bool {
			c, err := verbs.Open(device)
			if err != nil {
				return true
			}
			defer rdmatest.Close(t, c)
			return rdmatest.Must(c.QueryPort(rdmatest.Port))(t).State != verbs.PortActive
		})
		if r := why(t, device); len(r.Findings) != 0 {
			t.Errorf("when it is back: %+v", r)
		}
	})
	// The driver looks at its health every two seconds.
	rdmatest.UntilNot(t, "it isn't found", func() bool { return why(t).found(nil) != "device-fatal" })
}

var _ = rdmatest.Test(TestWhyFatal, rdmatest.OnMLX5, rdmatest.Long)

// TestWhyHealthy: programs in Go that are idle, or busy, have no finding.
func TestWhyHealthy(t *testing.T) {
	s := rdmatest.Default()
	p := rdmatest.NewPair(t, s)
	conditions := func(r *report) map[uint32]string {
		all := make(map[uint32]string)
		for _, q := range r.QPs {
			all[q.Number] = q.Condition
		}
		return all
	}
	r := why(t, here)
	idle := "quiet"
	if mlx5 {
		idle = "idle"
	}
	if c := conditions(r); len(r.Findings) != 0 || c[p.A.QP.Num()] != idle || c[p.B.QP.Num()] != idle {
		t.Errorf("idle: %+v", r)
	}
	whileBusy(t, p, func() { r = why(t, device) })
	if c := conditions(r); len(r.Findings) != 0 || c[p.A.QP.Num()] != "moving" || c[p.B.QP.Num()] != "moving" {
		t.Errorf("busy: %+v", r)
	}
	// What was not polled for long isn't a finding either, if there is little of it.
	p.B.Recv(t, 1, 0, 8)
	sends(t, p)
	if r = why(t, fmt.Sprint(p.A.QP.Num())); len(r.Findings) != 0 {
		t.Errorf("idle with completions: %+v", r)
	}
}

// TestWhyUnprivileged: without rights, what can be seen is shown, and the rest is named.
func TestWhyUnprivileged(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	check := func(want string) {
		t.Helper()
		r := whyBy(t, nobody, here)
		if got := r.found(map[uint32]string{p.A.QP.Num(): "A", p.B.QP.Num(): "B"}); got != want || len(r.QPs) != 2 ||
			mlx5 != strings.Contains(strings.Join(r.Unseen, "\n"), "CAP_NET_ADMIN") {
			t.Errorf("found %q, want %q: %+v", got, want, r)
		}
	}
	check("")
	sends(t, p)
	check("no-receive B, peer-not-ready A")
}

// TestWhyWatch: what begins and what ends is printed.
func TestWhyWatch(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	w := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "why", "--watch", "-i", "200ms", here)
	sends(t, p)
	w.Until(t, func() bool { return strings.Contains(w.Stdout(), "[peer-not-ready]") })
	p.B.Recv(t, 1, 0, 8)
	rdmatest.PollOK(t, p.A.CQ, 1)
	w.Until(t, func() bool { return strings.Contains(w.Stdout(), "ended after") })
}

var _ = rdmatest.Test(TestWhyWatch, rdmatest.Long)
