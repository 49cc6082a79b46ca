// Ibvtrace runs a program, or attaches to one, and prints the RDMA verbs that it
// calls, as strace prints system calls.
//
//	ibvtrace [OPTION...] [--] COMMAND [ARG...]
//	ibvtrace [OPTION...] -p PID
//	ibvtrace [OPTION...] --all
//	ibvtrace report [OPTION...] FILE...
//	ibvtrace figure [-o FILE] FILE...
//	ibvtrace diff FILE FILE
//	ibvtrace objects [-p PID]
//	ibvtrace record [OPTION...] --all
//	ibvtrace dump
//
// It works with any program, C or Go, static or dynamic, with all its threads and
// children. Where the user may load BPF programs, these see the verbs in the kernel, and no
// program stops. Elsewhere, verbs stop the program by ptrace, and a seccomp filter passes system
// calls that have nothing to do with RDMA. Posts and polls happen in the program's own memory.
// They run at full speed unless -e selects them (-e all, -e data), which takes ptrace.
//
// Ibvtrace -h shows the options with examples. The manual page ibvtrace.1 documents
// everything. Package event documents the JSON that --json writes.
//
// # Text
//
// One line per verb, written when the verb has returned:
//
//	10:31:07.120345 [4711 server] ibv_create_qp(pd=3, send_cq=5, recv_cq=5, type=RC, ...) = qp 7 (qpn 0x11, ...) <84 µs>
//	10:31:07.120911 [4711 server] ibv_reg_mr(start=0x7f1b40000000, length=4096, pd=3, ...) = -1 ENOMEM (Cannot allocate memory) <9 µs>
//
// A line has the local time of the call, the process (as PID/TID if it is not the first
// thread) and its name, the verb with its inputs, and its outputs. Handles are the
// kernel's: pd=3 is the object that an earlier line created with "= pd 3". A reused handle
// has a count: qp 7#2 is the second QP with this handle. If a process has opened more than
// one device, the lines of all but the first name the file. Details of little interest
// (the program's own handles, the driver's data, zeros in large structs) are omitted
// unless -v is given.
//
// The duration is that of the call in the kernel. For verbs that stop the program (the
// manual page lists them) it includes waking up the tracer. Unknown objects, methods and
// attributes are printed by number, with their bytes in hexadecimal. If a thread dies in a
// verb, the line ends with "= ?".
//
// # Signals and status
//
// The program's input, output, signals and exit status pass through. Ibvtrace exits as the
// program did: with its status, or by the same signal. As with env(1), the status is 127 if the
// command doesn't exist, and 126 if it can't be executed. Other errors of ibvtrace give status 1. SIGTERM is forwarded to the program. SIGINT,
// SIGQUIT and SIGHUP are forwarded unless the terminal has already sent them to the
// program. When the program has ended and its children are left, these signals end ibvtrace,
// SIGINT when it is sent a second time. If ibvtrace ends or is killed, so are the processes of a
// program that it has started by ptrace: without a tracer, the filter would make every verb fail.
// With BPF or --no-filter there is none, and they go on. A signal that was ignored at the start stays
// ignored in the program only if it is SIGHUP, SIGINT or a job-control signal.
//
// Without BPF and CAP_SYS_ADMIN, ibvtrace must set no_new_privs to install the filter, so
// set-user-ID programs run without the other user's rights.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/explain"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/inject"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracer"
	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/internal/version"
)

// A command is a subcommand, which the first argument selects.
type command struct {
	name  string
	usage string
	run   func(args []string) error
}

var commands = []command{
	{"report", reportUsage, report},
	{"figure", figureUsage, drawFigure},
	{"diff", diffUsage, diff},
	{"objects", objectsUsage, listObjects},
	{"record", recordUsage, record},
	{"dump", dumpUsage, dump},
	{"completion", completionUsage, completion},
}

func main() {
	if tracer.IsStarter() {
		tracer.Starter()
	}
	args := os.Args[1:]
	if len(args) == 1 && (args[0] == "-V" || args[0] == "--version") {
		fmt.Println(version.Of("ibvtrace"))
		return
	}
	if len(args) > 0 {
		for _, c := range commands {
			if c.name == args[0] {
				leave("ibvtrace "+c.name, c.usage, c.run(args[1:]))
			}
		}
	}
	end, err := run(args)
	if err != nil {
		leave("ibvtrace", usage, err)
	}
	end.Exit()
}

// leave exits, after printing the help if that was requested.
func leave(name, usage string, err error) {
	switch {
	case errors.Is(err, errHelp):
		fmt.Print(usage)
	case errors.Is(err, errDiffer):
		os.Exit(1)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		if isUsage(err) {
			fmt.Fprintf(os.Stderr, "Try '%s -h' for more information.\n", name)
		}
		var notRun *tracer.NotRunError
		if errors.As(err, &notRun) {
			os.Exit(notRun.Status())
		}
		os.Exit(1)
	}
	os.Exit(0)
}

// A usageError is a mistake on the command line.
type usageError struct{ error }

func isUsage(err error) bool {
	var u usageError
	return errors.As(err, &u)
}

// run traces a command, or processes, and returns how the command ended.
func run(args []string) (tracer.Ending, error) {
	o, err := parseTrace(args)
	if err != nil {
		return tracer.Ending{}, err
	}
	s, err := o.open(os.Stderr)
	if err != nil {
		return tracer.Ending{}, err
	}
	end, err := o.trace(s)
	if closed := s.Close(); err == nil {
		err = closed
	}
	return end, err
}

// trace passes the events to a sink, with explanations.
func (o *options) trace(sink event.Sink) (tracer.Ending, error) {
	x := explain.New(sink)
	x.Limits = tracer.Limits
	return tracer.Run(tracer.Options{
		Command: o.args,
		PIDs:    o.pids,
		Data:    o.data || o.filter.Data() || inject.Polls(o.inject),
		Raw:     o.text.Raw,
		Inject:  o.inject,

		NoFilter: o.plain,

		How:    o.way(),
		All:    o.all,
		Cgroup: o.cgroup,
	}, x)
}
