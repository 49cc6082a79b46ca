package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/rsocket"
)

// idle prints how much memory a connection of the default sizes takes in a client in C and in
// a client in Go: the difference between 50 and 250 connections. The server is in Go.
func idle(program string) error {
	const few, many = 50, 250
	l, err := rsocket.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		for {
			if _, err := l.Accept(); err != nil { // the connections last as long as this process
				return
			}
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	fmt.Println("\nan idle connection, KiB")
	for _, c := range []contestant{{"C", []string{program}}, {"Go", []string{self, "connect"}}} {
		var took [2]int
		for i, n := range []int{few, many} {
			cmd := exec.Command(c.command[0], append(c.command[1:], host, port, strconv.Itoa(n))...)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err == nil {
				took[i], err = strconv.Atoi(strings.TrimSpace(string(out)))
			}
			if err != nil {
				return fmt.Errorf("%s, %d connections: %w", c.name, n, err)
			}
		}
		fmt.Printf("%4s %d\n", c.name, (took[1]-took[0])/(many-few))
	}
	return nil
}

// connect makes connections, and prints how much memory this process has, in KiB, as c/idle.c does.
func connect(host, port, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	conns := make([]net.Conn, n)
	for i := range conns {
		if conns[i], err = rsocket.Dial("tcp", net.JoinHostPort(host, port)); err != nil {
			return err
		}
	}
	runtime.GC()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var size, resident int
	if _, err = fmt.Sscan(string(b), &size, &resident); err != nil {
		return err
	}
	fmt.Println(resident * os.Getpagesize() >> 10)
	runtime.KeepAlive(conns)
	return nil
}
