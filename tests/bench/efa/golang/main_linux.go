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

func main() {
	ctx := must(must(verbs.Devices())[0].Open())
	pd := must(ctx.AllocPD())
	ah := must(pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1}))
	cq := must(ctx.CreateCQ(verbs.CQOptions{MaxCQE: cqes, PollOnly: true}))
	var size uint32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, 0xefa, uintptr(unsafe.Pointer(&size))); errno != 0 {
		log.Fatal(errno)
	}
	qp := must(pd.CreateQP(verbs.QPOptions{Type: verbs.UD, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 32}}))
	if err := qp.Activate(verbs.ActivateOptions{Port: 1, QKey: 1}); err != nil {
		log.Fatal(err)
	}
	sq, rq, ring := mapped(1<<24), mapped(1<<24+1<<22), mapped(1<<34+1<<24)
	sgl := []verbs.SGE{{Addr: 4096, Length: 64, LKey: 9}}
	sends := []verbs.SendWR{{WRID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: sgl, AH: ah, RemoteQPN: 300, RemoteQKey: 77}}
	recvs := []verbs.RecvWR{{WRID: 2, SGL: sgl}}
	wc := make([]verbs.WC, list)
	post, recv, one, many := time.Hour, time.Hour, time.Hour, time.Hour
	done := 0
	for round := range rounds {
		began := time.Now()
		for range depth {
			if n, err := qp.PostSend(sends...); n != 1 {
				log.Fatal(err)
			}
		}
		post = min(post, time.Since(began))
		began = time.Now()
		for range depth {
			if n, err := qp.PostRecv(recvs...); n != 1 {
				log.Fatal(err)
			}
		}
		recv = min(recv, time.Since(began))
		for i := range 2 * depth {
			e, at, queue := ring[done%cqes*int(size):][:size], i%depth, byte(1)
			clear(e)
			if i < depth {
				copy(e[:2], sq[at*64:])
			} else {
				copy(e[:2], rq[(at+round*depth)%(2*depth)*16+8:])
				queue = 2
			}
			binary.LittleEndian.PutUint16(e[4:], uint16(qp.Num()))
			e[6] = 64
			e[3] = queue<<1 | byte(done/cqes+1)&1
			done++
		}
		began = time.Now()
		for range depth {
			if n, err := cq.Poll(wc[:1]); n != 1 {
				log.Fatal(n, err)
			}
		}
		one = min(one, time.Since(began))
		began = time.Now()
		for range depth / list {
			if n, err := cq.Poll(wc); n != list {
				log.Fatal(n, err)
			}
		}
		many = min(many, time.Since(began))
	}
	for _, x := range []struct {
		what string
		took time.Duration
	}{{"post send", post}, {"post recv", recv}, {"poll 1", one}, {"poll 16", many}} {
		fmt.Printf("%s %.1f\n", x.what, float64(x.took.Nanoseconds())/depth)
	}
}
