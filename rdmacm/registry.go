package rdmacm

import "sync"

// The registry maps numbers to IDs and Multicasts. The kernel's events have these
// numbers. An ID or a Multicast keeps its number for life, on every channel.
var registry numbers

type numbers struct {
	mu   sync.RWMutex
	last uint64 // 0 is none
	of   map[uint64]any
}

// add gives x, a *cmID or a *Multicast, a number.
func (n *numbers) add(x any) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = make(map[uint64]any)
	}
	n.last++
	n.of[n.last] = x
	return n.last
}

func (n *numbers) find(number uint64) any {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.of[number]
}

func (n *numbers) remove(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, number)
}

// ids returns all IDs.
func (n *numbers) ids() []*cmID {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var ids []*cmID
	for _, x := range n.of {
		if id, ok := x.(*cmID); ok {
			ids = append(ids, id)
		}
	}
	return ids
}
