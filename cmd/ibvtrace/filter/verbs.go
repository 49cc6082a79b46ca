package filter

import (
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// dataVerbs are the beginnings of the names of those that post and poll.
var dataVerbs = []string{"post_", "poll_", "wr_", "start_poll", "next_poll", "end_poll", "req_notify_cq"}

// lookup reports whether there is a verb with the name, and whether it posts or polls.
func lookup(name string) (known, data bool) {
	for _, p := range dataVerbs {
		if strings.HasPrefix(name, p) {
			return true, true
		}
	}
	switch name {
	case "get_cq_event", "get_async_event", "get_cm_event", "mmap", "open", "close", "exit":
		return true, false
	}
	for _, driver := range []uapi.RdmaDriverId{uapi.RDMA_DRIVER_UNKNOWN, uapi.RDMA_DRIVER_MLX5} {
		for _, space := range []uint16{0, uapi.UVERBS_ID_DRIVER_NS} {
			for id := range uint16(mostObjects) {
				o := uapi.LookupObject(driver, space+id)
				if o == nil {
					continue
				}
				for _, m := range o.Methods {
					if m.Verb == name {
						return true, false
					}
				}
			}
		}
	}
	for id := range uint32(mostCommands) {
		for _, flag := range []uint32{0, uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED} {
			if c := uapi.LookupWriteCommand(flag | id); c != nil && c.Name == name {
				return true, false
			}
		}
	}
	return false, false
}

// More than the kernel has.
const (
	mostObjects  = 64
	mostCommands = 128
)
