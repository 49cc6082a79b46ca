package s3rdma

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestPutGet: bodies of all lengths around the chunks go by RDMA, whole and in ranges.
func TestPutGet(t *testing.T) {
	const chunk = 1000 // no power of two
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true, GetBytes: 1 << 20}, ServerOptions{ChunkBytes: chunk}, nil)
	var puts, gets, sum uint64
	for _, n := range []int{3, chunk - 1, chunk, chunk + 1, depth * chunk, depth*chunk + 1, 9*chunk + 7, 1<<20 - 1} {
		b := random(n)
		path := "/bucket/" + strconv.Itoa(n)
		if status := r.put(t, path, b); status != http.StatusOK {
			t.Errorf("PUT of %d bytes: %d", n, status)
		}
		if !bytes.Equal(r.store.get(path), b) {
			t.Errorf("PUT of %d bytes stored others", n)
		}
		r.seen.want(t, "PUT "+path+" token")
		if status, got := r.get(t, path, ""); status != http.StatusOK || !bytes.Equal(got, b) {
			t.Errorf("GET of %d bytes: %d, %d bytes", n, status, len(got))
		}
		puts, gets, sum = puts+1, gets+1, sum+2*uint64(n)
		for _, rg := range [][2]int{{0, 0}, {1, n - 2}, {n / 2, n - 1}} {
			want := b[rg[0] : rg[1]+1]
			status, got := r.get(t, path, fmt.Sprintf("bytes=%d-%d", rg[0], rg[1]))
			if status != http.StatusPartialContent || !bytes.Equal(got, want) {
				t.Errorf("GET of %d to %d: %d, %d bytes", rg[0], rg[1], status, len(got))
			}
			gets, sum = gets+1, sum+uint64(len(want))
		}
		if status, got := r.get(t, path, "bytes=-2"); status != http.StatusPartialContent || !bytes.Equal(got, b[n-2:]) {
			t.Errorf("GET of the last bytes: %d, %d bytes", status, len(got))
		}
		if status, got := r.get(t, path, "bytes=1-"); status != http.StatusPartialContent || !bytes.Equal(got, b[1:]) {
			t.Errorf("GET from byte 1 on: %d, %d bytes", status, len(got))
		}
		gets, sum = gets+2, sum+2+uint64(n-1)
		r.seen.want(t, slices.Repeat([]string{"GET " + path + " token"}, 6)...)
	}
	// Each byte is copied once on either side: into or out of registered memory.
	if got, want := r.client.Stats(), (ClientStats{puts, gets, sum, sum, 0}); got != want {
		t.Errorf("the client counts %+v, want %+v", got, want)
	}
	if got := r.server.Stats(); got.Puts != puts || got.Gets != gets || got.Bytes != sum || got.Copied > sum || got.Declined+got.Failed != 0 || got.Lanes != 1 {
		t.Errorf("the server counts %+v", got)
	}
}

// TestParts: the parts of a multipart upload go by RDMA. Requests about objects don't, even if they have a body.
func TestParts(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	for i := range 3 {
		r.put(t, fmt.Sprintf("/bucket/big?partNumber=%d&uploadId=x", i+1), random(100+i))
	}
	r.seen.want(t, "PUT /bucket/big token", "PUT /bucket/big token", "PUT /bucket/big token")
	for _, query := range []string{"tagging", "acl", "uploadId=x&policy", "%zz&tagging"} {
		r.put(t, "/bucket/big?"+query, random(50))
	}
	r.seen.want(t, "PUT /bucket/big", "PUT /bucket/big", "PUT /bucket/big", "PUT /bucket/big")
	for _, query := range []string{"list-type=2", "tagging", "uploadId=x"} {
		r.get(t, "/bucket/big?"+query, "")
	}
	r.seen.want(t, "GET /bucket/big", "GET /bucket/big", "GET /bucket/big")
	r.get(t, "/bucket/big?versionId=3&response-content-type=x&X-Amz-Signature=y", "")
	r.seen.want(t, "GET /bucket/big token")
}

// TestStranger: a server that doesn't know the protocol gets each body over HTTP, and a PUT never with a token, unless the
// client was told to assume that it knows.
func TestStranger(t *testing.T) {
	for _, assume := range []bool{false, true} {
		t.Run(fmt.Sprint("assume=", assume), func(t *testing.T) {
			r := newRig(t, ClientOptions{MinBytes: 1, Assume: assume}, ServerOptions{}, nil)
			r.web.Config.Handler = r.store
			b := random(10_000)
			r.put(t, "/bucket/x", b)
			_, got := r.get(t, "/bucket/x", "")
			_, again := r.get(t, "/bucket/x", "")
			r.put(t, "/bucket/y", b)
			if !bytes.Equal(got, b) || !bytes.Equal(again, b) || !bytes.Equal(r.store.get("/bucket/x"), b) || !bytes.Equal(r.store.get("/bucket/y"), b) {
				t.Error("bytes were lost")
			}
			if assume {
				r.seen.want(t, "PUT /bucket/x token", "PUT /bucket/x", "GET /bucket/x token", "GET /bucket/x token", "PUT /bucket/y token", "PUT /bucket/y")
			} else {
				r.seen.want(t, "PUT /bucket/x", "GET /bucket/x token", "GET /bucket/x", "PUT /bucket/y")
			}
		})
	}
}

// TestLearns: after a GET by RDMA, PUTs go by RDMA.
func TestLearns(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1}, ServerOptions{}, nil)
	r.put(t, "/bucket/x", random(100))
	r.get(t, "/bucket/x", "")
	r.put(t, "/bucket/x", random(200))
	r.seen.want(t, "PUT /bucket/x", "GET /bucket/x token", "PUT /bucket/x token")
}

// TestShort: bodies shorter than MinBytes go over HTTP.
func TestShort(t *testing.T) {
	r := newRig(t, ClientOptions{Assume: true}, ServerOptions{}, nil)
	r.put(t, "/bucket/x", random(4095))
	r.put(t, "/bucket/x", random(4096))
	r.get(t, "/bucket/x", "bytes=0-4094")
	r.get(t, "/bucket/x", "bytes=0-4095")
	r.get(t, "/bucket/x", "bytes=1-2,5-6")
	r.seen.want(t, "PUT /bucket/x", "PUT /bucket/x token", "GET /bucket/x", "GET /bucket/x token", "GET /bucket/x")
}

// TestLongObject: an object longer than the offered memory comes over HTTP.
func TestLongObject(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true, GetBytes: 1000}, ServerOptions{}, nil)
	for _, n := range []int{999, 1000, 1001} {
		b := random(n)
		r.put(t, "/bucket/x", b)
		if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, b) {
			t.Errorf("GET of %d bytes has %d", n, len(got))
		}
	}
	// A full window could hold a part of an object, so it isn't believed.
	r.seen.want(t, "PUT /bucket/x token", "GET /bucket/x token", "PUT /bucket/x token", "GET /bucket/x token", "GET /bucket/x", "PUT /bucket/x token", "GET /bucket/x token")
	if s := r.server.Stats(); s.Declined != 1 {
		t.Errorf("the server counts %+v", s)
	}
}

// TestErrors: errors of the store arrive as they are.
func TestErrors(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	if status, body := r.get(t, "/bucket/none", ""); status != http.StatusNotFound || string(body) != "NoSuchKey\n" {
		t.Errorf("%d, %q", status, body)
	}
	r.put(t, "/bucket/x", random(100))
	if status, _ := r.get(t, "/bucket/x", "bytes=200-300"); status != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("%d", status)
	}
	r.seen.want(t, "GET /bucket/none token", "PUT /bucket/x token", "GET /bucket/x token")
}

// TestDeclined: a server at its limits, and one that refuses the client's port, get the bodies over HTTP.
func TestDeclined(t *testing.T) {
	for name, o := range map[string]ServerOptions{
		"limit": {Client: func(*http.Request) string { return "same" }, MaxPerClient: 1},
		"port":  {Allow: func(*http.Request, Token) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, o, nil)
			if name == "limit" && !r.server.admit("same") {
				t.Fatal("not admitted")
			}
			b := random(5000)
			if status := r.put(t, "/bucket/x", b); status != http.StatusOK || !bytes.Equal(r.store.get("/bucket/x"), b) || r.store.puts != 1 {
				t.Errorf("%d, %d objects stored", status, r.store.puts)
			}
			if status, got := r.get(t, "/bucket/x", ""); status != http.StatusOK || !bytes.Equal(got, b) {
				t.Errorf("%d, %d bytes", status, len(got))
			}
			r.seen.want(t, "PUT /bucket/x token", "PUT /bucket/x", "GET /bucket/x token")
			if s := r.server.Stats(); s.Declined != 2 {
				t.Errorf("the server counts %+v", s)
			}
			if name == "limit" {
				r.server.leave("same")
				r.put(t, "/bucket/x", b)
				r.seen.want(t, "PUT /bucket/x token")
			}
		})
	}
}

// TestNoMemory: bodies for which there is no registered memory go over HTTP. Free buffers of another size make room, and so do
// bodies that were closed, or read to their end.
func TestNoMemory(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true, MemoryBytes: 1 << 16, GetBytes: 1 << 16}, ServerOptions{}, nil)
	r.put(t, "/bucket/x", random(1<<16+1))
	r.put(t, "/bucket/x", random(1<<16))
	r.put(t, "/bucket/x", random(1<<12))
	r.seen.want(t, "PUT /bucket/x", "PUT /bucket/x token", "PUT /bucket/x token")
	r.put(t, "/bucket/y", random(1<<16+1)) // for which no free buffer makes room
	r.seen.want(t, "PUT /bucket/y")
	if r.client.pool.bytes != 1<<12 {
		t.Errorf("%d bytes are registered", r.client.pool.bytes)
	}
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, r.web.URL+"/bucket/x", nil))(t)
	open := must(r.http.Do(req))(t) // takes all memory, as long as its body is open
	r.get(t, "/bucket/x", "")
	check(t, open.Body.Close())
	r.get(t, "/bucket/x", "")
	r.seen.want(t, "GET /bucket/x token", "GET /bucket/x", "GET /bucket/x token")
	if _, err := open.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a read after Close: %v", err)
	}
	read := must(r.http.Do(req))(t)
	must(io.ReadAll(read.Body))(t) // and never closes it
	r.get(t, "/bucket/x", "")
	r.seen.want(t, "GET /bucket/x token", "GET /bucket/x token")
	if s := r.client.Stats(); s.Fallbacks != 3 {
		t.Errorf("the client counts %+v", s)
	}
}

// TestWrongKey: a request that the client's device refuses fails, the body goes over HTTP, and the lane is good again.
func TestWrongKey(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	b := random(5000)
	r.seen.change = func(req *http.Request) {
		if text := req.Header.Get(headerToken); text != "" {
			tok := must(ParseToken(text))(t)
			tok.RKey ^= 0x5a5a
			req.Header.Set(headerToken, tok.String())
		}
	}
	if status := r.put(t, "/bucket/x", b); status != http.StatusOK || !bytes.Equal(r.store.get("/bucket/x"), b) || r.store.puts != 1 {
		t.Errorf("%d, %d objects stored", status, r.store.puts)
	}
	if status, got := r.get(t, "/bucket/x", ""); status != http.StatusOK || !bytes.Equal(got, b) {
		t.Errorf("%d, %d bytes", status, len(got))
	}
	r.seen.want(t, "PUT /bucket/x token", "PUT /bucket/x", "GET /bucket/x token", "GET /bucket/x")
	r.seen.change = nil
	r.put(t, "/bucket/x", b)
	r.get(t, "/bucket/x", "")
	r.seen.want(t, "PUT /bucket/x token", "GET /bucket/x token")
	if s := r.server.Stats(); s.Failed != 2 || s.Puts != 1 || s.Gets != 1 || s.Lanes != 3 {
		t.Errorf("the server counts %+v", s)
	}
}

// TestBothWays: memory for PUTs can't be written, and memory for GETs can't be read.
func TestBothWays(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	r.store.set("/bucket/evil", random(100))
	var token Token
	r.seen.change = func(req *http.Request) {
		if text := req.Header.Get(headerToken); text != "" {
			token = must(ParseToken(text))(t)
		}
	}
	r.put(t, "/bucket/x", random(100))
	put := token
	r.get(t, "/bucket/x", "")
	for what, try := range map[string]struct {
		op verbs.Opcode
		t  Token
	}{"a write to a PUT's memory": {verbs.OpRDMAWrite, put}, "a read of a GET's memory": {verbs.OpRDMARead, token}} {
		l := must(r.server.take(try.t.port()))(t)
		check(t, l.post(try.op, l.mr, 0, 10, &try.t, 0))
		if wc := (*verbs.WCError)(nil); !errors.As(l.wait(t.Context()), &wc) || wc.Status != verbs.WCRemAccessErr {
			t.Errorf("%s: %v", what, wc)
		}
		r.server.give(l)
	}
}

// TestOutside: no request leaves the memory of its token.
func TestOutside(t *testing.T) {
	r := newRig(t, ClientOptions{}, ServerOptions{}, nil)
	tok := Token{Addr: 0x1000, Size: 100, RKey: 1, DCTN: 1, GID: verbs.GID{1}}
	l := must(r.server.take(tok.port()))(t)
	defer r.server.give(l)
	for _, c := range [][2]int{{0, 101}, {-1, 1}, {100, 1}, {1, 100}, {0, 0}, {0, -1}} {
		if err := l.post(verbs.OpRDMAWrite, l.mr, 0, c[1], &tok, c[0]); err == nil {
			t.Errorf("%d bytes at %d were posted", c[1], c[0])
		}
	}
}

// TestRevoke: a token is worth nothing after its request if the client says so, and after a request without an answer in any
// case.
func TestRevoke(t *testing.T) {
	for _, revoke := range []bool{false, true} {
		t.Run(fmt.Sprint("revoke=", revoke), func(t *testing.T) {
			r := newRig(t, ClientOptions{MinBytes: 1, Assume: true, Revoke: revoke}, ServerOptions{}, nil)
			var token Token
			r.seen.change = func(req *http.Request) { token, _ = ParseToken(req.Header.Get(headerToken)) }
			usable := func() bool {
				l := must(r.server.take(token.port()))(t)
				defer r.server.give(l)
				check(t, l.post(verbs.OpRDMARead, l.mr, 0, 10, &token, 0))
				return l.wait(t.Context()) == nil
			}
			r.put(t, "/bucket/x", random(100))
			if usable() == revoke {
				t.Errorf("after its request, the token is usable: %v", !revoke)
			}
			// The connection breaks after the request has arrived.
			r.seen.answer = func(resp *http.Response) { panic(http.ErrAbortHandler) }
			r.seen.next = roundTripper(func(req *http.Request) (*http.Response, error) { return nil, errors.New("broken") })
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPut, r.web.URL+"/bucket/x", bytes.NewReader(random(100))))(t)
			if _, err := r.http.Do(req); err == nil {
				t.Fatal("no error")
			}
			if usable() {
				t.Error("after a request without an answer, the token is usable")
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMemory: a body in the caller's memory isn't copied, and comes there whatever way it takes.
func TestMemory(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	b := random(10_000)
	mr := must(r.client.PD().AllocMR(1<<16, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite}))(t)
	defer mr.Close()
	const off = 4711
	copy(mr.Bytes()[off:], b)
	put := func(body io.Reader) (*http.Response, error) {
		ctx := WithMemory(t.Context(), mr, off, len(b))
		req := must(http.NewRequestWithContext(ctx, http.MethodPut, r.web.URL+"/bucket/x", body))(t)
		req.ContentLength = int64(len(b))
		return r.http.Do(req)
	}
	get := func(n int) (*http.Response, error) {
		clear(mr.Bytes())
		return r.http.Do(must(http.NewRequestWithContext(WithMemory(t.Context(), mr, off, n), http.MethodGet, r.web.URL+"/bucket/x", nil))(t))
	}
	resp := must(put(Unreadable(int64(len(b)))))(t)
	check(t, resp.Body.Close())
	if !bytes.Equal(r.store.get("/bucket/x"), b) {
		t.Error("other bytes were stored")
	}
	for _, n := range []int{len(b), len(b) + 1, 50_000} {
		resp = must(get(n))(t)
		if !bytes.Equal(mr.Bytes()[off:off+len(b)], b) {
			t.Error("the memory has other bytes")
		}
		check(t, resp.Body.Close())
	}
	if s := r.client.Stats(); s.Copied != 0 || s.Puts != 1 || s.Gets != 3 || s.Fallbacks != 0 {
		t.Errorf("the client counts %+v", s)
	}
	// Over HTTP.
	r.web.Config.Handler = r.store
	resp = must(put(bytes.NewReader(b)))(t)
	check(t, resp.Body.Close())
	if !bytes.Equal(r.store.get("/bucket/x"), b) {
		t.Error("other bytes were stored over HTTP")
	}
	if _, err := put(Unreadable(int64(len(b)))); !errors.Is(err, ErrUnreadable) {
		t.Errorf("a body that can't be read, over HTTP: %v", err)
	}
	if got := r.store.get("/bucket/x"); len(got) != 0 { // it has ignored the token
		t.Errorf("%d bytes were stored", len(got))
	}
	r.store.set("/bucket/x", b)
	resp = must(get(len(b)))(t)
	if got := must(io.ReadAll(resp.Body))(t); !bytes.Equal(mr.Bytes()[off:off+len(b)], b) || !bytes.Equal(got, b) {
		t.Error("the memory has other bytes after a GET over HTTP")
	}
	check(t, resp.Body.Close())
	if _, err := get(len(b) - 1); err == nil {
		t.Error("a body longer than the memory is no error")
	}
	// Memory that isn't the MR's.
	ctx := WithMemory(t.Context(), mr, 1<<16-10, 11)
	r.client.learn(strings.TrimPrefix(r.web.URL, "http://"), host{})
	if _, err := r.http.Do(must(http.NewRequestWithContext(ctx, http.MethodGet, r.web.URL+"/bucket/x", nil))(t)); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("memory beyond the MR: %v", err)
	}
}

// TestMemoryElsewhere: a GET of anything but an object leaves the caller's memory alone.
func TestMemoryElsewhere(t *testing.T) {
	const answer = "<LocationConstraint/>"
	r := newRig(t, ClientOptions{}, ServerOptions{}, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { must(io.WriteString(w, answer))(t) })
	})
	mr := must(r.client.PD().AllocMR(10, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))(t)
	defer mr.Close()
	for _, path := range []string{"/bucket/?location", "/"} {
		req := must(http.NewRequestWithContext(WithMemory(t.Context(), mr, 0, 10), http.MethodGet, r.web.URL+path, nil))(t)
		resp := must(r.http.Do(req))(t)
		if b := must(io.ReadAll(resp.Body))(t); string(b) != answer || mr.Bytes()[0] != 0 {
			t.Errorf("%s: %q, and in memory %q", path, b, mr.Bytes())
		}
		check(t, resp.Body.Close())
	}
}

// TestRepeated: net/http repeats a GET whose connection breaks. The memory of the first one, which has no answer, isn't used
// again.
func TestRepeated(t *testing.T) {
	var mu sync.Mutex // a connection's goroutine may still serve when the next connection's starts
	var tokens []string
	r := newRig(t, ClientOptions{MinBytes: 1}, ServerOptions{}, nil)
	r.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		tokens = append(tokens, q.Header.Get(headerToken))
		n := len(tokens)
		mu.Unlock()
		if n == 2 {
			panic(http.ErrAbortHandler)
		}
		r.server.ServeHTTP(w, q)
	})
	b := random(5000)
	r.store.set("/bucket/x", b)
	for range 3 {
		if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, b) {
			t.Errorf("got %d bytes", len(got))
		}
	}
	r.seen.want(t, "GET /bucket/x token", "GET /bucket/x token", "GET /bucket/x token")
	mu.Lock()
	defer mu.Unlock()
	if len(tokens) != 4 || tokens[2] != tokens[1] || tokens[3] == tokens[2] {
		t.Errorf("the tokens are %q", tokens)
	}
}

// TestGzip: an object with Content-Encoding: gzip comes unpacked or not as over HTTP, over both variants.
func TestGzip(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	must(z.Write(random(1000)))(t)
	check(t, z.Close())
	handler := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(packed.Len())) // which ServeContent leaves to gzip
		http.ServeContent(w, q, "x", time.Time{}, bytes.NewReader(packed.Bytes()))
	})
	for name, accept := range map[string]string{"unpacked": "", "packed": "identity"} {
		for _, rc := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, rc=%t", name, rc), func(t *testing.T) {
				var url string
				var client *http.Client
				if rc {
					r := newRCRig(t, ClientOptions{}, RCServerOptions{})
					r.server.next, url, client = handler, r.web.URL, r.http
				} else {
					r := newRig(t, ClientOptions{MinBytes: 1}, ServerOptions{}, func(http.Handler) http.Handler { return handler })
					url, client = r.web.URL, r.http
				}
				req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/bucket/x", nil))(t)
				want := random(1000)
				if accept != "" {
					req.Header.Set("Accept-Encoding", accept)
					want = packed.Bytes()
				}
				resp := must(client.Do(req))(t)
				defer resp.Body.Close()
				if got := must(io.ReadAll(resp.Body))(t); !bytes.Equal(got, want) || resp.Uncompressed != (accept == "") {
					t.Errorf("got %d bytes, want %d; unpacked: %t", len(got), len(want), resp.Uncompressed)
				}
				if s := client.Transport.(*Client).Stats(); (s.Gets == 1) != (accept != "") {
					t.Errorf("the client counts %+v", s)
				}
			})
		}
	}
}

// TestSignature: a request's signature holds behind the Server, also one of its body and its length, and the
// Server hides a token that isn't signed. A Client that signs has the token signed, and nothing of the body.
func TestSignature(t *testing.T) {
	var seen http.Header
	front := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r.Header.Clone()
			var body bytes.Buffer
			sum := sha256.New()
			must(io.Copy(io.MultiWriter(&body, sum), r.Body))(t)
			if want := r.Header.Get("X-Amz-Content-Sha256"); want != "UNSIGNED-PAYLOAD" && r.Method == http.MethodPut && want != hex.EncodeToString(sum.Sum(nil)) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			r.Body = io.NopCloser(&body)
			next.ServeHTTP(w, r)
		})
	}
	signed := "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=content-length;host;x-amz-content-sha256, Signature=c"
	resign := "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;x-amz-content-sha256;x-amz-rdma-token, Signature=d"
	for _, sign := range []bool{false, true} {
		t.Run(fmt.Sprint("sign=", sign), func(t *testing.T) {
			o := ClientOptions{MinBytes: 1, Assume: true}
			if sign {
				o.Sign = func(r *http.Request) error {
					r.Header.Set("Authorization", resign)
					return nil
				}
			}
			r := newRig(t, o, ServerOptions{}, front)
			b := random(5000)
			sum := sha256.Sum256(b)
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPut, r.web.URL+"/bucket/x", bytes.NewReader(b)))(t)
			req.Header.Set("Authorization", signed)
			req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
			before := req.Header.Clone()
			resp := must(r.http.Do(req))(t)
			check(t, resp.Body.Close())
			if resp.StatusCode != http.StatusOK || !bytes.Equal(r.store.get("/bucket/x"), b) {
				t.Errorf("%d", resp.StatusCode)
			}
			r.seen.want(t, "PUT /bucket/x token")
			if seen.Get("Content-Length") != "5000" || seen.Get(headerToken) != "" != sign || seen.Get("Authorization") != map[bool]string{false: signed, true: resign}[sign] {
				t.Errorf("the handler gets %v", seen)
			}
			if fmt.Sprint(req.Header) != fmt.Sprint(before) {
				t.Errorf("the caller's request was changed: %v", req.Header)
			}
		})
	}
	// A body in signed chunks is no object.
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	for name, value := range map[string]string{"X-Amz-Content-Sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "Content-Encoding": "gzip,aws-chunked"} {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPut, r.web.URL+"/bucket/x", bytes.NewReader(random(500))))(t)
		req.Header.Set(name, value)
		resp := must(r.http.Do(req))(t)
		check(t, resp.Body.Close())
		r.seen.want(t, "PUT /bucket/x")
	}
}

// TestUnconfirmed: a PUT counts as done only if the server confirms it.
func TestUnconfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*http.Response)
		again  bool
	}{
		"no reply":       {func(resp *http.Response) { resp.Header.Del(headerReply) }, true},
		"declined":       {func(resp *http.Response) { resp.Header.Set(headerReply, "501") }, true},
		"fewer bytes":    {func(resp *http.Response) { resp.Header.Set(headerBytes, "99") }, true},
		"no count":       {func(resp *http.Response) { resp.Header.Del(headerBytes) }, false},
		"RC's form":      {func(resp *http.Response) { resp.Header.Set(headerReply, "200:00") }, false},
		"another sum":    {func(resp *http.Response) { resp.Header.Del(headerReply); resp.Header.Set("X-Amz-Checksum-Crc32c", "y") }, true},
		"the sum":        {func(resp *http.Response) { resp.Header.Del(headerReply); resp.Header.Set("X-Amz-Checksum-Crc32c", "x") }, false},
		"the sum's type": {func(resp *http.Response) { resp.Header.Del(headerReply); resp.Header.Set("X-Amz-Checksum-Type", "t") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
			r.seen.answer = func(resp *http.Response) {
				if resp.Request.Header.Get(headerToken) != "" {
					c.answer(resp)
				}
			}
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPut, r.web.URL+"/bucket/x", bytes.NewReader(random(100))))(t)
			req.Header.Set("X-Amz-Checksum-Crc32c", "x")
			req.Header.Set("X-Amz-Checksum-Type", "t")
			resp := must(r.http.Do(req))(t)
			check(t, resp.Body.Close())
			if c.again {
				r.seen.want(t, "PUT /bucket/x token", "PUT /bucket/x")
			} else {
				r.seen.want(t, "PUT /bucket/x token")
			}
			if resp.StatusCode != http.StatusOK || !bytes.Equal(r.store.get("/bucket/x"), random(100)) {
				t.Errorf("%d", resp.StatusCode)
			}
		})
	}
}

// TestInconsistent: an answer to a GET that contradicts itself isn't believed.
func TestInconsistent(t *testing.T) {
	for name, answer := range map[string]func(*http.Response){
		"no count":       func(resp *http.Response) { resp.Header.Del(headerBytes) },
		"too many bytes": func(resp *http.Response) { resp.Header.Set(headerBytes, "101") },
		"negative":       func(resp *http.Response) { resp.Header.Set(headerBytes, "-1") },
		"other range":    func(resp *http.Response) { resp.Header.Set("Content-Range", "bytes 0-50/1000") },
		"no range":       func(resp *http.Response) { resp.Header.Set("Content-Range", "bytes */1000") },
		"a body":         func(resp *http.Response) { resp.ContentLength = 100 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ClientOptions{MinBytes: 1}, ServerOptions{}, nil)
			b := random(1000)
			r.store.set("/bucket/x", b)
			r.seen.answer = func(resp *http.Response) {
				if resp.Request.Header.Get(headerToken) != "" {
					answer(resp)
				}
			}
			if status, got := r.get(t, "/bucket/x", "bytes=100-199"); status != http.StatusPartialContent || !bytes.Equal(got, b[100:200]) {
				t.Errorf("%d, %d bytes", status, len(got))
			}
			r.seen.want(t, "GET /bucket/x token", "GET /bucket/x")
		})
	}
}

// TestBadToken: a malformed token is refused, one of RC is declined, and one beside a body is not used.
func TestBadToken(t *testing.T) {
	r := newRig(t, ClientOptions{}, ServerOptions{}, nil)
	r.store.set("/bucket/x", []byte("body"))
	for _, c := range []struct {
		method, token, body string
		status              int
		reply, want         string
	}{
		{"GET", "x", "", http.StatusBadRequest, "", "<Code>InvalidRDMAToken</Code>"},
		{"PUT", "0:1:2", "", http.StatusBadRequest, "", "<Code>InvalidRDMAToken</Code>"},
		{"GET", exampleRC, "", http.StatusOK, "501", "body"},
		{"PUT", exampleRC, "", http.StatusNotImplemented, "501", "<Code>RDMANotSupported</Code>"},
		{"PUT", published, "content", http.StatusOK, "501", ""},
		{"HEAD", "x", "", http.StatusOK, "", ""},
		{"POST", "x", "", http.StatusMethodNotAllowed, "", ""},
	} {
		req := must(http.NewRequestWithContext(t.Context(), c.method, r.web.URL+"/bucket/x", strings.NewReader(c.body)))(t)
		req.Header.Set(headerToken, c.token)
		resp := must(r.seen.RoundTrip(req))(t)
		body := must(io.ReadAll(resp.Body))(t)
		check(t, resp.Body.Close())
		if resp.StatusCode != c.status || resp.Header.Get(headerReply) != c.reply || !strings.Contains(string(body), c.want) {
			t.Errorf("%s %s: %d, reply %q, %s", c.method, c.token, resp.StatusCode, resp.Header.Get(headerReply), body)
		}
	}
	if got := r.store.get("/bucket/x"); string(got) != "content" {
		t.Errorf("stored %q", got)
	}
}

// TestUnread: a handler that answers without reading the body moves nothing, and one that leaves bytes behind doesn't count as
// done.
func TestUnread(t *testing.T) {
	for _, n := range []int64{0, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 16}, func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { must(io.CopyN(io.Discard, r.Body, n))(t) })
			})
			if status := r.put(t, "/bucket/x", random(1000)); status != http.StatusOK {
				t.Errorf("%d", status)
			}
			r.seen.want(t, "PUT /bucket/x token", "PUT /bucket/x")
			if s := r.server.Stats(); s.Bytes != uint64(n) || s.Failed != 0 {
				t.Errorf("the server counts %+v", s)
			}
		})
	}
}

// TestStuckReader: a handler may answer while the reader of its body hangs, as that of a proxy does when the
// server behind it refuses a long body.
func TestStuckReader(t *testing.T) {
	release, stuck := make(chan bool), make(chan bool)
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 16}, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			go io.Copy(writerFunc(func(b []byte) (int, error) {
				close(stuck)
				<-release
				return 0, io.ErrClosedPipe
			}), r.Body)
			<-stuck
			w.WriteHeader(http.StatusNotFound)
			close(release)
		})
	})
	if status := r.put(t, "/bucket/x", random(1000)); status != http.StatusNotFound {
		t.Errorf("%d", status)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestWrongLength: a body that is shorter or longer than its length, or fails at its end, is an error, as with net/http.
func TestWrongLength(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	for name, body := range map[string]io.Reader{
		"short": bytes.NewReader(random(999)), "long": bytes.NewReader(random(1001)),
		"broken": io.MultiReader(bytes.NewReader(random(1000)), Unreadable(1)),
	} {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPut, r.web.URL+"/bucket/x", io.NopCloser(body)))(t)
		req.ContentLength = 1000
		if resp, err := r.http.Do(req); err == nil {
			t.Errorf("%s: %s", name, resp.Status)
			check(t, resp.Body.Close())
		}
	}
	r.seen.want(t)
	if r.store.get("/bucket/x") != nil || r.client.pool.free[forPut][smallest] == nil {
		t.Error("an object was stored, or no memory is free")
	}
}

// TestHangingBody: a PUT whose body's reader hangs ends with its context.
func TestHangingBody(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, nil)
	body, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = w.Write(random(10))
		cancel()
	}()
	req := must(http.NewRequestWithContext(ctx, http.MethodPut, r.web.URL+"/bucket/x", body))(t)
	req.ContentLength = 1000
	if resp, err := r.http.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", resp, err)
	}
	check(t, w.CloseWithError(io.ErrNoProgress))
	until(t, func() bool {
		r.client.pool.mu.Lock()
		defer r.client.pool.mu.Unlock()
		return r.client.pool.free[forPut][smallest] != nil
	})
	r.seen.want(t)
}

// TestFlush: a handler may begin its answer by Flush.
func TestFlush(t *testing.T) {
	b := random(1000)
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{}, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			must(io.Copy(io.Discard, q.Body))(t)
			if q.Method == http.MethodGet {
				w.Header().Set("Content-Length", "1000")
			}
			check(t, http.NewResponseController(w).Flush())
			if q.Method == http.MethodGet {
				must(w.Write(b))(t)
			}
		})
	})
	r.put(t, "/bucket/x", b)
	if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, b) {
		t.Errorf("got %d bytes", len(got))
	}
	r.seen.want(t, "PUT /bucket/x token", "GET /bucket/x token")
}

// TestTwoHeaders: a second WriteHeader has no effect, as with net/http.
func TestTwoHeaders(t *testing.T) {
	b := random(1000)
	r := newRig(t, ClientOptions{MinBytes: 1}, ServerOptions{}, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusOK)
			w.WriteHeader(http.StatusAccepted)
			must(w.Write(b))(t)
		})
	})
	if status, got := r.get(t, "/bucket/x", ""); status != http.StatusOK || !bytes.Equal(got, b) {
		t.Errorf("%d, %d bytes", status, len(got))
	}
	r.seen.want(t, "GET /bucket/x token")
}

// TestStrict: the handler behind a Server never sees a token that isn't signed. And a host that refuses tokens gets
// none for some time.
func TestStrict(t *testing.T) {
	b := random(1000)
	strict := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get(headerToken) != "" {
				http.Error(w, "There were headers present in the request which were not signed", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, q)
		})
	}
	r := newRig(t, ClientOptions{MinBytes: 1}, ServerOptions{Allow: func(*http.Request, Token) bool { return false }}, strict)
	r.store.set("/bucket/x", b)
	get := func() {
		t.Helper()
		if status, got := r.get(t, "/bucket/x", ""); status != http.StatusOK || !bytes.Equal(got, b) {
			t.Errorf("%d, %d bytes", status, len(got))
		}
	}
	get()
	r.seen.want(t, "GET /bucket/x token")

	r.client.mu.Lock()
	clear(r.client.hosts)
	r.client.mu.Unlock()
	r.web.Config.Handler = strict(r.store)
	get()
	get()
	r.seen.want(t, "GET /bucket/x token", "GET /bucket/x", "GET /bucket/x")
}

// TestShortAnswer: a handler that writes less than it promised, or more, or panics, or writes nothing.
func TestShortAnswer(t *testing.T) {
	b := random(1000)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		status int
		body   []byte
		direct bool
	}{
		"short": {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1000"); w.Write(b[:999]) }, http.StatusOK, nil, false},
		"exact": {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1000"); w.Write(b) }, http.StatusOK, b, true},
		"long": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			if n, err := w.Write(random(1001)); n != 1000 || !errors.Is(err, http.ErrContentLength) {
				t.Errorf("wrote %d, %v", n, err)
			}
		}, http.StatusOK, random(1001)[:1000], true},
		"empty":   {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "0") }, http.StatusOK, []byte{}, false},
		"unknown": {func(w http.ResponseWriter) { w.Write(b) }, http.StatusOK, b, false},
		"status":  {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1000"); w.WriteHeader(201); w.Write(b) }, http.StatusCreated, b, false},
		"flushed": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			w.Write(b[:10])
			check(t, http.NewResponseController(w).Flush())
			w.Write(b[10:])
		}, http.StatusOK, b, true},
		"streamed": {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1000"); io.Copy(w, bytes.NewBuffer(b)) }, http.StatusOK, b, true},
		"silent":   {func(w http.ResponseWriter) {}, http.StatusOK, []byte{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 100}, func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.answer(w) })
			})
			resp := must(r.http.Get(r.web.URL + "/bucket/x"))(t)
			got, err := io.ReadAll(resp.Body)
			check(t, resp.Body.Close())
			if c.body == nil { // over HTTP it's an error, too
				if err == nil {
					t.Error("a short answer is no error")
				}
			} else if err != nil || !bytes.Equal(got, c.body) || resp.StatusCode != c.status {
				t.Errorf("%d, %d bytes, %v", resp.StatusCode, len(got), err)
			}
			if s := r.client.Stats(); s.Gets == 1 != c.direct && name != "empty" {
				t.Errorf("the client counts %+v", s)
			}
		})
	}
}

// TestQuietBeforeAnswer: when an error is answered, nothing writes to the client's memory any more, which the client takes
// for another body.
func TestQuietBeforeAnswer(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1}, ServerOptions{ChunkBytes: 100}, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Length", "1000")
			must(w.Write(random(500)))(t)
		})
	})
	r.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.server.ServeHTTP(&headerWriter{w, func(int) {
			if q.Header.Get(headerToken) != "" && len(r.server.idle) != 1 {
				t.Error("the lane is in use")
			}
		}}, q)
	})
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, r.web.URL+"/bucket/x", nil))(t)
	if resp, err := r.http.Do(req); err == nil {
		check(t, resp.Body.Close())
	}
	if s := r.server.Stats(); s.Failed != 1 {
		t.Errorf("the server counts %+v", s)
	}
}

// A headerWriter is told of the answer's status.
type headerWriter struct {
	http.ResponseWriter
	begins func(status int)
}

func (w *headerWriter) WriteHeader(status int) {
	w.begins(status)
	w.ResponseWriter.WriteHeader(status)
}

// TestAborted: a handler that gives up in the middle ends the transfer, and leaves the lane for the next one.
func TestAborted(t *testing.T) {
	var abort atomic.Bool
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 100, MaxTransfers: 1}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !abort.Load() {
				next.ServeHTTP(w, r)
				return
			}
			if r.Method == http.MethodPut {
				must(io.CopyN(io.Discard, r.Body, 150))(t)
			} else {
				w.Header().Set("Content-Length", "1000")
				must(w.Write(random(450)))(t)
			}
			panic(http.ErrAbortHandler)
		})
	})
	for range 3 {
		abort.Store(true)
		for _, method := range []string{http.MethodPut, http.MethodGet} {
			req := must(http.NewRequestWithContext(t.Context(), method, r.web.URL+"/bucket/x", nil))(t)
			if method == http.MethodPut {
				req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(random(1000))), 1000
			}
			if resp, err := r.http.Do(req); err == nil {
				t.Errorf("%s: %v", method, resp.Status)
			}
		}
		abort.Store(false)
		until(t, func() bool { // the server's side may end a little later
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			return r.server.active == 0
		})
		r.put(t, "/bucket/x", random(1000))
		if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, random(1000)) {
			t.Errorf("%d bytes", len(got))
		}
	}
	if s := r.client.Stats(); s.Puts != 3 || s.Gets != 3 || s.Fallbacks != 0 {
		t.Errorf("the client counts %+v", s)
	}
}

// TestClientGone: a request whose client goes away in the middle ends, though its RDMA requests have no
// answer.
func TestClientGone(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 100}, nil)
	r.store.set("/bucket/x", random(1000))
	for _, method := range []string{http.MethodPut, http.MethodGet} {
		gone := make(chan bool, 1)
		r.net.SetFault(func(q verbstest.Request) verbstest.Fault {
			if q.Opcode == verbs.OpRDMARead || q.Opcode == verbs.OpRDMAWrite {
				select {
				case gone <- true:
				default:
				}
				return verbstest.Hold()
			}
			return verbstest.Fault{}
		})
		ctx, cancel := context.WithCancel(t.Context())
		req := must(http.NewRequestWithContext(ctx, method, r.web.URL+"/bucket/x", nil))(t)
		if method == http.MethodPut {
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(random(1000))), 1000
		}
		go func() {
			<-gone
			cancel()
		}()
		if _, err := r.http.Do(req); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", method, err)
		}
		until(t, func() bool {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			return r.server.active == 0
		})
		r.net.SetFault(nil)
	}
	r.put(t, "/bucket/x", random(1000))
	if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, random(1000)) {
		t.Errorf("%d bytes", len(got))
	}
	if s := r.server.Stats(); s.Failed != 2 || s.Puts != 1 || s.Gets != 1 {
		t.Errorf("the server counts %+v", s)
	}
}

// TestMany: many requests at once share the lanes, and none gets another's bytes.
func TestMany(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true, GetBytes: 1 << 16}, ServerOptions{ChunkBytes: 1000, MaxTransfers: 3}, nil)
	ended := make(chan error)
	const clients, rounds = 8, 20
	for i := range clients {
		go func() {
			ended <- func() error {
				for j := range rounds {
					path, b := fmt.Sprintf("/bucket/%d", i), random(1+(i*7919+j*104729)%30_000)
					if status := r.put(t, path, b); status != http.StatusOK {
						return fmt.Errorf("PUT: %d", status)
					}
					if status, got := r.get(t, path, ""); status != http.StatusOK || !bytes.Equal(got, b) {
						return fmt.Errorf("GET: %d, %d bytes, want %d", status, len(got), len(b))
					}
				}
				return nil
			}()
		}()
	}
	for range clients {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	c, s := r.client.Stats(), r.server.Stats()
	if c.Puts+c.Gets+c.Fallbacks != 2*clients*rounds || c.Puts != s.Puts || c.Gets != s.Gets || s.Lanes > 3 || s.Failed != 0 {
		t.Errorf("the client counts %+v, the server %+v", c, s)
	}
}

// TestNoDC: a device without DC is refused, and nothing is left behind.
func TestNoDC(t *testing.T) {
	verbstest.New(t)
	dev := must(verbs.Open(""))(t)
	defer dev.Close()
	if c, err := NewClient(dev, ClientOptions{}); !errors.Is(err, verbs.ErrNotSupported) || c != nil {
		t.Errorf("%v", err)
	}
	if s, err := NewServer(dev, nil, ServerOptions{}); !errors.Is(err, verbs.ErrNotSupported) || s != nil {
		t.Errorf("%v", err)
	}
	for _, o := range []ClientOptions{{MinBytes: -1}, {GetBytes: -1}, {GetBytes: MaxBytes + 1}, {MemoryBytes: -1}} {
		if _, err := NewClient(dev, o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []ServerOptions{{MaxTransfers: -1}, {MaxPerClient: -1}, {ChunkBytes: -1}, {ChunkBytes: MaxBytes + 1}} {
		if _, err := NewServer(dev, nil, o); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestMemoryReader: an answer's body goes from registered memory, whole, in ranges and between other bytes, by RDMA without a
// copy, and over HTTP.
func TestMemoryReader(t *testing.T) {
	const off, n = 100, 10_000
	object := random(n)
	var mr *verbs.MR
	mixed := false
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		m := NewMemoryReader(mr, off, n)
		if !mixed {
			http.ServeContent(w, req, "", time.Time{}, m)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(1500+n+n-5000+1))
		must(w.Write(object[:1500]))(t)
		must(io.Copy(w, m))(t)
		must(m.Seek(-n+5000, io.SeekEnd))(t)
		must(io.CopyN(w, m, n-5000))(t)
		must(w.Write(object[:1]))(t)
	})
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 1000}, func(http.Handler) http.Handler { return handler })
	mr = must(r.server.PD().AllocMR(off+n+1, verbs.MROptions{}))(t)
	defer func() { check(t, mr.Close()) }()
	copy(mr.Bytes()[off:], object)
	gets := func(client *http.Client) {
		t.Helper()
		r.http = client
		mixed = false
		if status, got := r.get(t, "/bucket/x", ""); status != http.StatusOK || !bytes.Equal(got, object) {
			t.Errorf("%d, %d bytes", status, len(got))
		}
		for _, rg := range [][2]int{{0, 0}, {1, n - 1}, {2500, 7499}} {
			if status, got := r.get(t, "/bucket/x", fmt.Sprintf("bytes=%d-%d", rg[0], rg[1])); status != http.StatusPartialContent || !bytes.Equal(got, object[rg[0]:rg[1]+1]) {
				t.Errorf("%v: %d, %d bytes", rg, status, len(got))
			}
		}
		mixed = true
		if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, slices.Concat(object[:1500], object, object[5000:], object[:1])) {
			t.Errorf("mixed: %d bytes, or others", len(got))
		}
	}
	var writes atomic.Int64
	r.net.SetFault(func(q verbstest.Request) verbstest.Fault {
		if q.Opcode == verbs.OpRDMAWrite {
			writes.Add(1)
		}
		return verbstest.Fault{}
	})
	gets(r.http)
	// One write for each piece of the memory, and two and one for the other bytes.
	if s := r.server.Stats(); s.Gets != 5 || s.Failed != 0 || s.Copied != 1501 || writes.Load() != 4+2+2+1 {
		t.Errorf("%d writes, and the server counts %+v", writes.Load(), s)
	}
	gets(r.web.Client())
	// A request that fails leaves the memory.
	r.seen.change = func(req *http.Request) {
		if text := req.Header.Get(headerToken); text != "" {
			tok := must(ParseToken(text))(t)
			tok.RKey ^= 0x5a5a
			req.Header.Set(headerToken, tok.String())
		}
	}
	r.http = &http.Client{Transport: r.client}
	mixed = false
	if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, object) || r.server.Stats().Failed != 1 {
		t.Errorf("%d bytes, and the server counts %+v", len(got), r.server.Stats())
	}
}
