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

Show the RDMA objects that exist now, as the kernel lists them: the contexts of
each process, with their protection domains, memory regions, completion queues
and queue pairs. Without -p, the objects of all processes and of the kernel are shown.

  -p PID    only objects of this process; may be repeated
  --json    write one JSON object per line
  -o FILE   write to FILE instead of stdout
  -h        print this help

The numbers are the kernel's. The number of a queue pair is its QP number, which is
qpn in a trace. The other numbers do not occur in traces. Keys are shown only with
CAP_NET_ADMIN.

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
	f.Func("p", "only objects of the process `PID`; may be repeated", addPIDs(&o.pids))
	f.BoolVar(&o.json, "json", false, "write one JSON object per line")
	f.StringVar(&o.output, "o", "", "write to `FILE`")
	return f
}

// listObjects shows the objects in the kernel.
func listObjects(args []string) error {
	var o objectsOptions
	rest, err := parse(objectsFlags(&o), args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q; -p selects a process", rest[0])}
	}
	all, err := objects.List()
	if err != nil {
		return err
	}
	if len(o.pids) > 0 {
		all = slices.DeleteFunc(all, func(x objects.Object) bool { return !slices.Contains(o.pids, x.PID) })
		if len(all) == 0 {
			fmt.Fprintln(os.Stderr, "ibvtrace: these processes have no RDMA objects")
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
