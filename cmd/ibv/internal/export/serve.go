package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
)

// This is a small server of HTTP, because that of the standard library would make ibv half as large again. It
// answers one request on each connection.

const (
	mostRequest = 8 << 10 // bytes, with the headers
	mostClients = 16      // at a time
	mostTime    = 10 * time.Second

	typeText = "text/plain; version=0.0.4; charset=utf-8"
	typeOpen = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// A request is what the server needs of a request.
type request struct {
	method, path string
	open         bool // the client takes OpenMetrics
}

// read reads a request.
func read(r io.Reader) (request, error) {
	in := bufio.NewReader(io.LimitReader(r, mostRequest))
	var q request
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		if err != nil {
			return q, errors.New("no whole request")
		}
		line = strings.TrimRight(line, "\r\n")
		if first {
			words := strings.Split(line, " ")
			if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1.") {
				return q, errors.New("no request of HTTP/1")
			}
			q.method = words[0]
			q.path, _, _ = strings.Cut(words[1], "?")
			continue
		}
		if line == "" {
			return q, nil
		}
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Accept") && strings.Contains(value, "application/openmetrics-text") {
			q.open = true
		}
	}
}

// serve answers requests until the listener is closed.
func (e *exporter) serve(ctx context.Context, l net.Listener) error {
	door := stranger.Door[request]{
		Most: mostClients,
		Greet: func(c net.Conn) (request, error) {
			if err := c.SetDeadline(time.Now().Add(mostTime)); err != nil {
				return request{}, err
			}
			return read(c)
		},
		Serve: func(c net.Conn, q request) {
			defer c.Close()
			e.answer(ctx, c, q)
		},
	}
	return door.Open(l)
}

// answer answers a request. A client that doesn't take the answer has no other.
func (e *exporter) answer(ctx context.Context, c net.Conn, q request) {
	status, kind, body := "200 OK", typeText, []byte(nil)
	switch {
	case q.method != "GET" && q.method != "HEAD":
		status, body = "405 Method Not Allowed", []byte("only GET and HEAD\n")
	case q.path == "/metrics":
		if q.open {
			kind = typeOpen
		}
		body = e.collect(ctx).text(q.open)
	case q.path == "/":
		body = []byte("The figures are at /metrics.\n")
	default:
		status, body = "404 Not Found", []byte("there is only /metrics\n")
	}
	header := fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", status, kind, len(body))
	if q.method == "HEAD" {
		body = nil
	}
	_ = c.SetDeadline(time.Now().Add(mostTime)) // a failure shows in the write
	_, _ = c.Write(append([]byte(header), body...))
}
