package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

// This returns the host that the program runs on.
func This() *Host { return &Host{Root: "/", System: system{}} }

type system struct{}

func (system) Node(path string) Node {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Node{Missing: err}
	}
	n := Node{Mode: fmt.Sprintf("%04o", st.Mode&0o7777), Owner: name(user.LookupId, st.Uid, func(u *user.User) string { return u.Username }) + ":" +
		name(user.LookupGroupId, st.Gid, func(g *user.Group) string { return g.Name })}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return n
	}
	dev := uint64(st.Rdev) // shorter on some platforms
	n.Dev = fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	n.Open = err
	return n
}

// name returns the name of a user or group, or the number if it has none.
func name[T any](lookUp func(string) (*T, error), id uint32, of func(*T) string) string {
	number := strconv.FormatUint(uint64(id), 10)
	if x, err := lookUp(number); err == nil {
		return of(x)
	}
	return number
}

func (system) Query(device string) (Answer, error) {
	d, err := verbs.Open(device)
	if err != nil {
		return Answer{}, err
	}
	defer d.Close()
	attr, err := d.QueryDevice()
	if err != nil {
		return Answer{}, err
	}
	a := Answer{ODP: attr.ODP.General&verbs.ODPSupport != 0}
	for port := 1; port <= attr.PhysPortCnt; port++ {
		p, err := d.QueryPort(port)
		if err != nil {
			return Answer{}, err
		}
		a.Ports = append(a.Ports, PortAnswer{p.ActiveMTU.Bytes(), p.MaxMTU.Bytes()})
	}
	return a, nil
}

func (system) Addrs(netDev string) []netip.Prefix {
	i, err := net.InterfaceByName(netDev)
	if err != nil {
		return nil
	}
	addrs, _ := i.Addrs()
	var all []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all
}
