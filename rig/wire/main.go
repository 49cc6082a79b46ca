//go:build linux

// Wire joins the network interfaces of two virtual machines, and loses, delays and damages
// their frames:
//
//	wire IMPAIRMENTS LOCAL0 REMOTE0 LOCAL1 REMOTE1
//
// LOCAL0 is the datagram socket that QEMU sends the first guest's frames to, and REMOTE0 the
// one on which it receives frames. IMPAIRMENTS is a list as package impair reads it.
package main

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/rig/internal/impair"
)

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: wire IMPAIRMENTS LOCAL0 REMOTE0 LOCAL1 REMOTE1\n\nIMPAIRMENTS:", impair.Usage)
		os.Exit(2)
	}
	what, err := impair.Parse(os.Args[1])
	if err == nil {
		err = join(what, os.Args[2:4], os.Args[4:6])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wire:", err)
		os.Exit(1)
	}
}

// join carries frames between two ends, each a local and a remote address, until an error.
func join(what impair.Impairments, ends ...[]string) error {
	var sockets [2]*net.UnixConn
	for i, end := range ends {
		var err error
		if sockets[i], err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: end[0]}); err != nil {
			return err
		}
	}
	failed := make(chan error)
	began := time.Now()
	for i := range sockets {
		d := &direction{
			fate: fate{what: what, rand: rand.New(rand.NewPCG(what.Seed, uint64(i)))},
			deliver: func(b []byte) error {
				_, err := sockets[1-i].WriteToUnix(b, &net.UnixAddr{Net: "unixgram", Name: ends[1-i][1]})
				if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
					return nil // that guest isn't there yet, or not any more
				}
				return err
			},
			began: began,
			wake:  make(chan struct{}, 1),
		}
		go func() { failed <- d.receive(sockets[i]) }()
		go func() { failed <- d.send() }()
	}
	return <-failed
}

// A fate decides what happens to frames.
type fate struct {
	what impair.Impairments
	rand *rand.Rand
}

// reorderDelay is the additional delay of a reordered frame: longer than a guest that is
// emulated takes between two frames.
const reorderDelay = 5 * time.Millisecond

// of returns how often a frame arrives that is sent at a time, and after what delay. It may
// damage the frame.
func (f *fate) of(frame []byte, at time.Duration) (times int, after time.Duration) {
	happens := func(fraction float64) bool { return f.rand.Float64() < fraction }
	// Each frame takes as many random numbers as any other.
	lost, reordered, twice, damaged := happens(f.what.Loss), happens(f.what.Reorder), happens(f.what.Duplicate), happens(f.what.Corrupt)
	jitter, bit := f.rand.Float64(), f.rand.Uint32()
	times, after = 1, f.what.Delay+time.Duration(jitter*float64(f.what.Jitter))
	if f.what.Flap > 0 && at%f.what.Flap >= f.what.Flap-impair.FlapTime {
		lost = true
	}
	if lost {
		return 0, 0
	}
	if reordered {
		after += reorderDelay
	}
	if twice {
		times = 2
	}
	if damaged {
		damage(frame, bit)
	}
	return times, after
}

// damage flips a bit behind the headers of Ethernet, IP and UDP, so that the frame arrives.
func damage(frame []byte, bit uint32) {
	const headers = 14 + 20 + 8
	if len(frame) > headers {
		bit %= uint32(len(frame)-headers) * 8
		frame[headers+bit/8] ^= 1 << (bit % 8)
	}
}

// A direction carries the frames of one guest to the other.
type direction struct {
	fate    fate
	deliver func([]byte) error
	began   time.Time
	wake    chan struct{} // something was queued

	mu     sync.Mutex
	queued queue
	serial int
}

// A frame arrives at its time. Those of the same time arrive in the order of their numbers.
type frame struct {
	at     time.Duration
	serial int
	data   []byte
}

type queue []frame

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(frame)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

func (d *direction) receive(from *net.UnixConn) error {
	buf := make([]byte, 1<<17)
	for {
		n, _, err := from.ReadFromUnix(buf)
		if err != nil {
			return err
		}
		data := append([]byte(nil), buf[:n]...)
		now := time.Since(d.began)
		times, after := d.fate.of(data, now)
		d.mu.Lock()
		for range times {
			d.serial++
			heap.Push(&d.queued, frame{now + after, d.serial, data})
		}
		d.mu.Unlock()
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

func (d *direction) send() error {
	timer := time.NewTimer(time.Hour)
	for {
		d.mu.Lock()
		var due []frame
		wait := time.Hour
		for len(d.queued) > 0 {
			if wait = d.queued[0].at - time.Since(d.began); wait > 0 {
				break
			}
			due = append(due, heap.Pop(&d.queued).(frame))
			wait = time.Hour
		}
		d.mu.Unlock()
		for _, f := range due {
			if err := d.deliver(f.data); err != nil {
				return err
			}
		}
		timer.Reset(wait)
		select {
		case <-d.wake:
		case <-timer.C:
		}
	}
}
