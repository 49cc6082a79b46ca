// Package mesh measures the network between all pairs of hosts. One process runs on each
// host, as one rank. Rank 0 decides which ranks measure when, and collects the results.
package mesh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// A Place has the rank of this process, and the address of rank 0.
type Place struct {
	Rank, Size int
	Root       string // host of rank 0
	By         string // the source of this, such as a launcher
}

// Given has the values of the command line. Rank and Size are -1 if they are not given.
type Given struct {
	Rank, Size int
	Root       string
	Hosts      string // separated by commas or spaces, in the order of ranks
}

// A launcher numbers processes in the environment.
type launcher struct {
	name       string
	rank, size string // variables
	root       func(env func(string) string, hostname string) string
}

var launchers = []launcher{
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", func(env func(string) string, _ string) string {
		if env("OMPI_COMM_WORLD_LOCAL_SIZE") == env("OMPI_COMM_WORLD_SIZE") {
			return "localhost"
		}
		return ""
	}},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", func(env func(string) string, _ string) string {
		for _, name := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"} {
			if list := env(name); list != "" {
				return firstNode(list)
			}
		}
		return ""
	}},
	{"an indexed Job", "JOB_COMPLETION_INDEX", "", func(env func(string) string, hostname string) string {
		// The name of a pod ends with its index. Pods reach each other by name in the
		// domain of a service.
		name, domain, _ := strings.Cut(hostname, ".")
		name, found := strings.CutSuffix(name, "-"+env("JOB_COMPLETION_INDEX"))
		if !found {
			return ""
		}
		if name += "-0"; domain != "" {
			name += "." + domain
		}
		return name
	}},
	{"a process manager", "PMI_RANK", "PMI_SIZE", func(func(string) string, string) string { return "" }},
}

// Find finds the place from the command line and the environment. addresses are this host's.
func Find(g Given, env func(string) string, hostname string, addresses []netip.Addr) (Place, error) {
	if g.Hosts != "" {
		return findHost(g, hostname, addresses)
	}
	p := Place{Rank: g.Rank, Size: g.Size, Root: g.Root, By: "the command line"}
	for _, l := range launchers {
		text := env(l.rank)
		if text == "" {
			continue
		}
		p.By = l.name
		var err error
		if p.Rank < 0 {
			if p.Rank, err = strconv.Atoi(text); err != nil {
				return p, fmt.Errorf("%s=%q is not a number", l.rank, text)
			}
		}
		if text := env(l.size); p.Size < 0 && text != "" {
			if p.Size, err = strconv.Atoi(text); err != nil {
				return p, fmt.Errorf("%s=%q is not a number", l.size, text)
			}
		}
		if p.Root == "" {
			p.Root = l.root(env, hostname)
		}
		break
	}
	switch {
	case p.Rank < 0 && p.Size < 0:
		return p, errors.New("neither Slurm, Open MPI nor an indexed Job has started this process: use --hosts, or --rank, --size and --root")
	case p.Size < 0:
		return p, fmt.Errorf("%s doesn't say how many processes there are: use --size", p.By)
	case p.Rank < 0:
		return p, fmt.Errorf("%s doesn't say which rank this process is: use --rank", p.By)
	case p.Rank >= p.Size:
		return p, fmt.Errorf("rank %d is not one of %d", p.Rank, p.Size)
	case p.Size < 2:
		return p, errors.New("there is only one process, and a pair needs two")
	case p.Root == "" && p.Rank != 0:
		return p, fmt.Errorf("%s doesn't say where rank 0 is: use --root", p.By)
	}
	return p, nil
}

// findHost finds this host in a list.
func findHost(g Given, hostname string, addresses []netip.Addr) (Place, error) {
	hosts := strings.FieldsFunc(g.Hosts, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	p := Place{Rank: g.Rank, Size: len(hosts), By: "--hosts"}
	if len(hosts) < 2 {
		return p, errors.New("--hosts needs two hosts or more")
	}
	p.Root = hosts[0]
	if g.Root != "" {
		p.Root = g.Root
	}
	if p.Rank >= 0 {
		if p.Rank >= p.Size {
			return p, fmt.Errorf("rank %d is not one of %d", p.Rank, p.Size)
		}
		return p, nil
	}
	short := func(name string) string {
		name, _, _ = strings.Cut(name, ".")
		return name
	}
	for i, host := range hosts {
		a, err := netip.ParseAddr(host)
		is := host == hostname || err != nil && short(host) == short(hostname)
		for _, mine := range addresses {
			is = is || err == nil && a == mine
		}
		if !is {
			continue
		}
		if p.Rank >= 0 {
			return p, fmt.Errorf("--hosts has this host twice, as %s and %s: use --rank", hosts[p.Rank], host)
		}
		p.Rank = i
	}
	if p.Rank < 0 {
		return p, fmt.Errorf("this host, %s, is not in --hosts: use its name or address, or --rank", hostname)
	}
	return p, nil
}

// firstNode returns the first name of Slurm's list, such as node[03-07,12],login1.
func firstNode(list string) string {
	end := len(list)
	if i := strings.IndexAny(list, ",["); i >= 0 {
		end = i
	}
	if end == len(list) || list[end] == ',' {
		return list[:end]
	}
	inside, after, _ := strings.Cut(list[end+1:], "]")
	number := inside
	if i := strings.IndexAny(inside, ",-"); i >= 0 {
		number = inside[:i]
	}
	if i := strings.IndexByte(after, ','); i >= 0 {
		after = after[:i]
	}
	return list[:end] + number + after
}

// Addresses returns this host's addresses.
func Addresses() (all []netip.Addr) {
	found, _ := net.InterfaceAddrs()
	for _, a := range found {
		if n, is := a.(*net.IPNet); is {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, addr.Unmap())
			}
		}
	}
	return all
}
