package s3rdma

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// The RC protocol's path, its name, and its headers, in net/http's form.
const (
	rcPath     = "/.hipobj-rc/"
	rcProtocol = "hipobj-rc-v2"

	headerProtocol = "X-Amz-Rdma-Protocol"
	headerPSN      = "X-Amz-Rdma-Psn"
	headerCookie   = "X-Amz-Rdma-Cookie"
	headerOp       = "X-Amz-Rdma-Op"
	headerTarget   = "X-Amz-Rdma-Target"
	headerSize     = "X-Amz-Rdma-Size"
	headerOffset   = "X-Amz-Rdma-Offset"
	headerSession  = "X-Amz-Rdma-Session"
	headerQPN      = "X-Amz-Rdma-Qpn"
	headerMRAddr   = "X-Amz-Rdma-Mr-Addr"
	headerMRRKey   = "X-Amz-Rdma-Mr-Rkey"
	headerRCETag   = "X-Amz-Rdma-Etag"
	headerVersion  = "X-Amz-Rdma-Version-Id"
)

// NewRCClient creates a Client for AMD's variant of the protocol (hipobj-rc-v2), on a device with
// reliable connections that need no connection manager: InfiniBand and RoCE, on mlx5 and rxe. Each
// body has a connection of its own, which two requests of the Client's make: PREPARE and READY.
//
// The variant names bucket and key in the path of a request. It passes on no metadata and no checksums,
// and knows no parts. So a PUT with any of these goes over HTTP, and before a GET the Client asks for the object's
// headers and length. ClientOptions.Sign is required. DCKey, GetBytes, Assume and Revoke have no effect: a connection
// ends with its request.
func NewRCClient(dev *verbs.Device, o ClientOptions) (*Client, error) {
	if o.Sign == nil {
		return nil, fmt.Errorf("s3rdma: %w: Sign is required", verbs.ErrInvalid)
	}
	c, gid, err := newClient(dev, o)
	if err == nil {
		c.rc = &rcPort{dev, gid}
	}
	return c, err
}

// An rcPort is where an RC Client makes its connections.
type rcPort struct {
	dev *verbs.Device
	gid verbs.GIDEntry
}

// An rcOp is one body on its way over a connection of its own.
type rcOp struct {
	c       *Client
	req     *http.Request
	method  string
	w       *window
	offset  int64
	cookie  uint32
	cq      *verbs.CQ
	qp      *verbs.QP
	session string
}

// errRC: the server has refused or broken the protocol.
var errRC = errors.New("s3rdma: the RC server")

// rcMove moves the window's memory. It returns the answer to READY. When it returns, no device uses the memory.
func (c *Client) rcMove(req *http.Request, method string, w *window, offset int64) (final http.Header, err error) {
	op := &rcOp{c: c, req: req, method: method, w: w, offset: offset, cookie: 1 + rand.Uint32N(1<<32-1)}
	defer func() {
		if e := errors.Join(op.qp.Close(), op.cq.Close()); err == nil {
			err = e
		}
	}()
	if op.cq, err = c.rc.dev.CreateCQ(verbs.CQOptions{MaxCQE: 2}); err != nil {
		return nil, err
	}
	o := verbs.QPOptions{Type: verbs.RC, SendCQ: op.cq, RecvCQ: op.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxRecvSGE: -1}}
	if op.qp, err = c.pd.CreateQP(o); err != nil {
		return nil, err
	}
	mine, err := op.qp.Endpoint(c.rc.gid)
	if err != nil {
		return nil, err
	}
	prepared, err := op.prepare(mine)
	if err != nil {
		return nil, err
	}
	theirs, staging, err := op.parse(prepared)
	if err == nil {
		theirs.MTU = mine.MTU
		err = op.qp.Connect(theirs, verbs.ConnectOptions{Access: verbs.AccessRemoteWrite, MaxRDAtomic: -1})
	}
	if err == nil && method == http.MethodGet {
		_, err = op.qp.PostRecv(verbs.RecvWR{})
	}
	if err != nil {
		_, cancelErr := op.control(req.Context(), "cancel", map[string]string{headerSession: op.session})
		return nil, errors.Join(err, cancelErr)
	}
	return op.ready(mine.QPN, staging)
}

// control sends a request of the protocol, and returns the headers of a successful answer.
func (op *rcOp) control(ctx context.Context, step string, headers map[string]string) (http.Header, error) {
	u := url.URL{Scheme: op.req.URL.Scheme, Host: op.req.URL.Host, Path: rcPath + step}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Host = op.req.Host
	r.Header.Set(headerProtocol, rcProtocol)
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	if err := op.c.o.Sign(r); err != nil {
		return nil, fmt.Errorf("s3rdma: signing the request: %w", err)
	}
	resp, err := op.c.o.Next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	discard(resp)
	if !success(resp.StatusCode) || step != "cancel" && resp.Header.Get(headerProtocol) != rcProtocol {
		return nil, fmt.Errorf("%w answers %s with %s", errRC, step, resp.Status)
	}
	return resp.Header, nil
}

// prepare asks the server for its end of the connection.
func (op *rcOp) prepare(mine verbs.Endpoint) (http.Header, error) {
	if mine.PSN == 0 {
		return nil, fmt.Errorf("%w takes no PSN of 0", errRC)
	}
	addr := op.w.mr.Addr() + uint64(op.w.off)
	token := RCToken{
		QPN: mine.QPN, GID: mine.GID, RKey: op.w.mr.RKey(), Addr: addr, Size: uint64(op.w.n), Port: uint8(op.c.rc.gid.Port), LID: mine.LID,
	}
	return op.control(op.req.Context(), "prepare", map[string]string{
		headerToken: token.String(), headerPSN: fmt.Sprintf("%06x", mine.PSN), headerCookie: fmt.Sprintf("%08x", op.cookie), headerOp: op.method,
		headerTarget: op.req.URL.EscapedPath(), headerSize: strconv.Itoa(op.w.n), headerOffset: strconv.FormatInt(op.offset, 10),
	})
}

// parse returns the server's end of the connection and, for a PUT, its memory.
func (op *rcOp) parse(h http.Header) (peer verbs.Endpoint, staging verbs.Remote, err error) {
	op.session = h.Get(headerSession)
	if _, err := strconv.ParseUint(op.session, 16, 64); len(op.session) != 32 || err != nil && !errors.Is(err, strconv.ErrRange) {
		return peer, staging, fmt.Errorf("%w has no session", errRC)
	}
	code, text, _ := strings.Cut(h.Get(headerReply), ":")
	token, err := ParseRCToken(text)
	if code != "200" || err != nil {
		return peer, staging, errors.Join(fmt.Errorf("%w replies %.120q", errRC, h.Get(headerReply)), err)
	}
	psn, err := parseHex("PSN", h.Get(headerPSN), 6)
	if err != nil {
		return peer, staging, err
	}
	peer = verbs.Endpoint{QPN: token.QPN, PSN: uint32(psn), LID: token.LID, GID: token.GID}
	staging = verbs.Remote{Addr: token.Addr, RKey: token.RKey}
	if s := h.Get(headerMRAddr); s != "" {
		if staging.Addr, err = strconv.ParseUint(s, 16, 64); err != nil {
			return peer, staging, bad("%v", err)
		}
		key, err := strconv.ParseUint(h.Get(headerMRRKey), 16, 32)
		if err != nil {
			return peer, staging, bad("%v", err)
		}
		staging.RKey = uint32(key)
	}
	return peer, staging, nil
}

// ready lets the server move the bytes of a GET, or moves those of a PUT, and waits until they are there.
func (op *rcOp) ready(qpn uint32, staging verbs.Remote) (http.Header, error) {
	ctx := op.req.Context()
	posted := make(chan error, 1)
	if op.method == http.MethodPut {
		// The server's QP takes nothing before it has READY. What comes too early is lost, and RC repeats it after
		// a timeout.
		var once sync.Once
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			once.Do(func() {
				_, err := op.qp.PostSend(verbs.SendWR{
					Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, SGL: []verbs.SGE{op.w.mr.SGE(op.w.off, op.w.n)}, Remote: staging, Imm: op.cookie,
				})
				posted <- err
			})
		}})
	} else {
		posted <- nil
	}
	final, err := op.control(ctx, "ready", map[string]string{
		headerSession: op.session, headerCookie: fmt.Sprintf("%08x", op.cookie), headerQPN: strconv.FormatUint(uint64(qpn), 16),
		headerMRAddr: strconv.FormatUint(op.w.mr.Addr()+uint64(op.w.off), 16), headerMRRKey: strconv.FormatUint(uint64(op.w.mr.RKey()), 16),
	})
	if err != nil {
		return nil, err
	}
	select {
	case err = <-posted:
	default:
		err = errors.New("s3rdma: ClientOptions.Next doesn't tell httptrace when it has written a request")
	}
	if err != nil {
		return nil, err
	}
	cookie, err := strconv.ParseUint(final.Get(headerCookie), 16, 32)
	if n := final.Get(headerBytes); err != nil || uint32(cookie) != op.cookie || n != strconv.Itoa(op.w.n) {
		return nil, fmt.Errorf("%w moved %.20q bytes of %d, with cookie %.20q", errRC, n, op.w.n, final.Get(headerCookie))
	}
	var wc [1]verbs.WC
	if _, err := op.cq.PollWait(op.req.Context(), wc[:]); err != nil {
		return nil, err
	}
	if err := wc[0].Err(); err != nil {
		return nil, err
	}
	if imm, ok := wc[0].Imm(); op.method == http.MethodGet && (!ok || imm != op.cookie) {
		return nil, fmt.Errorf("%w wrote with cookie %08x, not %08x", errRC, imm, op.cookie)
	}
	return final, nil
}

// rcPut sends a PUT over a connection.
func (c *Client) rcPut(req *http.Request, w window) (*http.Response, error) {
	final, err := c.rcMove(req, http.MethodPut, &w, 0)
	if err != nil {
		if req.Context().Err() != nil {
			c.sent(req, &w, false)
			return nil, err
		}
		return c.again(req, &w)
	}
	c.sent(req, &w, false)
	c.stats.moved(&c.stats.puts, w.n)
	resp := &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req, Body: http.NoBody,
		Header: http.Header{headerReply: {"200"}, headerBytes: {strconv.Itoa(w.n)}, "Content-Length": {"0"}},
	}
	if tag := final.Get(headerRCETag); tag != "" {
		resp.Header.Set("Etag", tag)
	}
	if v := final.Get(headerVersion); v != "" {
		resp.Header.Set("X-Amz-Version-Id", v)
	}
	return resp, nil
}

// rcGet receives the body of a GET over a connection.
func (c *Client) rcGet(req *http.Request) (*http.Response, error) {
	l := c.lent(req)
	head := *req
	head.Method, head.Header = http.MethodHead, req.Header.Clone()
	head.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	if err := c.o.Sign(&head); err != nil {
		return nil, fmt.Errorf("s3rdma: signing the request: %w", err)
	}
	resp, err := c.o.Next.RoundTrip(&head)
	if err != nil {
		return nil, err
	}
	discard(resp)
	n := resp.ContentLength
	var first, last int64
	if s := resp.Header.Get("Content-Range"); s != "" {
		_, err = fmt.Sscanf(s, "bytes %d-%d/", &first, &last)
	}
	if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent || (req.Header.Get("Range") != "") != (resp.StatusCode == http.StatusPartialContent) ||
		n < int64(c.o.MinBytes) || n < 1 || n > MaxRCBytes || resp.StatusCode == http.StatusPartialContent && n != last-first+1 || l != nil && n > int64(l.n) || unpacks(req, resp) {
		return c.plain(req, l)
	}
	w, err := c.window(l, forGet, int(n))
	if err != nil {
		if l == nil {
			c.stats.fallbacks.Add(1)
			return c.plain(req, nil)
		}
		return nil, err
	}
	w.n = int(n)
	final, err := c.rcMove(req, http.MethodGet, &w, first)
	if err == nil && final.Get(headerRCETag) != "" && final.Get(headerRCETag) != resp.Header.Get("Etag") {
		err = fmt.Errorf("%w: the object has changed", errRC)
	}
	if err != nil {
		c.release(&w, false)
		if req.Context().Err() != nil {
			return nil, err
		}
		c.stats.fallbacks.Add(1)
		return c.plain(req, l)
	}
	c.stats.moved(&c.stats.gets, w.n)
	resp.Request = req
	resp.Header.Set(headerReply, strconv.Itoa(resp.StatusCode))
	resp.Header.Set(headerBytes, strconv.Itoa(w.n))
	c.answer(resp, w.bytes(), w.n, func() { c.release(&w, false) })
	return resp, nil
}

// rcTakesPut reports whether nothing of the PUT but its body matters: the protocol passes on nothing else.
func rcTakesPut(req *http.Request) bool {
	for name := range req.URL.Query() {
		if name != "x-id" {
			return false
		}
	}
	for name, values := range req.Header {
		switch name {
		case "Content-Length", "Host", "User-Agent", "Accept", "Accept-Encoding", "Authorization", "Expect", "X-Amz-Date", "X-Amz-Content-Sha256", "X-Amz-Security-Token":
		case "Content-Type":
			if len(values) != 1 || values[0] != "application/octet-stream" {
				return false
			}
		default:
			if !strings.HasPrefix(name, "Amz-Sdk-") {
				return false
			}
		}
	}
	return true
}
