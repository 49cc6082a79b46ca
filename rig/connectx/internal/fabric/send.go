package fabric

import (
	"container/heap"
	"time"
)

// send switches a packet. It calls receivers without the lock, because they may call the
// fabric.
func (f *Fabric) send(from *Port, p *Packet) {
	f.mu.Lock()
	f.stats.Sent++
	if from.up && !p.Ethernet {
		from.countSent(p)
	}
	var room [8]*Port
	to := f.route(room[:0], from, p)
	if len(to) == 0 {
		f.stats.Unroutable++
	}
	f.fan(from, to, p)
}

// fan delivers p to all ports in to, and unlocks.
func (f *Fabric) fan(from *Port, to []*Port, p *Packet) {
	var room [8]pending
	now := room[:0]
	wake := false
	for i, port := range to {
		copied := p
		if i < len(to)-1 {
			copied = p.Clone()
		}
		n, after := f.fate(from, copied)
		for range n - 1 {
			now, wake = f.put(now, pending{to: port, p: copied.Clone(), at: after}, wake)
		}
		if n == 0 {
			f.stats.Dropped++
			copied.Free()
			continue
		}
		now, wake = f.put(now, pending{to: port, p: copied, at: after}, wake)
	}
	f.mu.Unlock()
	if len(to) == 0 {
		p.Free()
	}
	for _, d := range now {
		d.to.c.Receive(d.p)
	}
	if wake && f.c.Wake != nil {
		f.c.Wake()
	}
}

// put adds d to the packets that arrive at once, or to those that are delayed, by d.at.
func (f *Fabric) put(now []pending, d pending, wake bool) ([]pending, bool) {
	if d.at == 0 {
		f.delivered(d)
		return append(now, d), wake
	}
	d.at += f.c.Clock()
	f.delayed.serial++
	d.serial = f.delayed.serial
	heap.Push(&f.delayed, d)
	return now, true
}

// delivered counts a packet that arrives.
func (f *Fabric) delivered(d pending) {
	f.stats.Delivered++
	if !d.p.Ethernet {
		d.to.countReceived(d.p)
	}
}

// fate returns how often a packet arrives, and after what delay.
func (f *Fabric) fate(from *Port, p *Packet) (times int, after time.Duration) {
	x, v := &f.faults, Pass
	if x.Hook != nil {
		v = x.Hook(from, p)
	}
	after = x.Delay
	if x.Jitter > 0 {
		after += time.Duration(f.rand.Int64N(int64(x.Jitter)))
	}
	switch {
	case v == Drop || v == Pass && x.Drop > 0 && f.rand.Float64() < x.Drop:
		return 0, 0
	case v == Duplicate || v == Pass && x.Duplicate > 0 && f.rand.Float64() < x.Duplicate:
		f.stats.Duplicated++
		return 2, after
	case v == Reorder || v == Pass && x.Reorder > 0 && f.rand.Float64() < x.Reorder:
		f.stats.Reordered++
		return 1, after + reorderDelay
	}
	return 1, after
}

// route appends p's destination ports.
func (f *Fabric) route(to []*Port, from *Port, p *Packet) []*Port {
	if !from.up {
		return to
	}
	if p.Ethernet {
		return f.flood(to, from)
	}
	if f.switches != nil && !p.RoCE {
		return f.forward(to, from, p)
	}
	if p.toGroup() {
		for _, q := range f.ports {
			if q.up && q.groups[p.DGID()] > 0 {
				to = append(to, q)
			}
		}
		return to
	}
	if p.RoCE {
		return f.routeRoCE(to, p)
	}
	q := f.byLID[p.DLID]
	if p.DLID == PermissiveLID {
		q = f.neighbor(from)
	}
	if q == nil && p.HasGRH {
		q = f.byGID[p.DGID()]
	}
	if q != nil && q.up {
		to = append(to, q)
	}
	return to
}

// flood appends all ports except the one that sent an Ethernet frame. The ports' HCAs
// decide whether to accept it.
func (f *Fabric) flood(to []*Port, from *Port) []*Port {
	for _, q := range f.ports {
		if q != from && q.up {
			to = append(to, q)
		}
	}
	return to
}
