package conformance

import (
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestImport uses a device and its objects through a second Device, as another process does
// that has received the file.
func TestImport(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	f := rdmatest.Must(p.Ctx.File())(t)
	c, err := verbs.ImportDevice(f)
	f.Close()
	if !expect(t).imports {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a driver without imports returns %v", err)
		}
		return
	}
	rdmatest.Check(t, err)
	if c.Info().Name() != p.Ctx.Info().Name() {
		t.Errorf("imported %s from %s", c.Info().Name(), p.Ctx.Info().Name())
	}
	pd := rdmatest.Must(c.ImportPD(p.PD.Handle()))(t)
	mr := rdmatest.Must(pd.ImportMR(p.B.MR.Handle()))(t)
	if mr.LKey() != p.B.MR.LKey() || mr.RKey() != p.B.MR.RKey() || mr.Len() != p.B.MR.Len() || mr.Bytes() != nil {
		t.Errorf("imported an MR of %d bytes, keys %#x and %#x, want those of %d bytes, %#x and %#x",
			mr.Len(), mr.LKey(), mr.RKey(), p.B.MR.Len(), p.B.MR.LKey(), p.B.MR.RKey())
	}
	dm := rdmatest.Must(p.Ctx.AllocDM(verbs.DMOptions{Length: 100}))(t)
	rdmatest.Must(dm.WriteAt([]byte("from the owner.."), 8))(t)
	same := rdmatest.Must(c.ImportDM(dm.Handle()))(t)
	got := make([]byte, 16)
	if _, err := same.ReadAt(got, 8); err != nil || string(got) != "from the owner.." {
		t.Errorf("the imported memory has %q: %v", got, err)
	}
	rdmatest.Must(same.WriteAt([]byte("from the guest.."), 8))(t)
	rdmatest.Must(dm.ReadAt(got, 8))(t)
	if string(got) != "from the guest.." {
		t.Errorf("the owner's memory has %q", got)
	}

	// QPs on the imported PD use the imported MR.
	q := rdmatest.PairOn(t, c, rdmatest.Default())
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 16}))(t)
	pair := [2]*verbs.QP{}
	for i := range pair {
		pair[i] = rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: q.A.QP.Cap()}))(t)
	}
	gid := rdmatest.GID(t, c)
	ends := [2]verbs.Endpoint{}
	for i := range pair {
		ends[i] = rdmatest.Must(pair[i].Endpoint(gid))(t)
	}
	for i := range pair {
		rdmatest.Check(t, pair[i].Connect(ends[1-i], verbs.ConnectOptions{Access: rdmatest.All &^ verbs.AccessLocalWrite}))
	}
	own := rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{Access: rdmatest.All}))(t)
	data := rdmatest.Pattern(500, 1)
	copy(own.Bytes(), data)
	rdmatest.Must(pair[0].PostSend(verbs.SendWR{
		Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{own.SGE(0, 500)}, Remote: p.B.MR.Remote().At(33),
	}))(t)
	rdmatest.PollOK(t, cq, 1)
	wantArrived(t, p.B.MR.Bytes(), 33, data)

	// Objects that don't exist can't be imported.
	if x, err := c.ImportPD(0xffff); err == nil {
		t.Error("imported a PD that doesn't exist")
		rdmatest.Close(t, x)
	}
	if x, err := pd.ImportMR(0xffff); err == nil {
		t.Error("imported an MR that doesn't exist")
		rdmatest.Close(t, x)
	}
	if x, err := c.ImportDM(0xffff); err == nil {
		t.Error("imported a DM that doesn't exist")
		rdmatest.Close(t, x)
	}
	// Closing the second Device leaves the owner's objects unchanged.
	rdmatest.Close(t, c)
	roundTrip(t, p, 7)
	if _, err := dm.ReadAt(got, 8); err != nil || string(got) != "from the guest.." {
		t.Errorf("afterwards the owner's memory has %q: %v", got, err)
	}
	rdmatest.Close(t, dm)
}

// TestImportNoDevice: a file that is not a device's is refused.
func TestImportNoDevice(t *testing.T) {
	null := rdmatest.Must(os.Open(os.DevNull))(t)
	defer null.Close()
	if _, err := verbs.ImportDevice(null); !errors.Is(err, verbs.ErrNoDevice) {
		t.Errorf("%s: %v", os.DevNull, err)
	}
	if _, err := verbs.ImportDevice(nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("no file: %v", err)
	}
	null.Close()
	if _, err := verbs.ImportDevice(null); err == nil {
		t.Error("a closed file: imported")
	}
}
