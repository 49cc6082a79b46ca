package siw

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// kernelFile is a device's file whose memory can be mapped.
func kernelFile(t testing.TB, name string, size int) *ioctl.File {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := ioctl.NewFile(fd)
	t.Cleanup(func() { f.Close() })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	return f
}

// mappings counts the mappings of a kernelFile.
func mappings(t testing.TB, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "/memfd:"+name+" ")
}

// The doorbell of an adopted QP names its handle. A QP with an SRQ maps no receive queue. Adopt returns
// the queues' actual sizes.
func TestAdopt(t *testing.T) {
	const name, second = "goverbs-siw", 1 << 16
	f := kernelFile(t, name, 2*second)
	for srq, want := range map[bool]int{false: 2, true: 1} {
		q := &qp{file: f, resp: &uapi.SiwUrespCreateQp{NumSqe: 8, NumRqe: 4, RqKey: second}}
		q.init.Cap.MaxRecvWr = 3
		if srq {
			q.init.SRQ = new(nobodysSRQ)
		}
		granted := uapi.IbUverbsQpCap{MaxSendWr: 5, MaxRecvWr: 3, MaxSendSge: 2, MaxRecvSge: 3, MaxInlineData: 1}
		if err := q.Adopt(0x1122, 0x33, &granted); err != nil {
			t.Fatal(err)
		}
		if n := mappings(t, name); n != want {
			t.Errorf("SRQ %v: %d queues are mapped", srq, n)
		}
		if granted.MaxSendWr != 8 || granted.MaxInlineData != 80 || !srq && granted.MaxRecvWr != 4 {
			t.Errorf("SRQ %v: it has %+v", srq, granted)
		}
		if handle := binary.NativeEndian.Uint32(q.bell.Bytes()[16:]); handle != 0x1122 || q.Moved(uapi.IB_QPS_RTS) != 0x33 {
			t.Errorf("the doorbell is for %#x, the QP has number %#x", handle, q.Moved(uapi.IB_QPS_RTS))
		}
		q.Release()
		if n := mappings(t, name); n != 0 {
			t.Errorf("SRQ %v: %d queues stay mapped", srq, n)
		}
	}
	c := &cq{file: f, resp: &uapi.SiwUrespCreateCq{NumCqe: 8}}
	if err := c.Adopt(1); err != nil || mappings(t, name) != 1 {
		t.Errorf("a CQ: %v, %d queues are mapped", err, mappings(t, name))
	}
	c.Release()
	if n := mappings(t, name); n != 0 {
		t.Error("the CQ stays mapped")
	}
}

type nobodysSRQ struct{ provider.SRQ }

// Invalid sizes of queues from the kernel are refused, and nothing stays mapped.
func TestHostileSizes(t *testing.T) {
	const name = "goverbs-siw-hostile"
	f := kernelFile(t, name, 1<<16)
	for _, n := range []uint32{0, 3, 5, 1<<24 + 1, 1 << 25, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		c := &cq{file: f, resp: &uapi.SiwUrespCreateCq{NumCqe: n}}
		if c.Adopt(1) == nil {
			t.Errorf("a CQ of %d is adopted", n)
		}
		c.Release()
		s := &srq{file: f, resp: &uapi.SiwUrespCreateSrq{NumRqe: n}}
		if s.Adopt(1, new(provider.SRQInit)) == nil {
			t.Errorf("an SRQ of %d is adopted", n)
		}
		s.Release()
		for _, sq := range []bool{true, false} {
			q := &qp{file: f, resp: &uapi.SiwUrespCreateQp{NumSqe: 2, NumRqe: n}}
			if sq {
				q.resp.NumSqe, q.resp.NumRqe = n, 2
			}
			q.init.Cap.MaxRecvWr = 1
			if q.Adopt(1, 2, new(uapi.IbUverbsQpCap)) == nil {
				t.Errorf("a QP with a queue of %d is adopted", n)
			}
			q.Release()
		}
	}
	if n := mappings(t, name); n != 0 {
		t.Errorf("%d queues stay mapped", n)
	}
}

// Posts and polls don't panic, and return no more completions than there are elements,
// whatever bytes are written to the queues at any time.
func FuzzQueues(f *testing.F) {
	f.Add([]byte{0xff, 1, 3, 0, 0, 9, 255, 255, 7}, uint8(3))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 3, 0, 0}, uint8(200))
	f.Fuzz(func(t *testing.T, noise []byte, at uint8) {
		q, _ := memQP(t, 4)
		c := memCQ(4)
		spoil := func(mem []byte) {
			if len(noise) > 0 {
				copy(mem[int(at)%len(mem):], noise)
			}
		}
		wc := make([]provider.WC, 8)
		for range 3 {
			spoil(q.sq.mem)
			spoil(q.rq.mem)
			spoil(c.mem)
			if n, _ := q.PostSend(make([]provider.SendWR, 8), true); n > 4 {
				t.Fatalf("%d sends in a queue of 4", n)
			}
			q.PostSend(nil, false)
			if n, _ := q.PostRecv(make([]provider.RecvWR, 8)); n > 4 {
				t.Fatalf("%d receives in a queue of 4", n)
			}
			if n, _ := c.Poll(wc); n > 4 {
				t.Fatalf("%d completions in a queue of 4", n)
			}
			for i := range wc {
				if wc[i].Status > 21 {
					t.Fatalf("status %d", wc[i].Status)
				}
			}
		}
	})
}
