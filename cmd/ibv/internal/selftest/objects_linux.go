package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/rdmanl"
)

// countObjects counts all processes' objects on the sides' devices, by kind. It returns nil if
// the kernel doesn't list them.
func countObjects(sides [2]*side) map[string]uint64 {
	counts := make(map[string]uint64)
	for _, s := range sides {
		name := s.dev.Info().Name()
		d, err := rdmanl.FindDevice(context.Background(), name)
		if err != nil {
			return nil
		}
		list, err := rdmanl.Counts(context.Background(), d.Index)
		if err != nil {
			return nil
		}
		for _, c := range list {
			counts[name+" "+c.Name] = c.Now
		}
	}
	return counts
}

// ownObjects lists the objects of this process on a device, except for the open device itself,
// and the kinds that the kernel doesn't list.
func ownObjects(name string) (list, untold []string, err error) {
	d, err := rdmanl.FindDevice(context.Background(), name)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range []struct {
		kind string
		own  func(dev uint32) (ids []uint32, err error)
	}{
		{"QP", own(rdmanl.QPs, func(q *rdmanl.QP) (uint32, *rdmanl.Owner) { return q.Number, &q.Owner })},
		{"CQ", own(rdmanl.CQs, func(q *rdmanl.CQ) (uint32, *rdmanl.Owner) { return q.ID, &q.Owner })},
		{"SRQ", own(rdmanl.SRQs, func(q *rdmanl.SRQ) (uint32, *rdmanl.Owner) { return q.ID, &q.Owner })},
		{"MR", own(rdmanl.MRs, func(m *rdmanl.MR) (uint32, *rdmanl.Owner) { return m.ID, &m.Owner })},
		{"PD", own(rdmanl.PDs, func(p *rdmanl.PD) (uint32, *rdmanl.Owner) { return p.ID, &p.Owner })},
	} {
		ids, err := k.own(d.Index)
		if errors.Is(err, errors.ErrUnsupported) {
			untold = append(untold, "the kernel's list of "+k.kind+"s")
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for _, id := range ids {
			list = append(list, fmt.Sprintf("%s %d", k.kind, id))
		}
	}
	return list, untold, nil
}

// own returns a function that lists this process's objects of one kind.
func own[T any](all func(context.Context, uint32, rdmanl.Detail) ([]T, error), of func(*T) (id uint32, owner *rdmanl.Owner)) func(dev uint32) ([]uint32, error) {
	return func(dev uint32) (ids []uint32, err error) {
		objects, err := all(context.Background(), dev, rdmanl.DetailCommon)
		for i := range objects {
			id, owner := of(&objects[i])
			if pid, ok := owner.Process(); ok && int(pid) == os.Getpid() {
				ids = append(ids, id)
			}
		}
		return ids, err
	}
}
