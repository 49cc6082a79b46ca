package rdmanl

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/rdmanl"
	"github.com/goverbs/goverbs/verbs"
)

// server starts rdma-core's ping-pong, which waits for its client, and returns its process ID.
func server(t *testing.T) int {
	t.Helper()
	const port = 18541
	args := []string{"ibv_rc_pingpong", "-d", device, "-p", strconv.Itoa(port)}
	if rdmatest.NetDev(device) != "" {
		args = append(args, "-g", "1")
	}
	p := rdmatest.Start(t, args...)
	p.Until(t, func() bool { return rdmatest.Listening(port) })
	t.Cleanup(p.Kill)
	return p.PID()
}

// TestResources: ibv resource lists the objects of the kernel, of a C program and of this
// program as rdma does, and package rdmanl returns their owners.
func TestResources(t *testing.T) {
	theirs := server(t)
	dev := rdmatest.Open(t)
	pd := rdmatest.Must(dev.AllocPD())(t)
	cq := rdmatest.Must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 100}))(t)
	srq := rdmatest.Must(pd.CreateSRQ(verbs.SRQOptions{MaxWR: 16, MaxSGE: 1}))(t)
	var qps []*verbs.QP
	for range 3 {
		qps = append(qps, rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}))(t))
	}
	rdmatest.Must(pd.RegMR(make([]byte, 12345), verbs.MROptions{}))(t)
	wanted := []string{"qp of C", "cq of C", "mr of C", "pd of C", "ctx of C", "qp of Go", "cq of Go", "mr of Go", "pd of Go", "ctx of Go", "srq of Go"}
	if rdmatest.NetDev(device) != "" {
		listen(t)
		wanted = append(wanted, "cm_id of Go")
	}

	same(t, "resource")
	same(t, "resource", "show", device)
	owned := make(map[string]bool)
	for _, kind := range []string{"qp", "cm_id", "cq", "mr", "pd", "ctx", "srq"} {
		t.Run(kind, func(t *testing.T) {
			all := same(t, "resource", "show", kind)
			for _, o := range all {
				if pid, ok := o["pid"].(float64); ok && int(pid) == theirs {
					owned[kind+" of C"] = true
				} else if ok && mine(rdmanl.Owner{PID: rdmanl.Some(uint32(pid))}) {
					owned[kind+" of Go"] = true
				}
			}
			if testing.Short() {
				return
			}
			where := []string{"dev", device}
			if kind == "qp" || kind == "cm_id" {
				where = []string{"link", device + "/1"}
			}
			same(t, append([]string{"resource", "show", kind}, where...)...)
			same(t, append([]string{"resource", "show", kind}, append(where, "pid", strconv.Itoa(theirs))...)...)
		})
	}
	for _, object := range wanted {
		if !owned[object] {
			t.Errorf("neither lists a %s", object)
		}
	}
	same(t, "resource", "show", "qp", "link", device+"/1", "type", "gsi")
	same(t, "resource", "show", "qp", "link", device+"/1", "lqpn", "1-100000")

	d := rdmatest.Must(rdmanl.FindDevice(t.Context(), device))(t)
	for _, q := range qps {
		all := rdmatest.Must(rdmanl.QPs(t.Context(), d.Index, rdmanl.DetailDriver))(t)
		i := slices.IndexFunc(all, func(o rdmanl.QP) bool { return o.Number == q.Num() })
		if i < 0 {
			t.Fatalf("QP %d is not listed", q.Num())
		}
		comm, _ := all[i].Comm()
		if o := all[i]; !mine(o.Owner) || comm != "rdmanl.test" || o.Type.Or(0) != ib.RC || o.State.Or(ib.QPErr) != ib.QPReset {
			t.Errorf("the QP is %+v", o)
		}
	}
	var served []rdmanl.QPRange
	for _, s := range rdmatest.Must(rdmanl.SRQs(t.Context(), d.Index, rdmanl.DetailCommon))(t) {
		if mine(s.Owner) {
			served = s.QPs
		}
	}
	n := uint32(0)
	for _, r := range served {
		n += r.Last - r.First + 1
	}
	if n != uint32(len(qps)) {
		t.Errorf("the SRQ serves %v, which are not %d", served, len(qps))
	}
	if _, err := rdmanl.QPs(t.Context(), 1<<20, rdmanl.DetailCommon); err == nil || !strings.Contains(err.Error(), rdmanl.ErrNoDevice.Error()) {
		t.Errorf("QPs of no device: %v", err)
	}
}

// TestTop: ibv top knows this process, its queue pair and its memory, and what goes through the port.
func TestTop(t *testing.T) {
	pd := rdmatest.Must(rdmatest.Open(t).AllocPD())(t)
	cq := rdmatest.Must(pd.Device().CreateCQ(verbs.CQOptions{MaxCQE: 1}))(t)
	qp := rdmatest.Must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}))(t)
	rdmatest.Must(pd.RegMR(make([]byte, 12345), verbs.MROptions{}))(t)
	ibv := rdmatest.Program(t, "ibv")
	lines := strings.Split(strings.TrimSpace(run(t, ibv, "top", "--json", "-n", "2", "-i", "0.1", device)), "\n")
	type user struct {
		PID     int
		Command string
		Pinned  int
		QPs     []struct{ Lqpn uint32 }
	}
	var r struct {
		Devices []struct {
			Ifname string
			Ports  []struct {
				State string
				Rates []struct{ Way string }
			}
			Users []user
		}
	}
	rdmatest.Check(t, json.Unmarshal([]byte(lines[len(lines)-1]), &r))
	if len(lines) != 2 || len(r.Devices) != 1 || r.Devices[0].Ifname != device || r.Devices[0].Ports[0].State != "ACTIVE" || len(r.Devices[0].Ports[0].Rates) < 2 {
		t.Fatalf("%d lines; the last is %+v", len(lines), r)
	}
	users := r.Devices[0].Users
	i := slices.IndexFunc(users, func(u user) bool { return u.PID == os.Getpid() })
	if i < 0 || users[i].Pinned != 12345 || len(users[i].QPs) != 1 || users[i].QPs[0].Lqpn != qp.Num() || !strings.HasPrefix(users[i].Command, os.Args[0]) {
		t.Errorf("the users are %+v", users)
	}
	if text := run(t, ibv, "top", "-b", "-n", "1"); !strings.Contains(text, fmt.Sprintf("QP %d RC RESET\n", qp.Num())) || !strings.Contains(text, os.Args[0]) {
		t.Errorf("-b prints\n%s", text)
	}
}

// listen makes an ID of the connection manager that is bound to the device.
func listen(t *testing.T) {
	t.Helper()
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	t.Cleanup(func() { rdmatest.Close(t, id) })
	rdmatest.Check(t, id.Bind(netip.MustParseAddrPort("192.168.77.1:18542")))
	rdmatest.Check(t, id.Listen(1))
}

// mine reports whether this process owns an object. The reported owner may be one of its
// threads.
func mine(o rdmanl.Owner) bool {
	pid, ok := o.Process()
	return ok && pid == uint32(os.Getpid())
}

// TestUnprivileged: without CAP_NET_ADMIN, everything but the keys is listed, as with rdma.
func TestUnprivileged(t *testing.T) {
	server(t)
	ibv := rdmatest.Program(t, "ibv")
	as := []string{"--bounding-set", "-net_admin"}
	want := objects(t, run(t, "setpriv", append(as, "rdma", "-j", "resource", "show", "mr")...))
	got := objects(t, run(t, "setpriv", append(as, ibv, "resource", "--json", "show", "mr")...))
	if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
		t.Errorf("(-rdma +ibv):\n%s", diff)
	}
	for _, o := range got {
		if _, ok := o["lkey"]; ok {
			t.Errorf("a key: %v", o)
		}
	}
	out, err := exec.Command("setpriv", append(as, ibv, "link", "delete", device)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "EPERM; this needs CAP_NET_ADMIN") {
		t.Errorf("deleting a link: %v, %s", err, out)
	}
}
