package rawpacket

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestEcho sends frames to the C program in c/echo.c on the other port, which
// sends them back.
func TestEcho(t *testing.T) {
	program := rdmatest.CProgram(t, "c/echo.c")
	s := newStation(t, open(t, 0), options{})
	s.steer(t, to(macs[0]))
	lengths := []int{46, 100, 1000, mtu}
	const rounds = 50
	peer := rdmatest.Start(t, program, rdmatest.Devices[1], fmt.Sprintf("%x", macs[1][:]), fmt.Sprint(rounds*len(lengths)))
	t.Cleanup(func() {
		if !peer.OK() || t.Failed() {
			t.Errorf("the peer: %v", peer)
		}
	})
	if line := peer.Line(t); line != "ready" {
		t.Fatalf("the peer said %q", line)
	}
	for round := range rounds {
		for _, n := range lengths {
			s.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: s.put(frame(macs[1], macs[0], n, round), 1+round%4)})
			got, _ := s.received(t)
			same(t, "echo", got, frame(macs[0], macs[1], n, round))
		}
	}
}
