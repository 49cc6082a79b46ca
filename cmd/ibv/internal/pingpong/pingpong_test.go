package pingpong

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// parse parses the arguments of the command.
func parse(args string) (*options, error) {
	word, rest, _ := strings.Cut(args, " ")
	c, o, err := variant(word)
	if err != nil {
		return nil, err
	}
	operands, err := c.Parse(strings.Fields(rest))
	if err != nil {
		return nil, err
	}
	return o, o.finish(operands)
}

func TestParsePingpong(t *testing.T) {
	defaults := options{port: 18515, ibPort: 1, size: 4096, mtu: verbs.MTU1024, nqps: 1, depth: 500, iters: 1000, gid: -1}
	for _, test := range []struct {
		args   string
		change func(*options)
	}{
		{"rc", func(*options) {}},
		{"uc", func(*options) {}},
		{"ud", func(o *options) { o.size = 1024 }},
		{"srq", func(o *options) { o.nqps = 16 }},
		{"srq -q 3 -r 3", func(o *options) { o.nqps, o.depth = 3, 3 }},
		{"srq -q 255", func(o *options) { o.nqps = 255 }},
		{"rc -p 1 -d rxe1 -i 2 -s 0x10 -m 4096 -r 7 -n 8 -l 3 -e -g 0 -o -c -N there", func(o *options) {
			*o = options{
				host: "there", port: 1, device: "rxe1", ibPort: 2, size: 16, mtu: verbs.MTU4096, nqps: 1,
				depth: 7, iters: 8, sl: 3, events: true, gid: 0, odp: true, check: true,
			}
		}},
		{"xsrq", func(o *options) { o.iters, o.clients = 5, 1 }},
		{"xsrq -c 3 -n 7 -e -s 64", func(o *options) { o.iters, o.clients, o.events, o.size = 7, 3, true, 64 }},
		{"xsrq --clients=3 --num_tests 9 there", func(o *options) { o.iters, o.clients, o.host = 9, 1, "there" }},
		{"rc --mtu=256", func(o *options) { o.mtu = verbs.MTU256 }},
	} {
		got, err := parse(test.args)
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		want := defaults
		test.change(&want)
		if name, _, _ := strings.Cut(test.args, " "); got.transport.name != name {
			t.Errorf("%q gives transport %s", test.args, got.transport.name)
		}
		got.transport = nil
		if diff := cmp.Diff(want, *got, cmp.AllowUnexported(options{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.args, diff)
		}
	}
}

func TestParsePingpongRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                "rc, uc, ud, srq or xsrq is missing",
		"xrc":             `"xrc" is not rc, uc, ud, srq or xsrq`,
		"ud -m 1024":      "there is no option -m",
		"rc -q 2":         "there is no option -q",
		"uc -o":           "there is no option -o",
		"rc -m 1000":      `--mtu: "1000" is not 256, 512, 1024, 2048 or 4096`,
		"rc -p 65536":     `--port: "65536" is not a number from 0 to 65535`,
		"rc -i 0":         `--ib-port: "0" is not a number from 1 to 255`,
		"rc -s 1k":        `--size: "1k" is not a number from 0 to 2147483647`,
		"rc one two":      `unexpected argument "two"`,
		"srq -q 256":      "256 queue pairs: the maximum is 255",
		"xsrq -r 15":      "there is no option -r",
		"xsrq -c 0":       `--clients: "0" is not a number from 1 to 2147483647`,
		"srq -r 15":       "15 receives are too few: each of the 16 queue pairs needs one",
		"rc --prefetch":   "--prefetch is not supported: there is no advice on memory here",
		"srq --prefetch":  "there is no option --prefetch",
		"rc -g 1 -c -n x": `--iters: "x" is not a number from 0 to 2147483647`,
	} {
		if _, err := parse(args); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %q", args, err, want)
		}
	}
}

func TestPingpongStatus(t *testing.T) {
	for args, want := range map[string]int{
		"rc -h":  cli.OK,
		"--help": cli.OK,
		"rc -x":  cli.Wrong,
		"rc -O":  cli.Wrong,
		"rc -P":  cli.Wrong,
		"rc -t":  cli.Wrong,
		"rc -j":  cli.Wrong,
		"rc -U":  cli.Wrong,
		"sky -h": cli.Wrong,
	} {
		if got := Pingpong().Main("ibv pingpong", strings.Fields(args)); got != want {
			t.Errorf("ibv pingpong %s ends with %d, want %d", args, got, want)
		}
	}
}

var (
	hereAddress = qpAddress{lid: 0x1, qpn: 0x11, psn: 0xabcdef, gid: verbs.GID{10: 0xff, 11: 0xff, 12: 192, 13: 168, 14: 77, 15: 1}}
	hereMessage = "0001:000011:abcdef:00000000000000000000ffffc0a84d01\x00"
	thereBytes  = "00ff:123456:000007:fe80000000000000505400fffe123456\x00"
	thereWanted = qpAddress{lid: 0xff, qpn: 0x123456, psn: 7, gid: verbs.GID{0: 0xfe, 1: 0x80, 8: 0x50, 9: 0x54, 11: 0xff, 12: 0xfe, 13: 0x12, 14: 0x34, 15: 0x56}}
)

func TestAddressEncoding(t *testing.T) {
	if got := string(hereAddress.encode(nil)); got != hereMessage {
		t.Errorf("encoded %q, want %q", got, hereMessage)
	}
	got, err := decodeAddress([]byte(thereBytes))
	if err != nil || got != thereWanted {
		t.Errorf("decoded %+v, %v, want %+v", got, err, thereWanted)
	}
	for _, bad := range []string{
		"",
		"\x00",
		strings.Replace(thereBytes, ":", " ", 1),
		strings.Replace(thereBytes, "00ff", "zzzz", 1),
		strings.Replace(thereBytes, "00ff", "-0ff", 1),
		strings.Replace(thereBytes, "00ff:123456", "1f:12345678", 1), // 24 bits
		strings.Replace(thereBytes, "fe80", "fe8", 1),
		strings.Replace(thereBytes, "fe80", "fe8x", 1),
	} {
		if a, err := decodeAddress([]byte(bad)); err == nil {
			t.Errorf("%q was decoded: %+v", bad, a)
		}
	}
}

func listen(t *testing.T) (net.Listener, int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

// TestServeClient plays rdma-core's client.
func TestServeClient(t *testing.T) {
	for _, n := range []int{1, 256} {
		l, _ := listen(t)
		connected := make(chan struct{})
		type result struct {
			remote []qpAddress
			err    error
		}
		served := make(chan result, 1)
		go func() {
			remote, err := serveClient(l, n, []qpAddress{hereAddress}, func([]qpAddress) error {
				close(connected)
				return nil
			})
			served <- result{remote, err}
		}()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, strings.Repeat(thereBytes, n))
		b := make([]byte, n*addressLen)
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		select {
		case <-connected:
		default:
			t.Error("the server answered before its queue pairs were connected")
		}
		none := "0000:000000:000000:00000000000000000000000000000000\x00"
		if want := hereMessage + strings.Repeat(none, n-1); string(b) != want {
			t.Errorf("the server sent %q, want %q", b, want)
		}
		select {
		case r := <-served:
			t.Errorf("the server did not wait for the final message: %v", r)
		default:
		}
		io.WriteString(conn, "done\x00")
		if r := <-served; r.err != nil || len(r.remote) != 1 || r.remote[0] != thereWanted {
			t.Errorf("the server got %+v, %v", r.remote, r.err)
		}
	}
}

func TestServeClientFails(t *testing.T) {
	refused := errors.New("refused")
	for _, test := range []struct {
		sent    string
		connect error
		want    string
	}{
		{thereBytes, refused, "refused"},
		{thereBytes, nil, "waiting for the client's final message: EOF"},
		{thereBytes + "don", nil, "waiting for the client's final message: unexpected EOF"},
	} {
		l, _ := listen(t)
		go func() {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return
			}
			io.WriteString(conn, test.sent)
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, conn)
			conn.Close()
		}()
		_, err := serveClient(l, 1, []qpAddress{hereAddress}, func([]qpAddress) error { return test.connect })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("after %q: error %v, want %q", test.sent, err, test.want)
		}
	}
}

// TestServeStrangers: the server serves its client, whatever strangers send, seeded and many times.
func TestServeStrangers(t *testing.T) {
	rdmatest.Rounds(t, 20, 20, func(random *rand.Rand) {
		l, _ := listen(t)
		defer l.Close()
		for range 20 { // more than may wait at a time
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			switch random.IntN(5) {
			case 0: // silent
			case 1:
				conn.Close()
			case 2: // torn
				io.WriteString(conn, thereBytes[:random.IntN(addressLen)])
				conn.Close()
			case 3:
				io.WriteString(conn, strings.Repeat("x", addressLen+random.IntN(1000)))
			case 4: // numbers that are too large
				io.WriteString(conn, strings.Replace(thereBytes, ":", "ffff:", 1))
			}
		}
		go func() {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, thereBytes+done)
			io.Copy(io.Discard, conn)
		}()
		remote, err := serveClient(l, 1, []qpAddress{hereAddress}, func([]qpAddress) error { return nil })
		if err != nil || len(remote) != 1 || remote[0] != thereWanted {
			t.Fatalf("got %+v, %v", remote, err)
		}
	})
}

// TestCallServer plays rdma-core's server, which gets an address with one read.
func TestCallServer(t *testing.T) {
	l, port := listen(t)
	said := make(chan string, 2)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := make([]byte, 2*addressLen)
		n, _ := conn.Read(b)
		said <- string(b[:n])
		io.WriteString(conn, thereBytes)
		n, _ = conn.Read(b)
		said <- string(b[:n])
	}()
	remote, err := callServer("127.0.0.1", port, 1, []qpAddress{hereAddress})
	if err != nil || len(remote) != 1 || remote[0] != thereWanted {
		t.Errorf("got %+v, %v", remote, err)
	}
	for _, want := range []string{hereMessage, "done\x00"} {
		if got := <-said; got != want {
			t.Errorf("the client said %q, want %q", got, want)
		}
	}
}

func TestCheckPages(t *testing.T) {
	for _, test := range []struct {
		wrong []int // bytes
		want  string
	}{
		{nil, ""},
		{[]int{0}, "invalid data in page 0\n"},
		{[]int{1, 4095}, "invalid data in page 0\n"},
		{[]int{4096, 9000}, "invalid data in page 1\ninvalid data in page 2\n"},
	} {
		b := make([]byte, 9001)
		fillPages(b, 0x7b)
		for _, i := range test.wrong {
			b[i]++
		}
		var out strings.Builder
		err := checkPages(&out, b, 0x7b)
		if out.String() != test.want || (err == nil) != (test.want == "") {
			t.Errorf("with bytes %v wrong: %q, %v, want %q", test.wrong, out.String(), err, test.want)
		}
	}
}

func TestXRCAddress(t *testing.T) {
	a := xrcAddress{lid: 1, recvQPN: 0x345678, sendQPN: 7, psn: 0xffffff, srqn: 0x1a, gid: verbs.GID{0: 0xfe, 1: 0x80, 15: 9}}
	const text = "0001:345678:000007:ffffff:00001a:fe800000000000000000000000000009\x00"
	if got := string(a.encode()); got != text || len(got) != xrcAddressLen {
		t.Errorf("an address is %q, want %q of %d bytes", got, text, xrcAddressLen)
	}
	// rdma-core's programs write numbers like these, too.
	for _, b := range []string{text, strings.Replace(text, "00001a", "00001A", 1)} {
		if got, err := decodeXRCAddress([]byte(b)); err != nil || got != a {
			t.Errorf("%q: %v, %v", b, got, err)
		}
	}
	for _, b := range []string{"", text[5:], text[:40], "1" + text, strings.Replace(text, "ffffff", "fffffff", 1), strings.Replace(text, "fe80", "xe80", 1)} {
		if got, err := decodeXRCAddress([]byte(b)); err == nil {
			t.Errorf("%q is taken for %v", b, got)
		}
	}
}

// TestXRCStrangers: connections that send no address are ignored.
func TestXRCStrangers(t *testing.T) {
	l, _ := listen(t)
	a := xrcAddress{lid: 1, recvQPN: 2, sendQPN: 3, psn: 4, srqn: 5, gid: verbs.GID{15: 9}}
	for _, text := range []string{"", "SSH-2.0-evil\r\n", strings.Repeat("\x1b", xrcAddressLen), string(a.encode())} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, text)
		if text != string(a.encode()) {
			conn.Close()
		}
	}
	p := &xrcPlayer{}
	if err := p.meetClient(l); err != nil || len(p.conns) != 1 || len(p.remote) != 1 || p.remote[0] != a || p.strangers != 3 {
		t.Errorf("%+v, %v", p, err)
	}
}
