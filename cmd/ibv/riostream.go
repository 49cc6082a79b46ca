package main

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

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

const riostreamUsage = `Usage: ibv riostream [OPTION...]
       ibv riostream -s ADDR [OPTION...]

Write to and fro to memory that each side of a socket on RDMA has mapped for the other
one, and measure latency and throughput. A side waits for the last byte of its memory
with the processor busy. The other side may be rdma-core's riostream, with the same -S,
-C, -I and -T verify.

  -s ADDR    be the client of the server at this address
  -b ADDR    listen on this address, or connect from it
  -p PORT    port in the RDMA TCP port space (default 7471)
  -f FORMAT  what the addresses are: names (the default), or with ip only IP addresses
  -S SIZE    bytes in a transfer (default 1000), or "all" for more sizes
  -C COUNT   transfers one way, before those the other way (default 1000)
  -I ROUNDS  how often both (default 1)
             Without -S SIZE, -C and -I, the latency and the throughput of
             several sizes are measured.
  -B SIZE    bytes of the send and of the receive buffer (default 524288)
  -i SIZE    bytes that are copied into a work request (default 64)
  -T OPTION  blocking: wait asleep for room to write
             async: the same
             nonblocking: the default
             verify: check the data, of the last transfer before those the other way
             (b, a, n and v for short)
  -h         show this help

Examples:
  ibv riostream
  ibv riostream -s 192.168.77.1
        a server and, elsewhere, its client
`

// riostream is the command.
func riostream(args []string) int {
	o, err := parseRiostream(args)
	if err != nil {
		return notParsed("riostream", riostreamUsage, err)
	}
	if err := o.run(o.riostreamer); err != nil {
		return failed("riostream", err)
	}
	return exitOK
}

func parseRiostream(args []string) (*rstreamOptions, error) {
	o, err := parseRstream(args)
	switch {
	case err != nil:
	case o.tcp:
		err = errors.New("-T: TCP has no memory that a peer can map")
	case o.keepalive != 0:
		err = errors.New("-k is an option of rstream only")
	}
	o.mappings = 1
	return o, err
}

func (o *rstreamOptions) riostreamer(c net.Conn) measurer {
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
	turn := byte(0)
	start := time.Now()
	for range t.rounds {
		for _, writes := range []bool{s.client, !s.client} {
			if writes {
				err = s.write(out, t.count, turn)
			} else if err = s.wait(last, turn); err == nil {
				err = s.check(mr.Bytes()[:t.size-1])
			}
			if err != nil {
				return err
			}
			turn++
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

// write writes to the other side's memory. The last byte of the last transfer is turn: it ends this side's turn.
func (s *riostreamer) write(b []byte, count int, turn byte) error {
	end := len(b) - 1
	b[end] = turn - 1
	for i := range count {
		if i == count-1 {
			s.fill(b[:end])
			b[end] = turn
		}
		if _, err := s.c.WriteAt(b, 0); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until the other side's turn is over.
func (s *riostreamer) wait(last watchedByte, turn byte) error {
	for polls := 1; last.load() != turn; polls++ {
		if polls%1000 != 0 {
			continue
		}
		runtime.Gosched() // others need the processor, too, especially a single one
		// An empty Write fails if the other side is gone. But the turn's last byte may have arrived first.
		if _, err := s.c.Write(nil); err != nil && last.load() != turn {
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
