// Package s3rdma tests package s3rdma over DC, on ConnectX adapters.
package s3rdma

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnMLX5, rdmatest.OnMLX5Eth) }

const headerToken = "X-Amz-Rdma-Token"

// A pair has a client and a server, with a store behind it.
type pair struct {
	server *s3rdma.Server
	client *s3rdma.Client
	web    *http.Client
	url    string
	store  *store
	seen   *recorder
}

// newPair makes a client and a server on one device. The end of the test closes them.
func newPair(t *testing.T, co s3rdma.ClientOptions, so s3rdma.ServerOptions) *pair {
	t.Helper()
	dev := rdmatest.Open(t)
	gid := rdmatest.GID(t, dev)
	by := verbs.GIDSelector{Port: gid.Port, Type: gid.Type, Addr: gid.GID.Addr()}
	co.GID, so.GID, co.Assume, co.MinBytes = by, by, true, 1
	p := &pair{store: &store{objects: make(map[string][]byte)}, seen: &recorder{next: new(http.Transport)}}
	co.Next = p.seen
	p.client = rdmatest.Must(s3rdma.NewClient(dev, co))(t)
	p.server = rdmatest.Must(s3rdma.NewServer(dev, p.store, so))(t)
	web := httptest.NewServer(p.server)
	p.url, p.web = web.URL, &http.Client{Transport: p.client}
	t.Cleanup(func() {
		p.web.CloseIdleConnections()
		web.Close()
		rdmatest.Until(t, func() string {
			if err := p.server.Close(); err != nil {
				return err.Error()
			}
			return ""
		})
		rdmatest.Close(t, p.client)
	})
	return p
}

// A recorder remembers the last token, and may change it.
type recorder struct {
	next http.RoundTripper

	mu     sync.Mutex
	token  s3rdma.Token
	change func(*s3rdma.Token)
}

func (r *recorder) CloseIdleConnections() { r.next.(*http.Transport).CloseIdleConnections() }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if token, err := s3rdma.ParseToken(req.Header.Get(headerToken)); err == nil {
		r.mu.Lock()
		r.token = token
		if r.change != nil {
			r.change(&token)
			req.Header.Set(headerToken, token.String())
		}
		r.mu.Unlock()
	}
	return r.next.RoundTrip(req)
}

// A store has objects in memory.
type store struct {
	mu         sync.Mutex
	objects    map[string][]byte
	registered *verbs.MR // the object /bucket/registered
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		b := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, b); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.objects[r.URL.Path] = b
	case http.MethodGet:
		if r.URL.Path == "/bucket/registered" {
			http.ServeContent(w, r, "", time.Time{}, s3rdma.NewMemoryReader(s.registered, 0, s.registered.Len()))
			return
		}
		s.mu.Lock()
		b := s.objects[r.URL.Path]
		s.mu.Unlock()
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

func (p *pair) put(ctx context.Context, path string, b []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, p.url+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	resp, err := p.web.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("PUT: %s", resp.Status)
	}
	return nil
}

func (p *pair) get(ctx context.Context, path, bytesRange string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	if bytesRange != "" {
		req.Header.Set("Range", bytesRange)
	}
	resp, err := p.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		return nil, fmt.Errorf("GET: %s", resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// wantRoundTrip puts an object and gets it back, whole and in part.
func (p *pair) wantRoundTrip(t *testing.T, n int) {
	t.Helper()
	b := random(n)
	rdmatest.Check(t, p.put(t.Context(), "/bucket/key", b))
	if got := rdmatest.Must(p.get(t.Context(), "/bucket/key", ""))(t); !bytes.Equal(got, b) {
		t.Errorf("%d bytes came back as %d others", n, len(got))
	}
	first, last := n/3, n-1-n/5
	if got := rdmatest.Must(p.get(t.Context(), "/bucket/key", fmt.Sprintf("bytes=%d-%d", first, last)))(t); !bytes.Equal(got, b[first:last+1]) {
		t.Errorf("bytes %d to %d of %d came as %d others", first, last, n, len(got))
	}
}

// TestS3PutGet: objects of many lengths go by RDMA and come back, whole and in ranges.
func TestS3PutGet(t *testing.T) {
	p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{ChunkBytes: 64 << 10})
	sizes := []int{1, 4096, 64 << 10, 256<<10 + 1, 1 << 20}
	for _, n := range sizes {
		p.wantRoundTrip(t, n)
	}
	if c, s := p.client.Stats(), p.server.Stats(); c.Fallbacks != 0 || s.Puts != uint64(len(sizes)) || s.Gets != uint64(2*len(sizes)) || s.Bytes != c.Bytes || s.Failed+s.Declined != 0 {
		t.Errorf("the client counts %+v, the server %+v", c, s)
	}
}

var _ = rdmatest.Test(TestS3Hostile, rdmatest.OnMLX5, rdmatest.LongOn("mlx5"))

var _ = rdmatest.Test(TestS3Large, rdmatest.OnMLX5Eth, rdmatest.LongOn("mlx5-eth"))

// TestS3Large: an object of 64 MiB, from the caller's memory and back, in the default chunks, and from the server's registered
// memory. With GOVERBS_LONG, also one of 1 GiB, and how fast those of 64 MiB move, beside RDMA writes and reads of that size.
func TestS3Large(t *testing.T) {
	sizes := []int{64 << 20}
	long := os.Getenv("GOVERBS_LONG") != ""
	if long {
		sizes = append(sizes, s3rdma.MaxBytes)
	}
	for _, n := range sizes {
		p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{})
		mr := rdmatest.Must(p.client.PD().AllocMR(n, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite}))(t)
		rand.NewChaCha8([32]byte{1}).Read(mr.Bytes())
		move := func(method, path string) time.Duration {
			req := rdmatest.Must(http.NewRequestWithContext(s3rdma.WithMemory(t.Context(), mr, 0, n), method, p.url+path, nil))(t)
			if method == http.MethodPut {
				req.Body, req.ContentLength = io.NopCloser(s3rdma.Unreadable(int64(n))), int64(n)
			}
			began := time.Now()
			resp := rdmatest.Must(p.web.Do(req))(t)
			took := time.Since(began)
			rdmatest.Close(t, resp.Body)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s of %d bytes: %s", method, n, resp.Status)
			}
			return took
		}
		put := move(http.MethodPut, "/bucket/key")
		object := p.store.objects["/bucket/key"]
		if !bytes.Equal(object, mr.Bytes()) {
			t.Errorf("PUT of %d bytes stored others", n)
		}
		clear(mr.Bytes())
		get := move(http.MethodGet, "/bucket/key")
		if !bytes.Equal(object, mr.Bytes()) {
			t.Errorf("GET of %d bytes wrote others", n)
		}
		p.store.registered = rdmatest.Must(p.server.PD().AllocMR(n, verbs.MROptions{}))(t)
		copy(p.store.registered.Bytes(), object)
		clear(mr.Bytes())
		direct := move(http.MethodGet, "/bucket/registered")
		if !bytes.Equal(object, mr.Bytes()) {
			t.Errorf("GET of %d registered bytes wrote others", n)
		}
		if c, s := p.client.Stats(), p.server.Stats(); c.Puts != 1 || c.Gets != 2 || c.Fallbacks != 0 || c.Copied != 0 || s.Failed != 0 {
			t.Errorf("the client counts %+v, the server %+v", c, s)
		}
		t.Logf("%d bytes: PUT %v, GET %v, from registered memory %v", n, put, get, direct)
		if long && n == 64<<20 {
			for range 3 {
				writes, reads := bandwidth(t, "write_bw", n), bandwidth(t, "read_bw", n)
				put, get, direct = 0, 0, 0
				for range 5 {
					put += move(http.MethodPut, "/bucket/key")
					get += move(http.MethodGet, "/bucket/key")
					direct += move(http.MethodGet, "/bucket/registered")
				}
				rate := func(took time.Duration) float64 { return 5 * float64(n) / (1 << 20) / took.Seconds() }
				t.Logf("MiB/s: write_bw %.1f, GET %.1f, from registered memory %.1f; read_bw %.1f, PUT %.1f", writes, rate(get), rate(direct), reads, rate(put))
			}
		}
		rdmatest.Close(t, mr)
		rdmatest.Close(t, p.store.registered)
	}
}

// bandwidth returns the MiB/s that a program of ibv measures between queue pairs of the device.
func bandwidth(t *testing.T, tool string, n int) float64 {
	t.Helper()
	const port = 19700
	line := []string{rdmatest.Program(t, "ibv"), tool, "-F", "-d", rdmatest.Device, "-p", strconv.Itoa(port), "-s", strconv.Itoa(n), "-n", "5", "--patience", "120"}
	if rdmatest.RoCE {
		line = append(line, "-x", "1")
	}
	server := rdmatest.Start(t, line...)
	server.Until(t, func() bool { return rdmatest.Listening(port) })
	out := rdmatest.Start(t, append(line, "127.0.0.1")...).Succeeds(t)
	server.Succeeds(t)
	for l := range strings.Lines(out) {
		if f := strings.Fields(l); len(f) >= 4 && f[0] == strconv.Itoa(n) {
			return rdmatest.Must(strconv.ParseFloat(f[3], 64))(t)
		}
	}
	t.Fatalf("no result: %s", out)
	return 0
}

// TestS3WrongTokens: a wrong key, a target that doesn't exist, and one with another DC key. The body goes over
// HTTP, and the next one by RDMA.
func TestS3WrongTokens(t *testing.T) {
	p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{})
	dev := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
	defer rdmatest.Close(t, dev)
	stranger := rdmatest.Must(s3rdma.NewClient(dev, s3rdma.ClientOptions{Next: p.seen, Assume: true, MinBytes: 1, DCKey: 7}))(t)
	resp := rdmatest.Must((&http.Client{Transport: stranger}).Get(p.url + "/bucket/none"))(t)
	rdmatest.Close(t, resp.Body)
	dctn := p.seen.token.DCTN // of a target with DC key 7
	changes := map[string]func(*s3rdma.Token){
		"rkey":      func(token *s3rdma.Token) { token.RKey ^= 0xff00 },
		"no target": func(token *s3rdma.Token) { token.DCTN ^= 0x800000 },
		"DC key":    func(token *s3rdma.Token) { token.DCTN = dctn },
	}
	for name, change := range changes {
		p.seen.change = change
		before := p.server.Stats().Failed
		p.wantRoundTrip(t, 10_000)
		if got := p.server.Stats().Failed - before; got != 3 {
			t.Errorf("%s: %d transfers failed, want 3", name, got)
		}
		p.seen.change = nil
		before = p.client.Stats().Fallbacks
		p.wantRoundTrip(t, 10_000)
		if got := p.client.Stats().Fallbacks - before; got != 0 {
			t.Errorf("after %s, %d bodies went over HTTP", name, got)
		}
	}
	rdmatest.Close(t, stranger)
}

// TestS3DeadClient: a client that is gone fails its request, and no other.
func TestS3DeadClient(t *testing.T) {
	p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{})
	dev := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
	dead := rdmatest.Must(s3rdma.NewClient(dev, s3rdma.ClientOptions{Next: p.seen, Assume: true, MinBytes: 1}))(t)
	rdmatest.Check(t, p.put(t.Context(), "/bucket/key", random(1000)))
	resp := rdmatest.Must((&http.Client{Transport: dead}).Get(p.url + "/bucket/key"))(t)
	rdmatest.Close(t, resp.Body)
	token := p.seen.token
	rdmatest.Close(t, dead)
	rdmatest.Close(t, dev)
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		req := rdmatest.Must(http.NewRequestWithContext(t.Context(), method, p.url+"/bucket/key", nil))(t)
		req.Header.Set(headerToken, token.String())
		resp := rdmatest.Must(p.seen.next.RoundTrip(req))(t)
		rdmatest.Close(t, resp.Body)
		if resp.StatusCode != http.StatusInternalServerError || resp.Header.Get("X-Amz-Rdma-Reply") != "500" {
			t.Errorf("%s: %s, %v", method, resp.Status, resp.Header)
		}
	}
	p.wantRoundTrip(t, 1000)
}

// TestS3GivesUp: a request whose client goes away while the server waits for a dead target ends.
func TestS3GivesUp(t *testing.T) {
	p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{})
	p.seen.change = func(token *s3rdma.Token) { token.DCTN ^= 0x800000 }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.put(ctx, "/bucket/key", random(1000)); err == nil {
		t.Log("the retries were faster") // the body went over HTTP
	}
	p.seen.change = nil
	p.wantRoundTrip(t, 1000)
}

// TestS3Memory: a body goes from the caller's memory and comes back into it, without a copy at the client.
func TestS3Memory(t *testing.T) {
	p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{})
	b := random(1 << 20)
	mr := rdmatest.Must(p.client.PD().AllocMR(2<<20, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite}))(t)
	defer rdmatest.Close(t, mr)
	copy(mr.Bytes()[100:], b)
	ctx := s3rdma.WithMemory(t.Context(), mr, 100, len(b))
	req := rdmatest.Must(http.NewRequestWithContext(ctx, http.MethodPut, p.url+"/bucket/key", s3rdma.Unreadable(int64(len(b)))))(t)
	req.ContentLength = int64(len(b))
	resp := rdmatest.Must(p.web.Do(req))(t)
	rdmatest.Close(t, resp.Body)
	clear(mr.Bytes())
	resp = rdmatest.Must(p.web.Do(rdmatest.Must(http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/bucket/key", nil))(t)))(t)
	if !bytes.Equal(mr.Bytes()[100:100+len(b)], b) || resp.ContentLength != int64(len(b)) {
		t.Error("other bytes came back")
	}
	rdmatest.Close(t, resp.Body)
	if s := p.client.Stats(); s.Copied != 0 || s.Puts != 1 || s.Gets != 1 {
		t.Errorf("the client counts %+v", s)
	}
}

// TestS3Many: many clients at once, with more requests than lanes.
func TestS3Many(t *testing.T) {
	p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{ChunkBytes: 4096, MaxTransfers: 3})
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	ended := make(chan error)
	for i := range 6 {
		go func() {
			ended <- func() error {
				for j := range rounds {
					path, b := fmt.Sprintf("/bucket/%d", i), random(1+(i*7919+j*104729)%100_000)
					if err := p.put(t.Context(), path, b); err != nil {
						return err
					}
					got, err := p.get(t.Context(), path, "")
					if err != nil {
						return err
					}
					if !bytes.Equal(got, b) {
						return fmt.Errorf("%d bytes came back as %d others", len(b), len(got))
					}
				}
				return nil
			}()
		}()
	}
	for range 6 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if s := p.server.Stats(); s.Failed != 0 || s.Lanes > 3 || s.Puts+s.Gets == 0 {
		t.Errorf("the server counts %+v", s)
	}
}

// TestS3Hostile plays seeded rounds of requests with forged tokens, which name memory that is not the client's, other
// lengths, and other targets. All bodies arrive all the same, over HTTP if need be, and nothing beside them is written.
func TestS3Hostile(t *testing.T) {
	p := newPair(t, s3rdma.ClientOptions{}, s3rdma.ServerOptions{ChunkBytes: 4096, MaxTransfers: 2})
	const most = 20_000
	mr := rdmatest.Must(p.client.PD().AllocMR(3*most, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))(t)
	defer rdmatest.Close(t, mr)
	const requests = 10
	rdmatest.Rounds(t, 5, requests, func(rnd *rand.Rand) {
		p.seen.change = func(token *s3rdma.Token) {
			switch rnd.IntN(6) {
			case 0:
				token.RKey ^= 1 << rnd.IntN(32)
			case 1:
				token.Addr = rnd.Uint64N(1 << 63)
			case 2:
				token.Size = 1 + rnd.Uint32N(2*token.Size)
			case 3:
				token.Size = 1 + rnd.Uint32N(1<<20)
			case 4:
				if rnd.IntN(4) == 0 { // it takes the server about a second to give up
					token.DCTN ^= 1 << rnd.IntN(24)
				}
			}
		}
		for range requests {
			b := random(1 + rnd.IntN(most))
			if err := p.put(t.Context(), "/bucket/key", b); err != nil || !bytes.Equal(p.store.objects["/bucket/key"], b) {
				t.Errorf("PUT of %d bytes: %v, or others were stored", len(b), err)
			}
			clear(mr.Bytes())
			at := rnd.IntN(2 * most)
			req := rdmatest.Must(http.NewRequestWithContext(s3rdma.WithMemory(t.Context(), mr, at, len(b)), http.MethodGet, p.url+"/bucket/key", nil))(t)
			resp := rdmatest.Must(p.web.Do(req))(t)
			rdmatest.Close(t, resp.Body)
			want := make([]byte, mr.Len())
			copy(want[at:], b)
			if !bytes.Equal(mr.Bytes(), want) {
				t.Errorf("GET of %d bytes to byte %d of the memory: %s, and the memory has others", len(b), at, resp.Status)
			}
		}
		p.seen.change = nil
		p.wantRoundTrip(t, 1000)
	})
	c, s := p.client.Stats(), p.server.Stats()
	t.Logf("the client counts %+v, the server %+v", c, s)
	if s.Failed == 0 || c.Fallbacks == 0 {
		t.Error("no token was refused")
	}
}
