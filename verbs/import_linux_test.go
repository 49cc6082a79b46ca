package verbs

import (
	"errors"
	"math"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// An importingProvider imports its objects.
type importingProvider struct {
	*fakeMemory
	pds map[uint32]error
}

func (p *importingProvider) ImportPD(handle uint32) error { return p.pds[handle] }

func (p *importingProvider) ImportDM(handle uint32) (provider.DM, uint64, error) {
	if handle != 9 {
		return nil, 0, unix.ENOENT
	}
	d := &fakeDM{b: make([]byte, 64), of: p.fakeProvider}
	p.dms = append(p.dms, d)
	return d, 64, nil
}

// TestImportObjects: an imported object has the numbers of the original, holds its parents,
// and is released without a command to the kernel.
func TestImportObjects(t *testing.T) {
	d, k, m := withMemory(t, 4096)
	for name, f := range map[string]func() error{
		"PD": func() error { _, err := d.ImportPD(5); return err },
		"DM": func() error { _, err := d.ImportDM(9); return err },
	} {
		if err := f(); !errors.Is(err, ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := &importingProvider{fakeMemory: m, pds: map[uint32]error{6: unix.ENOENT}}
	d.prov = p
	if _, err := d.ImportPD(6); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no PD: %v", err)
	}
	if _, err := d.ImportDM(8); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no DM: %v", err)
	}
	pd, dm := must(d.ImportPD(5))(t), must(d.ImportDM(9))(t)
	k.answerTo("query_mr", refuse(unix.ENOENT))
	if _, err := pd.ImportMR(7); !errors.Is(err, unix.ENOENT) || pd.holds.Load() != 0 {
		t.Errorf("no MR: %v, the PD is held %d times", err, pd.holds.Load())
	}
	k.answerTo("query_mr", func(f *fakeCall) error {
		if h := f.handleOf(uapi.UVERBS_ATTR_QUERY_MR_HANDLE); h != 7 {
			t.Errorf("MR %d", h)
		}
		lkey, rkey, length, iova := uint32(1), uint32(2), uint64(3000), uint64(0x4000)
		return errors.Join(f.out(uapi.UVERBS_ATTR_QUERY_MR_RESP_LKEY, &lkey), f.out(uapi.UVERBS_ATTR_QUERY_MR_RESP_RKEY, &rkey),
			f.out(uapi.UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &length), f.out(uapi.UVERBS_ATTR_QUERY_MR_RESP_IOVA, &iova))
	})
	mr := must(pd.ImportMR(7))(t)
	got := []any{pd.Handle(), dm.Handle(), mr.Handle(), dm.Len(), mr.LKey(), mr.RKey(), mr.Len(), mr.Addr(), mr.SGE(8, math.MaxUint8)}
	want := []any{uint32(5), uint32(9), uint32(7), 64, uint32(1), uint32(2), 3000, uint64(0x4000), SGE{0x4008, math.MaxUint8, 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := pd.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("the PD of an MR: %v", err)
	}
	before := len(k.calls)
	for _, o := range []interface{ Close() error }{mr, pd, dm} {
		if err := o.Close(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	if len(k.calls) != before || m.dms[0].released != 1 {
		t.Errorf("the kernel saw %v; the memory was released %d times", k.calls[before:], m.dms[0].released)
	}
}

// TestShareFile: the file is a duplicate.
func TestShareFile(t *testing.T) {
	d, _ := fakeContext(t)
	f := must(d.File())(t)
	if int(f.Fd()) == d.file.FD() {
		t.Error("it is the device's own")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if again := must(d.File())(t); again.Close() != nil {
		t.Error("the device's own was closed")
	}
	if _, err := ImportDevice(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
	null := must(os.Open(os.DevNull))(t)
	if _, err := ImportDevice(null); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	null.Close()
	if _, err := ImportDevice(null); err == nil {
		t.Error("a closed file was imported")
	}
}
