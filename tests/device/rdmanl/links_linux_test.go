package rdmanl

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/verbs"
)

// veth makes a network interface of this name.
func veth(t *testing.T, name string) {
	t.Helper()
	run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"p")
	t.Cleanup(func() { run(t, "ip", "link", "delete", name) })
}

// TestLinksCome adds, lists and deletes links repeatedly, and nothing is left behind.
func TestLinksCome(t *testing.T) {
	veth(t, "nl0")
	ctx := t.Context()
	rounds := 100
	switch {
	case testing.Short():
		rounds = 20
	case os.Getenv("GOVERBS_LONG") != "":
		rounds = 1000
	}
	before := rdmatest.Must(rdmanl.Devices(ctx))(t)
	fds := rdmatest.FDs(t)
	for i := range rounds {
		rdmatest.Check(t, rdmanl.AddLink(ctx, rdmanl.LinkOptions{Name: "rxe7", Type: "rxe", Netdev: "nl0"}))
		d := rdmatest.Must(rdmanl.FindDevice(ctx, "rxe7"))(t)
		if links := rdmatest.Must(rdmanl.Links(ctx, d.Index))(t); len(links) != 1 || links[0].Netdev.Or("") != "nl0" || links[0].Port != 1 {
			t.Fatalf("round %d: the links are %+v", i, links)
		}
		rdmatest.Check(t, rdmanl.DeleteLink(ctx, d.Index))
		if _, err := rdmanl.GetDevice(ctx, d.Index); !errors.Is(err, rdmanl.ErrNoDevice) {
			t.Fatalf("round %d: the deleted device: %v", i, err)
		}
		if err := rdmanl.DeleteLink(ctx, d.Index); !errors.Is(err, rdmanl.ErrNoDevice) {
			t.Fatalf("round %d: deleting it again: %v", i, err)
		}
	}
	if after := rdmatest.Must(rdmanl.Devices(ctx))(t); len(after) != len(before) {
		t.Errorf("%d devices, before %d", len(after), len(before))
	}
	if n := rdmatest.FDs(t); n != fds {
		t.Errorf("%d open files, before %d", n, fds)
	}
}

var _ = rdmatest.Test(TestLinksCome, rdmatest.OnRXE)

// TestLinkCommands: ibv link makes the same link as rdma link.
func TestLinkCommands(t *testing.T) {
	veth(t, "nl1")
	ibv := rdmatest.Program(t, "ibv")
	run(t, ibv, "link", "add", "rxe7", "type", "rxe", "netdev", "nl1")
	if all := same(t, "link", "show", "rxe7/1"); len(all) != 1 || all[0]["netdev"] != "nl1" {
		t.Errorf("the link is %v", all)
	}
	run(t, ibv, "dev", "set", "rxe7", "name", "rxe8")
	run(t, ibv, "dev", "set", "rxe8", "adaptive-moderation", "off")
	if all := same(t, "dev", "show", "rxe8"); len(all) != 1 {
		t.Errorf("the device is %v", all)
	}
	run(t, ibv, "link", "delete", "rxe8")
	for _, c := range []struct {
		args, want string
	}{
		{"link add " + device + " type rxe netdev nl1", device},
		{"link add rxe9 type rxe netdev none9", "ENODEV; there is no network interface none9"},
		{"link add rxe9 type nothing netdev nl1", "EINVAL; the kernel has no links of type nothing"},
		{"link delete rxe9", "find device rxe9: no such RDMA device; there are: rxe0"},
		{"link delete", "needs a name"},
	} {
		if out := fails(t, strings.Fields(c.args)...); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s, want %q", c.args, out, c.want)
		} else {
			t.Log(strings.TrimSpace(out))
		}
	}
}

var _ = rdmatest.Test(TestLinkCommands, rdmatest.OnRXE)

// TestNotSoftware: an adapter's link can't be deleted, and the error says why.
func TestNotSoftware(t *testing.T) {
	d := rdmatest.Must(rdmanl.FindDevice(t.Context(), device))(t)
	err := rdmanl.DeleteLink(t.Context(), d.Index)
	if !errors.Is(err, syscall.EINVAL) || errors.Is(err, rdmanl.ErrNoDevice) || !strings.Contains(err.Error(), "only links of software drivers") {
		t.Errorf("deleting an adapter: %v", err)
	}
}

var _ = rdmatest.Test(TestNotSoftware, rdmatest.OnMLX5, rdmatest.OnEFA)

// TestGivenUp: a context that has ended ends the wait.
func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no time")
	cancel(why)
	if _, err := rdmanl.Devices(ctx); !errors.Is(err, why) {
		t.Errorf("listing devices: %v", err)
	}
	if err := rdmanl.AddLink(ctx, rdmanl.LinkOptions{Name: "rxe9", Type: "rxe", Netdev: "lo"}); !errors.Is(err, why) {
		t.Errorf("adding a link: %v", err)
	}
	if _, err := rdmanl.FindDevice(t.Context(), "rxe9"); !errors.Is(err, rdmanl.ErrNoDevice) {
		t.Errorf("the link that was not added: %v", err)
	}
}

// TestIndex: package verbs gets a device's index from this package.
func TestIndex(t *testing.T) {
	for _, d := range rdmatest.Must(verbs.Devices())(t) {
		index := rdmatest.Must(d.Index())(t)
		if found := rdmatest.Must(rdmanl.GetDevice(t.Context(), index))(t); found.Name != d.Name() {
			t.Errorf("%s has index %d, which %s has", d.Name(), index, found.Name)
		}
	}
}
