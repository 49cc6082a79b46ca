package filter

import (
	"slices"
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// dataVerbs are the prefixes of the names of data verbs.
var dataVerbs = []string{"post_", "poll_", "wr_", "start_poll", "next_poll", "end_poll", "req_notify_cq"}

// lookup reports whether there is a verb with the name, and whether it is a data verb.
func lookup(name string) (known, data bool) {
	for _, p := range dataVerbs {
		if strings.HasPrefix(name, p) {
			return true, true
		}
	}
	return slices.Contains(otherVerbs, name) || slices.Contains(kernelVerbs(), name), false
}

// otherVerbs are the verbs that are not methods of the kernel.
var otherVerbs = []string{"get_cq_event", "get_async_event", "get_cm_event", "mmap", "open", "close", "exit"}

// kernelVerbs returns the names of the kernel's methods and commands.
func kernelVerbs() []string {
	var out []string
	for _, driver := range []uapi.RdmaDriverId{uapi.RDMA_DRIVER_UNKNOWN, uapi.RDMA_DRIVER_MLX5} {
		for _, space := range []uint16{0, uapi.UVERBS_ID_DRIVER_NS} {
			for id := range uint16(maxObjects) {
				if o := uapi.LookupObject(driver, space+id); o != nil {
					for _, m := range o.Methods {
						out = append(out, m.Verb)
					}
				}
			}
		}
	}
	for id := range uint32(maxCommands) {
		for _, flag := range []uint32{0, uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED} {
			if c := uapi.LookupWriteCommand(flag | id); c != nil {
				out = append(out, c.Name)
			}
		}
	}
	return out
}

// Words returns the words of expressions, for shell completion: classes, statuses, qualifiers
// and verbs.
func Words() []string {
	out := []string{"all", "none", "failed", "successful", "unfinished", "trace=", "object=", "status=", "device="}
	for class := range classes {
		out = append(out, class)
	}
	out = append(out, "post_send", "post_recv", "post_srq_recv", "post_wq_recv", "poll_cq", "req_notify_cq", "get_cq_event", "get_async_event")
	out = append(out, kernelVerbs()...)
	slices.Sort(out)
	return slices.Compact(out)
}

// Both are more than the kernel has.
const (
	maxObjects  = 64
	maxCommands = 128
)
