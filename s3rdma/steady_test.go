//go:build linux && !race

package s3rdma

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

// TestSteady: moving a body allocates nothing of its own, and registers nothing, apart from what net/http does.
func TestSteady(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 1000}, nil)
	mr := must(r.client.PD().AllocMR(1<<16, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite}))(t)
	defer mr.Close()
	tr := transfer{s: r.server, token: Token{Addr: mr.Addr(), Size: 9500, RKey: mr.RKey(), DCTN: 1, GID: r.client.port.GID}, ctx: t.Context(), size: 9500}
	b, src, snk := make([]byte, 700), new(source), new(sink)
	move := func() {
		src.transfer, src.front, src.off, src.closed = tr, 0, 0, false
		src.read.Store(0)
		for {
			if _, err := src.Read(b); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		src.finish()
		snk.transfer, snk.off, snk.wrote = tr, 0, 0
		for snk.wrote < snk.size {
			must(snk.Write(b[:min(len(b), snk.size-snk.wrote)]))(t)
		}
		check(t, snk.finish())
		snk.end()
		for _, use := range []int{forPut, forGet} {
			r.client.pool.put(use, must(r.client.pool.get(use, 5000))(t), false)
		}
	}
	if n := testing.AllocsPerRun(100, move); n > 0 {
		t.Errorf("a PUT and a GET of 10 chunks allocate %v times", n)
	}
	// Neither do requests in a row.
	for range 3 {
		r.put(t, "/bucket/x", random(5000))
		if status, _ := r.get(t, "/bucket/x", ""); status != http.StatusOK {
			t.Error(status)
		}
	}
	registered, lanes := r.client.pool.bytes, r.server.Stats().Lanes
	for range 20 {
		r.put(t, "/bucket/x", random(5000))
		r.get(t, "/bucket/x", "")
	}
	if r.client.pool.bytes != registered || r.server.Stats().Lanes != lanes {
		t.Errorf("%d bytes were registered and %d lanes made, and then %d and %d", registered, lanes, r.client.pool.bytes, r.server.Stats().Lanes)
	}
}

// TestAllocations: a request allocates as often for a long body as for a short one, and not more often than docs/s3rdma.md
// says. A handler and a RoundTripper that allocate nothing stand for the rest.
func TestAllocations(t *testing.T) {
	object := random(100_000)
	var size int
	var length []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			must(r.Body.(io.WriterTo).WriteTo(io.Discard))(t)
			return
		}
		w.Header()["Content-Length"] = length
		must(w.Write(object[:size]))(t)
	})
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true, GetBytes: 1 << 17}, ServerOptions{ChunkBytes: 1000}, func(http.Handler) http.Handler { return handler })
	next := &direct{to: r.server, resp: http.Response{StatusCode: http.StatusOK, Body: http.NoBody}}
	next.resp.Header = make(http.Header)
	r.client.o.Next = next
	type counts struct{ client, server float64 }
	for method, most := range map[string]counts{http.MethodPut: {11, 20}, http.MethodGet: {18, 16}} {
		var got []counts
		for _, size = range []int{1000, 100_000} { // strconv.Itoa allocates nothing for numbers below 100
			length = []string{strconv.Itoa(size)}
			var reader objectReader
			req := must(http.NewRequest(method, r.web.URL+"/bucket/x", nil))(t)
			if method == http.MethodPut {
				req.Body, req.ContentLength = &reader, int64(size)
			}
			move := func() {
				reader.b = object[:size]
				resp := must(r.client.RoundTrip(req))(t)
				must(resp.Body.(io.WriterTo).WriteTo(io.Discard))(t)
				check(t, resp.Body.Close())
			}
			next.answered = false
			both := testing.AllocsPerRun(50, move)
			next.answered = true
			client := testing.AllocsPerRun(50, move)
			got = append(got, counts{client, both - client})
		}
		t.Logf("%s: %+v", method, got)
		if got[0] != got[1] || got[0].client > most.client || got[0].server > most.server {
			t.Errorf("%s: %+v, for bodies of different lengths; want %+v at most", method, got, most)
		}
	}
	if c, s := r.client.Stats(), r.server.Stats(); c.Fallbacks != 0 || c.Puts != 204 || c.Gets != 204 || s.Failed+s.Declined != 0 {
		t.Errorf("the client counts %+v, the server %+v", c, s)
	}
}

// An objectReader is the body of a PUT.
type objectReader struct{ b []byte }

func (r *objectReader) Read(p []byte) (int, error) {
	n := copy(p, r.b)
	r.b = r.b[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *objectReader) Close() error { return nil }

// A direct is a RoundTripper to a handler, without HTTP, and its ResponseWriter. Once answered, it repeats the last answer.
type direct struct {
	to       http.Handler
	answered bool
	resp     http.Response
}

func (d *direct) Header() http.Header         { return d.resp.Header }
func (d *direct) WriteHeader(int)             {}
func (d *direct) Write(p []byte) (int, error) { return len(p), nil }

func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if !d.answered {
		clear(d.resp.Header)
		d.to.ServeHTTP(d, req)
	}
	d.resp.Body, d.resp.ContentLength = http.NoBody, 0
	return &d.resp, nil
}
