package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A row is one line of the table.
type row struct {
	name    string
	measure func(network int, p *peer, here string) string
}

// times is the number of measurements of a short time, of which the table has the median.
const times = 9

func rows(dead int) (all []row) {
	for _, n := range []int{1, 100, 1000} {
		if n > dead {
			break
		}
		all = append(all,
			row{fmt.Sprintf("Close of %d with data unsent, the peer is dead", n), closeDead(n, false)},
			row{fmt.Sprintf("Close of %d beside io.Copy of an idle reader, the peer is dead", n), closeDead(n, true)},
		)
	}
	for _, call := range []struct {
		name string
		kind int
	}{{"Read", reading}, {"Write, the peer reads nothing", writing}, {"io.Copy from a connection", copyingFrom}} {
		all = append(all,
			row{call.name + ", the deadline is past", deadline(call.kind, past)},
			row{call.name + ", the deadline passes: after it", deadline(call.kind, passing)},
			row{call.name + ", the deadline is moved to the past", deadline(call.kind, moved)},
		)
	}
	return append(all,
		row{"Write beside io.Copy of an idle reader", writeBeside},
		row{"Dial, nobody answers, Timeout 4 s", dialing(net.JoinHostPort(silent, holding))},
		row{"Dial, nobody listens", func(i int, p *peer, _ string) string {
			return dialing(net.JoinHostPort(p.address, nothing))(i, p, "")
		}},
		row{"Dial of two addresses of which the first doesn't answer, Timeout 4 s", dialing(net.JoinHostPort("mixed", holding))},
		row{"Accept without a free descriptor", acceptEMFILE},
		row{"Accept with 8 KiB of memory that may be locked", acceptMemlock},
		row{"Accept after 300 clients that say nothing", acceptFlood},
	)
}

func show(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}

func median(of []time.Duration) string {
	slices.Sort(of)
	return show(of[len(of)/2])
}

func dial(i int, address string) net.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return must(networks[i].dial(ctx, address))
}

// closeDead closes connections to a dead peer, one after the other.
func closeDead(n int, copying bool) func(int, *peer, string) string {
	return func(i int, p *peer, _ string) string {
		conns := make([]net.Conn, n)
		for k := range conns {
			conns[k] = dial(i, net.JoinHostPort(p.address, holding))
		}
		p.tell(order{Do: "dead"})
		var idle []*io.PipeWriter
		var copies sync.WaitGroup
		for _, c := range conns {
			if !copying {
				must(c.Write(make([]byte, 1000)))
				continue
			}
			r, w := io.Pipe()
			idle = append(idle, w)
			copies.Go(func() { io.Copy(c, r) })
		}
		start := time.Now()
		for _, c := range conns {
			check(c.Close())
		}
		took := time.Since(start)
		for _, w := range idle {
			w.Close()
		}
		copies.Wait()
		p.tell(order{Do: "alive"})
		return show(took)
	}
}

const (
	reading = iota
	writing
	copyingFrom
)

const (
	past = iota
	passing
	moved
)

// deadline measures how long a call continues after its deadline.
func deadline(kind, when int) func(int, *peer, string) string {
	return func(i int, p *peer, _ string) string {
		c := dial(i, net.JoinHostPort(p.address, holding))
		defer c.Close()
		call, set := func() error { _, err := c.Read(make([]byte, 1)); return err }, c.SetReadDeadline
		switch kind {
		case writing:
			call, set = func() error { _, err := c.Write(make([]byte, 64<<10)); return err }, c.SetWriteDeadline
			for full := false; !full; {
				check(set(time.Now().Add(time.Second)))
				full = call() != nil
			}
		case copyingFrom:
			call = func() error { _, err := io.Copy(io.Discard, c); return err }
		}
		var took []time.Duration
		for range times {
			at := time.Now()
			switch when {
			case past:
				check(set(time.Unix(1, 0)))
			case passing:
				at = at.Add(50 * time.Millisecond)
				check(set(at))
			case moved:
				check(set(at.Add(time.Hour)))
			}
			ended := make(chan error, 1)
			go func() { ended <- call() }()
			if when == moved {
				time.Sleep(50 * time.Millisecond) // so that it waits
				at = time.Now()
				check(set(time.Unix(1, 0)))
			}
			if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
				return err.Error()
			}
			took = append(took, time.Since(at))
		}
		return median(took)
	}
}

// writeBeside writes while another goroutine copies from a reader that has nothing.
func writeBeside(i int, p *peer, _ string) string {
	c := dial(i, net.JoinHostPort(p.address, holding))
	defer c.Close()
	r, w := io.Pipe()
	defer w.Close()
	go io.Copy(c, r)
	must(w.Write([]byte{1})) // it copies
	var took []time.Duration
	for range times {
		check(c.SetWriteDeadline(time.Now().Add(4 * time.Second)))
		start := time.Now()
		if _, err := c.Write([]byte{1}); err != nil {
			return err.Error()
		}
		took = append(took, time.Since(start))
	}
	return median(took)
}

// dialing returns how long a Dial takes, and its error.
func dialing(address string) func(int, *peer, string) string {
	return func(i int, _ *peer, _ string) string {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		start := time.Now()
		c, err := networks[i].dial(ctx, address)
		took := show(time.Since(start))
		var timeout net.Error
		switch {
		case err == nil:
			c.Close()
			return took
		case errors.Is(err, syscall.ECONNREFUSED):
			return took + ", refused"
		case errors.As(err, &timeout) && timeout.Timeout():
			return took + ", a timeout"
		}
		return took + ", " + err.Error()
	}
}

// outcome describes the result of Accept.
func outcome(err error) string {
	if err == nil {
		return "served"
	}
	temporary, ok := err.(interface{ Temporary() bool })
	var errno syscall.Errno
	what := err.Error()
	if errors.As(err, &errno) {
		what = fmt.Sprintf("error %d, %v", int(errno), errno)
	}
	return fmt.Sprintf("%s, temporary: %v", what, ok && temporary.Temporary())
}

// acceptOne has the peer dial a listener, and accepts.
func acceptOne(i int, p *peer, l net.Listener) error {
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
		}
		accepted <- err
	}()
	p.tell(order{Do: "dial", Network: i, Address: l.Addr().String(), N: 1})
	err := <-accepted
	p.tell(order{Do: "leave"})
	return err
}

// acceptEMFILE accepts with all descriptors in use, and again when some are free.
func acceptEMFILE(i int, p *peer, here string) string {
	l := must(networks[i].listen(net.JoinHostPort(here, "0")))
	defer l.Close()
	if err := acceptOne(i, p, l); err != nil {
		return err.Error()
	}
	var limit syscall.Rlimit
	check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	few := limit
	f := must(os.Open("/dev/null")) // the lowest descriptor that is free
	few.Cur = uint64(f.Fd())
	f.Close()
	check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	first := acceptOne(i, p, l)
	check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	return outcome(first) + "; with descriptors: " + outcome(acceptOne(i, p, l))
}

// acceptMemlock accepts in a process of a user who may lock little memory.
func acceptMemlock(i int, p *peer, here string) string {
	cmd := exec.Command("sh", "-c", "ulimit -l 8; exec \"$0\" memlock "+fmt.Sprint(i), must(os.Executable()))
	cmd.Env = os.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())
	check(cmd.Start())
	var address string
	if _, err := fmt.Fscanln(out, &address); err != nil {
		cmd.Wait()
		return "no listener"
	}
	p.tell(order{Do: "dial", Network: i, Address: address, N: 1})
	said := must(io.ReadAll(out))
	p.tell(order{Do: "leave"})
	cmd.Wait()
	return strings.TrimSpace(string(said))
}

// listenLocked listens, prints the address, and then the result of Accept.
func listenLocked(network string) {
	l := must(networks[int(network[0]-'0')].listen(net.JoinHostPort(os.Getenv("VM_ADDR"), "0")))
	fmt.Println(l.Addr())
	_, err := l.Accept()
	fmt.Println(outcome(err))
}

// acceptFlood serves a client after many others that have connected and remain silent.
func acceptFlood(i int, p *peer, here string) string {
	l := must(networks[i].listen(net.JoinHostPort(here, "0")))
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	p.tell(order{Do: "dial", Network: i, Address: l.Addr().String(), N: 300})
	var took []time.Duration
	for range times {
		start := time.Now()
		c := dial(i, l.Addr().String())
		must(c.Write([]byte{1}))
		must(c.Read(make([]byte, 1)))
		took = append(took, time.Since(start))
		c.Close()
	}
	p.tell(order{Do: "leave"})
	return median(took)
}
