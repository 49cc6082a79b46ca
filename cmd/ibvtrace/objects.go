package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/objects"
)

const objectsUsage = `Usage: ibvtrace objects [-p PID]... [--json] [-o FILE]

Show the RDMA objects that are there now, as the kernel lists them: the contexts
of each process, with their protection domains, memory regions, completion queues
and queue pairs. Without -p, those of all processes and of the kernel itself.

  -p PID    only those of this process; may be repeated
  --json    one JSON object per line
  -o FILE   write to FILE instead of stdout
  -h        this help

The numbers are the kernel's own. Of a queue pair it is the one that the other side
knows it by, and that a trace has as qpn; of all else it is none that a trace has.
Keys are shown to those with CAP_NET_ADMIN only.

Examples:
  ibvtrace objects
  ibvtrace objects -p 4711
  ibvtrace objects --json | jq 'select(.type == "qp" and .attrs.state == "ERR")'
`

type objectsOptions struct {
	pids   []int
	json   bool
	output string
}

func objectsFlags(o *objectsOptions) *flag.FlagSet {
	f := flag.NewFlagSet("ibvtrace objects", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("p", "only of the process `PID`; may be repeated", addPIDs(&o.pids))
	f.BoolVar(&o.json, "json", false, "one JSON object per line")
	f.StringVar(&o.output, "o", "", "write to `FILE`")
	return f
}

// listObjects shows what the kernel holds.
func listObjects(args []string) error {
	var o objectsOptions
	rest, err := parse(objectsFlags(&o), args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{fmt.Errorf("%q is no option; a process goes with -p", rest[0])}
	}
	all, err := objects.List()
	if err != nil {
		return err
	}
	if len(o.pids) > 0 {
		all = slices.DeleteFunc(all, func(x objects.Object) bool { return !slices.Contains(o.pids, x.PID) })
		if len(all) == 0 {
			fmt.Fprintln(os.Stderr, "ibvtrace: no such process has RDMA objects")
		}
	}
	out, err := openOutput(o.output, os.Stdout)
	if err != nil {
		return err
	}
	write := objects.WriteTree
	if o.json {
		write = objects.WriteJSON
	}
	if err := write(out, all); err != nil {
		return err
	}
	out.close()
	return out.err
}
