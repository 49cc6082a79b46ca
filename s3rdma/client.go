package s3rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// The headers of the protocol, in net/http's form.
const (
	headerToken = "X-Amz-Rdma-Token"
	headerReply = "X-Amz-Rdma-Reply"
	headerBytes = "X-Amz-Rdma-Bytes-Transferred"
)

// ClientOptions are the options of NewClient. The zero value has the defaults.
type ClientOptions struct {
	// Next sends the requests; http.DefaultTransport by default.
	Next http.RoundTripper

	GID   verbs.GIDSelector // of the port at which servers reach the memory; by default the device's best
	DCKey uint64            // of the DC target, which servers must know; DefaultDCKey by default

	// MinBytes is the length from which on a body goes by RDMA; 4096 by default. A GET without a Range
	// has no known length, and always may.
	MinBytes int

	// GetBytes is the memory offered for a GET that doesn't say how much it wants; 16 MiB by
	// default. Longer objects come over HTTP. Programs that read large objects ask for ranges.
	GetBytes int

	// MemoryBytes limits the memory that is registered; 256 MiB by default. Bodies that find none go over
	// HTTP.
	MemoryBytes int

	// Assume says that all hosts know the protocol. Without it, a PUT goes by RDMA only to a host that
	// has answered a GET or an earlier PUT with x-amz-rdma-reply. A host that doesn't know the protocol
	// stores an empty object for a moment, until the body follows over HTTP.
	Assume bool

	// Revoke deregisters each buffer when its request ends, so that its token is worth nothing from then on. That
	// costs a registration for each body.
	Revoke bool

	// Sign signs a request again, with the access key of the program: it replaces the header Authorization. It is
	// called for each request with a token, whose X-Amz-Content-Sha256 is then UNSIGNED-PAYLOAD. Servers
	// other than this package's need it.
	Sign func(*http.Request) error
}

// A Client is an http.RoundTripper that moves the bodies of S3 requests by RDMA. Its methods are safe for
// concurrent use.
type Client struct {
	o      ClientOptions
	pd     *verbs.PD
	srq    *verbs.SRQ
	cq     *verbs.CQ
	target *verbs.QP
	port   Token   // the fields that all tokens share
	rc     *rcPort // nil with DC
	pool   pool
	stats  clientStats

	mu    sync.Mutex
	hosts map[string]host
}

// A host is what is known of a server.
type host struct {
	speaks bool      // it has answered with headerReply
	deaf   time.Time // it ignores or refuses tokens, as of then
}

// deafFor is how long a deaf host gets no tokens, and maxHosts how many hosts are remembered.
const (
	deafFor  = time.Minute
	maxHosts = 4096
)

// NewClient creates a Client on a device, which must have DC. It allocates a protection domain, so that tokens
// open nothing but the Client's memory.
func NewClient(dev *verbs.Device, o ClientOptions) (*Client, error) {
	c, gid, err := newClient(dev, o)
	if err != nil {
		return nil, err
	}
	if err := c.listen(dev, gid); err != nil {
		return nil, errors.Join(fmt.Errorf("s3rdma: making a DC target: %w", err), c.Close())
	}
	return c, nil
}

// newClient is NewClient without the DC target.
func newClient(dev *verbs.Device, o ClientOptions) (*Client, verbs.GIDEntry, error) {
	if o.Next == nil {
		o.Next = http.DefaultTransport
	}
	o.DCKey = or(o.DCKey, DefaultDCKey)
	o.MinBytes = or(o.MinBytes, 4096)
	o.GetBytes = or(o.GetBytes, 16<<20)
	o.MemoryBytes = or(o.MemoryBytes, 256<<20)
	if o.MinBytes < 0 || o.GetBytes < 1 || o.GetBytes > MaxBytes || o.MemoryBytes < 0 {
		return nil, verbs.GIDEntry{}, fmt.Errorf("s3rdma: %w: MinBytes %d, GetBytes %d, MemoryBytes %d", verbs.ErrInvalid, o.MinBytes, o.GetBytes, o.MemoryBytes)
	}
	gid, err := dev.FindGID(o.GID)
	if err != nil {
		return nil, gid, fmt.Errorf("s3rdma: %w", err)
	}
	port, err := dev.QueryPort(gid.Port)
	if err != nil {
		return nil, gid, fmt.Errorf("s3rdma: %w", err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, gid, fmt.Errorf("s3rdma: %w", err)
	}
	c := &Client{o: o, pd: pd, port: Token{LID: port.LID, GID: gid.GID}, hosts: make(map[string]host)}
	c.pool.pd, c.pool.max = pd, o.MemoryBytes
	return c, gid, nil
}

func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// listen makes the DC target.
func (c *Client) listen(dev *verbs.Device, gid verbs.GIDEntry) (err error) {
	if c.cq, err = dev.CreateCQ(verbs.CQOptions{MaxCQE: 1, PollOnly: true}); err != nil {
		return err
	}
	if c.srq, err = c.pd.CreateSRQ(verbs.SRQOptions{MaxWR: 1, MaxSGE: 1}); err != nil {
		return err
	}
	if c.target, err = c.pd.CreateQP(verbs.QPOptions{Type: verbs.DCT, SendCQ: c.cq, RecvCQ: c.cq, SRQ: c.srq, DCKey: c.o.DCKey}); err != nil {
		return err
	}
	access := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if err := c.target.Activate(verbs.ActivateOptions{Port: gid.Port, GID: gid, Access: access}); err != nil {
		return err
	}
	c.port.DCTN = c.target.Num()
	return nil
}

// PD returns the protection domain of the Client's memory, for [WithMemory].
func (c *Client) PD() *verbs.PD { return c.pd }

// Close releases the Client's memory and its DC target. It returns an error that matches verbs.ErrBusy as long as
// bodies are open that were not read to their end, or the caller's MRs are, and may be called again. Requests then go over HTTP.
func (c *Client) Close() error {
	c.pool.end()
	return errors.Join(c.target.Close(), c.srq.Close(), c.cq.Close(), c.pd.Close())
}

// CloseIdleConnections closes the idle connections of ClientOptions.Next.
func (c *Client) CloseIdleConnections() {
	if n, ok := c.o.Next.(interface{ CloseIdleConnections() }); ok {
		n.CloseIdleConnections()
	}
}

// ClientStats count what a Client has done.
type ClientStats struct {
	Puts, Gets uint64 // bodies that went by RDMA
	Bytes      uint64 // of these
	Copied     uint64 // bytes that the processor copied for these, on the Client's side
	Fallbacks  uint64 // bodies that were offered, and went over HTTP
}

type clientStats struct{ puts, gets, bytes, copied, fallbacks atomic.Uint64 }

// Stats returns the counts so far.
func (c *Client) Stats() ClientStats {
	s := &c.stats
	return ClientStats{s.puts.Load(), s.gets.Load(), s.bytes.Load(), s.copied.Load(), s.fallbacks.Load()}
}

func (s *clientStats) moved(count *atomic.Uint64, n int) {
	count.Add(1)
	s.bytes.Add(uint64(n))
}

// RoundTrip sends a request, and its body by RDMA where that is possible.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL != nil && len(req.Trailer) == 0 && len(req.URL.Path) > 1 {
		h := c.host(req.URL.Host)
		switch {
		case c.rc != nil:
			if req.Method == http.MethodPut && c.offersPut(req) && rcTakesPut(req) {
				return c.put(req)
			}
			if c.offersGet(req) && onlyQueries(req.URL, "x-id") { // it knows no versions and no parts
				return c.rcGet(req)
			}
		case time.Since(h.deaf) < deafFor && !c.o.Assume:
		case req.Method == http.MethodPut && (h.speaks || c.o.Assume) && c.offersPut(req):
			return c.put(req)
		case c.offersGet(req):
			return c.get(req)
		}
	}
	return c.plain(req, c.lent(req))
}

// plain sends a request over HTTP. It fills the caller's memory with the answer to a GET.
func (c *Client) plain(req *http.Request, l *lent) (*http.Response, error) {
	resp, err := c.o.Next.RoundTrip(req)
	if err != nil || l == nil || req.Method != http.MethodGet || !success(resp.StatusCode) {
		return resp, err
	}
	mem := l.mr.Bytes()
	if mem == nil {
		err = ErrUnreadable
	} else if mem = mem[l.off : l.off+l.n]; resp.ContentLength > int64(len(mem)) {
		err = fmt.Errorf("s3rdma: the body has %d bytes, the memory %d", resp.ContentLength, len(mem))
	}
	n := 0
	for err == nil && n < len(mem) {
		var more int
		more, err = resp.Body.Read(mem[n:])
		n += more
	}
	if err == nil {
		// The memory is full, and the body must end.
		var extra [1]byte
		if _, err = io.ReadFull(resp.Body, extra[:]); err == nil {
			err = fmt.Errorf("s3rdma: the body has more than the memory's %d bytes", len(mem))
		}
	}
	resp.Body.Close()
	if err != io.EOF {
		return nil, err
	}
	c.answer(resp, mem[:n], n, nil)
	return resp, nil
}

// answer gives the response a body in memory.
func (c *Client) answer(resp *http.Response, data []byte, n int, release func()) {
	end := io.EOF
	if data == nil && n > 0 {
		end = ErrUnreadable
	}
	resp.Body = &body{data: data, err: end, release: release, copied: c.copied}
	resp.ContentLength, resp.TransferEncoding = int64(n), nil
	resp.Header.Set("Content-Length", strconv.Itoa(n))
}

func (c *Client) copied(n int) { c.stats.copied.Add(uint64(n)) }

func success(status int) bool { return status >= 200 && status < 300 }

// lent returns the caller's memory for the request, or nil. A GET of anything but an object has none: clients of S3 also ask
// with the caller's context where a bucket is, for instance.
func (c *Client) lent(req *http.Request) *lent {
	if l, ok := req.Context().Value(lentKey{}).(lent); ok && (req.Method != http.MethodGet || getsObject(req)) {
		return &l
	}
	return nil
}

// getsObject reports whether the request is a GetObject.
func getsObject(req *http.Request) bool {
	return req.Method == http.MethodGet && req.URL != nil && len(req.URL.Path) > 1 && onlyQueries(req.URL, "partNumber", "versionId", "x-id")
}

// offersPut reports whether the request is a PutObject or an UploadPart with a body that can go by RDMA.
func (c *Client) offersPut(req *http.Request) bool {
	return req.Body != nil && req.ContentLength >= int64(c.o.MinBytes) && req.ContentLength > 0 && req.ContentLength <= MaxBytes &&
		!strings.HasPrefix(req.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") && !strings.Contains(req.Header.Get("Content-Encoding"), "aws-chunked") &&
		onlyQueries(req.URL, "partNumber", "uploadId", "x-id")
}

// offersGet reports whether the request is a GetObject whose body can come by RDMA.
func (c *Client) offersGet(req *http.Request) bool {
	n, whole, ok := wanted(req.Header.Get("Range"))
	return ok && (whole || n >= c.o.MinBytes) && (req.Body == nil || req.Body == http.NoBody) && getsObject(req)
}

// onlyQueries reports whether the URL has no query parameters but these, those that override headers of the response, and
// those of a presigned URL.
func onlyQueries(u *url.URL, allowed ...string) bool {
	if u.RawQuery == "" {
		return true
	}
next:
	for name := range u.Query() {
		if strings.HasPrefix(name, "response-") || strings.HasPrefix(name, "X-Amz-") {
			continue
		}
		for _, a := range allowed {
			if name == a {
				continue next
			}
		}
		return false
	}
	return true
}

// wanted returns the number of bytes that a Range asks for at most. whole: the Range doesn't say. ok: the body is in
// one piece, of at most MaxBytes.
func wanted(header string) (n int, whole, ok bool) {
	if header == "" {
		return 0, true, true
	}
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, found := strings.Cut(spec, "-")
	if !ok || !found || strings.Contains(spec, ",") {
		return 0, false, false
	}
	if last == "" {
		return 0, true, true
	}
	end, err := strconv.ParseInt(last, 10, 63)
	if first == "" { // the last bytes
		return int(end), false, err == nil && end > 0 && end <= MaxBytes
	}
	start, errStart := strconv.ParseInt(first, 10, 63)
	length := end - start + 1
	return int(length), false, err == nil && errStart == nil && length > 0 && length <= MaxBytes
}

// A window is the memory that a token offers.
type window struct {
	mr   *verbs.MR
	off  int
	n    int
	use  int
	lent bool

	repeated bool // an earlier request with its token has no answer
}

// window returns memory for a request's body of n bytes.
func (c *Client) window(l *lent, use, n int) (window, error) {
	if l == nil {
		mr, err := c.pool.get(use, n)
		return window{mr: mr, n: n, use: use}, err
	}
	if l.off < 0 || l.n < 1 || l.off > l.mr.Len()-l.n || l.n > MaxBytes || use == forPut && l.n != n {
		return window{}, fmt.Errorf("s3rdma: %w: %d bytes at %d of an MR of %d, for a body of %d", verbs.ErrInvalid, l.n, l.off, l.mr.Len(), n)
	}
	return window{mr: l.mr, off: l.off, n: l.n, use: use, lent: true}, nil
}

// bytes returns the window's memory, or nil if it isn't mapped.
func (w *window) bytes() []byte {
	if mem := w.mr.Bytes(); mem != nil {
		return mem[w.off : w.off+w.n : w.off+w.n]
	}
	return nil
}

// release gives the window's memory back. If in doubt, the server may still use it.
func (c *Client) release(w *window, doubt bool) {
	if !w.lent {
		c.pool.put(w.use, w.mr, doubt || w.repeated || c.o.Revoke)
	}
}

// offer returns the request with a token in place of a body, and a context.
func (c *Client) offer(ctx context.Context, req *http.Request, w *window) (*http.Request, error) {
	t := c.port
	t.Addr, t.Size, t.RKey = w.mr.Addr()+uint64(w.off), uint32(w.n), w.mr.RKey()
	o := req.WithContext(ctx)
	o.Header = req.Header.Clone()
	if o.Header == nil {
		o.Header = make(http.Header)
	}
	o.Header.Set(headerToken, t.String())
	if w.use == forPut {
		o.Body, o.GetBody, o.ContentLength, o.TransferEncoding = http.NoBody, nil, 0, nil
		o.Header.Del("Expect")
	}
	if c.o.Sign != nil {
		o.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		if err := c.o.Sign(o); err != nil {
			return nil, fmt.Errorf("s3rdma: signing the request: %w", err)
		}
	}
	return o, nil
}

// put sends a PUT with a token.
func (c *Client) put(req *http.Request) (*http.Response, error) {
	n := int(req.ContentLength)
	l := c.lent(req)
	w, err := c.window(l, forPut, n)
	if err != nil {
		if l == nil { // no memory: the body takes the other way
			c.stats.fallbacks.Add(1)
			return c.plain(req, nil)
		}
		req.Body.Close()
		return nil, err
	}
	if !w.lent {
		if err := c.fill(req, w); err != nil {
			return nil, fmt.Errorf("s3rdma: reading the request's body: %w", err)
		}
		c.copied(n)
	}
	if c.rc != nil {
		return c.rcPut(req, w)
	}
	o, err := c.offer(req.Context(), req, &w)
	if err == nil {
		var resp *http.Response
		if resp, err = c.o.Next.RoundTrip(o); err == nil {
			return c.putAnswered(req, resp, w)
		}
	}
	c.sent(req, &w, true)
	return nil, err
}

// fill reads the body of a PUT into the window, and closes it. If that fails, it releases the window. As with net/http, a
// reader that hangs doesn't outlast the context, and the body must end where its length says.
func (c *Client) fill(req *http.Request, w window) error {
	filled := make(chan error)
	go func() {
		_, err := io.ReadFull(req.Body, w.bytes())
		if err == nil {
			var extra [1]byte
			if _, err = io.ReadFull(req.Body, extra[:]); err == nil {
				err = fmt.Errorf("it has more than the %d bytes of ContentLength", w.n)
			} else if err == io.EOF {
				err = nil
			}
		}
		if err = errors.Join(err, req.Body.Close()); err != nil {
			c.release(&w, false)
		}
		select {
		case filled <- err:
		case <-req.Context().Done():
			if err == nil {
				c.release(&w, false)
			}
		}
	}()
	select {
	case err := <-filled:
		return err
	case <-req.Context().Done():
		return context.Cause(req.Context())
	}
}

// putAnswered decides what the answer to a PUT with a token means.
func (c *Client) putAnswered(req *http.Request, resp *http.Response, w window) (*http.Response, error) {
	r := replyOf(resp)
	resp.Request = req
	echoed := echoes(req, resp)
	if r.code != 0 {
		c.learn(req.URL.Host, host{speaks: true})
	} else if success(resp.StatusCode) && !echoed {
		c.learn(req.URL.Host, host{})
	}
	switch {
	case success(resp.StatusCode) && (r.moved && (r.bytes < 0 || r.bytes == int64(w.n)) || echoed):
		c.stats.moved(&c.stats.puts, w.n)
	case success(resp.StatusCode) || refused(resp, r):
		discard(resp)
		return c.again(req, &w)
	}
	c.sent(req, &w, false)
	return resp, nil
}

// sent ends a PUT whose body isn't needed any more.
func (c *Client) sent(req *http.Request, w *window, doubt bool) {
	c.release(w, doubt)
	if w.lent {
		req.Body.Close()
	}
}

// again sends a PUT whose body is in the window over HTTP.
func (c *Client) again(req *http.Request, w *window) (*http.Response, error) {
	c.stats.fallbacks.Add(1)
	again := *req
	if !w.lent {
		again.Body, again.GetBody = &body{data: w.bytes(), err: io.EOF, release: func() { c.release(w, false) }, copied: func(int) {}}, nil
	}
	return c.o.Next.RoundTrip(&again)
}

// get sends a GET with a token.
func (c *Client) get(req *http.Request) (*http.Response, error) {
	l := c.lent(req)
	n, whole, _ := wanted(req.Header.Get("Range"))
	if whole {
		n = c.o.GetBytes
	}
	w, err := c.window(l, forGet, n)
	if err != nil {
		if l == nil {
			c.stats.fallbacks.Add(1)
			return c.plain(req, nil)
		}
		return nil, err
	}
	// net/http itself repeats a GET whose connection breaks before the answer. The server may still be at work on the
	// first one.
	var tries atomic.Int32
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { tries.Add(1) }})
	o, err := c.offer(ctx, req, &w)
	if err != nil {
		c.release(&w, false)
		return nil, err
	}
	resp, err := c.o.Next.RoundTrip(o)
	if err != nil {
		c.release(&w, true)
		return nil, err
	}
	w.repeated = tries.Load() > 1
	r := replyOf(resp)
	resp.Request = req
	if r.code != 0 {
		c.learn(req.URL.Host, host{speaks: true})
	} else if success(resp.StatusCode) {
		c.learn(req.URL.Host, host{deaf: time.Now()})
	}
	switch {
	case success(resp.StatusCode) && r.moved:
		// A server may fill the window and leave out the rest. So a full window may hold less than a whole
		// object, unless the caller has chosen the window.
		if r.fits(resp, w.n) && !(whole && !w.lent && r.bytes == int64(w.n)) && !unpacks(req, resp) {
			discard(resp)
			c.stats.moved(&c.stats.gets, int(r.bytes))
			data := w.bytes()
			if data != nil {
				data = data[:r.bytes]
			}
			c.answer(resp, data, int(r.bytes), func() { c.release(&w, false) })
			return resp, nil
		}
	case success(resp.StatusCode) && l == nil:
		// The body is in the answer.
		c.release(&w, false)
		c.stats.fallbacks.Add(1)
		return resp, nil
	case success(resp.StatusCode) || refused(resp, r):
	default:
		c.release(&w, false)
		return resp, nil
	}
	discard(resp)
	c.release(&w, r.moved)
	c.stats.fallbacks.Add(1)
	resp, err = c.plain(req, l)
	if err == nil && success(resp.StatusCode) && r.code == 0 && !c.host(req.URL.Host).speaks {
		c.learn(req.URL.Host, host{deaf: time.Now()})
	}
	return resp, err
}

// A reply is what a server says of a token.
type reply struct {
	code  int   // headerReply, 0 for none
	moved bool  // the body went by RDMA
	bytes int64 // headerBytes, or -1
}

func replyOf(resp *http.Response) reply {
	r := reply{bytes: -1}
	text, _, _ := strings.Cut(resp.Header.Get(headerReply), ":")
	if code, err := strconv.Atoi(text); err == nil {
		r.code = code
	}
	r.moved = r.code == http.StatusOK || r.code == http.StatusNoContent || r.code == http.StatusPartialContent
	if n, err := strconv.ParseInt(resp.Header.Get(headerBytes), 10, 63); err == nil && n >= 0 {
		r.bytes = n
	}
	return r
}

// fits reports whether the answer to a GET is consistent: its body is in a window of n bytes, and nowhere else.
func (r *reply) fits(resp *http.Response, n int) bool {
	if r.bytes < 0 || r.bytes > int64(n) || resp.ContentLength > 0 {
		return false
	}
	var first, last int64
	if s := resp.Header.Get("Content-Range"); s != "" {
		if _, err := fmt.Sscanf(s, "bytes %d-%d/", &first, &last); err != nil || last-first+1 != r.bytes {
			return false
		}
	}
	return true
}

// unpacks reports whether net/http may unpack the body if it comes over HTTP: it does so for requests that don't say what
// they accept. Then the way that the body takes must not decide.
func unpacks(req *http.Request, resp *http.Response) bool {
	return strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") && req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == ""
}

// refused reports whether the token may be the reason why the request failed, so that it is worth another one
// without. Nothing was done then.
func refused(resp *http.Response, r reply) bool {
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusLengthRequired, http.StatusInternalServerError, http.StatusNotImplemented:
		return true
	}
	return r.code == http.StatusNotImplemented || r.code >= http.StatusInternalServerError
}

// echoes reports whether the response repeats a checksum of the request's. Then the server has seen the body, even
// if it doesn't say how.
func echoes(req *http.Request, resp *http.Response) bool {
	for name, values := range req.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") && len(values) == 1 && values[0] != "" && resp.Header.Get(name) == values[0] {
			switch name {
			case "X-Amz-Checksum-Algorithm", "X-Amz-Checksum-Mode", "X-Amz-Checksum-Type":
			default:
				return true
			}
		}
	}
	return false
}

// discard ends a response whose body nobody wants, so that its connection can be used again.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	resp.Body.Close()
}

// host returns what is known of a host.
func (c *Client) host(name string) host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[name]
}

// learn remembers what an answer says of a host.
func (c *Client) learn(name string, h host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hosts) >= maxHosts {
		clear(c.hosts)
	}
	c.hosts[name] = h
}
