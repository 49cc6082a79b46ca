package umad

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/umad"
)

var pong = regexp.MustCompile(`(?m)^Pong from (\S+) \(Lid (\d+)\): time \d+\.\d{3} ms$`)

var _ = rdmatest.Test(TestIbping, rdmatest.Long)

// TestIbping: ibping of infiniband-diags and of ibv answer each other, with the same host
// name.
func TestIbping(t *testing.T) {
	_, other := load(t)
	ibv := rdmatest.Program(t, "ibv")
	programs := map[string][]string{"Go": {ibv, "ibping"}, "C": {"ibping"}}
	hosts := make(map[string]bool)
	for server, serve := range programs {
		s := rdmatest.Start(t, append(slices.Clone(serve), "-S", "-C", rdmatest.Devices[1])...)
		// Requests get no answer until the server has registered.
		s.Until(t, func() bool {
			out, _ := outcome(t, ibv, "ibping", "-f", "-c", "1", "-t", "300", "-C", rdmatest.Devices[0], other)
			return strings.Contains(out, " 1 received")
		})
		for client, ask := range programs {
			out, ok := outcome(t, append(slices.Clone(ask), "-c", "1", "-C", rdmatest.Devices[0], other)...)
			all := pong.FindAllStringSubmatch(out, -1)
			if !ok || len(all) != 1 || all[0][2] != other || !strings.Contains(out, "1 packets transmitted, 1 received, 0% packet loss, time ") || !strings.Contains(out, "rtt min/avg/max = ") {
				t.Fatalf("%s to %s: %s", client, server, out)
			}
			hosts[all[0][1]] = true
		}
		if server == "Go" {
			out, ok := outcome(t, ibv, "ibping", "-f", "-c", "200", "-C", rdmatest.Devices[0], other)
			if !ok || !strings.Contains(out, "200 packets transmitted, 200 received, 0% packet loss") {
				t.Errorf("a flood: %s", out)
			}
		}
		s.Signal(os.Interrupt)
		s.Wait()
		if server == "Go" && !s.OK() {
			t.Errorf("interrupted: %v", s)
		}
	}
	if len(hosts) != 1 {
		t.Errorf("the answers have the names %v", hosts)
	}
	out, err := exec.Command(ibv, "ibping", "-c", "1", "-t", "50", other).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("1 packets transmitted, 0 received, 100% packet loss")) || !bytes.Contains(out, []byte("start the server there: ibv ibping -S")) {
		t.Errorf("without a server: %s", out)
	}
}

// TestSubnetManager: this test plays a subnet manager. Both sminfo programs find it, and the
// port's capabilities show it until it ends.
func TestSubnetManager(t *testing.T) {
	own, other := load(t)
	p := rdmatest.Must(umad.Open(rdmatest.Devices[1], 1))(t)
	defer p.Close()
	if m := p.Name(); m.String() != rdmatest.Devices[1]+"/1" {
		t.Errorf("the port is %v", m)
	}
	const smInfo = 0x20
	o := umad.AgentOptions{Class: umad.ClassSubnet, Methods: []umad.Method{umad.MethodGet, umad.MethodSet}}
	rdmatest.Must(p.Register(o))(t)
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			m, err := p.Receive(ctx)
			if err != nil {
				served <- err
				return
			}
			h, err := umad.ParseHeader(m.MAD)
			if err != nil || h.Attr != smInfo {
				continue
			}
			if h.Method == umad.MethodGet {
				clear(m.MAD[64:128])
				binary.BigEndian.PutUint64(m.MAD[64:], 0x1234)
				binary.BigEndian.PutUint32(m.MAD[80:], 77)
				m.MAD[84] = 5<<4 | 3
			}
			h.Method, h.Status = umad.MethodGet|umad.MethodResponse, 0
			h.Put(m.MAD)
			_ = m.Agent.Send(m) // sminfo asks again
		}
	}()
	if got, want := same(t, "sminfo "+other), fmt.Sprintf("sminfo: sm lid %s sm guid 0x1234, activity count 77 priority 5 state 3 SMINFO_MASTER\n", other); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := same(t, "sminfo -s 2 -p 7 -a 9 "+other+" 1"); !strings.HasSuffix(got, "sm guid 0x0, activity count 9 priority 7 state 2 SMINFO_STANDBY\n") {
		t.Errorf("set: %q", got)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("receiving ended with %v", err)
	}
	if same(t, "sminfo -t 50 "+own); t.Failed() {
		return
	}

	says := func() bool {
		out, _ := outcome(t, "smpquery", "portinfo", other, "1", "-C", rdmatest.Device)
		return strings.Contains(out, "\tIsSM\n")
	}
	if says() {
		t.Error("there is a subnet manager from the start")
	}
	manager := rdmatest.Must(umad.Manage(rdmatest.Devices[1], 1))(t)
	if !says() {
		t.Error("the port doesn't say that it has a subnet manager")
	}
	if _, err := umad.Manage(rdmatest.Devices[1], 1); !errors.Is(err, syscall.EAGAIN) || !strings.Contains(err.Error(), "another program manages it") {
		t.Errorf("two managers: %v", err)
	}
	rdmatest.Check(t, manager.Close())
	if says() {
		t.Error("the subnet manager is still there")
	}
}

// TestMADAgents tests the permitted and the refused calls of agents, and that closed agents
// leave nothing behind.
func TestMADAgents(t *testing.T) {
	own, other := load(t)
	if _, err := umad.Open("none9", 1); !errors.Is(err, umad.ErrNoPort) || !strings.Contains(err.Error(), "umad: open port none9/1: ") {
		t.Errorf("no such port: %v", err)
	}
	names := rdmatest.Must(umad.Ports())(t)
	if len(names) != 2 || names[0].Device != rdmatest.Devices[0] {
		t.Errorf("the ports are %v", names)
	}
	fds := rdmatest.FDs(t)
	p := rdmatest.Must(umad.Open(rdmatest.Device, 1))(t)
	for name, o := range map[string]umad.AgentOptions{
		"no class": {}, "an OUI": {Class: umad.ClassSubnet, OUI: 1}, "no OUI": {Class: 0x30},
		"an answer": {Class: umad.ClassSubnet, Methods: []umad.Method{umad.MethodResponse}},
	} {
		if _, err := p.Register(o); !errors.Is(err, umad.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	server := umad.AgentOptions{Class: 0x31, OUI: 0x123456, Methods: []umad.Method{umad.MethodGet}, RMPP: true}
	first := rdmatest.Must(p.Register(server))(t)
	if _, err := p.Register(server); err == nil || !strings.Contains(err.Error(), "register agent of class 0x31 of "+rdmatest.Device+"/1: E") {
		t.Errorf("the method again: %v", err)
	}
	rdmatest.Check(t, first.Close())
	rdmatest.Check(t, first.Close())
	a := rdmatest.Must(p.Register(server))(t)
	if err := a.Send(umad.Message{MAD: make([]byte, 10)}); !errors.Is(err, umad.ErrInvalid) {
		t.Errorf("a short MAD: %v", err)
	}
	for i := 1; ; i++ {
		if _, err := p.Register(umad.AgentOptions{Class: umad.ClassPerformance}); err != nil {
			if i != 32 || !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("agent %d: %v", i, err)
			}
			break
		}
	}

	// A long message arrives whole, by RMPP, at an agent of another port.
	q := rdmatest.Must(umad.Open(rdmatest.Devices[1], 1))(t)
	defer q.Close()
	rdmatest.Must(q.Register(server))(t)
	long := make([]byte, 3000)
	for i := range long {
		long[i] = byte(i * 7)
	}
	h := umad.Header{Class: 0x31, Version: 1, Method: umad.MethodGet, TID: 5}
	h.Put(long)
	const version, data, active = 1, 1, 1
	copy(long[24:], []byte{version, data, 0x1f<<3 | active, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56})
	var lid uint16
	fmt.Sscan(other, &lid)
	to := umad.Addr{LID: lid, QPN: 1, QKey: umad.GeneralQKey}
	rdmatest.Check(t, a.Send(umad.Message{Addr: to, MAD: long, Timeout: 10 * time.Second}))
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Patience)
	defer cancel()
	m := rdmatest.Must(q.Receive(ctx))(t)
	const vendorData = 40
	if len(m.MAD) < len(long) || string(m.MAD[vendorData:len(long)]) != string(long[vendorData:]) || m.Addr.QPN != 1 || fmt.Sprint(m.Addr.LID) != own || m.Agent == nil {
		t.Errorf("%d bytes of %d arrive, from %+v", len(m.MAD), len(long), m.Addr)
	}

	// Closing ends a wait.
	waiting := make(chan error, 1)
	go func() {
		for {
			if _, err := p.Receive(context.Background()); err != nil {
				waiting <- err
				return
			}
		}
	}()
	rdmatest.Check(t, p.Close())
	if err := <-waiting; !errors.Is(err, os.ErrClosed) {
		t.Errorf("the wait ends with %v", err)
	}
	q.Close()
	if n := rdmatest.FDs(t); n != fds {
		t.Errorf("%d open files, before %d", n, fds)
	}
}

// TestMADTimeouts: a pulled cable is counted and reported by an event, and requests time out.
func TestMADTimeouts(t *testing.T) {
	own, other := load(t)
	p := rdmatest.Must(umad.Open(rdmatest.Device, 1))(t)
	defer p.Close()
	a := rdmatest.Must(p.Register(umad.AgentOptions{Class: umad.ClassSubnet}))(t)
	request := umad.Message{Addr: umad.Addr{LID: 99}, MAD: make([]byte, umad.Size), Timeout: 20 * time.Millisecond}
	h := umad.Header{Class: umad.ClassSubnet, Version: 1, Method: umad.MethodGet, Attr: 0x11}
	h.Put(request.MAD)
	if _, err := a.Do(t.Context(), request); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("nobody is there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request.Timeout = time.Hour
	if _, err := a.Do(ctx, request); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	var lid uint16
	fmt.Sscan(own, &lid)
	request.Addr.LID = lid
	if m, err := a.Do(t.Context(), request); err != nil || len(m.MAD) != umad.Size || m.MAD[64+2] != 1 {
		t.Errorf("after giving up: %v, %+v", err, m)
	}
	h.Attr = 0xff00
	h.Put(request.MAD)
	var status umad.Status
	if _, err := a.Do(t.Context(), request); !errors.As(err, &status) || status != 0x0c || !strings.Contains(err.Error(), "unsupported attribute") {
		t.Errorf("an attribute that isn't: %v", err)
	}

	downs := regexp.MustCompile(`LinkDownedCounter:\.+(\d+)`)
	count := func() string {
		t.Helper()
		out, _ := outcome(t, rdmatest.Program(t, "ibv"), "perfquery", "-C", rdmatest.Device, own, "1")
		m := downs.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("no LinkDownedCounter: %s", out)
		}
		return m[1]
	}
	rdmatest.Command(t, rdmatest.Program(t, "ibv")+" perfquery -R -C "+rdmatest.Device+" "+own+" 1")
	pull(t, false)
	t.Cleanup(func() { pull(t, true) })
	if got := same(t, "smpquery -D portinfo 0 1"); !strings.Contains(got, "LinkState:.......................Down\n") {
		t.Errorf("with the cable pulled: %s", got)
	}
	if got := same(t, "smpquery -t 50 nodeinfo "+other); got != "" {
		t.Errorf("with the cable pulled, the other answers: %s", got)
	}
	pull(t, true)
	if got := same(t, "smpquery -D portinfo 0 1"); !strings.Contains(got, "LinkState:.......................Active\n") {
		t.Errorf("with the cable plugged in again: %s", got)
	}
	if n := count(); n != "1" {
		t.Errorf("the link went down %s times", n)
	}
}

// pull pulls the first adapter's cable, or plugs it in again, and waits until the driver has
// noticed.
func pull(t *testing.T, up bool) {
	t.Helper()
	rdmatest.Check(t, control.Request{Do: "port", Up: up}.Ask())
	want := map[bool]string{true: "4: ACTIVE", false: "1: DOWN"}[up]
	for deadline := time.Now().Add(rdmatest.Patience); ; time.Sleep(10 * time.Millisecond) {
		state := string(rdmatest.Must(os.ReadFile("/sys/class/infiniband/" + rdmatest.Device + "/ports/1/state"))(t))
		if strings.TrimSpace(state) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the port is %s, not %s", state, want)
		}
	}
}
