package selftest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:])
}

func pageSize() int { return os.Getpagesize() }

// memoryLimit returns how much memory the process may lock, up to a large maximum.
func memoryLimit() int {
	const plenty = 1 << 30
	if privileged() {
		return plenty
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return plenty
	}
	return int(min(l.Cur, plenty))
}

// privileged reports whether the process has CAP_IPC_LOCK.
func privileged() bool { return capable(unix.CAP_IPC_LOCK) }

func capable(bit int) bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return false
	}
	return d[bit/32].Effective>>(bit%32)&1 != 0
}

func memlock() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return "unknown: " + err.Error()
	}
	s := strconv.FormatUint(l.Cur, 10) + " bytes"
	if l.Cur == math.MaxUint64 {
		s = "unlimited"
	}
	if privileged() {
		s += ", CAP_IPC_LOCK"
	}
	return s
}

// A wanderer moves the thread of its goroutine from one processor to another. stop
// restores its processors.
type wanderer struct {
	all  unix.CPUSet
	cpus []int
}

// wander locks the goroutine to its thread. It returns nil if there is nowhere to go.
func wander() *wanderer {
	runtime.LockOSThread()
	w := new(wanderer)
	if err := unix.SchedGetaffinity(0, &w.all); err != nil {
		return nil
	}
	for i := range 1024 {
		if w.all.IsSet(i) {
			w.cpus = append(w.cpus, i)
		}
	}
	if len(w.cpus) < 2 {
		return nil
	}
	return w
}

// move moves the thread to a random processor.
func (w *wanderer) move() {
	if w == nil {
		return
	}
	var set unix.CPUSet
	set.Set(w.cpus[rand.IntN(len(w.cpus))])
	unix.SchedSetaffinity(0, &set) // if the processor is offline, the thread stays
}

func (w *wanderer) stop() {
	if w != nil {
		unix.SchedSetaffinity(0, &w.all) // see move
	}
	runtime.UnlockOSThread()
}

// dieWithUs makes the kernel kill a program when this process ends, for any reason.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} }

// listening reports whether a process of this host listens on a TCP port. It doesn't connect, because that would
// count as the client.
func listening(port int) bool {
	const listens = "0A"
	number := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], number) && f[3] == listens {
				return true
			}
		}
	}
	return false
}

// refusesOwn reports whether a network interface drops IPv4 packets that come from an address of
// this host.
func refusesOwn(netDev string) bool {
	for _, name := range []string{"all", netDev} {
		b, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/accept_local")
		if err != nil || strings.TrimSpace(string(b)) != "0" {
			return false
		}
	}
	return true
}

// A hostState is the state of the kernel's log and the counters at one time.
type hostState struct {
	counters map[string]uint64
	objects  map[string]uint64 // all objects on the device; nil if the kernel doesn't list them
	log      *os.File          // at its end then
	logErr   error
}

// readHost reads the counters of the sides, and records the end of the kernel's log.
func readHost(sides [2]*side) *hostState {
	h := &hostState{counters: make(map[string]uint64), objects: countObjects(sides)}
	for i, s := range sides {
		if i == 1 && s == sides[0] {
			break
		}
		for _, kind := range []string{"counters", "hw_counters"} {
			files, err := filepath.Glob(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/%s/*", s.dev.Info().Name(), s.num, kind))
			if err != nil {
				continue // never: the pattern is valid
			}
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					continue // some counters exist but can't be read
				}
				if n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil {
					h.counters[s.dev.Info().Name()+" "+filepath.Base(f)] = n
				}
			}
		}
	}
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		h.logErr = err
		return h
	}
	if _, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_END); err != nil {
		f.Close() // the error of Seek counts
		h.logErr = err
		return h
	}
	h.log = f
	return h
}

// since returns the log's lines since then. It closes the log.
func (h *hostState) since() (lines []string, err error) {
	if h.log == nil {
		return nil, h.logErr
	}
	fd := int(h.log.Fd())
	if err := unix.SetNonblock(fd, true); err != nil { // Fd has made it blocking
		return nil, err
	}
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EAGAIN || err == nil && n == 0:
			closing := h.log.Close()
			h.log = nil
			return lines, closing
		case err == unix.EPIPE: // lines were overwritten
			lines = append(lines, "...")
		case err != nil:
			return lines, err
		default:
			line, _, _ := strings.Cut(string(buf[:n]), "\n")
			if _, text, ok := strings.Cut(line, ";"); ok {
				lines = append(lines, text)
			}
		}
	}
}

// changes lists the differences between numbers.
func changes(before, after map[string]uint64) []string {
	list := []string{}
	for name, n := range after {
		if was := before[name]; n != was {
			list = append(list, fmt.Sprintf("%s %+d", name, int64(n-was)))
		}
	}
	sort.Strings(list)
	return list
}

// host compares the kernel's log, the objects and the counters with those at the beginning.
func host(r *run) {
	r.retire() // then only the open devices are left
	after := readHost(r.sides)
	if after.log != nil {
		after.log.Close() // only the counters are needed
	}
	r.check("counters", func(c *check) error {
		if len(after.counters) == 0 {
			return notThere("counters")
		}
		c.g.fact("counters that have changed, by everybody's traffic", changes(r.before.counters, after.counters))
		return nil
	})
	r.check("objects", func(c *check) error {
		if r.before.objects == nil || after.objects == nil {
			return notThere("the kernel's list of objects")
		}
		c.g.fact("objects on the device that have come or gone, of everybody", changes(r.before.objects, after.objects))
		for i, s := range r.sides {
			if i == 1 && r.loopback() {
				break
			}
			left, untold, err := ownObjects(s.dev.Info().Name())
			if err != nil {
				return err
			}
			r.g.NotThere = append(r.g.NotThere, untold...)
			if len(left) > 0 {
				return &Failure{Object: left[0] + " of " + s.dev.Info().Name(), Expected: "to be gone after it was closed", Seen: "the kernel still has it", Also: left[1:]}
			}
		}
		return nil
	})
	r.check("kernel log", func(c *check) error {
		lines, err := r.before.since()
		if err != nil {
			return notThere("the kernel's log: %v", err)
		}
		var ours, bad []string
		for _, l := range lines {
			about, trouble := relevant(l)
			if trouble {
				bad = append(bad, l)
			} else if about {
				ours = append(ours, l)
			}
		}
		c.g.fact("lines about RDMA in the kernel's log", ours)
		if len(bad) > 0 {
			return &Failure{Object: "kernel log", Expected: "no trouble reported", Seen: bad[0], Details: bad[1:]}
		}
		return nil
	})
}

// relevant reports whether a line of the kernel's log is about RDMA, and whether it is
// about trouble that this program may have caused.
func relevant(line string) (about, trouble bool) {
	for _, word := range []string{"infiniband", "mlx5", "rxe", "ib_", "uverbs", "rdma"} {
		about = about || strings.Contains(line, word)
	}
	for _, word := range []string{"BUG:", "WARNING: ", "Oops", "general protection", "refcount_t", "blocked for more than", "DMAR: ", "IO_PAGE_FAULT"} {
		trouble = trouble || strings.Contains(line, word)
	}
	// mlx5's drivers also log why they refuse a program's queue pair, and that the adapter has run out of a
	// resource. The program gets these errors, too, and its check judges them.
	told := false
	for _, words := range []string{"Create QP type", "status no resources", "status limits exceeded"} {
		told = told || strings.Contains(line, words)
	}
	if about && !told {
		for _, word := range []string{"timeout", "leak", "failed", "fatal", "health"} {
			trouble = trouble || strings.Contains(line, word)
		}
	}
	return about, trouble
}
