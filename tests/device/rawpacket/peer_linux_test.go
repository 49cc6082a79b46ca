package rawpacket

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
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
	ctx, cancel := context.WithTimeout(context.Background(), 2*rdmatest.Patience) // the test's own ends before its cleanup
	cmd := exec.CommandContext(ctx, program, rdmatest.Devices[1], fmt.Sprintf("%x", macs[1][:]), fmt.Sprint(rounds*len(lengths)))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the peer: %v\n%s", err, stderr.Bytes())
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the peer said %q, %v", line, err)
	}
	for round := range rounds {
		for _, n := range lengths {
			s.send(t, verbs.SendWR{Opcode: verbs.OpSend, SGL: s.put(frame(macs[1], macs[0], n, round), 1+round%4)})
			got, _ := s.received(t)
			same(t, "echo", got, frame(macs[0], macs[1], n, round))
		}
	}
}
