package pingpong

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/verbs"
)

// A qpAddress has the facts that a side needs about the other side's queue pair.
type qpAddress struct {
	lid uint16
	qpn uint32
	psn uint32
	gid verbs.GID
}

func (a qpAddress) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x", a.lid, a.qpn, a.psn)
}

// The messages of rdma-core's programs end with a NUL.
const (
	addressLen = len("0000:000000:000000:00000000000000000000000000000000\x00")
	done       = "done\x00"
)

// encode appends the address as it is sent.
func (a qpAddress) encode(b []byte) []byte {
	return fmt.Appendf(b, "%04x:%06x:%06x:%x\x00", a.lid, a.qpn, a.psn, a.gid[:])
}

func decodeAddress(b []byte) (a qpAddress, err error) {
	text, _, _ := strings.Cut(string(b), "\x00")
	fields := strings.Split(text, ":")
	if len(fields) != 4 || len(fields[3]) != 32 {
		return a, fmt.Errorf("%q is not an address", text)
	}
	var numbers [3]uint64
	for i, bits := range []int{16, 24, 24} {
		if numbers[i], err = strconv.ParseUint(fields[i], 16, 64); err != nil || numbers[i]>>bits != 0 {
			return a, fmt.Errorf("%q is not an address", text)
		}
	}
	if _, err := hex.Decode(a.gid[:], []byte(fields[3])); err != nil {
		return a, fmt.Errorf("%q is not an address", text)
	}
	a.lid, a.qpn, a.psn = uint16(numbers[0]), uint32(numbers[1]), uint32(numbers[2])
	return a, nil
}

// writeAddresses sends n addresses: the local ones, then zeros. It sends them with
// one write, because rdma-core's programs expect to read an address at once.
func writeAddresses(w io.Writer, local []qpAddress, n int) error {
	b := make([]byte, 0, n*addressLen)
	for i := range n {
		var a qpAddress
		if i < len(local) {
			a = local[i]
		}
		b = a.encode(b)
	}
	_, err := w.Write(b)
	return err
}

// readAddresses receives n addresses and returns the first used of them.
func readAddresses(r io.Reader, n, used int) ([]qpAddress, error) {
	b := make([]byte, n*addressLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return decodeAddresses(b, used)
}

// decodeAddresses returns the first used of the addresses in b.
func decodeAddresses(b []byte, used int) ([]qpAddress, error) {
	remote := make([]qpAddress, used)
	for i := range remote {
		var err error
		if remote[i], err = decodeAddress(b[i*addressLen:][:addressLen]); err != nil {
			return nil, err
		}
	}
	return remote, nil
}

// dial connects to the server, to exchange addresses.
func dial(host string, port int) (net.Conn, error) {
	defer cli.Waits("connecting to %s", host)()
	return net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// callServer exchanges n addresses with a server that connects its queue pairs
// before it answers.
func callServer(host string, port, n int, local []qpAddress) ([]qpAddress, error) {
	conn, err := dial(host, port)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := writeAddresses(conn, local, n); err != nil {
		return nil, fmt.Errorf("sending the local address: %w", err)
	}
	remote, err := readAddresses(conn, n, len(local))
	if err != nil {
		return nil, fmt.Errorf("receiving the server's address: %w", err)
	}
	if _, err := io.WriteString(conn, done); err != nil {
		return nil, fmt.Errorf("sending the final message: %w", err)
	}
	return remote, nil
}

// patience is how long the exchange of addresses may take.
const patience = time.Minute

// serveClient waits for one client and exchanges n addresses with it. It calls
// connect before it answers, because the client may send once it has the answer. It ignores
// connections that don't send addresses.
func serveClient(listener net.Listener, n int, local []qpAddress, connect func(remote []qpAddress) error) ([]qpAddress, error) {
	right := func(b []byte) error {
		_, err := decodeAddresses(b, len(local))
		return err
	}
	conn, message, err := stranger.First(listener, n*addressLen, right, noClient)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	remote, err := decodeAddresses(message, len(local))
	if err != nil {
		return nil, err
	}
	if err := connect(remote); err != nil {
		return nil, err
	}
	if err := writeAddresses(conn, local, n); err != nil {
		return nil, fmt.Errorf("sending the local address: %w", err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(done))); err != nil {
		return nil, fmt.Errorf("waiting for the client's final message: %w", err)
	}
	return remote, nil
}

func noClient(conn net.Conn, err error) {
	cli.Errorf("%v is no client: %v", conn.RemoteAddr(), err)
}
