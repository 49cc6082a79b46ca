package main

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// rdma reads the peer's memory and changes it atomically, where the device has atomic operations.
// It prints
//
//	read 5
//	fetch-and-add 3: was 5
//	compare 8 and swap 100: was 8
//	compare 8 and swap 200: was 100
//	the peer has 100
func rdma(e *env) {
	atomics := must(e.dev.QueryDevice()).AtomicCap != verbs.AtomicNone
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead
	if atomics {
		access |= verbs.AccessRemoteAtomic // only such devices accept it
	}
	a, _ := e.pair(verbs.QPOptions{Type: verbs.RC}, access)
	peer, result := e.alloc(8, access), e.alloc(8, verbs.AccessLocalWrite)
	value := func(mr *verbs.MR) uint64 { return binary.NativeEndian.Uint64(mr.Bytes()) }
	do := func(wr verbs.SendWR) uint64 {
		wr.Remote, wr.SGL = peer.Remote(), []verbs.SGE{result.SGE(0, 8)}
		check(e.send(a, wr))
		return value(result)
	}

	binary.NativeEndian.PutUint64(peer.Bytes(), 5)
	fmt.Println("read", do(verbs.SendWR{Opcode: verbs.OpRDMARead}))
	if !atomics {
		fmt.Println(e.dev.Info(), "has no atomic operations")
		return
	}
	fmt.Println("fetch-and-add 3: was", do(verbs.SendWR{Opcode: verbs.OpFetchAdd, Add: 3}))
	fmt.Println("compare 8 and swap 100: was", do(verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: 8, Swap: 100}))
	fmt.Println("compare 8 and swap 200: was", do(verbs.SendWR{Opcode: verbs.OpCompareSwap, Compare: 8, Swap: 200}))
	fmt.Println("the peer has", value(peer))
}
