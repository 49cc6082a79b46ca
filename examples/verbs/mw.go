package main

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/verbs"
)

// mw opens a part of its memory to the peer with a memory window of type 2, and closes it
// again. It prints
//
//	open: "....through the window.........."
//	closed: REM_ACCESS_ERR
func mw(e *env) {
	const windows = verbs.DeviceMemWindowType2A | verbs.DeviceMemWindowType2B
	if must(e.dev.QueryDevice()).DeviceCapFlags&windows == 0 {
		log.Fatalf("%s has no memory windows of type 2", e.dev.Info())
	}
	owner, peer := e.pair(verbs.QPOptions{Type: verbs.RC}, verbs.AccessRemoteWrite)
	// The MR itself allows no remote access.
	mr := e.alloc(32, verbs.AccessLocalWrite|verbs.AccessMWBind)
	for i := range mr.Bytes() {
		mr.Bytes()[i] = '.'
	}
	mw := must(e.pd.AllocMW(verbs.MWType2))
	key := verbs.NextRKey(mw.RKey())
	check(e.send(owner, verbs.SendWR{Opcode: verbs.OpBindMW, MW: mw, NewRKey: key,
		Bind: verbs.MWBindInfo{MR: mr, Addr: mr.Addr() + 4, Length: 20, Access: verbs.AccessRemoteWrite}}))

	out := e.alloc(32, 0)
	n := copy(out.Bytes(), "through the window")
	write := verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{out.SGE(0, n)},
		Remote: mw.Remote()}
	check(e.send(peer, write))
	fmt.Printf("open: %q\n", mr.Bytes())

	check(e.send(owner, verbs.SendWR{Opcode: verbs.OpLocalInv, InvalidateRKey: key}))
	fmt.Println("closed:", e.send(peer, write).(*verbs.WCError).Status)
}
