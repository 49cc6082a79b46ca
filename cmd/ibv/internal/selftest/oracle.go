package selftest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The exchange of both libraries for the comparison. All receives fit in the ring without being posted
// again, and messages are too long for CQEs.
const (
	oracleRounds = 200
	oracleEnough = 1 << 30 // more rounds than the client plays
	oracleSize   = 4096
)

// A cqe is a completion queue entry as mlx5 devices write it (struct mlx5_cqe64).
type cqe [64]byte

// Values of a cqe's last byte, and of the byte before the queue pair's number.
const (
	cqeSent     = 0
	cqeReceived = 2
	opcodeSend  = 10
)

func (e *cqe) qpn() uint32  { return binary.BigEndian.Uint32(e[56:]) & 0xffffff }
func (e *cqe) kind() byte   { return e[63] >> 4 }
func (e *cqe) sender() bool { return e.kind() == cqeSent && e[56] == opcodeSend }

// String returns the fields that the device must write: the number and kind of the completed request,
// and the length of a received message.
func (e *cqe) String() string {
	n := binary.BigEndian.Uint16(e[60:])
	if e.kind() == cqeSent {
		return fmt.Sprintf("send %d", n)
	}
	return fmt.Sprintf("receive %d of %d bytes", n, binary.BigEndian.Uint32(e[44:]))
}

// entries returns the CQEs of a queue pair in a part of a process's memory: those of sends, and
// those of receives.
func entries(mem []byte, qpn uint32) (sends, receives []cqe) {
	for ; len(mem) >= len(cqe{}); mem = mem[len(cqe{}):] {
		e := cqe(mem)
		switch {
		case e.qpn() != qpn:
		case e.sender():
			sends = append(sends, e)
		case e.kind() == cqeReceived:
			receives = append(receives, e)
		}
	}
	return sends, receives
}

// oracle runs the same exchange with this library and with rdma-core's for mlx5, and compares the completions
// that the device has written for both. Each is the server of a ping-pong that the client ends early.
// So the server waits for the next message, and its completion queue doesn't change while it is read from
// outside.
func (c *check) oracle(transport string) error {
	theirs, mine, err := programs(transport)
	if err != nil {
		return err
	}
	ours, err := c.completions(transport, mine, mine)
	if err != nil {
		return err
	}
	right, err := c.completions(transport, []string{theirs}, mine)
	if err != nil {
		return err
	}
	for i, kind := range []string{"send", "receive"} {
		c.g.fact(transport+", first "+kind+", rdma-core", hex.EncodeToString(right[i][0][:]))
		c.g.fact(transport+", first "+kind+", goverbs", hex.EncodeToString(ours[i][0][:]))
	}
	if f := compareCQEs(ours, right); f != nil {
		f.Object = c.what()
		return f
	}
	return nil
}

// compareCQEs compares CQEs of this library with as many CQEs of rdma-core.
func compareCQEs(ours, right [2][]cqe) *Failure {
	for i := range right {
		for j := range right[i] {
			got, want := &ours[i][j], &right[i][j]
			if got.String() != want.String() {
				return &Failure{Expected: fmt.Sprintf("completion %d to be %v, as with rdma-core", j, want), Seen: got.String(),
					Details: []string{"expected " + hex.EncodeToString(want[:]), "seen     " + hex.EncodeToString(got[:])}}
			}
		}
	}
	return nil
}

// completions plays ping-pong with a server, and returns the CQEs in its memory: of sends and of
// receives.
func (c *check) completions(transport string, server, client []string) (list [2][]cqe, err error) {
	port, err := freePort()
	if err != nil {
		return list, err
	}
	size := oracleSize
	if transport == "ud" {
		size = min(c.mtu(), 1024)
	}
	options := func(s *side, program []string, rounds int) []string {
		return s.options(slices.Concat(program, []string{"-s", strconv.Itoa(size), "-n", strconv.Itoa(rounds)}), port)
	}
	server, client = options(c.sides[1], server, oracleEnough), append(options(c.sides[0], client, oracleRounds), "127.0.0.1")
	c.at("%s, and %s", strings.Join(server, " "), strings.Join(client, " "))
	s, err := c.serve(port, server)
	if err != nil {
		return list, err
	}
	defer s.stop()
	text, err := s.meet(client)
	if err != nil {
		return list, err
	}
	qpn, err := remoteQPN(text)
	if err != nil {
		return list, err
	}
	for until := time.Now().Add(c.o.Patience); ; time.Sleep(20 * time.Millisecond) {
		if list[0], list[1], err = completionsOf(s.cmd.Process.Pid, qpn); err != nil {
			return list, notThere("the memory of another process: %v", err)
		}
		if len(list[0]) == oracleRounds && len(list[1]) == oracleRounds {
			return list, nil
		}
		if time.Now().After(until) {
			return list, &Failure{Object: c.what(), Expected: fmt.Sprintf("completions of %d sends and as many receives in the server's memory", oracleRounds),
				Seen: fmt.Sprintf("%d and %d", len(list[0]), len(list[1]))}
		}
	}
}

// remoteQPN returns the number of the server's queue pair, which the client prints.
func remoteQPN(text string) (uint32, error) {
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "remote address") {
			continue
		}
		if _, after, ok := strings.Cut(line, "QPN "); ok {
			number, _, _ := strings.Cut(after, ",")
			n, err := strconv.ParseUint(number, 0, 24)
			return uint32(n), err
		}
	}
	return 0, fmt.Errorf("the client doesn't print the server's QPN: %q", text)
}
