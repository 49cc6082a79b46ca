package sockets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// Riostream is the command riostream.
func Riostream() *cli.Command { return newStream().riostream() }

func (o *streamOptions) riostream() *cli.Command {
	o.mappings = 1
	return &cli.Command{
		Name:    "riostream",
		Group:   cli.Sockets,
		Summary: "measure writing to memory that a socket's peer has mapped",
		Forms:   []string{"[OPTION...]", "-s ADDR [OPTION...]"},
		About: `Write to and fro to memory that each side of a socket on RDMA has mapped for the other
one, and measure latency and throughput. A side waits for the last byte of its memory
with the processor busy. The other side may be rdma-core's riostream, with the same -S,
-C, -I and -T verify.`,
		Options: append(o.options(), cli.Opt('T', "", "OPTION", `blocking: wait asleep for room to write
async: the same
nonblocking: the default
verify: check the data, of the last transfer before those the other way
(b, a, n and v for short)`, func(value string) error {
			err := o.setMode(value)
			if o.tcp {
				err = errors.New("TCP has no memory that a peer can map")
			}
			return err
		})),
		Examples: []cli.Example{{"ibv riostream\nibv riostream -s 192.168.77.1", "a server and, elsewhere, its client"}},
		Programs: []cli.Program{{Name: "riostream"}},
		Run: func([]string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(o.riostreamer)
		},
	}
}

func (o *streamOptions) riostreamer(c net.Conn) measurer {
	return &riostreamer{streamer: streamer{client: o.server != "", verify: o.verify, patience: streamPatience}, c: c.(*rsocket.Conn)}
}

// A riostreamer is one end of a connection on which both sides write to each other's memory.
type riostreamer struct {
	streamer // generates and checks the bytes
	c        *rsocket.Conn
	end      time.Time // the deadline of the test
}

func (s *riostreamer) measure(t streamTest) (err error) {
	access := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	mr, err := s.c.PD().AllocMR(t.size, verbs.MROptions{Access: access})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	last := lastByte(mr)
	last.store(0xff)
	if err := s.c.Map(mr, 0); err != nil {
		return err
	}
	if err := s.c.SetDeadline(time.Now().Add(s.patience)); err != nil {
		return err
	}
	if err := s.barrier(); err != nil {
		return err
	}
	s.end = time.Now().Add(t.limit(s.patience))
	if err := s.c.SetDeadline(s.end); err != nil {
		return err
	}
	out := make([]byte, t.size)
	phase := byte(0)
	start := time.Now()
	for range t.rounds {
		for _, writes := range []bool{s.client, !s.client} {
			if writes {
				err = s.write(out, t.count, phase)
			} else if err = s.wait(last, phase); err == nil {
				err = s.check(mr.Bytes()[:t.size-1])
			}
			if err != nil {
				return err
			}
			phase++
		}
	}
	t.show(time.Since(start))
	return s.c.Unmap(mr)
}

// barrier exchanges a message each way. Then each side knows the other side's mapped memory.
func (s *riostreamer) barrier() error {
	b := make([]byte, barrierSize)
	for _, sends := range []bool{s.client, !s.client} {
		var err error
		if sends {
			_, err = s.c.Write(b)
		} else {
			_, err = io.ReadFull(s.c, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes to the other side's memory. The last byte of the last transfer is phase: it ends this side's phase.
func (s *riostreamer) write(b []byte, count int, phase byte) error {
	end := len(b) - 1
	b[end] = phase - 1
	for i := range count {
		if i == count-1 {
			s.fill(b[:end])
			b[end] = phase
		}
		if _, err := s.c.WriteAt(b, 0); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until the other side's phase is over.
func (s *riostreamer) wait(last watchedByte, phase byte) error {
	for polls := 1; last.load() != phase; polls++ {
		if polls%1000 != 0 {
			continue
		}
		runtime.Gosched() // others need the processor, too, especially a single one
		// An empty Write fails if the other side is gone. But the phase's last byte may have arrived first.
		if _, err := s.c.Write(nil); err != nil && last.load() != phase {
			return fmt.Errorf("in the middle of the test: %w", err)
		}
		if time.Now().After(s.end) {
			return fmt.Errorf("in the middle of the test: %w", os.ErrDeadlineExceeded)
		}
	}
	return nil
}

// A watchedByte is the last one of a memory region, which the peer writes.
//
// The unsafe code holds because the region begins at a page, so that the word is aligned. AllocMR's memory
// ends at a page, so that the word is within it. The garbage collector doesn't manage it.
type watchedByte struct {
	word *uint32
	at   int // the byte's place in the word
}

func lastByte(mr *verbs.MR) watchedByte {
	b := mr.Bytes()
	at := len(b) - 1
	return watchedByte{(*uint32)(unsafe.Pointer(&b[at&^3])), at & 3}
}

func (w watchedByte) load() byte {
	v := atomic.LoadUint32(w.word)
	return (*[4]byte)(unsafe.Pointer(&v))[w.at]
}

// store sets the byte. The peer must not write it yet.
func (w watchedByte) store(b byte) {
	v := atomic.LoadUint32(w.word)
	(*[4]byte)(unsafe.Pointer(&v))[w.at] = b
	atomic.StoreUint32(w.word, v)
}
