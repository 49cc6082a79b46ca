package doctor

import (
	"slices"
	"strconv"
)

// pkeys checks the P_Key table of an active InfiniBand port. The highest bit of a P_Key
// says that the port is a full member of the partition. Two limited members can't
// communicate (InfiniBand Architecture Specification, volume 1, 10.9.1.2).
func (e *exam) pkeys(p *port) {
	if p.ethernet {
		return
	}
	var keys []uint64
	for _, name := range e.host.list(p.sys + "/pkeys") {
		if key, err := strconv.ParseUint(e.host.read(p.sys+"/pkeys/"+name), 0, 16); err == nil && key&0x7fff != 0 {
			keys = append(keys, key)
		}
	}
	switch first := e.host.read(p.sys + "/pkeys/0"); {
	case len(keys) == 0:
		f := e.addToPort(p, pkeyNone, "the port is in no partition")
		f.evidence(p.sys+"/pkeys/0", first)
		f.Advice = "The subnet manager assigns partitions: partitions.conf of opensm."
	case !slices.ContainsFunc(keys, func(k uint64) bool { return k&0x8000 != 0 }):
		f := e.addToPort(p, pkeyLimited, "the port is only a limited member of its partitions")
		f.evidence(p.sys+"/pkeys/0", first)
		f.Advice = "It can talk to full members only. The subnet manager assigns partitions: partitions.conf of opensm."
	}
}
