package main

import (
	"context"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// timestamps shows when requests completed. It prints
//
//	the second request completed after the first one
//	the time is the system's
//
// and before that the differences, which are never the same.
func timestamps(e *env) {
	attr := must(e.dev.QueryDevice())
	mask, kHz := attr.CompletionTimestampMask, attr.HCACoreClock
	cq := must(e.dev.CreateCQ(verbs.CQOptions{MaxCQE: 4, Fields: verbs.WCFieldTimestamp | verbs.WCFieldWallClock}))
	qp, _ := e.pair(verbs.QPOptions{Type: verbs.RC, SendCQ: cq}, verbs.AccessRemoteWrite)
	mr := e.alloc(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)

	write := func() verbs.WCEx {
		must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{mr.SGE(0, 8)}, Remote: mr.Remote().At(8)}))
		wc := make([]verbs.WCEx, 1)
		must(cq.PollWaitEx(context.Background(), wc))
		check(wc[0].Err())
		return wc[0]
	}
	first, second := write(), write()
	ticks := (second.Timestamp - first.Timestamp) & mask
	age := time.Since(second.WallClock)
	fmt.Printf("%d ticks of %d kHz between them; polled after %v\n", ticks, kHz, age)
	if ticks > 0 && ticks < mask/2 {
		fmt.Println("the second request completed after the first one")
	}
	if age.Abs() < time.Minute {
		fmt.Println("the time is the system's")
	}
}
