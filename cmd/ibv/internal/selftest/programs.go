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

// A server is a program that listens on a TCP port for a client.
type server struct {
	ctx    context.Context
	cancel context.CancelFunc
	cmd    *exec.Cmd
	said   strings.Builder // output, to be read when it has ended
	ended  chan struct{}
	err    error // then
}

// serve starts a server, and waits until it listens on the port.
func (c *check) serve(port int, line []string) (*server, error) {
	s := &server{ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithTimeout(c.ctx, max(10*c.o.Patience, time.Minute))
	s.cmd = s.command(line)
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	if err := s.cmd.Start(); err != nil {
		s.cancel()
		return nil, err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	for !listening(port) {
		select {
		case <-s.ended:
			s.cancel()
			return nil, fmt.Errorf("the server doesn't listen: %v: %s", s.err, lastLine(s.said.String()))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return s, nil
}

func (s *server) command(line []string) *exec.Cmd {
	x := exec.CommandContext(s.ctx, line[0], line[1:]...)
	dieWithUs(x)
	return x
}

// meet runs a client, and returns its output. If the client fails, meet ends the server, which might
// wait for ever.
func (s *server) meet(line []string) (text string, err error) {
	out, err := s.command(line).Output()
	if err == nil {
		return string(out), nil
	}
	s.stop()
	var status *exec.ExitError
	if errors.As(err, &status) {
		out = append(out, status.Stderr...)
	}
	return "", fmt.Errorf("the client: %w: %s; the server: %s", err, lastLine(string(out)), lastLine(s.said.String()))
}

// stop ends the server.
func (s *server) stop() {
	s.cancel()
	<-s.ended
}

// together runs a server, which listens on the port, then a client, and returns their outputs.
func (c *check) together(port int, server, client []string) (atServer, atClient string, err error) {
	s, err := c.serve(port, server)
	if err != nil {
		return "", "", err
	}
	defer s.stop()
	text, err := s.meet(client)
	if err != nil {
		return "", "", err
	}
	<-s.ended
	if s.err != nil {
		return "", "", fmt.Errorf("the server: %w: %s", s.err, lastLine(s.said.String()))
	}
	return s.said.String(), text, nil
}

// freePort returns a TCP port on which no process listens.
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
