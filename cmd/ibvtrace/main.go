// Ibvtrace runs a program and prints its RDMA control verbs as they complete,
// as strace prints system calls.
//
//	ibvtrace [-o FILE] [--json] [--] COMMAND [ARG...]
//
// Any program will do, C or Go, static or dynamic, with all its threads and
// children. A seccomp filter lets every system call through but the verbs'
// ioctl, so that posting and polling run at full speed.
//
// # Text
//
// One line per verb, written when the verb has returned:
//
//	10:31:07.120345 [4711 server] rxe0 create_qp(pd=3, send_cq=5, type=RC, ...) = qp 7 (..., qp_num=0x11) <84 µs>
//	10:31:07.120911 [4711 server] rxe0 reg_mr(start=0x7f1b40000000, length=4096, pd=3, ...) = -1 ENOMEM (Cannot allocate memory) <9 µs>
//
// They are the local time at which the verb was called, the process (and the
// thread, as PID/TID, if it is not the first), its name, the RDMA device, the
// verb in libibverbs' words with what went in, and what came out. The
// duration is the kernel's, plus what it takes to wake up the tracer.
// Objects, methods and attributes that ibvtrace does not know are printed by
// number, with their bytes in hexadecimal. A verb whose thread died in it ends
// with "= ?".
//
// # JSON
//
// With --json each line is one object. These fields are always there:
//
//	ts      string   RFC 3339 with nanoseconds, UTC: when the verb was called
//	pid     number   process
//	tid     number   thread
//	comm    string   the thread's name
//	dev     string   RDMA device (rxe0), or "" if fd is not one
//	fd      number   the file descriptor that was used
//	driver  string   RDMA driver, as the kernel's enum rdma_driver_id names it
//	verb    string   libibverbs' name without "ibv_", such as create_qp
//	object  string   as the kernel's headers name it, or a number
//	method  string   as the kernel's headers name it, or a number
//	args    object   what went in, by name
//	out     object   what came out, by name; empty if the verb failed
//	ret     number   what ioctl(2) returned, -1 for an error, null if it did not return
//	errno   string   such as ENOSPC, or ""
//	dur_ns  number   duration in nanoseconds
//
// In args and out, integers are numbers in full (a reader that uses doubles
// loses digits of 64-bit ones), enumerations and sets of flags are names and
// arrays of names without the kernel's prefix, GIDs are IPv6 addresses, pointers
// strings such as "0x7f00", other bytes strings of hexadecimal digits. Memory
// that could not be read is {"unreadable": "0x7f00"}.
//
// # Signals and status
//
// The program's input, output, signals and exit status pass through: ibvtrace
// exits as the program did, by the same signal if one killed it. Errors of
// ibvtrace itself, such as a command that is not there, give status 1.
// SIGTERM is handed on to the program; SIGINT, SIGQUIT and SIGHUP are handed on
// unless the terminal has sent them to the program already. If ibvtrace is
// killed, so is what it traces: without a tracer the filter would fail every
// verb. Signals ignored at the start stay ignored in the program only if they
// are SIGHUP, SIGINT or a job-control signal.
//
// Unless it has CAP_SYS_ADMIN, ibvtrace has to set no_new_privs to install the
// filter, so set-user-ID programs run without the other user's rights.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/goverbs/goverbs/cmd/ibvtrace/trace"
)

const usage = `Usage: ibvtrace [-o FILE] [--json] [--data] [--raw] [--] COMMAND [ARG...]
       ibvtrace [-o FILE] [--json] [--data] [--raw] -p PID [-p PID]...

Run COMMAND, or attach to processes, and print the RDMA verbs that they, their
threads and their children call: one line per verb, with arguments, results,
error and duration. Posting and polling do not pass through the kernel; they are
neither shown nor slowed down unless --data asks for them.

  -o FILE   write the trace to FILE instead of stderr
  --json    write one JSON object per line instead of text
  --data    show posts and polls too
  --raw     show the ioctls' attributes as they are too
  -p PID    attach to a process, until it ends or SIGINT comes
  -h        show this help

Examples:
  ibvtrace ibv_devinfo
        what happens when a device is opened and queried
  ibvtrace -o trace ibv_rc_pingpong -g 1 localhost
        keep the trace apart from what the program prints
  ibvtrace sh -c 'ibv_rc_pingpong & sleep 1; ibv_rc_pingpong localhost'
        two programs in one trace; each line says which
  ibvtrace --json ./server 2>&1 >/dev/null | jq 'select(.errno != "")'
        only the verbs that failed

JSON fields: ts (RFC 3339, UTC, ns), pid, tid, comm, dev, fd, driver, verb,
object, method, args, out, ret (of the ioctl), errno (a name or ""), dur_ns.

ibvtrace ends as COMMAND does: with its exit status, or by the same signal.
Errors of ibvtrace itself give status 1. SIGTERM is handed on to COMMAND. If
ibvtrace is killed with SIGKILL, so is COMMAND.

Without CAP_SYS_ADMIN, set-user-ID programs run without the rights they would
gain: the kernel takes a filter from such a user only with no_new_privs.
`

// options are what the command line says.
type options struct {
	output string
	json   bool
	trace.Options
}

var errHelp = errors.New("help")

func parseArgs(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("ibvtrace", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.output, "o", "", "")
	f.BoolVar(&o.json, "json", false, "")
	f.BoolVar(&o.Data, "data", false, "")
	f.BoolVar(&o.Raw, "raw", false, "")
	f.Func("p", "", func(s string) error {
		pid, err := strconv.Atoi(s)
		if err != nil || pid <= 0 {
			return errors.New("not a process id")
		}
		o.PIDs = append(o.PIDs, pid)
		return nil
	})
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, errHelp
		}
		return o, err
	}
	o.Command = f.Args()
	if len(o.Command) == 0 && len(o.PIDs) == 0 {
		return o, errors.New("no COMMAND given")
	}
	if len(o.Command) > 0 && len(o.PIDs) > 0 {
		return o, errors.New("-p and COMMAND exclude each other")
	}
	return o, nil
}

func main() {
	if trace.IsStarter() {
		trace.Starter()
	}
	o, err := parseArgs(os.Args[1:])
	if errors.Is(err, errHelp) {
		fmt.Print(usage)
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "ibvtrace: %v\nTry 'ibvtrace -h' for more information.\n", err)
		os.Exit(1)
	}
	end, err := run(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "ibvtrace: %v\n", err)
		os.Exit(1)
	}
	end.Exit()
}
