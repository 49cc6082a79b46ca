package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"
)

// together runs a server, which listens on the port, then a client, and returns what they print.
func (c *check) together(port int, server, client []string) (atServer, atClient string, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, max(10*c.o.Patience, time.Minute))
	defer cancel()
	command := func(line []string) *exec.Cmd {
		x := exec.CommandContext(ctx, line[0], line[1:]...)
		dieWithUs(x)
		return x
	}
	s := command(server)
	var said strings.Builder
	s.Stdout, s.Stderr = &said, &said
	if err := s.Start(); err != nil {
		return "", "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }()
	for !listening(port) {
		select {
		case err := <-ended:
			return "", "", fmt.Errorf("the server doesn't listen: %v: %s", err, lastLine(said.String()))
		case <-time.After(20 * time.Millisecond):
		}
	}
	text, failed := command(client).Output()
	if failed != nil {
		cancel() // the server, which may wait for ever
	}
	err = <-ended
	if failed != nil {
		var status *exec.ExitError
		if errors.As(failed, &status) {
			text = append(text, status.Stderr...)
		}
		return "", "", fmt.Errorf("the client: %w: %s; the server: %s", failed, lastLine(string(text)), lastLine(said.String()))
	}
	if err != nil {
		return "", "", fmt.Errorf("the server: %w: %s", err, lastLine(said.String()))
	}
	return said.String(), string(text), nil
}

// freePort returns a TCP port on which nobody listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
