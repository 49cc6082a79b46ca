package xfer_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// An engine uses all ports that are active, and says why it leaves others out.
func TestOpen(t *testing.T) {
	n := verbstest.New(t)
	n.Device(1).SetPort(false)
	e := rdmatest.Must(xfer.Open(xfer.Options{}))(t)
	if got := e.Rails(); !slices.Equal(got, []string{"vt0/1"}) {
		t.Errorf("rails %v", got)
	}
	if out := e.LeftOut(); len(out) != 1 || out[0].Device != "vt1" || out[0].Port != 1 || !strings.Contains(out[0].String(), "DOWN") {
		t.Errorf("left out: %v", out)
	}
	rdmatest.Check(t, e.Close())
	rdmatest.Check(t, e.Close())
	if _, err := e.Alloc(10); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("alloc on a closed engine: %v", err)
	}
	for devices, want := range map[string]string{
		"vt1": "the port is DOWN", "vt0,vt1/1": "the port is DOWN", "vt0,none": "none: no such RDMA device", "none/1": "none/1: no such RDMA device",
		"vt0/2": `vt0 has no port "2", its last one is 1`, "vt0/": `vt0 has no port "", its last one is 1`,
	} {
		if _, err := xfer.Open(xfer.Options{Devices: strings.Split(devices, ",")}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("devices %q: %v, want %q", devices, err, want)
		}
	}
	for _, devices := range [][]string{{"vt0/1"}, {}} {
		rdmatest.Check(t, rdmatest.Must(xfer.Open(xfer.Options{Devices: devices}))(t).Close())
	}
	for _, o := range []xfer.Options{{SliceBytes: 1}, {SmallBytes: 1 << 21}, {Window: -1}, {Patience: -1}} {
		if _, err := xfer.Open(o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Each command that Open needs may be refused; then nothing stays open.
func TestOpenRefused(t *testing.T) {
	n := verbstest.New(t)
	for _, command := range []string{"open uverbs0", "query_port", "alloc_pd", "create_cq", "create_qp", "query_gid_table"} {
		n.SetRefusal(func(name string) syscall.Errno {
			if name == command {
				return syscall.ENOMEM
			}
			return 0
		})
		for _, device := range []string{"vt0", "vt0/1"} {
			if _, err := xfer.Open(xfer.Options{Devices: []string{device}}); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%s is refused, with %s: %v", command, device, err)
			}
		}
		if left := n.Left(); len(left) > 0 {
			t.Errorf("%s was refused, and there are %v", command, left)
		}
	}
	n.SetRefusal(nil)
}

func TestReadAndWrite(t *testing.T) {
	for _, rails := range []int{1, 2} {
		m := twoEngines(t, rails, xfer.Options{SliceBytes: 8192, SmallBytes: 4096})
		const n = 300_001
		mine, theirs := memory(t, m.a, n, 1), memory(t, m.b, n, 2)
		remote := grant(t, theirs.All(), xfer.Read|xfer.Write).Remote()
		ctx := patient(t)
		m.allUp(t)
		rdmatest.Check(t, m.peer.Write(ctx, remote.Slice(10, n-20), mine.Slice(10, n-20)))
		want := make([]byte, n)
		fill(want, 2)
		copy(want[10:], mine.Bytes()[10:n-10])
		if !bytes.Equal(theirs.Bytes(), want) {
			t.Error("the bytes written are wrong")
		}
		fill(theirs.Bytes(), 5)
		rdmatest.Check(t, m.peer.Read(ctx, mine.Slice(0, n-1), remote.Slice(1, n-1)))
		if !bytes.Equal(mine.Bytes()[:n-1], theirs.Bytes()[1:]) {
			t.Error("the bytes read are wrong")
		}
		rdmatest.Check(t, m.peer.Write(ctx, remote.Slice(0, 5), mine.Slice(0, 5)))
		rdmatest.Check(t, m.peer.Write(ctx, remote.Slice(0, 0), mine.Slice(0, 0)))
		// The other way round, over the same connection.
		back := m.b.Peers()[0]
		rdmatest.Check(t, back.Write(ctx, grant(t, mine.All(), xfer.Write).Remote(), theirs.All()))
		if !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
			t.Error("the bytes written back are wrong")
		}
		used := make(map[string]bool)
		for _, l := range m.peer.Stats().Lanes {
			if l.Written+l.Read > 0 {
				used[l.Rail] = true
			}
		}
		if len(used) != rails {
			t.Errorf("the rails used are %v", used)
		}
		if _, err := json.Marshal(m.a.Stats()); err != nil {
			t.Error(err)
		}
		rdmatest.Check(t, m.a.Close())
		rdmatest.Check(t, m.b.Close())
		if left := m.net.Left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		rdmatest.Check(t, m.net.Close())
	}
}

// A notification comes after all bytes, and once. A batch may be started again.
func TestNotify(t *testing.T) {
	m := twoEngines(t, 2, xfer.Options{SliceBytes: 4096, SmallBytes: 100})
	const n = 50_000
	mine, theirs := memory(t, m.a, n, 1), memory(t, m.b, n, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	var b xfer.Batch
	b.Write(remote, mine.All())
	for i := range uint64(100) {
		fill(mine.Bytes(), byte(i))
		b.Notify(i)
		rdmatest.Check(t, m.peer.Start(&b))
		got := rdmatest.Must(m.b.Notified(ctx))(t)
		if got.Tag != i || got.Peer != m.b.Peers()[0] {
			t.Fatalf("notification %d: %+v", i, got)
		}
		if !bytes.Equal(mine.Bytes(), theirs.Bytes()) {
			t.Fatal("the notification has come before the bytes")
		}
		rdmatest.Check(t, b.Wait(ctx))
		rdmatest.Check(t, b.Wait(ctx))
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if got, err := m.b.Notified(short); !errors.Is(err, context.Canceled) {
		t.Errorf("one notification too many: %+v, %v", got, err)
	}
	// More than the peer takes at a time: they wait for the program there.
	const many = 3000
	batches := make([]xfer.Batch, many)
	for i := range batches {
		batches[i].Notify(uint64(i))
		rdmatest.Check(t, m.peer.Start(&batches[i]))
	}
	seen := make(map[uint64]bool)
	for range many {
		seen[rdmatest.Must(m.b.Notified(ctx))(t).Tag] = true
	}
	for i := range batches {
		rdmatest.Check(t, batches[i].Wait(ctx))
	}
	if len(seen) != many {
		t.Errorf("%d different notifications", len(seen))
	}
}

func TestAtomics(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{})
	theirs := rdmatest.Must(m.b.Alloc(64))(t)
	remote := grant(t, theirs.All(), xfer.Atomic).Remote()
	ctx := patient(t)
	binary.NativeEndian.PutUint64(theirs.Bytes()[8:], 40)
	var was [2]uint64
	var b xfer.Batch
	b.FetchAdd(&was[0], remote.Slice(8, 8), 2)
	rdmatest.Check(t, m.peer.Do(ctx, &b))
	b.Reset()
	b.CompareSwap(&was[1], remote.Slice(8, 8), 42, 7)
	b.CompareSwap(nil, remote.Slice(16, 8), 42, 7) // another value
	rdmatest.Check(t, m.peer.Do(ctx, &b))
	if is := binary.NativeEndian.Uint64(theirs.Bytes()[8:]); was != [2]uint64{40, 42} || is != 7 || theirs.Bytes()[16] != 0 {
		t.Errorf("it was %v, and is %d", was, is)
	}
	b.Reset()
	b.FetchAdd(nil, remote.Slice(4, 8), 1)
	if err := m.peer.Do(ctx, &b); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("at an odd address: %v", err)
	}
}

// What was not granted is refused, here or by the owner, and harms nothing.
func TestRefused(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{})
	mine, theirs := memory(t, m.a, 1000, 1), memory(t, m.b, 1000, 2)
	g := grant(t, theirs.Slice(100, 800), xfer.Read)
	remote := g.Remote()
	ctx := patient(t)
	with := func(change func(map[string]any)) (r xfer.Remote) {
		t.Helper()
		var object map[string]any
		rdmatest.Check(t, json.Unmarshal(rdmatest.Must(json.Marshal(remote))(t), &object))
		change(object)
		rdmatest.Check(t, json.Unmarshal(rdmatest.Must(json.Marshal(object))(t), &r))
		return r
	}
	for name, x := range map[string]struct {
		r    xfer.Remote
		want error
	}{
		"no Remote":             {xfer.Remote{}, verbs.ErrInvalid},
		"sliced out of range":   {remote.Slice(1, 800), verbs.ErrInvalid},
		"another length":        {remote.Slice(0, 9), verbs.ErrInvalid},
		"a forged secret":       {with(func(o map[string]any) { o["secret"] = strings.Repeat("0", 32) }).Slice(0, 10), xfer.ErrDenied},
		"a forged grant":        {with(func(o map[string]any) { o["grant"] = 77 }).Slice(0, 10), xfer.ErrDenied},
		"another engine":        {with(func(o map[string]any) { o["engine"] = strings.Repeat("1", 32) }).Slice(0, 10), xfer.ErrStale},
		"a forged length":       {with(func(o map[string]any) { o["length"] = 1 << 40 }).Slice(795, 10), xfer.ErrDenied},
		"a forged offset":       {with(func(o map[string]any) { o["offset"] = 1 << 50 }).Slice(0, 10), xfer.ErrDenied},
		"an offset at the brim": {with(func(o map[string]any) { o["offset"] = 795 }).Slice(0, 10), xfer.ErrDenied},
	} {
		if err := m.peer.Read(ctx, mine.Slice(0, 10), x.r); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	write := with(func(o map[string]any) { o["access"] = "read|write" })
	for name, r := range map[string]xfer.Remote{"a write": remote, "a write with forged access": write} {
		if err := m.peer.Write(ctx, r, mine.Slice(0, 800)); !errors.Is(err, xfer.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rdmatest.Check(t, m.peer.Read(ctx, mine.Slice(0, 800), remote))
	want := make([]byte, 1000)
	fill(want, 2)
	if !bytes.Equal(theirs.Bytes(), want) || !bytes.Equal(mine.Bytes()[:800], want[100:900]) {
		t.Error("wrong bytes")
	}
	for _, b := range []string{"", "{}", `{"engine":"00"}`, `[1]`, `{"engine":"11111111111111111111111111111111","grant":1,"secret":"11111111111111111111111111111111","access":"none","offset":0,"length":1}`} {
		if err := json.Unmarshal([]byte(b), new(xfer.Remote)); err == nil {
			t.Errorf("%q is a Remote", b)
		}
	}
	b := rdmatest.Must(remote.MarshalBinary())(t)
	var back xfer.Remote
	if rdmatest.Check(t, back.UnmarshalBinary(b)); back != remote || len(b) != 58 {
		t.Errorf("%v became %v, in %d bytes", remote, back, len(b))
	}
	if err := back.UnmarshalBinary(b[1:]); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a short Remote: %v", err)
	}
	logged := new(strings.Builder)
	slog.New(slog.NewJSONHandler(logged, nil)).Info("granted", "remote", remote)
	if secret := hex.EncodeToString(b[26:42]); strings.Contains(logged.String(), secret) || !strings.Contains(logged.String(), "of grant 1") {
		t.Errorf("a log has %s", logged)
	}
}

// Grants may be for some peers, for a time, and for some access of some memory.
func TestGrants(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{})
	mine, theirs := memory(t, m.a, 100, 1), memory(t, m.b, 100, 2)
	ctx := patient(t)
	asked := 0
	g := rdmatest.Must(theirs.All().Grant(xfer.GrantOptions{Access: xfer.Read, Allow: func(p *xfer.Peer) bool {
		asked++
		return p != m.b.Peers()[0]
	}}))(t)
	if err := m.peer.Read(ctx, mine.All(), g.Remote()); !errors.Is(err, xfer.ErrDenied) || asked != 1 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	g = rdmatest.Must(theirs.All().Grant(xfer.GrantOptions{Access: xfer.Write, Expires: time.Now().Add(10 * time.Millisecond)}))(t)
	for err := error(nil); err == nil; { // until it expires
		if err = m.peer.Write(ctx, g.Remote(), mine.All()); err != nil && !errors.Is(err, xfer.ErrRevoked) {
			t.Errorf("an expired grant: %v", err)
		}
	}
	// An old grant's number is of no use without its secret.
	b := rdmatest.Must(g.Remote().MarshalBinary())(t)
	var forged xfer.Remote
	b[26]++
	rdmatest.Check(t, forged.UnmarshalBinary(b))
	if err := m.peer.Write(ctx, forged, mine.All()); !errors.Is(err, xfer.ErrDenied) {
		t.Errorf("a revoked grant with a forged secret: %v", err)
	}
	if _, err := theirs.All().Grant(xfer.GrantOptions{}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("no access: %v", err)
	}
	only := rdmatest.Must(m.b.Register(make([]byte, 100), true))(t)
	if _, err := only.All().Grant(xfer.GrantOptions{Access: xfer.Write}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a grant to write to read-only memory: %v", err)
	}
	rdmatest.Check(t, m.peer.Read(ctx, mine.All(), grant(t, only.All(), xfer.Read).Remote()))
	if err := m.b.Peers()[0].Read(ctx, only.All(), grant(t, mine.All(), xfer.Read).Remote()); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a read into read-only memory: %v", err)
	}
	// Closed memory takes its grants with it.
	g = grant(t, theirs.All(), xfer.Read)
	rdmatest.Check(t, m.peer.Read(ctx, mine.All(), g.Remote()))
	rdmatest.Check(t, theirs.Close())
	rdmatest.Check(t, theirs.Close())
	if err := m.peer.Read(ctx, mine.All(), g.Remote()); !errors.Is(err, xfer.ErrRevoked) {
		t.Errorf("memory was closed: %v", err)
	}
	if _, err := theirs.All().Grant(xfer.GrantOptions{Access: xfer.Read}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a grant of closed memory: %v", err)
	}
}

// A wait that ends early says what may still be written. Cancel takes back what isn't begun.
func TestCancel(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{SliceBytes: 4096, SmallBytes: 100, Window: 2})
	const n = 40960
	mine, theirs := memory(t, m.a, n, 1), memory(t, m.b, n, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	first := -1 // the first request that is held
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
		if first < 0 {
			first = r.Seq
		}
		return verbstest.Hold()
	})
	fill(mine.Bytes(), 9)
	var b xfer.Batch
	b.Write(remote, mine.All())
	b.Notify(1)
	rdmatest.Check(t, m.peer.Start(&b))
	if err := m.peer.Start(&b); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("a running batch is started: %v", err)
	}
	if err := mine.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("memory is closed under a batch: %v", err)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	var pending *xfer.PendingError
	if err := b.Wait(short); !errors.As(err, &pending) || pending.Done != 0 || pending.Total != n || !errors.Is(err, context.Canceled) {
		t.Errorf("a wait ends early: %v", err)
	}
	// When some slices are done, it says how many bytes.
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Seq >= first+4 { // each slice has a fence
			return verbstest.Hold()
		}
		return verbstest.Fault{}
	})
	eventually(t, "two slices are done", func() bool {
		err := b.Wait(short)
		return errors.As(err, &pending) && pending.Done == 2*4096 && strings.Contains(err.Error(), "8192 of 40960 bytes done")
	})
	b.Cancel()
	select {
	case <-b.Done():
		t.Error("the batch is over, and its requests are not")
	default:
	}
	m.net.SetFault(nil)
	if err := b.Wait(ctx); !errors.Is(err, xfer.ErrCanceled) {
		t.Errorf("canceled: %v", err)
	}
	written := 0
	for i := 0; i < n; i += 4096 {
		if bytes.Equal(theirs.Bytes()[i:i+4096], mine.Bytes()[i:i+4096]) {
			written++
		}
	}
	if written != 4 {
		t.Errorf("%d slices were written, want the 2 that were done and the 2 that were in flight", written)
	}
	// Do cancels, and waits.
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault { return verbstest.Hold() })
	short, cancel = context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- m.peer.Do(short, &b) }()
	cancel()
	m.net.SetFault(nil)
	if err := <-done; !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("Do: %v", err)
	}
	rdmatest.Check(t, mine.Close())
}

// A batch may tell of its end with a call, which may start it again.
func TestOnDone(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{})
	mine, theirs := memory(t, m.a, 100, 1), memory(t, m.b, 100, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	done := make(chan error)
	times := 0
	b := xfer.Batch{OnDone: func(b *xfer.Batch) {
		if times++; times == 100 || b.Err() != nil {
			done <- b.Err()
			return
		}
		rdmatest.Check(t, m.peer.Start(b))
	}}
	b.Write(remote, mine.All())
	rdmatest.Check(t, m.peer.Start(&b))
	rdmatest.Check(t, <-done)
	if err := m.peer.Do(t.Context(), &b); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("Do with OnDone: %v", err)
	}
	var empty xfer.Batch
	rdmatest.Check(t, m.peer.Do(t.Context(), &empty))
	var wrong xfer.Batch
	wrong.Write(xfer.Remote{}, mine.All())
	if err := m.peer.Start(&wrong); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an invalid batch: %v", err)
	}
	if err := wrong.Wait(t.Context()); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a batch that could not be started: %v", err)
	}
	if err := new(xfer.Batch).Wait(t.Context()); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a batch that was never started: %v", err)
	}
}

// Short operations don't wait behind long ones.
func TestSmallOvertakes(t *testing.T) {
	m := twoEngines(t, 1, xfer.Options{SliceBytes: 4096, SmallBytes: 100})
	mine, theirs := memory(t, m.a, 200_000, 1), memory(t, m.b, 200_000, 2)
	remote := grant(t, theirs.All(), xfer.Write).Remote()
	ctx := patient(t)
	m.allUp(t)
	rdmatest.Check(t, m.peer.Write(ctx, remote, mine.All()))
	m.net.SetFault(func(r verbstest.Request) verbstest.Fault {
		if r.Length == 4096 {
			return verbstest.Hold()
		}
		return verbstest.Fault{}
	})
	var long, short xfer.Batch
	long.Write(remote, mine.All())
	rdmatest.Check(t, m.peer.Start(&long))
	short.Write(remote.Slice(0, 100), mine.Slice(0, 100))
	short.Notify(1)
	rdmatest.Check(t, m.peer.Do(ctx, &short))
	select {
	case <-long.Done():
		t.Error("the long batch is over, and its requests are held")
	default:
	}
	m.net.SetFault(nil)
	rdmatest.Check(t, long.Wait(ctx))
}
