package fakedev

import (
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// starterName is argv[0] of this program when it starts COMMAND: it installs the filter,
// passes on the listener and executes COMMAND.
const starterName = "fake device's starter"

func isStarter() bool { return os.Args[0] == starterName }

// Main is the main function of a program that runs another one with a fake device. The program
// has declared its flags.
func Main(name string, dev Device) {
	log.SetFlags(0)
	log.SetPrefix(name + ": ")
	if isStarter() {
		log.Fatal(starter())
	}
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: %s [FLAG...] COMMAND [ARGUMENT...]\n", name)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	code, err := Run(dev, flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

func init() {
	if isStarter() {
		runtime.LockOSThread() // the thread with the filter must do the exec
	}
}

// start runs argv[0] as argv[1:] behind the filter.
func start(argv []string) (*exec.Cmd, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "starter's end")
	defer theirs.Close()
	ours := os.NewFile(uintptr(pair[0]), "listener's way")
	defer ours.Close()

	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{starterName}, argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	theirs.Close()
	listener, err := receiveFD(ours)
	if err != nil {
		cmd.Wait()
		return nil, 0, fmt.Errorf("got no listener: %w", err)
	}
	return cmd, listener, nil
}

// starter returns only with an error.
func starter() error {
	listener, err := installFilter()
	if err != nil {
		return fmt.Errorf("install seccomp filter: %w", err)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	unix.Close(listener)
	unix.Close(3)
	return syscall.Exec(os.Args[1], os.Args[2:], os.Environ())
}

func receiveFD(f *os.File) (int, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(b[:], oob)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("%d control messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return fds[0], nil
}

// Offsets in struct seccomp_data, <linux/seccomp.h>; the lower halves of the
// arguments on little-endian machines.
const (
	seccompNr   = 0
	seccompArg0 = 16
	seccompArg2 = 32
)

// firstFD is the lowest number of the device's open files, by which the filter recognizes
// their ioctls.
const firstFD = 1000

// filter notifies the supervisor of opens, stats and the device's ioctls. It refuses RDMA
// netlink, so that libibverbs reads /sys.
func filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// jump skips yes or no instructions.
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	ret := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
	}
	return []unix.SockFilter{
		load(seccompNr),
		jump(unix.BPF_JEQ, unix.SYS_OPENAT, 11, 0),
		jump(unix.BPF_JEQ, sysFstatat, 10, 0),
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 4, 0),
		jump(unix.BPF_JEQ, unix.SYS_FSTAT, 1, 0),
		jump(unix.BPF_JEQ, unix.SYS_IOCTL, 0, 8),
		load(seccompArg0),
		jump(unix.BPF_JGE, firstFD, 5, 6),
		load(seccompArg0),
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 4),
		load(seccompArg2),
		jump(unix.BPF_JEQ, unix.NETLINK_RDMA, 0, 2),
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)),
		ret(unix.SECCOMP_RET_USER_NOTIF),
		ret(unix.SECCOMP_RET_ALLOW),
	}
}

// installFilter filters the calling thread and its children.
func installFilter() (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	prog := filter()
	// The kernel copies the program during the call, for which the pointers stay valid.
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	// A signal must not restart a call that is being answered. Go sends itself many signals.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}
