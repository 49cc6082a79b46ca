package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// guestVar makes the test binary the process that a device is shared with.
const guestVar = "GOVERBS_SHARE_GUEST"

// shared is the owner's message to its guest, in addition to the device's file.
type shared struct {
	PD, MR uint32
	Remote verbs.Remote
}

// TestShare: a process sends its device's file to another process, over a Unix socket. The
// second process imports a PD and an MR, writes to the MR's memory with a connection of its
// own, and closes its objects. The owner's objects are unchanged.
func TestShare(t *testing.T) {
	p := rdmatest.NewPair(t, rdmatest.Default())
	if !expect(t).imports {
		f := rdmatest.Must(p.Ctx.File())(t)
		defer f.Close()
		if _, err := verbs.ImportDevice(f); !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("a driver without imports returns %v", err)
		}
		return
	}
	ours, theirs := socketPair(t)
	defer ours.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), guestVar+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	guest := rdmatest.StartCmd(t, cmd)
	theirs.Close()

	device := rdmatest.Must(p.Ctx.File())(t)
	b := rdmatest.Must(json.Marshal(shared{p.PD.Handle(), p.B.MR.Handle(), p.B.MR.Remote()}))(t)
	rdmatest.Check(t, unix.Sendmsg(int(ours.Fd()), b, unix.UnixRights(int(device.Fd())), nil, 0))
	device.Close()
	if !guest.OK() {
		t.Fatal(guest)
	}
	wantArrived(t, p.B.MR.Bytes(), 33, rdmatest.Pattern(500, 1))
	roundTrip(t, p, 7)
}

func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds := rdmatest.Must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	return os.NewFile(uintptr(fds[0]), "owner"), os.NewFile(uintptr(fds[1]), "guest")
}

// guest is the process that the device is shared with.
func guest() error {
	const socket = 3
	conn, err := net.FileConn(os.NewFile(socket, "owner"))
	if err != nil {
		return err
	}
	b, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, rightsLen, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(b, rights)
	if err != nil {
		return err
	}
	var s shared
	if err := json.Unmarshal(b[:n], &s); err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rightsLen])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d control messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fds[0]), "device")
	dev, err := verbs.ImportDevice(file)
	if err != nil {
		return err
	}
	file.Close()
	pd, err := dev.ImportPD(s.PD)
	if err != nil {
		return err
	}
	mr, err := pd.ImportMR(s.MR)
	if err != nil {
		return err
	}
	if mr.RKey() != s.Remote.RKey || mr.Len() == 0 {
		return fmt.Errorf("imported an MR of %d bytes with key %#x, its owner has %#x", mr.Len(), mr.RKey(), s.Remote.RKey)
	}
	return errors.Join(writeTo(dev, pd, s.Remote), dev.Close())
}

// writeTo writes a pattern to memory of the PD, over a connection from one QP to another.
func writeTo(dev *verbs.Device, pd *verbs.PD, to verbs.Remote) error {
	cq, err := dev.CreateCQ(verbs.CQOptions{MaxCQE: 4})
	if err != nil {
		return err
	}
	gid, err := dev.FindGID(verbs.GIDSelector{Port: rdmatest.Port})
	if err != nil {
		return err
	}
	var qps [2]*verbs.QP
	var ends [2]verbs.Endpoint
	for i := range qps {
		if qps[i], err = pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1}}); err != nil {
			return err
		}
		if ends[i], err = qps[i].Endpoint(gid); err != nil {
			return err
		}
	}
	for i := range qps {
		if err := qps[i].Connect(ends[1-i], verbs.ConnectOptions{Access: verbs.AccessRemoteWrite}); err != nil {
			return err
		}
	}
	own, err := pd.AllocMR(500, verbs.MROptions{})
	if err != nil {
		return err
	}
	copy(own.Bytes(), rdmatest.Pattern(500, 1))
	if _, err := qps[0].PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{own.All()}, Remote: to.At(33)}); err != nil {
		return err
	}
	for {
		var wc [1]verbs.WC
		if n, err := cq.Poll(wc[:]); n == 1 || err != nil {
			return errors.Join(err, wc[0].Err())
		}
	}
}
