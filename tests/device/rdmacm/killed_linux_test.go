package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// A victim is a process that performs a handshake up to a given step, reports it, and waits
// to be killed. It is this test program, started with the variable victimVariable.
const victimVariable = "GOVERBS_VICTIM"

func victim(task string) error {
	side, rest, _ := strings.Cut(task, " ")
	step, addr, _ := strings.Cut(rest, " ")
	ctx := context.Background()
	id, err := rdmacm.CreateSyncID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	if side == "client" {
		err = victimClient(ctx, id, step, netip.MustParseAddrPort(addr))
	} else {
		err = victimServer(ctx, id, step)
	}
	if err == nil {
		fmt.Println("there")
		time.Sleep(time.Minute)
	}
	return err
}

func victimClient(ctx context.Context, id *rdmacm.SyncID, step string, to netip.AddrPort) error {
	if err := id.ResolveAddr(ctx, netip.AddrPort{}, to, resolve); err != nil || step == "address" {
		return err
	}
	if err := id.ResolveRoute(ctx, resolve); err != nil || step == "route" {
		return err
	}
	if _, err := id.CreateQP(nil, queuesOf); err != nil || step == "QP" {
		return err
	}
	if step == "request" {
		id, err := dontWait(id)
		if err != nil {
			return err
		}
		return id.Connect(nil)
	}
	_, err := id.Connect(ctx, nil)
	return err
}

// dontWait returns the SyncID as an ID, whose methods return at once.
func dontWait(id *rdmacm.SyncID) (*rdmacm.ID, error) {
	ch, err := rdmacm.NewEventChannel()
	if err != nil {
		return nil, err
	}
	return id.Migrate(ch)
}

func victimServer(ctx context.Context, id *rdmacm.SyncID, step string) error {
	if err := id.Bind(anyPort); err != nil {
		return err
	}
	if err := id.Listen(1); err != nil {
		return err
	}
	fmt.Println(id.LocalAddr())
	if step == "listen" {
		return nil
	}
	request, err := id.Request(ctx)
	if err != nil || step == "request" {
		return err
	}
	if _, err := request.SyncID.CreateQP(nil, queuesOf); err != nil || step == "QP" {
		return err
	}
	if step == "answer" {
		id, err := dontWait(request.SyncID)
		if err != nil {
			return err
		}
		return id.Accept(nil)
	}
	return request.SyncID.Accept(ctx, nil)
}

// startVictim starts a victim.
func startVictim(t *testing.T, task string) *rdmatest.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+task)
	return rdmatest.StartCmd(t, cmd)
}

var _ = rdmatest.Test(TestClientKilled, rdmatest.OnRXE, rdmatest.OnSIW, rdmatest.OnMLX5Eth)

// A client that is killed at any step leaves the server unharmed.
func TestClientKilled(t *testing.T) {
	rdmatest.CheckLeaks(t)
	l, addr := listen(t, nil)
	for _, step := range []string{"address", "route", "QP", "request", "established"} {
		// If the request is under way, soft-iWARP may end the listener: see rdmacm's documentation.
		if step == "request" && rdmatest.KindOf() == rdmatest.SIW {
			continue
		}
		t.Run(step, func(t *testing.T) { killClient(t, l, addr, step) })
	}
}

// killClient kills a client at a step, and connects another one.
func killClient(t *testing.T, l *rdmacm.Listener, addr, step string) {
	t.Helper()
	victim := startVictim(t, "client "+step+" "+addr)
	if got := victim.Line(t); got != "there" {
		t.Fatalf("the victim says %q", got)
	}
	victim.Kill()
	// The connection was accepted, and has ended.
	if step == "established" {
		c := rdmatest.Must(l.Accept(patient(t)))(t)
		_, err := c.Recv(patient(t), make([]byte, 1))
		if err != io.EOF {
			t.Errorf("receiving from the killed client: %v", err)
		}
		rdmatest.Check(t, c.Close())
	}
	client := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", addr, nil))(t)
	server := rdmatest.Must(l.Accept(patient(t)))(t)
	// A connection that the killed client's kernel has abandoned may be accepted before ours.
	for server.RemoteAddr() != client.LocalAddr() {
		rdmatest.Check(t, server.Close())
		server = rdmatest.Must(l.Accept(patient(t)))(t)
	}
	rdmatest.Check(t, client.Send(patient(t), []byte("x")))
	rdmatest.Must(server.Recv(patient(t), make([]byte, 1)))(t)
	rdmatest.Check(t, server.Close())
	rdmatest.Check(t, client.Close())
}

var _ = rdmatest.Test(TestServerKilled, rdmatest.OnRXE, rdmatest.OnSIW, rdmatest.OnMLX5Eth)

// When a server is killed at any step, its clients are rejected or disconnected.
func TestServerKilled(t *testing.T) {
	rdmatest.CheckLeaks(t)
	for _, step := range []string{"listen", "request", "QP", "answer", "established"} {
		t.Run(step, func(t *testing.T) {
			victim := startVictim(t, "server "+step)
			addr := victim.Line(t)
			type result struct {
				c   *rdmacm.Conn
				err error
			}
			dialed := make(chan result, 1)
			go func() {
				c, err := rdmacm.Dial(patient(t), "tcp", addr, nil)
				dialed <- result{c, err}
			}()
			if step == "established" {
				r := <-dialed
				rdmatest.Check(t, r.err)
				if got := victim.Line(t); got != "there" {
					t.Fatalf("the victim says %q", got)
				}
				victim.Kill()
				_, err := r.c.Recv(patient(t), make([]byte, 1))
				if err != io.EOF {
					t.Errorf("from the killed server: %v", err)
				}
				rdmatest.Check(t, r.c.Close())
				return
			}
			if got := victim.Line(t); got != "there" {
				t.Fatalf("the victim says %q", got)
			}
			victim.Kill()
			r := <-dialed
			if step == "answer" && r.err == nil {
				// The reply had arrived: the connection was established, and has ended.
				_, err := r.c.Recv(patient(t), make([]byte, 1))
				if err != io.EOF {
					t.Errorf("from the killed server: %v", err)
				}
				rdmatest.Check(t, r.c.Close())
				return
			}
			if step == "answer" && errors.Is(r.err, rdmacm.ErrConnect) {
				// The reply had arrived, but the server ended before the connection was established.
				wantError(t, r.err, rdmacm.ErrDisconnected)
				return
			}
			wantError(t, r.err, rdmacm.ErrRejected)
		})
	}
}

// extraDevice creates rxe8, a separate device that the test may remove, and returns its
// address.
func extraDevice(t *testing.T) string {
	t.Helper()
	return rxeOn(t, "rxe8", "rdmacm0", "192.168.98.1")
}

// rxeOn creates a device on a new interface with an address.
func rxeOn(t *testing.T, device, netDev, addr string, link ...string) string {
	t.Helper()
	rdmatest.ExtraRXE(t, device, netDev, addr, link...)
	// The device's address can be bound only a moment later.
	for deadline := time.Now().Add(rdmatest.Patience); ; time.Sleep(10 * time.Millisecond) {
		id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
		err := id.Bind(netip.MustParseAddrPort(addr + ":0"))
		rdmatest.Check(t, id.Close())
		if err == nil {
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// If two devices have the same GUID, an ID is on the device that has its address.
func TestSharedGUID(t *testing.T) {
	rdmatest.CheckLeaks(t)
	first := extraDevice(t)
	mac := rdmatest.Must(net.InterfaceByName("rdmacm0"))(t).HardwareAddr
	second := rxeOn(t, "rxe9", "rdmacm1", "192.168.99.1", "address", mac.String())
	var ids []*rdmacm.SyncID
	for i, addr := range []string{first, second} {
		id := createSync(t, rdmacm.PortSpaceTCP)
		rdmatest.Check(t, id.Bind(netip.MustParseAddrPort(addr+":0")))
		if got, want := id.Device().Info().Name(), []string{"rxe8", "rxe9"}[i]; got != want {
			t.Errorf("an ID with the address %s is on %s, not %s", addr, got, want)
		}
		ids = append(ids, id)
	}
	if a, b := ids[0].Device().Info(), ids[1].Device().Info(); a.NodeGUID() != b.NodeGUID() {
		t.Errorf("%v has the GUID %v, %v has %v", a, a.NodeGUID(), b, b.NodeGUID())
	}
	_, err := ids[0].CreateQP(ids[1].PD(), queuesOf)
	wantError(t, err, rdmacm.ErrInvalid)
	rdmatest.Must(ids[0].CreateQP(ids[0].PD(), queuesOf))(t)
}

var _ = rdmatest.Test(TestDeviceRemovedUnderIDs, rdmatest.OnRXE, rdmatest.OnMLX5Eth)

// The removal of a device ends everything on it. All waiters learn of it, and the removal
// completes once everything is closed.
func TestDeviceRemovedUnderIDs(t *testing.T) {
	rdmatest.CheckLeaks(t)
	addr := extraDevice(t)
	l := rdmatest.Must(rdmacm.Listen(patient(t), "tcp", addr+":0", nil))(t)
	client := rdmatest.Must(rdmacm.Dial(patient(t), "tcp", l.Addr().String(), nil))(t)
	server := rdmatest.Must(l.Accept(patient(t)))(t)
	errs := make(chan error, 3)
	for _, c := range []*rdmacm.Conn{client, server} {
		go func() {
			_, err := c.Recv(t.Context(), make([]byte, 1))
			errs <- err
		}()
	}
	go func() {
		_, err := l.Accept(t.Context())
		errs <- err
	}()
	removal := rdmatest.Start(t, rdmatest.Program(t, "ibv"), "link", "delete", "rxe8")
	for range cap(errs) {
		err := <-errs
		// One end may learn of the other's end first.
		if err != io.EOF {
			wantError(t, err, rdmacm.ErrDeviceRemoved)
		}
	}
	wantError(t, client.Send(patient(t), nil), rdmacm.ErrDeviceRemoved)
	_, err := client.ID().CreateQP(nil, verbs.QPOptions{})
	wantError(t, err, rdmacm.ErrDeviceRemoved)
	rdmatest.Check(t, client.Close())
	rdmatest.Check(t, server.Close())
	rdmatest.Check(t, l.Close())
	removal.Succeeds(t)
}
