package main

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/verbs"
)

// odp writes to memory that is not pinned: the kernel maps its pages when the device touches
// them. It prints
//
//	prefetched 4096 of 1048576 bytes
//	last byte: 7
func odp(e *env) {
	if must(e.dev.QueryDevice()).ODP.RC&verbs.ODPSupportWrite == 0 {
		log.Fatalf("%s has no on-demand paging", e.dev.Info())
	}
	const n = 1 << 20
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	mr := e.alloc(n, access|verbs.AccessOnDemand)
	// Advice is optional. It saves the page faults of the first access.
	check(e.pd.AdviseMR(verbs.AdvicePrefetchWrite, verbs.AdviseFlush, mr.SGE(0, 4096)))
	fmt.Printf("prefetched 4096 of %d bytes\n", n)

	qp, _ := e.pair(verbs.QPOptions{Type: verbs.RC}, access)
	out := e.alloc(1, 0)
	out.Bytes()[0] = 7
	check(e.send(qp, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{out.SGE(0, 1)}, Remote: mr.Remote().At(n - 1)}))
	fmt.Println("last byte:", mr.Bytes()[n-1])
}
