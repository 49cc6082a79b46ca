package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// loopback returns a QP that is connected to itself and has posted a receive, and its
// memory. The first half is for receives.
func loopback(dev *verbs.Device, cq *verbs.CQ, value any) (*verbs.QP, *verbs.MR) {
	gid := must(dev.FindGID(verbs.GIDSelector{Port: 1}))
	pd := must(dev.AllocPD())
	mr := must(pd.AllocMR(128, verbs.MROptions{Access: verbs.AccessLocalWrite}))
	qp := must(pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Value: value,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))
	me := must(qp.Endpoint(gid))
	must(qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{mr.SGE(0, 64)}}))
	check(qp.Connect(me, verbs.ConnectOptions{}))
	return qp, mr
}

// send sends a message without a completion for the sender.
func send(qp *verbs.QP, mr *verbs.MR, message string) {
	n := copy(mr.Bytes()[64:], message)
	must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{mr.SGE(64, n)}}))
}

// One goroutine serves all connections on a CQ.
func ExampleCQ_All() {
	type client struct {
		name string
		mr   *verbs.MR
	}
	dev := must(verbs.Open(""))
	defer dev.Close()
	cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 16}))
	for _, name := range []string{"Ann", "Ben", "Cid"} {
		c := &client{name: name}
		qp, mr := loopback(dev, cq, c)
		c.mr = mr
		send(qp, mr, "from "+name)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	served := 0
	for wc, err := range cq.All(ctx) {
		check(err)      // of the CQ, or the context
		check(wc.Err()) // of the request
		c := dev.QPByNum(wc.QPNum).Value().(*client)
		fmt.Printf("%s: %q\n", c.name, c.mr.Bytes()[:wc.ByteLen])
		if served++; served == 3 {
			break
		}
	}
}

// One goroutine waits for many CQs, with one completion channel.
func ExampleCompChannel() {
	dev := must(verbs.Open(""))
	defer dev.Close()
	channel := must(dev.CreateCompChannel())
	for i := range 3 {
		cq := must(dev.CreateCQ(verbs.CQOptions{MaxCQE: 2, Channel: channel, Value: i}))
		check(cq.Arm(false))
		qp, mr := loopback(dev, cq, nil)
		send(qp, mr, "hello")
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wcs [2]verbs.WC
	for done := 0; done < 3; {
		cq := must(channel.Wait(ctx))
		check(cq.Arm(false)) // before the poll, else a completion between the two causes no event
		for {
			n := must(cq.Poll(wcs[:]))
			if n == 0 {
				break
			}
			for _, wc := range wcs[:n] {
				check(wc.Err())
				fmt.Printf("CQ %v: %v of %d bytes\n", cq.Value(), wc.Opcode, wc.ByteLen)
			}
			done += n
		}
	}
}

// The device reports when messages arrived.
func ExampleCQ_PollEx() {
	dev := must(verbs.Open(""))
	defer dev.Close()
	cq, err := dev.CreateCQ(verbs.CQOptions{MaxCQE: 2, Fields: verbs.WCFieldTimestamp | verbs.WCFieldWallClock})
	if errors.Is(err, verbs.ErrNotSupported) {
		fmt.Println("the device has no timestamps")
		return
	}
	check(err)
	for range 2 {
		qp, mr := loopback(dev, cq, nil)
		send(qp, mr, "hello")
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wcs [2]verbs.WCEx
	for n := 0; n < len(wcs); {
		n += must(cq.PollWaitEx(ctx, wcs[n:])) // PollEx, once there is a completion
	}
	for _, wc := range wcs {
		check(wc.Err())
	}
	attr := must(dev.QueryDevice())
	cycles := (wcs[1].Timestamp - wcs[0].Timestamp) & attr.CompletionTimestampMask
	fmt.Printf("one came at %v, another %v µs later\n", wcs[0].WallClock, cycles*1000/attr.HCACoreClock)
}

// A monitor receives the events of the device and its objects.
func ExampleDevice_Events() {
	dev := must(verbs.Open(""))
	defer dev.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	for e, err := range dev.Events(ctx) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			fmt.Println("no more events")
		case err != nil:
			check(err)
		case e.QP != nil:
			fmt.Printf("QP %#x: %v\n", e.QP.Num(), e.Type)
		case e.Port != 0:
			fmt.Printf("port %d: %v\n", e.Port, e.Type)
		default:
			fmt.Println(e.Type)
		}
	}
}
