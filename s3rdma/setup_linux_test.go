package s3rdma

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// The devices of package verbstest have no DC. So these tests connect each of the server's lanes, an RC QP, to one of
// the client's. Otherwise the client and the server are the same. tests/device/s3rdma has DC.

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A rig has a client and a server on one device, with a store behind the server.
type rig struct {
	net    *verbstest.Network
	dev    *verbs.Device
	store  *store
	server *Server
	web    *httptest.Server
	client *Client
	http   *http.Client
	seen   *recorder
}

// newRig makes a rig. The store may be behind other handlers, that front adds.
func newRig(t testing.TB, co ClientOptions, so ServerOptions, front func(http.Handler) http.Handler) *rig {
	r := &rig{net: verbstest.New(t), store: newStore(), seen: new(recorder)}
	r.dev = must(verbs.Open(""))(t)
	t.Cleanup(func() { check(t, r.dev.Close()) })
	co.Next = r.seen
	r.seen.next = &http.Transport{}
	var err error
	var gid verbs.GIDEntry
	r.client, gid, err = newClient(r.dev, co)
	check(t, err)
	r.client.port.DCTN = 1
	t.Cleanup(func() { check(t, r.client.Close()) })
	peers := &peers{cq: must(r.dev.CreateCQ(verbs.CQOptions{MaxCQE: 1, PollOnly: true}))(t), of: make(map[int]*verbs.QP)}
	t.Cleanup(func() { check(t, peers.close()) })

	var h http.Handler = r.store
	if front != nil {
		h = front(h)
	}
	r.server = must(newServer(r.dev, h, so))(t)
	r.server.connect = func(l *lane) error { return peers.connect(l, r.client.pd, gid) }
	r.web = httptest.NewServer(r.server)
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		r.web.Close()
		until(t, func() bool { return r.server.Close() == nil })
	})
	r.http = &http.Client{Transport: r.client}
	return r
}

// until waits until so returns true.
func until(t testing.TB, so func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it didn't happen")
		}
	}
}

// peers are the client's QPs, by the indices of the lanes that they are connected to.
type peers struct {
	mu sync.Mutex
	cq *verbs.CQ
	of map[int]*verbs.QP
}

func (p *peers) connect(l *lane, pd *verbs.PD, gid verbs.GIDEntry) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := l.qp.Close(); err != nil {
		return err
	}
	if err := p.of[l.index].Close(); err != nil {
		return err
	}
	if l.qp, err = l.s.pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: l.s.cq, RecvCQ: l.s.cq, Cap: verbs.QPCap{MaxSendWR: depth}}); err != nil {
		return err
	}
	if p.of[l.index], err = pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: p.cq, RecvCQ: p.cq, Cap: verbs.QPCap{MaxSendWR: 1}}); err != nil {
		return err
	}
	mine, err := l.qp.Endpoint(gid)
	if err != nil {
		return err
	}
	theirs, err := p.of[l.index].Endpoint(gid)
	if err != nil {
		return err
	}
	access := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if err := p.of[l.index].Connect(mine, verbs.ConnectOptions{Access: access}); err != nil {
		return err
	}
	return l.qp.Connect(theirs, verbs.ConnectOptions{AckTimeout: time.Millisecond})
}

func (p *peers) close() error {
	for _, qp := range p.of {
		if err := qp.Close(); err != nil {
			return err
		}
	}
	return p.cq.Close()
}

// A recorder is a RoundTripper that counts the requests, and the bytes of their bodies.
type recorder struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests []string // method, path, and "token" if there is one
	bytes    int64    // sent in HTTP bodies
	change   func(*http.Request)
	answer   func(*http.Response)
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	what := req.Method + " " + req.URL.Path
	if req.Header.Get(headerToken) != "" {
		what += " token"
	}
	r.requests = append(r.requests, what)
	r.bytes += max(req.ContentLength, 0)
	change, answer := r.change, r.answer
	r.mu.Unlock()
	if change != nil {
		change(req)
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil && answer != nil {
		answer(resp)
	}
	return resp, err
}

// want checks the requests since the last call.
func (r *recorder) want(t testing.TB, requests ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got, want := strings.Join(r.requests, ", "), strings.Join(requests, ", "); got != want {
		t.Errorf("the requests are %q, want %q", got, want)
	}
	r.requests, r.bytes = nil, 0
}

// A store is a small S3: objects in memory, with ranges, ETags and parts as objects of their own. A PUT whose
// body has an error stores nothing.
type store struct {
	mu      sync.Mutex
	objects map[string][]byte
	puts    int // objects stored
}

func newStore() *store { return &store{objects: make(map[string][]byte)} }

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path
	if part := r.URL.Query().Get("partNumber"); part != "" {
		name += "#" + part
	}
	switch r.Method {
	case http.MethodPut:
		b, err := io.ReadAll(r.Body)
		if err == nil && int64(len(b)) != r.ContentLength {
			err = fmt.Errorf("%d bytes, want %d", len(b), r.ContentLength)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.mu.Lock()
		s.objects[name] = b
		s.puts++
		s.mu.Unlock()
		w.Header().Set("ETag", strconv.Itoa(len(b)))
		w.WriteHeader(http.StatusOK)
	case http.MethodGet, http.MethodHead:
		s.mu.Lock()
		b, ok := s.objects[name]
		s.mu.Unlock()
		if !ok {
			http.Error(w, "NoSuchKey", http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"e"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	default:
		http.Error(w, "MethodNotAllowed", http.StatusMethodNotAllowed)
	}
}

func (s *store) get(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[name]
}

func (s *store) set(name string, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = b
}

// random returns n bytes, the same for each n.
func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b)
	return b
}

// put puts an object, and returns the answer's status.
func (r *rig) put(t testing.TB, path string, b []byte) int {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPut, r.web.URL+path, io.NopCloser(bytes.NewReader(b))))(t)
	req.ContentLength = int64(len(b))
	resp := must(r.http.Do(req))(t)
	must(io.Copy(io.Discard, resp.Body))(t)
	check(t, resp.Body.Close())
	return resp.StatusCode
}

// get gets an object, or a range of it.
func (r *rig) get(t testing.TB, path, bytesRange string) (int, []byte) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, r.web.URL+path, nil))(t)
	if bytesRange != "" {
		req.Header.Set("Range", bytesRange)
	}
	resp := must(r.http.Do(req))(t)
	b := must(io.ReadAll(resp.Body))(t)
	check(t, resp.Body.Close())
	if resp.StatusCode == http.StatusOK && resp.ContentLength != int64(len(b)) {
		t.Errorf("the answer says %d bytes, and has %d", resp.ContentLength, len(b))
	}
	return resp.StatusCode, b
}
