package valkey

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdmacm"
	"github.com/goverbs/goverbs/valkeyrdma"
)

// serve starts a Valkey server, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	// A port that is free, unless another program takes it meanwhile.
	id := rdmatest.Must(rdmacm.CreateSyncID(rdmacm.PortSpaceTCP))(t)
	rdmatest.Check(t, id.Bind(rdmatest.Must(net.ResolveTCPAddr("tcp", host+":0"))(t).AddrPort()))
	port := id.LocalAddr().Port()
	rdmatest.Close(t, id)
	p := rdmatest.Start(t, rdmatest.Program(t, "valkey-server"), "--port", "0", "--rdma-bind", host,
		"--rdma-port", strconv.Itoa(int(port)), "--save", "", "--dir", t.TempDir(), "--maxclients", "2000")
	p.Until(t, func() bool { return rdmatest.ListeningCM(t, "TCP", port) })
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// dial connects, with a deadline that ends hangs only.
func dial(t testing.TB, address string) *client {
	t.Helper()
	d := valkeyrdma.Dialer{Timeout: rdmatest.Patience}
	c := rdmatest.Must(d.Dial("tcp", address))(t)
	t.Cleanup(func() { _ = c.Close() })
	rdmatest.Check(t, c.SetDeadline(time.Now().Add(rdmatest.Patience)))
	return &client{c, bufio.NewReaderSize(c, 64<<10)}
}

// A client speaks Valkey's protocol.
type client struct {
	net.Conn
	r *bufio.Reader
}

// command encodes a command.
func command(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// reply reads a reply. That of a list is its first line and the elements' replies, with a space before each.
func (c *client) reply() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	list := strings.HasPrefix(line, "*")
	if !list && !strings.HasPrefix(line, "$") {
		return line, nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 {
		return line, err
	}
	if list {
		for ; n > 0; n-- {
			element, err := c.reply()
			if err != nil {
				return "", err
			}
			line += " " + element
		}
		return line, nil
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(c.r, b)
	return string(b[:max(0, len(b)-2)]), err
}

func (c *client) do(words ...string) (string, error) {
	if _, err := c.Write(command(words...)); err != nil {
		return "", err
	}
	return c.reply()
}

// TestValues: a Valkey server keeps and returns values from a byte to many times its buffer.
func TestValues(t *testing.T) {
	c := dial(t, serve(t))
	if got := rdmatest.Must(c.do("PING"))(t); got != "+PONG" {
		t.Errorf("ping: %q", got)
	}
	rnd := rand.NewChaCha8([32]byte{1})
	for _, n := range []int{0, 1, 64, 4096, 1<<20 - 1, 1 << 20, 5<<20 + 3} {
		b := make([]byte, n)
		rnd.Read(b)
		if got := rdmatest.Must(c.do("SET", "key", string(b)))(t); got != "+OK" {
			t.Fatalf("set %d bytes: %q", n, got)
		}
		if got := rdmatest.Must(c.do("GET", "key"))(t); got != string(b) {
			t.Fatalf("of %d bytes, %d came back, or others", n, len(got))
		}
	}
}

// TestPipeline: 10,000 commands are under way at once, each written by itself, so many more than the server has
// receives.
func TestPipeline(t *testing.T) {
	const commands = 10_000
	c := dial(t, serve(t))
	wrote := make(chan error, 1)
	go func() {
		for range commands {
			if _, err := c.Write(command("INCR", "n")); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	for i := range commands {
		if got := rdmatest.Must(c.reply())(t); got != ":"+strconv.Itoa(i+1) {
			t.Fatalf("reply %d: %q", i+1, got)
		}
	}
	rdmatest.Check(t, <-wrote)
}

// A mix makes the commands that valkey-benchmark measures, on keys of its own, in any order.
type mix struct {
	rnd  *rand.Rand
	name string // which all keys begin with

	text              string // the reply to GET
	count             int
	list              []string
	set, hash, sorted bool // whether there is the one element
}

// next returns a command, and the reply that it has to get.
func (m *mix) next() (words []string, want string) {
	value := strings.Repeat(strconv.Itoa(m.rnd.IntN(1000)), 1+m.rnd.IntN(700))
	// change returns 1 if there is, or is no longer, an element that there was not, or was.
	change := func(has *bool, to bool) (changed int) {
		if *has != to {
			*has, changed = to, 1
		}
		return changed
	}
	number := func(n int) string { return ":" + strconv.Itoa(n) }
	pop := func(i int) string {
		if len(m.list) == 0 {
			return "$-1"
		}
		popped := m.list[i]
		m.list = slices.Delete(m.list, i, i+1)
		return popped
	}
	switch key := m.name; m.rnd.IntN(15) {
	case 0:
		return []string{"PING"}, "+PONG"
	case 1:
		m.text = value
		return []string{"SET", key, value}, "+OK"
	case 2:
		return []string{"GET", key}, m.text
	case 3:
		m.count++
		return []string{"INCR", key + "count"}, number(m.count)
	case 4:
		m.list = slices.Insert(m.list, 0, value)
		return []string{"LPUSH", key + "list", value}, number(len(m.list))
	case 5:
		m.list = append(m.list, value)
		return []string{"RPUSH", key + "list", value}, number(len(m.list))
	case 6:
		return []string{"LPOP", key + "list"}, pop(0)
	case 7:
		return []string{"RPOP", key + "list"}, pop(len(m.list) - 1)
	case 8:
		return []string{"LRANGE", key + "list", "0", "99"}, strings.Join(append([]string{"*" + strconv.Itoa(len(m.list))}, m.list...), " ")
	case 9:
		return []string{"SADD", key + "set", "element"}, number(change(&m.set, true))
	case 10:
		return []string{"SPOP", key + "set"}, []string{"$-1", "element"}[change(&m.set, false)]
	case 11:
		return []string{"HSET", key + "hash", "field", value}, number(change(&m.hash, true))
	case 12:
		return []string{"ZADD", key + "sorted", "7", "member"}, number(change(&m.sorted, true))
	case 13:
		return []string{"ZPOPMIN", key + "sorted"}, []string{"*0", "*2 member 7"}[change(&m.sorted, false)]
	default:
		words = []string{"MSET"}
		for i := range 10 {
			words = append(words, key+strconv.Itoa(i), value)
		}
		return words, "+OK"
	}
}

// TestConnections: many connections at once, with valkey-benchmark's commands, and deadlines and closes at random times: 50
// connections, or 1,000 with GOVERBS_LONG. Each reply that comes is the right one. The server has run each command that was
// answered, and none that was not sent.
func TestConnections(t *testing.T) {
	address := serve(t)
	conns, rounds := 50, 20
	if os.Getenv("GOVERBS_LONG") != "" {
		conns = 1000
	}
	var sent, answered atomic.Int64
	var tasks sync.WaitGroup
	for i := range conns {
		d := valkeyrdma.Dialer{Timeout: rdmatest.Patience, Options: valkeyrdma.Options{SendBuffer: 8 << 10, RecvBuffer: 32 << 10}}
		conn, err := d.Dial("tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		c := &client{conn, bufio.NewReader(conn)}
		tasks.Go(func() {
			defer c.Close()
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			m := &mix{rnd: rnd, name: "key" + strconv.Itoa(i) + ":", text: "$-1"}
			for n := range rounds {
				mood := rnd.IntN(100)
				impatient, leaving := mood == 0, mood == 1
				end := time.Now().Add(rdmatest.Patience)
				if impatient {
					end = time.Now().Add(time.Duration(rnd.IntN(3)) * time.Millisecond)
				}
				if err := c.SetDeadline(end); err != nil {
					t.Error(err)
				}
				words, want := m.next()
				sent.Add(1)
				if leaving {
					_, _ = c.Write(command(words...))
					return
				}
				got, err := c.do(words...)
				if impatient && errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
				if err != nil || got != want {
					t.Errorf("connection %d, round %d: %s: %.20q, %v, want %.20q", i, n, words[0], got, err, want)
					return
				}
				answered.Add(1)
			}
		})
	}
	tasks.Wait()
	c := dial(t, address)
	stats := rdmatest.Must(c.do("INFO", "commandstats"))(t)
	var n int64
	missing := strings.Fields("ping set get incr lpush rpush lpop rpop lrange sadd spop hset zadd zpopmin mset")
	for line := range strings.Lines(stats) {
		kind, calls, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if i := slices.Index(missing, kind); i >= 0 { // the server has run others for itself
			calls, _, _ = strings.Cut(calls, ",")
			n += rdmatest.Must(strconv.ParseInt(calls, 10, 64))(t)
			missing = slices.Delete(missing, i, i+1)
		}
	}
	t.Logf("%d connections: %d commands, %d run by the server, %d answered", conns, sent.Load(), n, answered.Load())
	if n < answered.Load() || n > sent.Load() || len(missing) > 0 {
		t.Errorf("%d commands were sent, %d run by the server, none of them %v, and %d answered", sent.Load(), n, missing, answered.Load())
	}
}

// TestKilledServer: reads end when the server was killed.
func TestKilledServer(t *testing.T) {
	c := dial(t, serve(t))
	if _, err := c.Write(command("SHUTDOWN", "NOSAVE")); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c.Conn); err != nil || len(b) > 0 {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestOwnClients: Valkey's clients use a server that is written in Go.
func TestOwnClients(t *testing.T) {
	l := rdmatest.Must(valkeyrdma.Listen("tcp", host+":0"))(t)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			tasks.Go(func() {
				answer(c)
				_ = c.Close()
			})
		}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cli := func(words ...string) string {
		p := rdmatest.Start(t, append([]string{rdmatest.Program(t, "valkey-cli"), "--rdma", "-h", host, "-p", port}, words...)...)
		return strings.TrimSpace(p.Succeeds(t))
	}
	if got := cli("PING"); got != "PONG" {
		t.Errorf("ping: %q", got)
	}
	long := strings.Repeat("0123456789", 10_000)
	if got := cli("ECHO", long); strings.Trim(got, `"`) != long {
		t.Errorf("echo: %d bytes, or others", len(got))
	}
	p := rdmatest.Start(t, rdmatest.Program(t, "valkey-benchmark"), "--rdma", "-h", host, "-p", port,
		"-t", "set,get", "-n", "20000", "-c", "20", "-P", "16", "-d", "1000", "-q")
	if out := p.Succeeds(t); !strings.Contains(out, "SET: ") {
		t.Errorf("valkey-benchmark: %s", out)
	}
	rdmatest.Close(t, l)
	tasks.Wait()
}

// answer serves a client with ECHO, PING, and OK for other commands.
func answer(c net.Conn) {
	r, w := bufio.NewReader(c), bufio.NewWriter(c)
	for {
		words, err := words(r)
		if err != nil {
			return
		}
		switch strings.ToUpper(string(words[0])) {
		case "PING":
			fmt.Fprint(w, "+PONG\r\n")
		case "ECHO":
			fmt.Fprintf(w, "$%d\r\n%s\r\n", len(words[1]), words[1])
		default:
			fmt.Fprint(w, "+OK\r\n")
		}
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}

// words reads a command.
func words(r *bufio.Reader) ([][]byte, error) {
	number := func(kind byte) (int, error) {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != kind {
			return 0, fmt.Errorf("%q", line)
		}
		return strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	}
	n, err := number('*')
	if err != nil || n < 1 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	list := make([][]byte, n)
	for i := range list {
		n, err := number('$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		list[i] = b[:n]
	}
	return list, nil
}
