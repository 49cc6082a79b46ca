package rdmacm

import (
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/verbs"
)

// perftest's clients with -R read, write, or send to the memory of a responder that uses
// this package. They create two connections. The first one synchronizes the sides: the
// responder returns each message, with the address of its own memory in it. The second
// one is measured. The responder must end it, because newer clients wait for that.
func TestPerftest(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const size, count = 1024, 50
	figure := regexp.MustCompile(`(?m)^ *1024 +50 +\d+\.\d+ `)
	for _, name := range []string{"ib_read_lat", "ib_read_bw", "ib_write_bw", "ib_send_bw"} {
		t.Run(name, func(t *testing.T) {
			l, addr := listen(t, nil)
			client := rdmatest.Start(t, name, "-R", "-p", addr[len(host)+1:], "-s", fmt.Sprint(size), "-n", fmt.Sprint(count), host)
			control := rdmatest.Must(l.Accept(patient(t)))(t)
			memory := make(chan *verbs.MR, 1)
			measured, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- keepStep(t, control, memory, measured) }()
			data := rdmatest.Must(l.Accept(patient(t)))(t)
			mr := rdmatest.Must(data.PD().AllocMR(1<<20, verbs.MROptions{Access: rdmatest.All}))(t)
			memory <- mr
			for i := 0; i < count && name == "ib_send_bw"; i++ {
				if n := rdmatest.Must(data.Recv(patient(t), make([]byte, size)))(t); n != size {
					t.Fatalf("message %d has %d bytes", i, n)
				}
			}
			select {
			case <-measured:
				rdmatest.Check(t, mr.Close())
				rdmatest.Check(t, data.Close())
			case err := <-done:
				t.Fatalf("the connection ended before the end of the measurement, %v: %v", err, client)
			}
			if out := client.Succeeds(t); !figure.MatchString(out) {
				t.Errorf("no result: %v", client)
			}
			rdmatest.Check(t, <-done)
			rdmatest.Check(t, control.Close())
		})
	}
}

// A side's address: struct pingpong_dest, in network byte order. The client sends its own
// to synchronize, the last time after the measurement.
const (
	dests    = 7
	destLen  = 56
	destRKey = 16
	destAddr = 24
)

// keepStep replies to the client's messages until the client disconnects. It closes
// measured after the last synchronizing message.
func keepStep(t *testing.T, control *rdmacm.Conn, memory <-chan *verbs.MR, measured chan<- struct{}) error {
	b := make([]byte, control.MaxMessage())
	var mr *verbs.MR
	for seen := 0; ; {
		n, err := control.Recv(t.Context(), b)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n == destLen {
			// The first message precedes the data connection.
			if seen++; seen == 2 {
				mr = <-memory
			}
			if mr != nil {
				binary.BigEndian.PutUint32(b[destRKey:], mr.RKey())
				binary.BigEndian.PutUint64(b[destAddr:], mr.Addr())
			}
		}
		if err := control.Send(t.Context(), b[:n]); err != nil {
			return err
		}
		if n == destLen && seen == dests {
			close(measured)
		}
	}
}
