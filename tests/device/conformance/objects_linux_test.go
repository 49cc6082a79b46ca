package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/verbs"
)

func allocPD(t *testing.T, c *verbs.Device) *verbs.PD {
	t.Helper()
	pd := rdmatest.Must(c.AllocPD())(t)
	return pd
}

func TestPD(t *testing.T) {
	c := rdmatest.Open(t)
	for range 100 {
		pd := allocPD(t, c)
		if pd.Device() != c {
			t.Fatal("the PD belongs to another context")
		}
		rdmatest.Close(t, pd)
		rdmatest.Close(t, pd) // closing again does nothing
	}
	var pds []*verbs.PD
	for range 100 {
		pds = append(pds, allocPD(t, c))
	}
	for _, pd := range pds {
		rdmatest.Close(t, pd)
	}
	_, err := pds[0].AllocMR(4096, verbs.MROptions{})
	if !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a closed PD returns %v", err)
	}
}

// TestPDInUse: a PD in use refuses to close, and still works.
func TestPDInUse(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	mr := rdmatest.Must(pd.AllocMR(100, verbs.MROptions{}))(t)
	if err := pd.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	rdmatest.Close(t, mr)
	rdmatest.Close(t, pd)
}

func TestAH(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	e := expect(t)
	// The port, too, may require a GRH.
	localAH := e.localAH && !rdmatest.Must(c.QueryPort(rdmatest.Port))(t).GRHRequired
	good := rdmatest.GlobalAddress(t, c)
	for range 2 {
		ah := rdmatest.Must(pd.CreateAH(good))(t)
		rdmatest.Close(t, ah)
		rdmatest.Close(t, ah)
	}
	local := good
	local.IsGlobal = false
	if _, err := pd.CreateAH(local); localAH && err != nil || !localAH && (err == nil || !strings.Contains(err.Error(), "IsGlobal")) {
		t.Errorf("an AH without GRH: %v", err)
	}
	noSuchGID := good
	noSuchGID.SGIDIndex = 200
	if _, err := pd.CreateAH(noSuchGID); (err != nil) != e.checksGID {
		t.Errorf("an AH with a source GID that doesn't exist: %v", err)
	}
}

func TestMRFlags(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	for _, access := range []verbs.AccessFlags{
		verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic, 1 << 31,
	} {
		_, err := pd.AllocMR(4096, verbs.MROptions{Access: access})
		wantInvalid(t, err)
	}
	for _, access := range []verbs.AccessFlags{
		0, verbs.AccessLocalWrite, verbs.AccessRemoteRead, verbs.AccessMWBind, rdmatest.All, verbs.AccessRelaxedOrdering,
	} {
		mr, err := pd.AllocMR(4096, verbs.MROptions{Access: access})
		if err != nil {
			t.Fatalf("%v: %v", access, err)
		}
		if mr.Access() != access {
			t.Errorf("%v became %v", access, mr.Access())
		}
		rdmatest.Close(t, mr)
		rdmatest.Close(t, mr)
	}
}

// TestMRMemory registers memory of all kinds, at any address, and transfers it.
func TestMRMemory(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	heap := make([]byte, 100_000)
	mapped := rdmatest.Must(unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer unix.Munmap(mapped)
	for _, buf := range [][]byte{heap, heap[1:2], heap[4095:70_000], mapped, mapped[4096*3+17:], make([]byte, 1), make([]byte, 7<<20)} {
		mr, err := p.PD.RegMR(buf, verbs.MROptions{Access: rdmatest.All})
		if err != nil {
			t.Fatalf("%d bytes: %v", len(buf), err)
		}
		if mr.Len() != len(buf) || &mr.Bytes()[0] != &buf[0] {
			t.Fatalf("%d bytes became %d", len(buf), mr.Len())
		}
		n := min(len(buf), 1000)
		rdmatest.Fill(buf[len(buf)-n:], n)
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{mr.SGE(len(buf)-n, n)}}, p.B.MR, 0))
		rdmatest.PollOK(t, p.A.CQ, 1)
		wantBytes(t, p.B.MR.Bytes()[:n], rdmatest.Pattern(n, n))
		// The other direction: the peer's memory is the target.
		p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}}, mr, len(buf)-n))
		rdmatest.PollOK(t, p.A.CQ, 1)
		wantBytes(t, p.A.MR.Bytes()[:n], rdmatest.Pattern(n, n))
		rdmatest.Close(t, mr)
	}
}

// TestMRZeroBased: peers address the memory from 0, its first page's start.
func TestMRZeroBased(t *testing.T) {
	e := expect(t)
	p := rdmatest.NewPair(t, rdmatest.Default())
	mr, err := p.PD.AllocMR(8192, verbs.MROptions{Access: rdmatest.All | verbs.AccessZeroBased})
	if !e.zeroBased {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a kernel without zero-based MRs returns %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if mr.Addr() != 0 {
		t.Errorf("a zero-based MR begins at %#x", mr.Addr())
	}
	rdmatest.Fill(p.A.MR.Bytes()[:300], 1)
	p.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{p.A.MR.SGE(0, 300)}}, mr, 5000))
	rdmatest.PollOK(t, p.A.CQ, 1)
	wantArrived(t, mr.Bytes(), 5000, p.A.MR.Bytes()[:300])
}

// TestMRIOVA: both sides address the memory from an address of the caller's choice.
func TestMRIOVA(t *testing.T) {
	const iova = 5<<40 + 24
	p := rdmatest.NewPair(t, rdmatest.Default())
	buf := rdmatest.Must(ioctl.MapMemory(12288))(t)
	defer ioctl.Munmap(buf)
	mr := rdmatest.Must(p.PD.RegMR(buf[24:], verbs.MROptions{Access: rdmatest.All, IOVA: iova}))(t)
	if want := (verbs.Remote{Addr: iova, RKey: mr.RKey()}); mr.Remote() != want {
		t.Errorf("Remote returns %v, want %v", mr.Remote(), want)
	}
	rdmatest.Fill(p.A.MR.Bytes()[:300], 1)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, 300)}, Remote: mr.Remote().At(8000)})
	rdmatest.PollOK(t, p.A.CQ, 1)
	wantBytes(t, mr.Bytes()[8000:8300], p.A.MR.Bytes()[:300])
	p.B.Send(t, verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{mr.SGEOf(buf[8024:8324])}, Remote: p.A.MR.Remote().At(1000)})
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantBytes(t, p.A.MR.Bytes()[1000:1300], p.A.MR.Bytes()[:300])
	rdmatest.Close(t, mr)
}

// TestMRReadOnlyMemory: read-only memory can't be registered for writing.
func TestMRReadOnlyMemory(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	ro := rdmatest.Must(unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE))(t)
	defer unix.Munmap(ro)
	_, err := pd.RegMR(ro, verbs.MROptions{Access: verbs.AccessLocalWrite})
	wantErrno(t, err, syscall.EFAULT)
}

func TestMRRereg(t *testing.T) {
	e := expect(t)
	s := rdmatest.Default()
	s.B.MR = verbs.AccessLocalWrite
	p := rdmatest.NewPair(t, s)
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	err := p.B.MR.Rereg(verbs.ReregOptions{Access: &access})
	if !e.rereg {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a kernel without rereg returns %v", err)
		}
		roundTrip(t, p, 1) // the MR is as before
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	wantWritten(t, p, p.B.MR.RKey(), 0, 1)
	// In another PD, the queue pair can't access it.
	other := allocPD(t, p.Ctx)
	rdmatest.Check(t, p.B.MR.Rereg(verbs.ReregOptions{PD: other}))
	if err := other.Close(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("closing a PD to which an MR was moved: %v", err)
	}
	wantRefused(t, p, p.B.MR.RKey(), 0)
	heap := rdmatest.Must(p.PD.RegMR(make([]byte, 4096), verbs.MROptions{Access: access}))(t)
	err = heap.Rereg(verbs.ReregOptions{Buf: make([]byte, 8192)})
	if !e.reregMemory {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("rereg of the translation: %v", err)
		}
		return
	}
	if err != nil || heap.Len() != 8192 {
		t.Fatalf("rereg of the translation: %v, %d bytes", err, heap.Len())
	}
	q := rdmatest.PairOn(t, p.Ctx, rdmatest.Default())
	moved := rdmatest.Must(q.PD.RegMR(make([]byte, 4096), verbs.MROptions{Access: access}))(t)
	place := make([]byte, 8192)
	rdmatest.Check(t, moved.Rereg(verbs.ReregOptions{Buf: place}))
	rdmatest.Fill(q.A.MR.Bytes()[:300], 5)
	q.A.Send(t, to(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{q.A.MR.SGE(0, 300)}}, moved, 5000))
	rdmatest.PollOK(t, q.A.CQ, 1)
	wantBytes(t, place[5000:5300], rdmatest.Pattern(300, 5))
}

// TestDmabuf: rxe refuses dma-bufs. A driver that supports them refuses this file, which
// isn't one.
func TestDmabuf(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	f := rdmatest.Must(os.Open("/dev/null"))(t)
	defer f.Close()
	_, err := pd.RegDmabufMR(verbs.DmabufOptions{FD: int(f.Fd()), Length: 4096, Access: verbs.AccessLocalWrite})
	if expect(t).dmabuf {
		wantErrno(t, err, syscall.EINVAL)
	} else if !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
}

// udmabuf creates a dma-buf of this process's memory with /dev/udmabuf.
func udmabuf(t *testing.T, n int) (fd int, mem []byte) {
	t.Helper()
	file := rdmatest.Must(unix.MemfdCreate("dmabuf", unix.MFD_ALLOW_SEALING))(t)
	defer unix.Close(file)
	rdmatest.Check(t, unix.Ftruncate(file, int64(n)))
	rdmatest.Must(unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(t)
	mem = rdmatest.Must(unix.Mmap(file, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { unix.Munmap(mem) })
	device := rdmatest.Must(os.OpenFile("/dev/udmabuf", os.O_RDWR, 0))(t)
	defer device.Close()
	const create = 0x40187542 // UDMABUF_CREATE
	arg := struct {
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(file), size: uint64(n)}
	made, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), create, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { unix.Close(int(made)) })
	return int(made), mem
}

// TestDmabufMemory writes, reads and sends the data of a dma-buf.
func TestDmabufMemory(t *testing.T) {
	if e := expect(t); !e.dmabuf || !e.udmabuf {
		return // TestDmabuf tests the refusal; the rest needs a dma-buf
	}
	const offset, iova, n = 4096, 0x12345000, 3 * 4096
	p := rdmatest.NewPair(t, rdmatest.Default())
	fd, mem := udmabuf(t, 4*4096)
	mr := rdmatest.Must(p.PD.RegDmabufMR(verbs.DmabufOptions{FD: fd, Offset: offset, Length: n, IOVA: iova, Access: rdmatest.All}))(t)
	data := rdmatest.Pattern(6000, 1)
	copy(p.A.MR.Bytes(), data)
	p.A.Send(t, verbs.SendWR{
		Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, len(data))}, Remote: verbs.Remote{Addr: iova + 100, RKey: mr.RKey()},
	})
	rdmatest.PollOK(t, p.A.CQ, 1)
	wantBytes(t, mem[offset+100:][:len(data)], data)

	rdmatest.Fill(mem[offset:], 2)
	p.A.Send(t, verbs.SendWR{
		Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.A.MR.SGE(0, n)}, Remote: verbs.Remote{Addr: iova, RKey: mr.RKey()},
	})
	rdmatest.PollOK(t, p.A.CQ, 1)
	wantBytes(t, p.A.MR.Bytes()[:n], mem[offset:])

	p.B.Recv(t, 1, 0, n)
	p.A.Send(t, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{{Addr: iova + 4090, Length: 5000, LKey: mr.LKey()}}})
	rdmatest.PollOK(t, p.A.CQ, 1)
	rdmatest.PollOK(t, p.B.CQ, 1)
	wantBytes(t, p.B.MR.Bytes()[:5000], mem[offset+4090:][:5000])
	rdmatest.Close(t, mr)
}

// TestForkSafety: a forked child doesn't inherit registered memory that the library
// allocated, so that copy-on-write never separates it from the device.
func TestForkSafety(t *testing.T) {
	c := rdmatest.Open(t)
	pd := allocPD(t, c)
	mr := rdmatest.Must(pd.AllocMR(3<<20, verbs.MROptions{}))(t)
	f := rdmatest.Must(os.Open("/proc/self/smaps"))(t)
	defer f.Close()
	start := fmt.Sprintf("%x-", mr.Addr())
	inside := false
	for s := bufio.NewScanner(f); s.Scan(); {
		inside = inside || strings.HasPrefix(s.Text(), start)
		if flags, ok := strings.CutPrefix(s.Text(), "VmFlags:"); ok && inside {
			if !strings.Contains(flags, " dc") {
				t.Errorf("the mapping's flags are %s, without dc (do not copy on fork)", flags)
			}
			return
		}
	}
	t.Errorf("no mapping at %#x", mr.Addr())
}
