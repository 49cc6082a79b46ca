package sockets

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/dgram"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A script is a socket with prepared messages. It records the answers.
type script struct {
	in      []scriptMessage
	answers map[netip.AddrPort][]byte // the last answer to each
	refuses func(b []byte, to netip.AddrPort) error
}

type scriptMessage struct {
	from netip.AddrPort
	data []byte
}

var errScript = errors.New("the script is over")

func (s *script) RecvFrom(b []byte, _ time.Duration) (int, netip.AddrPort, error) {
	if len(s.in) == 0 {
		return 0, netip.AddrPort{}, errScript
	}
	m := s.in[0]
	s.in = s.in[1:]
	return copy(b, m.data), m.from, nil
}

func (s *script) SendTo(b []byte, to netip.AddrPort) error {
	if err := s.refuses(b, to); err != nil {
		return err
	}
	s.answers[to] = append([]byte(nil), b...)
	return nil
}

func (s *script) Close() error { return nil }

// TestUdpongRounds: the server counts its client's messages, whatever strangers send, seeded and many
// times: messages that can't be answered, endless logins, the client's number.
func TestUdpongRounds(t *testing.T) {
	client := netip.MustParseAddrPort("192.0.2.1:7")
	message := func(what, number byte, size int) []byte {
		b := make([]byte, size)
		b[0], b[1] = what, number
		return b
	}
	rdmatest.Rounds(t, 300, 1, func(random *rand.Rand) {
		s := &script{answers: make(map[netip.AddrPort][]byte), refuses: func(b []byte, to netip.AddrPort) error {
			if len(b) > 1000 || to.Port() == 0 {
				return dgram.ErrTooLong
			}
			return nil
		}}
		login := &script{in: []scriptMessage{{client, message(udpongLogin, 0, udpongControl)}}, answers: s.answers, refuses: s.refuses}
		_ = serveUdpong(login)
		number := s.answers[client][1] // the same in the run below, in which the client comes first, too
		s.in = []scriptMessage{{client, message(udpongLogin, 99, udpongControl)}, {client, message(udpongStart, number, udpongControl)}}
		want := uint32(0)
		for range 200 {
			if random.IntN(3) == 0 {
				want++
				s.in = append(s.in, scriptMessage{client, message(udpongData, number, 64)})
				continue
			}
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(random.Uint32())}), uint16(random.Uint32()>>uint(random.IntN(17))))
			b := make([]byte, random.IntN(dgram.MaxMessage+1))
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			if len(b) > 1 {
				b[0] = byte(random.IntN(udpongEnd + 2))
				if random.IntN(2) == 0 {
					b[1] = number
				}
			}
			s.in = append(s.in, scriptMessage{from, b})
		}
		s.in = append(s.in, scriptMessage{client, message(udpongEnd, number, udpongControl)})
		if err := serveUdpong(s); !errors.Is(err, errScript) {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint32(s.answers[client][4:]); got != want {
			t.Fatalf("%d messages are counted, not %d", got, want)
		}
	})
}

// TestUdpongLogin: a client that logs in again keeps its number, and a silent client is replaced.
func TestUdpongLogin(t *testing.T) {
	c := new(udpongClients)
	at := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.IPv6Loopback(), uint16(i+1)) }
	for i := range 256 {
		if n := c.login(at(i)); int(n) != i {
			t.Fatalf("client %d is %d", i, n)
		}
	}
	if n := c.login(at(7)); n != 7 {
		t.Errorf("client 7 is %d", n)
	}
	*c.count(0, at(0)) = 3
	if n := c.login(at(256)); n != 1 || c.count(1, at(1)) != nil || *c.count(0, at(0)) != 3 {
		t.Errorf("another client is %d", n)
	}
}
