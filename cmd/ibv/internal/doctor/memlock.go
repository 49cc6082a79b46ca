package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// typicalMemlock is the memory that typical programs at least register: NCCL, UCX and MPI have
// pools of some tens of MiB. systemd's default limit is 8 MiB.
const typicalMemlock = 64 << 20

// capIPCLock is CAP_IPC_LOCK, which lifts the limit (linux/capability.h).
const capIPCLock = 14

// memlock checks the limit of locked memory, which registered memory counts against.
func (e *exam) memlock() {
	h := e.host
	const status = "/proc/self/status"
	caps := h.field(status, "CapEff")
	bits, err := strconv.ParseUint(caps, 16, 64)
	if err != nil || bits>>capIPCLock&1 != 0 && h.ownsHost() {
		return
	}
	soft, hard, ok := h.limit("Max locked memory")
	if !ok || soft >= typicalMemlock {
		return
	}
	uid, _, _ := strings.Cut(h.field(status, "Uid"), "\t")
	k := memlockLow
	what := fmt.Sprintf("the limit of locked memory is %s, typical programs register %s and more", size(soft), size(typicalMemlock))
	if uid == "0" {
		k = ipcLock
		what = "root lacks the host's CAP_IPC_LOCK here, and " + what
	}
	f := e.add(k, "%s", what)
	f.evidence("/proc/self/limits", fmt.Sprintf("Max locked memory %d, at most %s", soft, size(hard)))
	f.evidence(status, "CapEff "+caps)
	switch {
	case h.container() != "":
		f.mend("%s run --ulimit memlock=-1 …", h.runner())
		f.Advice = "Or run the container with --cap-add IPC_LOCK."
		if uid != "0" {
			// A process gets the capabilities of its container only as root.
			f.Advice = "--cap-add IPC_LOCK doesn't help here: the capability has no effect for a user other than root."
			f.evidence(status, "Uid "+uid+", CapBnd "+h.field(status, "CapBnd"))
		}
	case hard >= typicalMemlock:
		f.mend("ulimit -l %s", ulimit(hard))
	default:
		f.mend("prlimit --pid $$ --memlock=unlimited")
		f.Advice = "As root, with the number of your shell for $$. For good: \"* - memlock unlimited\" in /etc/security/limits.d/rdma.conf, or LimitMEMLOCK=infinity in the service."
	}
}

// ownsHost reports whether this process is in the first user namespace. A capability of
// another namespace doesn't lift the limit.
func (h *Host) ownsHost() bool {
	words := strings.Join(strings.Fields(h.read("/proc/self/uid_map")), " ")
	return words == "" || words == "0 0 4294967295"
}

const unlimited = 1<<64 - 1

// limit returns a limit of this process.
func (h *Host) limit(name string) (soft, hard uint64, ok bool) {
	for line := range strings.Lines(h.read("/proc/self/limits")) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			if words := strings.Fields(rest); len(words) >= 2 {
				var ok2 bool
				soft, ok = parseLimit(words[0])
				hard, ok2 = parseLimit(words[1])
				return soft, hard, ok && ok2
			}
		}
	}
	return 0, 0, false
}

func parseLimit(s string) (uint64, bool) {
	if s == "unlimited" {
		return unlimited, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// ulimit returns a limit in the units of ulimit -l.
func ulimit(n uint64) string {
	if n == unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(n/1024, 10)
}

func size(n uint64) string {
	if n == unlimited {
		return "unlimited"
	}
	return cli.Bytes(n)
}
