package s3rdma

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// An rcRig has a Client and an RCServer on one device. A signature is the sender's name.
type rcRig struct {
	net    *verbstest.Network
	store  *store
	server *RCServer
	web    *httptest.Server
	client *Client
	http   *http.Client
	seen   *recorder
}

func newRCRig(t testing.TB, co ClientOptions, so RCServerOptions) *rcRig {
	r := &rcRig{net: verbstest.New(t), store: newStore(), seen: &recorder{next: new(http.Transport)}}
	dev := must(verbs.Open(""))(t)
	t.Cleanup(func() { check(t, dev.Close()) })
	so.Authorize = func(r *http.Request, method, path string) (string, error) {
		who := r.Header.Get("Authorization")
		if who == "" || path == "/bucket/secret" {
			return "", errors.New("go away")
		}
		return who, nil
	}
	r.server = must(NewRCServer(dev, r.store, so))(t)
	r.web = httptest.NewServer(r.server)
	co.Next, co.MinBytes = r.seen, 1
	co.Sign = func(q *http.Request) error {
		q.Header.Set("Authorization", "me")
		return nil
	}
	r.client = must(NewRCClient(dev, co))(t)
	r.http = &http.Client{Transport: r.client}
	t.Cleanup(func() {
		r.seen.next.(*http.Transport).CloseIdleConnections()
		r.web.Close()
		check(t, r.client.Close())
		until(t, func() bool { return r.server.Close() == nil })
	})
	return r
}

func (r *rcRig) do(t testing.TB, method, path string, b []byte, header ...string) (*http.Response, []byte) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), method, r.web.URL+path, bytes.NewReader(b)))(t)
	if len(header) > 0 {
		req.Header.Set(header[0], header[1])
	}
	resp := must(r.http.Do(req))(t)
	got := must(io.ReadAll(resp.Body))(t)
	check(t, resp.Body.Close())
	return resp, got
}

// TestRC: bodies go over connections of their own, whole and in ranges, and come with the object's headers.
func TestRC(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{})
	sum := uint64(0)
	sizes := []int{1, 4096, 100_001, 1 << 20}
	for _, n := range sizes {
		b, path := random(n), "/bucket/a key/"+strconv.Itoa(n)
		resp, _ := r.do(t, http.MethodPut, strings.ReplaceAll(path, " ", "%20"), b)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") != strconv.Itoa(n) || !bytes.Equal(r.store.get(path), b) {
			t.Errorf("PUT of %d bytes: %s, %v", n, resp.Status, resp.Header)
		}
		r.seen.want(t, "POST /.hipobj-rc/prepare token", "POST /.hipobj-rc/ready")
		resp, got := r.do(t, http.MethodGet, strings.ReplaceAll(path, " ", "%20"), nil)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("ETag") != `"e"` || !bytes.Equal(got, b) || resp.ContentLength != int64(n) {
			t.Errorf("GET of %d bytes: %s, %d bytes, %v", n, resp.Status, len(got), resp.Header)
		}
		r.seen.want(t, "HEAD "+path, "POST /.hipobj-rc/prepare token", "POST /.hipobj-rc/ready")
		first, last := n/3, n-1
		resp, got = r.do(t, http.MethodGet, strings.ReplaceAll(path, " ", "%20"), nil, "Range", fmt.Sprintf("bytes=%d-%d", first, last))
		if resp.StatusCode != http.StatusPartialContent || !bytes.Equal(got, b[first:]) {
			t.Errorf("GET from %d on: %s, %d bytes", first, resp.Status, len(got))
		}
		r.seen.want(t, "HEAD "+path, "POST /.hipobj-rc/prepare token", "POST /.hipobj-rc/ready")
		sum += uint64(2*n + n - first)
	}
	if got, want := r.client.Stats(), (ClientStats{4, 8, sum, sum, 0}); got != want {
		t.Errorf("the client counts %+v, want %+v", got, want)
	}
}

// TestRCOverHTTP: what the protocol can't express goes over HTTP, and so does what the server refuses.
func TestRCOverHTTP(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{MemoryBytes: 5000})
	b := random(4000)
	for _, h := range [][2]string{{"X-Amz-Meta-Color", "blue"}, {"Content-Type", "text/plain"}, {"X-Amz-Checksum-Crc32", "x"}, {"If-None-Match", "*"}} {
		r.do(t, http.MethodPut, "/bucket/x", b, h[0], h[1])
	}
	r.do(t, http.MethodPut, "/bucket/x?partNumber=1&uploadId=2", b)
	r.seen.want(t, "PUT /bucket/x", "PUT /bucket/x", "PUT /bucket/x", "PUT /bucket/x", "PUT /bucket/x")
	r.do(t, http.MethodPut, "/bucket/x", b, "Content-Type", "application/octet-stream")
	r.seen.want(t, "POST /.hipobj-rc/prepare token", "POST /.hipobj-rc/ready")
	for _, query := range []string{"?versionId=1", "?partNumber=1"} {
		r.do(t, http.MethodGet, "/bucket/x"+query, nil)
		r.seen.want(t, "GET /bucket/x")
	}
	b = random(6000)
	r.do(t, http.MethodPut, "/bucket/x", b)
	_, got := r.do(t, http.MethodGet, "/bucket/x", nil)
	r.seen.want(t, "POST /.hipobj-rc/prepare token", "PUT /bucket/x", "HEAD /bucket/x", "POST /.hipobj-rc/prepare token", "GET /bucket/x")
	if !bytes.Equal(got, b) {
		t.Errorf("%d bytes", len(got))
	}
	r.do(t, http.MethodPut, "/bucket/secret", random(100)) // the store has no secrets
	r.seen.want(t, "POST /.hipobj-rc/prepare token", "PUT /bucket/secret")
	if resp, _ := r.do(t, http.MethodGet, "/bucket/none", nil); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.Status)
	}
	r.web.Config.Handler = r.store
	r.do(t, http.MethodPut, "/bucket/x", random(100))
	_, got = r.do(t, http.MethodGet, "/bucket/x", nil)
	if !bytes.Equal(got, random(100)) {
		t.Errorf("%d bytes", len(got))
	}
}

// TestRCSession: a session belongs to its sender, is used once, and ends when it isn't used.
func TestRCSession(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{MaxSessions: 3, MaxPerClient: 2, Timeout: time.Hour})
	r.store.set("/bucket/x", random(100))
	control := func(step, who string, headers map[string]string) *http.Response {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, r.web.URL+rcPath+step, nil))(t)
		req.Header.Set(headerProtocol, rcProtocol)
		req.Header.Set("Authorization", who)
		for name, value := range headers {
			req.Header.Set(name, value)
		}
		resp := must(r.seen.RoundTrip(req))(t)
		check(t, resp.Body.Close())
		return resp
	}
	good := func() map[string]string {
		return map[string]string{
			headerToken: exampleRC, headerPSN: "000001", headerCookie: "00000001", headerOp: "GET", headerTarget: "/bucket/x", headerSize: "100", headerOffset: "0",
		}
	}
	want := func(resp *http.Response, status int, what string) string {
		t.Helper()
		if resp.StatusCode != status {
			t.Errorf("%s: %s", what, resp.Status)
		}
		return resp.Header.Get(headerSession)
	}
	for name, values := range map[string][]string{
		headerToken: {"", "x", published, strings.Repeat("0", 88)}, headerPSN: {"", "1", "1000000", "00000g"}, headerCookie: {"", "1", "000000001"},
		headerOp: {"", "POST", "get"}, headerTarget: {"", "bucket/x", "/bucket/x?versionId=1", "/.hipobj-rc/ready", "http://h/x", "/%zz"},
		headerOffset: {"-1", "x", "9223372036854775807"},
	} {
		for _, value := range values {
			h := good()
			h[name] = value
			want(control("prepare", "a", h), http.StatusBadRequest, name+" "+value)
		}
	}
	h := good()
	for _, size := range []string{"", "0", "-1", "1073741825", "x"} {
		h[headerSize] = size
		want(control("prepare", "a", h), http.StatusRequestEntityTooLarge, "size "+size)
	}
	h = good()
	h[headerOp], h[headerOffset] = "PUT", "1"
	want(control("prepare", "a", h), http.StatusBadRequest, "a PUT with an offset")
	for _, c := range [][2]string{{headerTarget, "/bucket/none"}, {headerSize, "101"}, {headerOffset, "1"}, {headerOffset, "100"}} {
		h := good()
		h[c[0]] = c[1]
		if resp := control("prepare", "a", h); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
			t.Errorf("%s %s: %s", c[0], c[1], resp.Status)
		}
	}
	want(control("prepare", "", good()), http.StatusForbidden, "a stranger")
	want(control("other", "a", good()), http.StatusNotFound, "another step")
	want(control("prepare", "a", map[string]string{headerProtocol: "hipobj-rc-v3"}), http.StatusNotImplemented, "another protocol")
	if r.server.active != 0 || r.server.bytes != 0 || len(r.server.clients) != 0 {
		t.Errorf("%d sessions are left, with %d bytes", r.server.active, r.server.bytes)
	}

	one := want(control("prepare", "a", good()), http.StatusOK, "the first")
	two := want(control("prepare", "a", good()), http.StatusOK, "the second")
	want(control("prepare", "a", good()), http.StatusTooManyRequests, "too many of one client")
	want(control("prepare", "b", good()), http.StatusOK, "another client's")
	want(control("prepare", "c", good()), http.StatusTooManyRequests, "too many of all")
	if one == two || len(one) != 32 {
		t.Errorf("the sessions are %q and %q", one, two)
	}
	session := func(id string, more ...string) map[string]string {
		h := map[string]string{headerSession: id, headerCookie: "00000001", headerQPN: "1"}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	want(control("cancel", "b", session(one)), http.StatusNotFound, "another's session")
	want(control("ready", "b", session(one)), http.StatusNotFound, "another's session")
	want(control("cancel", "a", session("")), http.StatusNotFound, "no session")
	want(control("cancel", "a", session(one)), http.StatusOK, "one's own session")
	want(control("cancel", "a", session(one)), http.StatusNotFound, "a cancelled session")
	want(control("ready", "a", session(two, headerCookie, "00000002")), http.StatusForbidden, "another cookie")
	want(control("ready", "a", session(two)), http.StatusNotFound, "after that")
	for _, c := range [][2]string{{headerQPN, ""}, {headerQPN, "1000000"}, {headerMRAddr, "x"}, {headerMRRKey, "100000000"}} {
		id := want(control("prepare", "a", good()), http.StatusOK, "again")
		want(control("ready", "a", session(id, c[0], c[1])), http.StatusBadRequest, c[0])
	}
	if r.server.active != 1 {
		t.Errorf("%d sessions are left", r.server.active)
	}
}

// TestRCExpires: a session that isn't used ends.
func TestRCExpires(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{Timeout: time.Millisecond})
	r.store.set("/bucket/x", random(100))
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, r.web.URL+rcPath+"prepare", nil))(t)
	for name, value := range map[string]string{
		headerProtocol: rcProtocol, "Authorization": "a", headerToken: exampleRC, headerPSN: "000001", headerCookie: "00000001", headerOp: "GET", headerTarget: "/bucket/x", headerSize: "100",
	} {
		req.Header.Set(name, value)
	}
	resp := must(r.seen.RoundTrip(req))(t)
	check(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	until(t, func() bool { r.server.mu.Lock(); defer r.server.mu.Unlock(); return r.server.active == 0 })
}

// TestRCFails: a transfer that fails goes over HTTP, whichever side fails, and leaves nothing behind.
func TestRCFails(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{Timeout: 100 * time.Millisecond})
	b := random(1000)
	for _, change := range []func(*http.Request){
		func(q *http.Request) { q.Header.Set(headerMRRKey, "77777777") },
		func(q *http.Request) { q.Header.Set(headerCookie, "12345678") },
		func(q *http.Request) { q.Header.Set(headerQPN, "ffffff") },
		func(q *http.Request) { q.Header.Del(headerSession) },
	} {
		r.seen.change = func(q *http.Request) {
			if strings.HasSuffix(q.URL.Path, "ready") {
				change(q)
			}
		}
		r.do(t, http.MethodPut, "/bucket/x", b)
		resp, got := r.do(t, http.MethodGet, "/bucket/x", nil)
		if resp.StatusCode != http.StatusOK || !bytes.Equal(got, b) || !bytes.Equal(r.store.get("/bucket/x"), b) {
			t.Errorf("%s, %d bytes", resp.Status, len(got))
		}
	}
	if s := r.client.Stats(); s.Fallbacks < 7 { // a PUT needs no key of the client's
		t.Errorf("the client counts %+v", s)
	}
}

// TestRCPanic: a handler that panics, as a proxy does when the server behind it breaks off, leaves no session.
func TestRCPanic(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{MaxSessions: 1})
	b := random(1000)
	r.store.set("/bucket/x", b)
	var well atomic.Bool
	r.server.next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet && q.Header.Get("Authorization") == "" && !well.Load() { // of a session
			panic(http.ErrAbortHandler)
		}
		r.store.ServeHTTP(w, q)
	})
	if _, got := r.do(t, http.MethodGet, "/bucket/x", nil, "Authorization", "me"); !bytes.Equal(got, b) {
		t.Errorf("got %d bytes", len(got))
	}
	well.Store(true)
	r.do(t, http.MethodGet, "/bucket/x", nil)
	if s := r.client.Stats(); s.Gets != 1 || s.Fallbacks != 1 {
		t.Errorf("the client counts %+v", s)
	}
}

// TestRCLateReader: whoever reads the body of a PUT after the handler has returned, as a proxy's transport does when
// the server behind it has answered early, gets an error.
func TestRCLateReader(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{})
	var body io.Reader
	r.server.next = http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { body = q.Body })
	r.do(t, http.MethodPut, "/bucket/x", random(100_000))
	if n, err := body.Read(make([]byte, 1)); n != 0 || err != errBodyClosed {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if s := r.client.Stats(); s.Puts != 1 {
		t.Errorf("the client counts %+v", s)
	}
}

// TestRCAnswers: a handler may write what is no object: the text of an error, or an answer to a PUT.
func TestRCAnswers(t *testing.T) {
	r := newRCRig(t, ClientOptions{}, RCServerOptions{})
	r.store.set("/bucket/x", random(10))
	for _, c := range []struct {
		method string
		body   []byte
		status int
	}{{http.MethodPut, random(10), http.StatusOK}, {http.MethodPut, random(10), http.StatusConflict}, {http.MethodGet, nil, http.StatusNotFound}} {
		r.server.next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodHead {
				r.store.ServeHTTP(w, q)
				return
			}
			must(io.Copy(io.Discard, q.Body))(t)
			w.WriteHeader(c.status)
			if n, err := w.Write(random(100)); n != 100 || err != nil {
				t.Errorf("%s, %d: wrote %d bytes, %v", c.method, c.status, n, err)
			}
		})
		if resp, _ := r.do(t, c.method, "/bucket/x", c.body); resp.StatusCode != c.status {
			t.Errorf("%s: %s, want %d", c.method, resp.Status, c.status)
		}
	}
}
