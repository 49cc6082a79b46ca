package verbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// TestSGE: an entry is within the MR and has its whole length, or SGE panics.
func TestSGE(t *testing.T) {
	mr := &MR{iova: 0x1000, length: 6 << 30}
	mr.ref.LKey = 7
	for _, tt := range []struct {
		off, n uint64
		ok     bool
	}{
		{0, 0, true},
		{0, 1, true},
		{5, 1<<32 - 1, true},
		{0, 1 << 32, false},
		{0, 4<<30 + 4096, false},
		{0, 6 << 30, false}, // Len
		{6 << 30, 0, true},
		{6 << 30, 1, false},
		{6<<30 - 1, 1, true},
		{6<<30 - 1, 2, false},
		{math.MaxInt, math.MaxInt, false},
		{1 << 63, 1, false},
		{1, 1 << 63, false},
	} {
		var got SGE
		panicked := func() (p any) {
			defer func() { p = recover() }()
			got = mr.SGE(int(tt.off), int(tt.n))
			return nil
		}()
		want := SGE{Addr: 0x1000 + tt.off, Length: uint32(tt.n), LKey: 7}
		if (panicked == nil) != tt.ok || tt.ok && got != want {
			t.Errorf("SGE(%d, %d) = %+v, panic %v", tt.off, tt.n, got, panicked)
		}
	}
}

// TestRegMR: the command has the arguments, and the MR has the response.
func TestRegMR(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	page := uint64(syscall.Getpagesize() - 1)
	buf := must(ioctl.MapMemory(3 * syscall.Getpagesize()))(t)
	defer ioctl.Munmap(buf)
	for _, tt := range []struct {
		off, n int
		access AccessFlags
		iova   uint64
	}{
		{0, 4096, AccessLocalWrite | AccessRemoteWrite, 0},
		{100, 5000, AccessZeroBased, 0},
		{100, 5000, 0, 7<<40 + 100},
	} {
		var req uapi.IbUverbsRegMr
		k.answerTo("reg_mr", func(f *fakeCall) error {
			req = in[uapi.IbUverbsRegMr](f, uapi.UVERBS_ATTR_CORE_IN)
			return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsRegMrResp{MrHandle: 11, Lkey: 12, Rkey: 13})
		})
		part := buf[tt.off : tt.off+tt.n]
		mr := must(pd.RegMR(part, MROptions{Access: tt.access, IOVA: tt.iova}))(t)
		start := uint64(uintptr(unsafe.Pointer(&part[0])))
		iova := start
		if tt.access&AccessZeroBased != 0 {
			iova &= page
		}
		if tt.iova != 0 {
			iova = tt.iova
		}
		want := uapi.IbUverbsRegMr{Start: start, Length: uint64(tt.n), HcaVa: iova, PdHandle: pd.handle, AccessFlags: uint32(tt.access)}
		want.Response = req.Response
		if !reflect.DeepEqual(req, want) {
			t.Errorf("asked for %+v, want %+v", req, want)
		}
		if r := (Remote{iova, 13}); mr.Remote() != r {
			t.Errorf("Remote returns %v, want %v", mr.Remote(), r)
		}
		if s := mr.SGEOf(part[7:40]); s != mr.SGE(7, 33) || s != (SGE{iova + 7, 33, 12}) {
			t.Errorf("the SGE of a part is %+v", s)
		}
		if mr.handle != 11 || mr.LKey() != 12 || mr.RKey() != 13 || mr.Addr() != iova || mr.Len() != tt.n || mr.Access() != tt.access || len(mr.Bytes()) != tt.n {
			t.Errorf("%+v", mr)
		}

		// Memory of another length, in other pages.
		other := buf[syscall.Getpagesize()+200:][:300]
		start = uint64(uintptr(unsafe.Pointer(&other[0])))
		for _, now := range []AccessFlags{tt.access, AccessZeroBased, AccessLocalWrite} {
			iova = start
			if now&AccessZeroBased != 0 {
				iova &= page
			}
			var req uapi.IbUverbsReregMr
			k.answerTo("rereg_mr", func(f *fakeCall) error {
				req = in[uapi.IbUverbsReregMr](f, uapi.UVERBS_ATTR_CORE_IN)
				return f.out(uapi.UVERBS_ATTR_CORE_OUT, &uapi.IbUverbsReregMrResp{Lkey: 22, Rkey: 23})
			})
			if err := mr.Rereg(ReregOptions{Buf: other, Access: &now}); err != nil {
				t.Fatal(err)
			}
			want := uapi.IbUverbsReregMr{
				Response: req.Response, MrHandle: 11, Flags: uint32(uapi.IB_MR_REREG_TRANS | uapi.IB_MR_REREG_ACCESS),
				Start: start, Length: 300, HcaVa: iova, AccessFlags: uint32(now),
			}
			if !reflect.DeepEqual(req, want) {
				t.Errorf("asked for %+v, want %+v", req, want)
			}
			if mr.LKey() != 22 || mr.RKey() != 23 || mr.Addr() != iova || mr.Len() != 300 || mr.Access() != now || &mr.Bytes()[0] != &other[0] {
				t.Errorf("%+v", mr)
			}
		}
	}
}

// TestIOVA: an address that the kernel would refuse, or that the device could not count
// on from, is refused.
func TestIOVA(t *testing.T) {
	d, k := fakeContext(t)
	pd := must(d.AllocPD())(t)
	buf := must(ioctl.MapMemory(2 * syscall.Getpagesize()))(t)
	defer ioctl.Munmap(buf)
	mr := must(pd.RegMR(buf, MROptions{}))(t)
	calls := len(k.calls)
	for _, iova := range []uint64{1, 1 << 20, 1<<20 + 8, -uint64(syscall.Getpagesize()) + 7} {
		if _, err := pd.RegMR(buf[7:], MROptions{IOVA: iova}); !errors.Is(err, ErrInvalid) {
			t.Errorf("IOVA %#x: %v", iova, err)
		}
		if err := mr.Rereg(ReregOptions{Buf: buf[7:], IOVA: iova}); !errors.Is(err, ErrInvalid) {
			t.Errorf("IOVA %#x afterwards: %v", iova, err)
		}
	}
	if _, err := pd.AllocMR(4096, MROptions{IOVA: 1 << 20, Access: AccessZeroBased}); !errors.Is(err, ErrInvalid) {
		t.Errorf("zero-based memory with an IOVA: %v", err)
	}
	if err := mr.Rereg(ReregOptions{IOVA: 1 << 20}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an IOVA without memory: %v", err)
	}
	if n := len(k.calls); n != calls {
		t.Errorf("%d commands reached the kernel", n-calls)
	}
}

// TestSGEOf: SGEOf panics for a slice that isn't part of the MR's memory.
func TestSGEOf(t *testing.T) {
	d, _ := fakeContext(t)
	buf := make([]byte, 64)
	mr := must(must(d.AllocPD())(t).RegMR(buf[16:32], MROptions{}))(t)
	for name, b := range map[string][]byte{
		"before": buf[:8], "across the beginning": buf[8:20], "across the end": buf[30:33], "after": buf[33:40], "elsewhere": make([]byte, 4),
		"none": nil,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			mr.SGEOf(b)
		}()
	}
	if s := mr.SGEOf(buf[32:32]); s.Length != 0 || s.Addr != mr.Addr()+16 {
		t.Errorf("the end is %+v", s)
	}
}

// TestReregPD moves an MR to another PD. Then that PD can't be closed, and the first PD can.
func TestReregPD(t *testing.T) {
	d, k := fakeContext(t)
	one, two := must(d.AllocPD())(t), must(d.AllocPD())(t)
	mr := must(one.RegMR(make([]byte, 64), MROptions{}))(t)
	var req uapi.IbUverbsReregMr
	k.answerTo("rereg_mr", func(f *fakeCall) error {
		req = in[uapi.IbUverbsReregMr](f, uapi.UVERBS_ATTR_CORE_IN)
		return unix.EOPNOTSUPP
	})
	if err := mr.Rereg(ReregOptions{PD: two}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("refused: %v", err)
	}
	if one.holds.Load() != 1 || two.holds.Load() != 0 {
		t.Errorf("after a refusal the PDs are held %d and %d times", one.holds.Load(), two.holds.Load())
	}
	k.answerTo("rereg_mr", nil)
	if err := mr.Rereg(ReregOptions{PD: two}); err != nil {
		t.Fatal(err)
	}
	if req.Flags != uint32(uapi.IB_MR_REREG_PD) || req.PdHandle != two.handle {
		t.Errorf("asked for %+v", req)
	}
	if err := two.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("the new PD: %v", err)
	}
	if err := one.Close(); err != nil {
		t.Errorf("the old PD: %v", err)
	}
}

// TestNoMemory: ENOMEM of a verb that locks memory has a hint.
func TestNoMemory(t *testing.T) {
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	for verb, f := range map[string]func() error{
		"reg_mr":     func() error { _, err := x.pd.RegMR(make([]byte, 1), MROptions{}); return err },
		"rereg_mr":   func() error { return x.mr.Rereg(ReregOptions{Buf: make([]byte, 1)}) },
		"create_cq":  func() error { _, err := d.CreateCQ(CQOptions{MaxCQE: 1}); return err },
		"resize_cq":  func() error { return x.cq.Resize(2) },
		"create_qp":  func() error { _, err := x.pd.CreateQP(QPOptions{Type: RC, SendCQ: x.cq, RecvCQ: x.cq}); return err },
		"create_srq": func() error { _, err := x.pd.CreateSRQ(SRQOptions{MaxWR: 1, MaxSGE: 1}); return err },
	} {
		for errno, want := range map[syscall.Errno]bool{unix.ENOMEM: true, unix.EINVAL: false} {
			k.answerTo(verb, refuse(errno))
			if err := f(); !errors.Is(err, errno) || strings.Contains(err.Error(), "RLIMIT_MEMLOCK") != want {
				t.Errorf("%s: %v", verb, err)
			}
		}
		k.answerTo(verb, nil)
	}
	d.prov.(*fakeProvider).adopt = &ioctl.MapError{Err: unix.ENOMEM}
	if _, err := d.CreateCQ(CQOptions{MaxCQE: 1}); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "mmap: ENOMEM") || !strings.Contains(err.Error(), "max_map_count") {
		t.Error(err)
	}
	k.answerTo("reg_mr", refuse(unix.EFAULT))
	if _, err := x.pd.RegMR(make([]byte, 1), MROptions{}); !errors.Is(err, unix.EFAULT) || !strings.Contains(err.Error(), "not mapped") {
		t.Error(err)
	}
}

// TestSharedXRCD: the caller's file stays open until the kernel has it, even without other
// references, and a closed file is refused.
func TestSharedXRCD(t *testing.T) {
	d, k := fakeContext(t)
	path := filepath.Join(t.TempDir(), "domain")
	create := func() *os.File { return must(os.Create(path))(t) }
	var seen string
	k.answerTo("open_xrcd", func(f *fakeCall) error {
		for range 3 {
			runtime.GC()
		}
		fd := int32(in[uapi.IbUverbsOpenXrcd](f, uapi.UVERBS_ATTR_CORE_IN).Fd)
		seen, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		return errPassOn
	})
	x, err := d.OpenSharedXRCD(create())
	if err != nil || seen != path {
		t.Errorf("%v, the kernel saw %q", err, seen)
	} else if err := x.Close(); err != nil {
		t.Error(err)
	}
	closed := create()
	closed.Close()
	for _, f := range []*os.File{closed, nil} {
		if _, err := d.OpenSharedXRCD(f); !errors.Is(err, ErrInvalid) || k.count("open_xrcd") != 1 {
			t.Errorf("%v: %v", f, err)
		}
	}
	var fd uint32
	k.answerTo("open_xrcd", func(f *fakeCall) error {
		fd = in[uapi.IbUverbsOpenXrcd](f, uapi.UVERBS_ATTR_CORE_IN).Fd
		return errPassOn
	})
	if _, err := d.OpenXRCD(); err != nil || int32(fd) != -1 {
		t.Errorf("%v, descriptor %d", err, fd)
	}
}

// TestNil calls every method on nil pointers. Only MR.SGE, MR.SGEOf and MR.All panic, as
// documented. Methods that return an error return one.
func TestNil(t *testing.T) {
	for _, x := range []any{
		(*DeviceInfo)(nil), (*Device)(nil), (*PD)(nil), (*MR)(nil), (*MW)(nil), (*AH)(nil), (*CompChannel)(nil),
		(*CQ)(nil), (*SRQ)(nil), (*QP)(nil), (*XRCD)(nil), (*Flow)(nil), (*DM)(nil),
		(*DMAH)(nil), (*CompCounter)(nil), (*WQ)(nil), (*IndirectionTable)(nil), (*Counters)(nil),
	} {
		v := reflect.ValueOf(x)
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			name := fmt.Sprintf("%T.%s", x, m.Name)
			if m.Name == "SGE" || m.Name == "SGEOf" || m.Name == "All" && x == any((*MR)(nil)) {
				continue
			}
			var args []reflect.Value
			for j := 1; j < m.Type.NumIn(); j++ {
				if m.Type.IsVariadic() && j == m.Type.NumIn()-1 {
					break
				}
				args = append(args, reflect.Zero(m.Type.In(j)))
			}
			panicked := func() (p any) {
				defer func() { p = recover() }()
				out := v.Method(i).Call(args)
				if n := len(out); n > 0 && m.Type.Out(n-1) == reflect.TypeFor[error]() {
					if err, _ := out[n-1].Interface().(error); (err == nil) != strings.HasPrefix(m.Name, "Close") {
						t.Errorf("%s: %v", name, err)
					}
				}
				return nil
			}()
			if panicked != nil {
				t.Errorf("%s panics: %v", name, panicked)
			}
		}
	}
}

// TestClosedStillTells: a closed object's properties can still be read.
func TestClosedStillTells(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	snapshot := func() []any {
		return []any{
			x.qp.Num(), x.qp.Type(), x.qp.Cap(), x.srq.MaxWR(), x.srq.MaxSGE(), x.cq.MaxCQE(),
			x.mr.Addr(), x.mr.Len(), x.mr.LKey(), x.mr.RKey(), x.mr.Access(), x.mw.RKey(), x.mw.Type(), x.pd.Device(),
		}
	}
	before := snapshot()
	if x.qp.Num() == 0 || x.mr.LKey() == 0 || x.mr.RKey() == 0 || x.mr.LKey() == x.mr.RKey() || x.mw.RKey() == 0 {
		t.Errorf("%v", before)
	}
	for _, o := range x.all() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := snapshot(); !reflect.DeepEqual(before, after) {
		t.Errorf("%v, before %v", after, before)
	}
}

// TestNextRKey: the index part of a key stays the same, whatever its lowest byte.
func TestNextRKey(t *testing.T) {
	for key, want := range map[uint32]uint32{
		0: 1, 0x123456fe: 0x123456ff, 0x123456ff: 0x12345600, 0xffffffff: 0xffffff00, 0xff: 0, 0xffff7f: 0xffff80,
	} {
		if got := NextRKey(key); got != want {
			t.Errorf("NextRKey(%#x) = %#x, want %#x", key, got, want)
		}
	}
}
