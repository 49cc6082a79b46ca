// Golang prints the least times of posts and polls of package verbs on EFA: see ../run. It does
// what ../c/bench.c does.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	_ "github.com/goverbs/goverbs/provider/efa"
	"github.com/goverbs/goverbs/verbs"
)

const (
	depth  = 64
	cqes   = 256
	rounds = 20000
	list   = 16
	fd     = 1000
	shown  = 1 << 20
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func mapped(at int64) []byte {
	return must(unix.Mmap(fd, at, shown, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
}

// A queue is a queue pair, with the locations of its sends and receives.
type queue struct {
	*verbs.QP
	sq, rq []byte
}

func newQueue(pd *verbs.PD, cq *verbs.CQ, typ verbs.QPType, n int64) *queue {
	qp := must(pd.CreateQP(verbs.QPOptions{Type: typ, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 32}}))
	if err := qp.Activate(verbs.ActivateOptions{Port: 1, QKey: 1}); err != nil {
		log.Fatal(err)
	}
	return &queue{qp, mapped(n << 24), mapped(n<<24 + 1<<22)}
}

// post posts a round of sends, in lists.
func (q *queue) post(wrs []verbs.SendWR) {
	for range depth / len(wrs) {
		if n, err := q.PostSend(wrs...); n != len(wrs) {
			log.Fatal(err)
		}
	}
}

// completions are those that the program writes.
type completions struct {
	cq   *verbs.CQ
	ring []byte
	size int
	done int
	wc   [list]verbs.WC
}

// complete writes completions of a round of sends, or of receives.
func (c *completions) complete(q *queue, recv bool, round int) {
	for i := range depth {
		e := c.ring[c.done%cqes*c.size:][:c.size]
		clear(e)
		from := byte(1)
		if recv {
			from = 2
			copy(e[:2], q.rq[(i+round*depth)%(2*depth)*16+8:])
		} else {
			copy(e[:2], q.sq[i*64:])
		}
		binary.LittleEndian.PutUint16(e[4:], uint16(q.Num()))
		e[6] = 64
		e[3] = from<<1 | byte(c.done/cqes+1)&1
		c.done++
	}
}

func (c *completions) poll(n int) {
	for range depth / n {
		if got, err := c.cq.Poll(c.wc[:n]); got != n {
			log.Fatal(got, err)
		}
	}
}

func main() {
	ctx := must(must(verbs.Devices())[0].Open())
	pd := must(ctx.AllocPD())
	ah := must(pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1}))
	c := completions{cq: must(ctx.CreateCQ(verbs.CQOptions{MaxCQE: cqes, PollOnly: true}))}
	var size uint32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, 0xefa, uintptr(unsafe.Pointer(&size))); errno != 0 {
		log.Fatal(errno)
	}
	c.size, c.ring = int(size), mapped(1<<34+1<<24)
	ud, srd := newQueue(pd, c.cq, verbs.UD, 1), newQueue(pd, c.cq, verbs.SRD, 2)
	sgl := []verbs.SGE{{Addr: 4096, Length: 64, LKey: 9}}
	send := verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: sgl, AH: ah, RemoteQPN: 300, RemoteQKey: 77}
	inline, read := send, send
	inline.SGL, inline.Inline = nil, make([]byte, 32)
	read.Opcode, read.Remote = verbs.OpRDMARead, verbs.Remote{Addr: 4096, RKey: 5}
	many := make([]verbs.SendWR, list)
	for i := range many {
		many[i] = send
	}
	kinds := []struct {
		name string
		on   *queue
		wrs  []verbs.SendWR
		took time.Duration
	}{
		{"UD send", ud, []verbs.SendWR{send}, time.Hour},
		{"UD inline", ud, []verbs.SendWR{inline}, time.Hour},
		{"UD list of 16", ud, many, time.Hour},
		{"SRD send", srd, []verbs.SendWR{send}, time.Hour},
		{"SRD inline", srd, []verbs.SendWR{inline}, time.Hour},
		{"SRD read", srd, []verbs.SendWR{read}, time.Hour},
	}
	recvs := []verbs.RecvWR{{WRID: 2, SGL: sgl}}
	recv, one, lists, empty := time.Hour, time.Hour, time.Hour, time.Hour
	for round := range rounds {
		for i := range kinds {
			k := &kinds[i]
			began := time.Now()
			k.on.post(k.wrs)
			k.took = min(k.took, time.Since(began))
			c.complete(k.on, false, round)
			if i > 0 {
				c.poll(list)
				continue
			}
			began = time.Now()
			c.poll(1)
			one = min(one, time.Since(began))
		}
		began := time.Now()
		for range depth {
			if n, err := ud.PostRecv(recvs...); n != 1 {
				log.Fatal(err)
			}
		}
		recv = min(recv, time.Since(began))
		c.complete(ud, true, round)
		began = time.Now()
		c.poll(list)
		lists = min(lists, time.Since(began))
		began = time.Now()
		for range depth {
			if n, err := c.cq.Poll(c.wc[:1]); n != 0 {
				log.Fatal(n, err)
			}
		}
		empty = min(empty, time.Since(began))
	}
	each := func(what string, took time.Duration) {
		fmt.Printf("%s %.1f\n", what, float64(took.Nanoseconds())/depth)
	}
	for _, k := range kinds {
		each(k.name, k.took)
	}
	each("receive", recv)
	each("poll of 1", one)
	each("poll of 16", lists)
	each("empty poll", empty)
}
