package dgram

import (
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// A dest is a destination of messages.
type dest struct {
	addr      netip.AddrPort
	q         *queue
	ah        *verbs.AH     // nil: not known yet
	qpn       uint32        // 0: not known yet
	met       chan struct{} // closed when both are known
	resolving bool          // the path is being resolved
	busy      int           // sends in flight, and other users
	used      uint64        // the table's count at the last use
}

// A table has all destinations. Their number is limited, because anybody who sends a datagram becomes one.
type table struct {
	most      int
	all       map[netip.AddrPort]*dest
	count     uint64
	resolving int // destinations whose path is being resolved
}

func newTable(most int) table { return table{most: most, all: make(map[netip.AddrPort]*dest)} }

// find returns a destination, or nil.
func (t *table) find(to netip.AddrPort) *dest {
	d := t.all[to]
	if d != nil {
		t.count++
		d.used = t.count
	}
	return d
}

// knows reports whether an address belongs to the queue pair. A sender over RDMA can name any address.
func (t *table) knows(from netip.AddrPort, qpn uint32) bool {
	d := t.find(from)
	return d != nil && d.qpn == qpn && qpn != 0
}

var errBusy = errors.New("messages to too many destinations are on their way")

// add adds a destination. In a full table, it replaces a destination that is not in use.
func (t *table) add(to netip.AddrPort, q *queue) (*dest, error) {
	if len(t.all) >= t.most {
		var oldest *dest
		for _, d := range t.all {
			if d.busy == 0 && (oldest == nil || d.used < oldest.used) {
				oldest = d
			}
		}
		if oldest == nil {
			return nil, errBusy
		}
		delete(t.all, oldest.addr)
		if err := oldest.close(); err != nil {
			return nil, err
		}
	}
	t.count++
	d := &dest{addr: to, q: q, met: make(chan struct{}), used: t.count}
	t.all[to] = d
	return d, nil
}

func (d *dest) close() error {
	if d.ah == nil {
		return nil
	}
	return d.ah.Close()
}

func (t *table) close() error {
	var errs []error
	for _, d := range t.all {
		errs = append(errs, d.close())
	}
	clear(t.all)
	return errors.Join(errs...)
}
