// Ibvtrace runs a program, or attaches to one, and prints the RDMA verbs that it
// calls, as strace prints system calls.
//
//	ibvtrace [OPTION...] [--] COMMAND [ARG...]
//	ibvtrace [OPTION...] -p PID
//	ibvtrace report [OPTION...] FILE...
//	ibvtrace figure [-o FILE] FILE...
//	ibvtrace objects [-p PID]
//
// Any program will do, C or Go, static or dynamic, with all its threads and
// children. A seccomp filter lets system calls through that are none of RDMA's.
// Posting and polling happen in the program's own memory and run at full speed,
// unless -e asks for them (-e all, -e data).
//
// Ibvtrace -h has the options with examples, the manual page ibvtrace.1 all of it,
// package event the form of the JSON that --json writes.
//
// # Text
//
// One line per verb, written when the verb has returned:
//
//	10:31:07.120345 [4711 server] ibv_create_qp(pd=3, send_cq=5, recv_cq=5, type=RC, ...) = qp 7 (qpn 0x11, ...) <84 µs>
//	10:31:07.120911 [4711 server] ibv_reg_mr(start=0x7f1b40000000, length=4096, pd=3, ...) = -1 ENOMEM (Cannot allocate memory) <9 µs>
//
// They are the local time at which the verb was called, the process (and the
// thread, as PID/TID, if it is not the first), its name, the verb with what went
// in, and what came out. Handles are the kernel's: pd=3 is the object that a line
// before made with "= pd 3". A handle that was used before has a count, qp 7#2 is
// the second with this number. Where a process has opened more than one device,
// lines of all but the first say which file they are about. What
// says little (the program's own handles, the driver's data, zeros in large
// structs) is left out unless -v is given.
//
// The duration is the kernel's, and for verbs that stop the program (the manual page says
// which) what it takes to wake up the tracer.
// Objects, methods and attributes that ibvtrace does not know are printed by
// number, with their bytes in hexadecimal. A verb whose thread died in it ends
// with "= ?".
//
// # Signals and status
//
// The program's input, output, signals and exit status pass through: ibvtrace
// exits as the program did, by the same signal if one killed it. Errors of
// ibvtrace itself, such as a command that is not there, give status 1.
// SIGTERM is handed on to the program; SIGINT, SIGQUIT and SIGHUP are handed on
// unless the terminal has sent them to the program already. If ibvtrace is
// killed, so is a program that it started: without a tracer the filter would fail
// every verb. Signals ignored at the start stay ignored in the program only if they
// are SIGHUP, SIGINT or a job-control signal.
//
// Unless it has CAP_SYS_ADMIN, ibvtrace has to set no_new_privs to install the
// filter, so set-user-ID programs run without the other user's rights.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/explain"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/trace"
)

// A command is what the first argument chooses, if it is not a program.
type command struct {
	name  string
	usage string
	run   func(args []string) error
}

var commands = []command{
	{"report", reportUsage, report},
	{"figure", figureUsage, drawFigure},
	{"objects", objectsUsage, listObjects},
	{"completion", completionUsage, completion},
}

func main() {
	if trace.IsStarter() {
		trace.Starter()
	}
	args := os.Args[1:]
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

// leave ends ibvtrace, with help if that was asked for.
func leave(name, usage string, err error) {
	switch {
	case errors.Is(err, errHelp):
		fmt.Print(usage)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		if isUsage(err) {
			fmt.Fprintf(os.Stderr, "Try '%s -h' for more information.\n", name)
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

// run traces a command to its end, or processes.
func run(args []string) (trace.Ending, error) {
	o, err := parseTrace(args)
	if err != nil {
		return trace.Ending{}, err
	}
	s, err := o.open(os.Stderr)
	if err != nil {
		return trace.Ending{}, err
	}
	end, err := trace.Run(trace.Options{
		Command: o.args,
		PIDs:    o.pids,
		Data:    o.data || o.filter.Data(),
		Raw:     o.text.Raw,
		Stop:    o.stop,
	}, explain.New(s))
	if closed := s.Close(); err == nil {
		err = closed
	}
	return end, err
}
