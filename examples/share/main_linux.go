// Share lets a second process use a device that the first one has opened, and read memory that
// the first one has registered, without opening or registering anything itself. The first process
// sends the device's file over a Unix socket. In this way a server keeps its memory
// registered while its workers come and go. Only mlx5 supports it.
//
//	share [-device NAME]
//
// The program starts itself as the second process, which prints
//
//	read "registered once" from memory of the first process
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

func main() {
	device := flag.String("device", "", "the RDMA device; by default, the first one")
	worker := flag.Bool("worker", false, "be the second process; its file 3 is the socket")
	flag.Parse()
	if *worker {
		work()
	} else {
		serve(*device)
	}
}

// Shared is the data that the worker needs, in addition to the device's file.
type Shared struct {
	PD, MR uint32 // their numbers on the device
	Data   verbs.Remote
	Length int
}

// serve registers memory and starts a worker.
func serve(device string) {
	dev := must(verbs.Open(device))
	pd := must(dev.AllocPD())
	mr := must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead}))
	length := copy(mr.Bytes()[100:], "registered once")

	fds := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	theirs := os.NewFile(uintptr(fds[1]), "worker")
	cmd := exec.Command(must(os.Executable()), "-worker")
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{theirs}, os.Stdout, os.Stderr
	check(cmd.Start())
	theirs.Close()

	file := must(dev.File())
	message := must(json.Marshal(Shared{pd.Handle(), mr.Handle(), mr.Remote().At(100), length}))
	check(unix.Sendmsg(fds[0], message, unix.UnixRights(int(file.Fd())), nil, 0))
	file.Close()
	check(cmd.Wait())
	check(dev.Close())
}

// work imports the device and its objects, and reads the memory by RDMA.
func work() {
	conn := must(net.FileConn(os.NewFile(3, "socket"))).(*net.UnixConn)
	message, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, rightsLen, _, _, err := conn.ReadMsgUnix(message, rights)
	check(err)
	var s Shared
	check(json.Unmarshal(message[:n], &s))
	control := must(unix.ParseSocketControlMessage(rights[:rightsLen]))
	if len(control) != 1 {
		log.Fatal("the message has no file")
	}
	file := os.NewFile(uintptr(must(unix.ParseUnixRights(&control[0]))[0]), "device")
	dev := must(verbs.ImportDevice(file))
	file.Close()

	// Only objects made here end with the worker.
	pd := must(dev.ImportPD(s.PD))
	mr := must(pd.ImportMR(s.MR)) // the PD's queue pairs may also name it in their own requests
	cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 1}))
	qp := must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1}}))
	me := must(qp.Endpoint(must(dev.FindGID(verbs.GIDSelector{Port: 1}))))
	check(qp.Connect(me, verbs.ConnectOptions{Access: verbs.AccessRemoteRead}))
	in := must(pd.AllocMR(4096, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: []verbs.SGE{in.SGE(0, s.Length)}, Remote: s.Data}))
	wc := make([]verbs.WC, 1)
	must(cq.PollWait(context.Background(), wc))
	check(wc[0].Err())
	fmt.Printf("read %q from memory of the first process\n", in.Bytes()[:wc[0].ByteLen])
	check(mr.Close())
	check(dev.Close())
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
