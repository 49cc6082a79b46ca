package mlx5dv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/tests/internal/control"
	"github.com/goverbs/goverbs/verbs"
)

// Commands of the firmware (mlx5_ifc.h).
const (
	allocQCounter = 0x771
	queryQCounter = 0x773
	createCQ      = 0x400
	queryCQ       = 0x402
	queryQP       = 0x50b
	allocPD       = 0x800
)

// TestCommand: the firmware's capabilities equal those that verbs reports. A command that the
// kernel doesn't allow, or that the firmware refuses, is an error.
func TestCommand(t *testing.T) {
	c := open(t, rdmatest.Device)
	attr := rdmatest.Must(c.QueryDevice())(t)
	if n := capability(t, c, 155, 5); 1<<n != attr.MaxQP {
		t.Errorf("log_max_qp is %d, the device has %d QPs", n, attr.MaxQP)
	}
	if n := capability(t, c, 219, 5); 1<<n != attr.MaxCQ {
		t.Errorf("log_max_cq is %d, the device has %d CQs", n, attr.MaxCQ)
	}
	const queryCap = 0x100
	out := make([]byte, 16+4096)
	err := mlx5dv.Command(c, command(queryCap, 99<<1, 16), out)
	var refused *mlx5dv.CommandError
	if !errors.As(err, &refused) || refused.Opcode != queryCap || refused.Status == 0 {
		t.Errorf("capabilities of an unknown kind: %v", err)
	}
	if err := mlx5dv.Command(c, command(0x102, 0, 16), out); err == nil || errors.As(err, &refused) {
		t.Errorf("INIT_HCA: %v, the kernel must refuse it", err)
	}
	for _, n := range []int{0, 15, 1 << 16} {
		if err := mlx5dv.Command(c, make([]byte, n), out); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("a command of %d bytes: %v", n, err)
		}
		if err := mlx5dv.Command(c, make([]byte, 16), make([]byte, n)); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("an answer of %d bytes: %v", n, err)
		}
	}
}

// newCounter makes a queue counter, and returns the command that queries it.
func newCounter(t *testing.T, c *verbs.Device) (*mlx5dv.Object, []byte) {
	t.Helper()
	out := make([]byte, 16)
	o := rdmatest.Must(mlx5dv.CreateObject(c, command(allocQCounter, 0, 16), out))(t)
	query := command(queryQCounter, 0, 32)
	query[31] = out[11] // the counter's number
	return o, query
}

// TestObject makes, queries and destroys an object of the firmware, and another that only its
// owner may query.
func TestObject(t *testing.T) {
	c := open(t, rdmatest.Device)
	before := objects(t, "counter")
	o, query := newCounter(t, c)
	other, otherQuery := newCounter(t, c)
	if n := objects(t, "counter"); n != before+2 {
		t.Errorf("the firmware has %d counters, before %d", n, before)
	}
	out := make([]byte, 256)
	rdmatest.Check(t, mlx5dv.Query(o, query, out))
	if err := mlx5dv.Query(o, otherQuery, out); err == nil {
		t.Error("a command for another object was accepted")
	}
	rdmatest.Check(t, mlx5dv.Query(other, otherQuery, out))
	rdmatest.Close(t, o)
	rdmatest.Close(t, o)
	if n := objects(t, "counter"); n != before+1 {
		t.Errorf("after one was closed, the firmware has %d counters, before %d", n, before)
	}
	if err := mlx5dv.Query(o, query, out); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("querying a closed object: %v", err)
	}
	var none *mlx5dv.Object
	if err := mlx5dv.Query(none, query, out); !errors.Is(err, verbs.ErrInvalid) || none.Close() != nil {
		t.Errorf("querying nil: %v", err)
	}
	if _, err := mlx5dv.CreateObject(c, command(queryQCounter, 0, 32), out); err == nil {
		t.Error("a query has made an object")
	}
	// The other object is closed with the device.
}

// objects returns how many objects of a kind the firmware has.
func objects(t *testing.T, kind string) int {
	t.Helper()
	all := rdmatest.Must(control.Resources(0))(t)
	n, ok := all[kind]
	if !ok {
		t.Fatalf("the adapter counts no %s: %v", kind, all)
	}
	return n
}

// newCQ makes a CQ of 16 entries by a command, in memory that is registered for it.
func newCQ(t *testing.T, c *verbs.Device) (*mlx5dv.Object, []byte, *mlx5dv.Memory) {
	t.Helper()
	const page, record = 4096, 4096 // the entries' memory, and then the doorbell record
	mem := rdmatest.Must(mlx5dv.RegisterMemory(c, mlx5dv.MemoryOptions{Buf: aligned(2 * page), Access: verbs.AccessLocalWrite}))(t)
	registers := rdmatest.Must(mlx5dv.AllocRegisters(c, mlx5dv.RegistersNC))(t)
	eqn := rdmatest.Must(mlx5dv.EQNumber(c, 0))(t)

	in, out := command(createCQ, 0, 272), make([]byte, 16)
	cqc := in[16:]
	cqc[0] |= 1 << 1 // dbr_umem_valid
	binary.BigEndian.PutUint32(cqc[12:], 4<<24|registers.Number())
	binary.BigEndian.PutUint32(cqc[20:], eqn)
	binary.BigEndian.PutUint32(cqc[4:], mem.ID()) // dbr_umem_id
	binary.BigEndian.PutUint64(cqc[56:], record)
	binary.BigEndian.PutUint32(in[88:], mem.ID())
	in[92] = 1 << 7 // cq_umem_valid
	o := rdmatest.Must(mlx5dv.CreateObject(c, in, out))(t)
	query := command(queryCQ, 0, 16)
	copy(query[8:12], out[8:12])
	return o, query, mem
}

// aligned returns memory that begins with a page.
func aligned(n int) []byte {
	b := make([]byte, n+4096)
	for i := range 4096 {
		if pageOffset(&b[i]) == 0 {
			return b[i : i+n]
		}
	}
	panic("no page begins in 4096 bytes")
}

// TestQueueInMemory: the firmware makes a queue in the program's memory, which can't be
// deregistered meanwhile. Closing the device closes all objects in the right order.
func TestQueueInMemory(t *testing.T) {
	c := open(t, rdmatest.Device)
	o, query, mem := newCQ(t, c)
	out := make([]byte, 272)
	rdmatest.Check(t, mlx5dv.Query(o, query, out))
	if log := be32(out[16:], 12) >> 24; log != 4 {
		t.Errorf("the CQ has 2^%d entries, not 2^4", log)
	}
	if err := mem.Close(); err == nil {
		t.Error("memory was deregistered that a CQ uses")
	}
	rdmatest.Close(t, o)
	rdmatest.Close(t, mem)
	newCQ(t, c)
	for name, o := range map[string]mlx5dv.MemoryOptions{
		"no memory":  {},
		"two kinds":  {Buf: make([]byte, 10), Dmabuf: os.Stdin, Length: 10},
		"no length":  {Dmabuf: os.Stdin},
		"bad access": {Buf: make([]byte, 10), Access: verbs.AccessMWBind},
	} {
		if _, err := mlx5dv.RegisterMemory(c, o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEvents: a port that goes down and up again causes events for its subscribers.
func TestEvents(t *testing.T) {
	const portChange = 9
	c := open(t, rdmatest.Device)
	ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Patience)
	defer cancel()
	full := rdmatest.Must(mlx5dv.NewEventChannel(c, false))(t)
	brief := rdmatest.Must(mlx5dv.NewEventChannel(c, true))(t)
	rdmatest.Check(t, full.Subscribe(nil, 77, portChange))
	rdmatest.Check(t, brief.Subscribe(nil, 88, portChange))
	if err := full.Subscribe(nil, 77); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("no types: %v", err)
	}
	for _, up := range []bool{false, true} {
		rdmatest.Check(t, control.Request{Do: "port", Up: up}.Ask())
		e := rdmatest.Must(full.Wait(ctx))(t)
		if e.Cookie != 77 || len(e.EQE) != 64 || e.EQE[1] != portChange {
			t.Errorf("up %t: %+v", up, e)
		}
		if e = rdmatest.Must(brief.Wait(ctx))(t); e.Cookie != 88 || e.EQE != nil {
			t.Errorf("up %t, without data: %+v", up, e)
		}
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := brief.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that ended: %v", err)
	}
	waited := make(chan error)
	go func() {
		_, err := brief.Wait(context.Background())
		waited <- err
	}()
	rdmatest.Close(t, brief)
	if err := <-waited; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a wait on a closed channel: %v", err)
	}
	if err := brief.Subscribe(nil, 1, portChange); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("subscribing on a closed channel: %v", err)
	}
}

// TestCommandChannel: answers, even refusals, arrive with the IDs of their commands.
func TestCommandChannel(t *testing.T) {
	c := open(t, rdmatest.Device)
	ctx, cancel := context.WithTimeout(context.Background(), rdmatest.Patience)
	defer cancel()
	o, query := newCounter(t, c)
	want := make([]byte, 256)
	rdmatest.Check(t, mlx5dv.Query(o, query, want))
	ch := rdmatest.Must(mlx5dv.NewCommandChannel(c))(t)
	for id := range uint64(3) {
		rdmatest.Check(t, ch.Query(o, id, query, 256))
	}
	seen := make(map[uint64]bool)
	for range 3 {
		id, out, err := ch.Wait(ctx)
		if err != nil || seen[id] || id > 2 || !bytes.Equal(out, want) {
			t.Errorf("command %d: %x, %v", id, out, err)
		}
		seen[id] = true
	}
	if err := ch.Query(o, 1, query[:15], 256); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a short command: %v", err)
	}
	if err := ch.Query(nil, 1, query, 256); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("no object: %v", err)
	}
}
