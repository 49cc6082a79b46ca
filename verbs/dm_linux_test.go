package verbs

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// fakeMemory is a fakeProvider's memory of the device.
type fakeMemory struct {
	*fakeProvider
	dms []*fakeDM
}

func (m *fakeMemory) NewDM(_ ioctl.DmAlloc, n int) (provider.DM, error) {
	d := &fakeDM{b: make([]byte, n), of: m.fakeProvider}
	m.dms = append(m.dms, d)
	return d, nil
}

type fakeDM struct {
	b        []byte
	of       *fakeProvider
	released int
}

func (d *fakeDM) Adopt() error                    { return d.of.adopt }
func (d *fakeDM) Store(off int, from []byte)      { copy(d.b[off:], from) }
func (d *fakeDM) Load(to []byte, off int)         { copy(to, d.b[off:]) }
func (d *fakeDM) Mapping() (offset, start uint64) { return 0x5000, 0x40 }
func (d *fakeDM) Release()                        { d.released++ }

// withMemory opens a device with n bytes of memory.
func withMemory(t *testing.T, n uint64) (*Device, *fakeKernel, *fakeMemory) {
	t.Helper()
	d, k := fakeContext(t)
	m := &fakeMemory{fakeProvider: d.prov.(*fakeProvider)}
	d.prov = m
	must(d.deviceLimits())(t).MaxDMSize = n
	return d, k, m
}

func TestAllocDM(t *testing.T) {
	d, k, m := withMemory(t, 4096)
	for _, tt := range []struct {
		o   DMOptions
		ok  bool
		log uint32
	}{
		{DMOptions{Length: 1}, true, 0},
		{DMOptions{Length: 4096, Align: 1}, true, 0},
		{DMOptions{Length: 64, Align: 4096}, true, 12},
		{DMOptions{Length: 0}, false, 0},
		{DMOptions{Length: 4097}, false, 0},
		{DMOptions{Length: 1 << 63}, false, 0},
		{DMOptions{Length: 64, Align: 3}, false, 0},
		{DMOptions{Length: 64, Align: -8}, false, 0},
	} {
		before := k.count("alloc_dm")
		k.answerTo("alloc_dm", func(f *fakeCall) error {
			n, log := in[uint64](f, uapi.UVERBS_ATTR_ALLOC_DM_LENGTH), in[uint32](f, uapi.UVERBS_ATTR_ALLOC_DM_ALIGNMENT)
			if n != tt.o.Length || log != tt.log {
				t.Errorf("%+v: the kernel got %d bytes, alignment %d", tt.o, n, log)
			}
			return errPassOn
		})
		dm, err := d.AllocDM(tt.o)
		if !tt.ok {
			if !errors.Is(err, ErrInvalid) || k.count("alloc_dm") != before {
				t.Errorf("%+v: %v", tt.o, err)
			}
			continue
		}
		if err != nil || k.count("alloc_dm") != before+1 || dm.Len() != int(tt.o.Length) {
			t.Errorf("%+v: %v", tt.o, err)
			continue
		}
		if err := dm.Close(); err != nil || m.dms[len(m.dms)-1].released != 1 || dm.Len() != int(tt.o.Length) {
			t.Errorf("%+v: %v", tt.o, err)
		}
	}
	// A refused command leaves nothing behind.
	k.answerTo("alloc_dm", refuse(unix.ENOMEM))
	freed := k.count("free_dm")
	if _, err := d.AllocDM(DMOptions{Length: 8}); !errors.Is(err, unix.ENOMEM) || k.count("free_dm") != freed {
		t.Errorf("refused: %v", err)
	}
	k.answerTo("alloc_dm", nil)
	m.adopt = errors.New("no map")
	if _, err := d.AllocDM(DMOptions{Length: 8}); !errors.Is(err, m.adopt) || k.count("free_dm") != freed+1 {
		t.Errorf("not to be mapped: %v", err)
	}
	m.adopt = nil
	must(d.deviceLimits())(t).MaxDMSize = 0
	if _, err := d.AllocDM(DMOptions{Length: 8}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a device without memory: %v", err)
	}
	d.prov = m.fakeProvider
	must(d.deviceLimits())(t).MaxDMSize = 64
	if _, err := d.AllocDM(DMOptions{Length: 8}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a provider without it: %v", err)
	}
}

func TestAccessDM(t *testing.T) {
	d, _, m := withMemory(t, 4096)
	dm := must(d.AllocDM(DMOptions{Length: 64}))(t)
	want := bytes.Repeat([]byte{7}, 64)
	if n, err := dm.WriteAt(want, 0); n != 64 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := dm.WriteAt([]byte{1, 2, 3, 4}, 60); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	copy(want[60:], []byte{1, 2, 3, 4})
	if !bytes.Equal(m.dms[0].b, want) {
		t.Errorf("% x", m.dms[0].b)
	}
	got := make([]byte, 8)
	if n, err := dm.ReadAt(got, 56); n != 8 || err != nil || !bytes.Equal(got, want[56:]) {
		t.Errorf("%d, %v: % x", n, err, got)
	}
	for _, tt := range []struct {
		off int64
		n   int
	}{{0, 68}, {60, 8}, {64, 4}, {68, 0}, {-4, 4}, {1 << 62, 4}, {2, 4}, {4, 2}, {0, 3}} {
		for name, f := range map[string]func([]byte, int64) (int, error){"read": dm.ReadAt, "write": dm.WriteAt} {
			if n, err := f(make([]byte, tt.n), tt.off); n != 0 || !errors.Is(err, ErrInvalid) {
				t.Errorf("%s of %d bytes at %d: %d, %v", name, tt.n, tt.off, n, err)
			}
		}
	}
	if !bytes.Equal(m.dms[0].b, want) {
		t.Errorf("% x", m.dms[0].b)
	}
	if n, err := dm.ReadAt(nil, 64); n != 0 || err != nil {
		t.Errorf("nothing at the end: %d, %v", n, err)
	}
	if err := dm.Close(); err != nil {
		t.Error(err)
	}
	if _, err := dm.ReadAt(got, 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestRegDM(t *testing.T) {
	d, k, _ := withMemory(t, 4096)
	pd := must(d.AllocPD())(t)
	dm := must(d.AllocDM(DMOptions{Length: 100}))(t)
	for _, tt := range []struct {
		off, n uint64
		access AccessFlags
		ok     bool
		length uint64
	}{
		{0, 0, 0, true, 100},
		{40, 0, AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic, true, 60},
		{0, 100, AccessZeroBased, true, 100},
		{99, 1, 0, true, 1},
		{100, 0, 0, false, 0},
		{100, 1, 0, false, 0},
		{1, 100, 0, false, 0},
		{1 << 63, 1 << 63, 0, false, 0},
		{8, ^uint64(0), 0, false, 0},
		{0, 8, AccessOnDemand, false, 0},
		{0, 8, AccessMWBind, false, 0},
		{0, 8, AccessRemoteWrite, false, 0},
	} {
		asked := 0
		k.answerTo("reg_dm_mr", func(f *fakeCall) error {
			asked++
			key := uint32(12)
			f.out(uapi.UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &key)
			key++
			f.out(uapi.UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &key)
			off, n := in[uint64](f, uapi.UVERBS_ATTR_REG_DM_MR_OFFSET), in[uint64](f, uapi.UVERBS_ATTR_REG_DM_MR_LENGTH)
			access := AccessFlags(in[uint32](f, uapi.UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS))
			if off != tt.off || n != tt.length || access != tt.access|AccessZeroBased ||
				f.handleOf(uapi.UVERBS_ATTR_REG_DM_MR_PD_HANDLE) != pd.handle || f.handleOf(uapi.UVERBS_ATTR_REG_DM_MR_DM_HANDLE) != dm.handle {
				t.Errorf("%+v: the kernel got %d bytes from %d, %v", tt, n, off, access)
			}
			return errPassOn
		})
		mr, err := pd.RegDM(DMRegion{DM: dm, Offset: tt.off, Length: tt.n}, tt.access)
		if !tt.ok {
			if !errors.Is(err, ErrInvalid) || asked != 0 || pd.holds.Load() != 0 || dm.holds.Load() != 0 {
				t.Errorf("%+v: %v, asked %d times; held %d, %d", tt, err, asked, pd.holds.Load(), dm.holds.Load())
			}
			continue
		}
		if err != nil || asked != 1 {
			t.Errorf("%+v: %v, asked %d times", tt, err, asked)
			continue
		}
		if mr.Addr() != 0 || mr.Len() != int(tt.length) || mr.Bytes() != nil || mr.LKey() != 12 || mr.RKey() != 13 || mr.Access() != tt.access|AccessZeroBased {
			t.Errorf("%+v: %+v", tt, mr)
		}
		for _, o := range []interface{ Close() error }{pd, dm} {
			if err := o.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("%+v: %T: %v", tt, o, err)
			}
		}
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
	k.answerTo("reg_dm_mr", refuse(unix.EINVAL))
	if _, err := pd.RegDM(DMRegion{DM: dm}, 0); !errors.Is(err, unix.EINVAL) || pd.holds.Load() != 0 || dm.holds.Load() != 0 {
		t.Errorf("refused: %v", err)
	}
	if _, err := pd.RegDM(DMRegion{}, 0); !errors.Is(err, ErrInvalid) || pd.holds.Load() != 0 {
		t.Errorf("no DM: %v", err)
	}
	other, _, _ := withMemory(t, 64)
	if _, err := pd.RegDM(DMRegion{DM: must(other.AllocDM(DMOptions{Length: 8}))(t)}, 0); !errors.Is(err, ErrInvalid) || pd.holds.Load() != 0 {
		t.Errorf("another device's DM: %v", err)
	}
	k.answerTo("reg_dm_mr", nil)
	must(pd.RegDM(DMRegion{DM: dm}, 0))(t) // closed with the device, before the memory
}

func TestExportDM(t *testing.T) {
	d, k, _ := withMemory(t, 4096)
	dm := must(d.AllocDM(DMOptions{Length: 64}))(t)
	r, w := must2(t)(os.Pipe())
	defer w.Close()
	k.answerTo("export_dmabuf_fd", func(f *fakeCall) error {
		if off := in[uint64](f, uapi.UVERBS_ATTR_ALLOC_DMABUF_PGOFF); off != 0x5000 {
			t.Errorf("the memory is mapped at %#x", off)
		}
		fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		f.object(uapi.UVERBS_ATTR_ALLOC_DMABUF_HANDLE, uint64(fd))
		return err
	})
	f, off, err := dm.ExportDmabuf()
	if err != nil || off != 0x40 {
		t.Fatalf("from %#x: %v", off, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	r.Close()
	k.answerTo("export_dmabuf_fd", refuse(unix.EOPNOTSUPP))
	if _, _, err := dm.ExportDmabuf(); !errors.Is(err, ErrNotSupported) {
		t.Error(err)
	}
}

func must2(t *testing.T) func(r, w *os.File, err error) (*os.File, *os.File) {
	return func(r, w *os.File, err error) (*os.File, *os.File) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
}
