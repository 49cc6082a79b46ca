package selftest

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// A device may wait four times the configured time for each acknowledgement. Even then, all retries
// end within the default patience. With 7, rxe would retry for ever.
const (
	reachTimeout = 250 * time.Millisecond
	reachRetries = 6
)

// The kernel waits one second for the other side's Ethernet address. A busy machine may need more.
const resolutions = 3

// reach finds out whether each of two devices reaches the other. If not, failures of the
// groups would say nothing about the devices.
func (r *run) reach() error {
	if r.loopback() {
		return nil
	}
	sides := r.sides
	defer func() { r.sides = sides }()
	for range sides {
		if seen := r.unanswered(); seen != "" {
			return fmt.Errorf("%v doesn't reach %v: %s, or test each one by itself", r.sides[0], r.sides[1], r.advice(seen))
		}
		r.sides[0], r.sides[1] = r.sides[1], r.sides[0]
	}
	return r.ctx.Err()
}

// unanswered writes from the first side to the second. Without an answer, it returns what it saw
// instead. It ignores other failures, because the groups report more about them.
func (r *run) unanswered() (seen string) {
	if one, other := r.sides[0].port.LinkLayer, r.sides[1].port.LinkLayer; one != other {
		return fmt.Sprintf("the one is connected to %v, the other to %v", one, other)
	}
	c := &check{run: r}
	defer c.close()
	one := shape{typ: verbs.RC, sends: 1, recvs: 1, connect: func(o *verbs.ConnectOptions) { o.AckTimeout, o.RetryCount = reachTimeout, reachRetries }}
	p, err := c.pair(one)
	for tries := 1; tries < resolutions && errors.Is(err, syscall.ETIMEDOUT); tries++ {
		p, err = c.pair(one)
	}
	if err == nil {
		err = p.post(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.a.mr.SGE(0, 8)}, Remote: p.b.mr.Remote()})
	}
	if err != nil {
		for _, unreachable := range []error{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ETIMEDOUT} {
			if errors.Is(err, unreachable) {
				return err.Error()
			}
		}
		return ""
	}
	if wcs, err := c.await(p.a.send, 1); err != nil || wcs[0].Status != verbs.WCRetryExcErr {
		return ""
	}
	return "nothing answers"
}

// advice says what to do about devices that don't reach each other. Between addresses of one
// host, IPv4 packets and ARP pass only if the interfaces are configured for that.
func (r *run) advice(seen string) string {
	var settings []string
	for _, s := range r.sides {
		if dev := s.gid.NetDev; s.gid.GID.IsIPv4Mapped() && refusesOwn(dev) {
			settings = append(settings, "net/ipv4/conf/"+dev+"/accept_local=1", "net/ipv4/conf/"+dev+"/arp_ignore=1")
		}
	}
	if len(settings) > 0 {
		return "Linux drops what comes from an address of its own; run sysctl -w " + strings.Join(settings, " ")
	}
	return seen + "; connect them to one network, with addresses of one subnet"
}

// String names the device and the address of its port.
func (s *side) String() string {
	if s.global() {
		return fmt.Sprintf("%s (%v)", s.dev.Info().Name(), s.gid.GID.Addr().Unmap())
	}
	return fmt.Sprintf("%s (LID %d)", s.dev.Info().Name(), s.port.LID)
}
