package s3rdma

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// RCServerOptions are the options of NewRCServer. Authorize is required.
type RCServerOptions struct {
	GID verbs.GIDSelector // of the port that reaches the clients; by default the device's best

	// Authorize checks the signature of a request of the protocol, and whether its sender may GET or PUT the object at
	// the path, of the form /bucket/key. It returns the sender's name. Only the sender of PREPARE can continue
	// with the session.
	Authorize func(r *http.Request, method, path string) (who string, err error)

	// Sign, if not nil, signs the requests that the next handler gets, in the server's own name.
	Sign func(*http.Request) error

	// MaxSessions limits the sessions at a time; 16 by default. MaxPerClient limits those of one name; by default it is
	// MaxSessions.
	MaxSessions  int
	MaxPerClient int // see MaxSessions

	// MemoryBytes limits the memory of all sessions; 256 MiB by default. A session has memory for its whole body.
	MemoryBytes int

	// Timeout is how long a session waits for READY, and then for its bytes; 30 seconds by default.
	Timeout time.Duration
}

// An RCServer is an http.Handler that serves AMD's variant of the protocol (hipobj-rc-v2) at /.hipobj-rc/, and passes
// all other requests on to another handler. It turns each session into a GET or a PUT, for the same handler. A session has
// memory, a queue pair and a protection domain of its own, so that no client reaches another's memory. The methods are
// safe for concurrent use.
type RCServer struct {
	o    RCServerOptions
	next http.Handler
	dev  *verbs.Device
	gid  verbs.GIDEntry

	mu       sync.Mutex
	sessions map[string]*session // those that wait for READY
	clients  map[string]int      // all sessions by name
	active   int                 // all sessions
	bytes    int                 // of their memory
	closed   bool
}

// A session is one body on its way.
type session struct {
	id, who, method string
	target          *url.URL
	offset          int64 // of a GET
	size            int
	cookie          uint32
	peer            verbs.Endpoint // without the QPN, before READY
	memory          verbs.Remote   // the client's
	pd              *verbs.PD
	mr              *verbs.MR
	cq              *verbs.CQ
	qp              *verbs.QP
	mine            verbs.Endpoint
	etag, version   string
	timer           *time.Timer
}

// NewRCServer creates an RCServer on a device, in front of a handler.
func NewRCServer(dev *verbs.Device, next http.Handler, o RCServerOptions) (*RCServer, error) {
	o.MaxSessions = or(o.MaxSessions, 16)
	o.MaxPerClient = or(o.MaxPerClient, o.MaxSessions)
	o.MemoryBytes = or(o.MemoryBytes, 256<<20)
	o.Timeout = or(o.Timeout, 30*time.Second)
	if o.Authorize == nil || o.MaxSessions < 1 || o.MaxPerClient < 1 || o.MemoryBytes < 1 || o.Timeout < 0 {
		return nil, fmt.Errorf("s3rdma: %w: Authorize is required; MaxSessions %d, MaxPerClient %d, MemoryBytes %d, Timeout %v",
			verbs.ErrInvalid, o.MaxSessions, o.MaxPerClient, o.MemoryBytes, o.Timeout)
	}
	gid, err := dev.FindGID(o.GID)
	if err != nil {
		return nil, fmt.Errorf("s3rdma: %w", err)
	}
	return &RCServer{o: o, next: next, dev: dev, gid: gid, sessions: make(map[string]*session), clients: make(map[string]int)}, nil
}

// Close ends the sessions that wait for READY, and refuses new ones. It returns an error that matches verbs.ErrBusy while
// others are running, and may be called again.
func (s *RCServer) Close() error {
	s.mu.Lock()
	s.closed = true
	var waiting []*session
	for _, x := range s.sessions {
		waiting = append(waiting, x)
	}
	clear(s.sessions)
	s.mu.Unlock()
	for _, x := range waiting {
		s.end(x)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active > 0 {
		return fmt.Errorf("s3rdma: %d sessions: %w", s.active, verbs.ErrBusy)
	}
	return nil
}

// A refusal is an answer of the protocol that is no success.
type refusal struct {
	status int
	err    error
}

func (e *refusal) Error() string { return e.err.Error() }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Errorf(format, args...)}
}

// ServeHTTP serves a request.
func (s *RCServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	step, ok := strings.CutPrefix(r.URL.Path, rcPath)
	if !ok {
		s.next.ServeHTTP(w, r)
		return
	}
	var err error
	switch {
	case r.Method != http.MethodPost || r.Header.Get(headerProtocol) != rcProtocol:
		w.Header().Set("X-Amz-Rdma-Protocol-Status", "unsupported")
		err = refuse(http.StatusNotImplemented, "not %s", rcProtocol)
	case step == "prepare":
		err = s.prepare(w.Header(), r)
	case step == "ready":
		err = s.ready(w.Header(), r)
	case step == "cancel":
		err = s.cancel(r)
	default:
		err = refuse(http.StatusNotFound, "there is no step %.20q", step)
	}
	if err != nil {
		status := http.StatusInternalServerError
		if e := (*refusal)(nil); errors.As(err, &e) {
			status = e.status
		}
		writeError(w, status, "RDMAControl", err.Error())
		return
	}
	w.Header().Set(headerProtocol, rcProtocol)
	w.WriteHeader(http.StatusOK)
}

// prepare begins a session.
func (s *RCServer) prepare(h http.Header, r *http.Request) error {
	x, err := parsePrepare(r)
	if err != nil {
		return err
	}
	if x.who, err = s.o.Authorize(r, x.method, x.target.Path); err != nil {
		return refuse(http.StatusForbidden, "%w", err)
	}
	if !s.admit(x) {
		return refuse(http.StatusTooManyRequests, "there are too many sessions")
	}
	waits := false
	defer func() {
		if !waits { // also if the next handler panics
			s.end(x)
		}
	}()
	if err := s.make(r, x); err != nil {
		return err
	}
	token := RCToken{QPN: x.mine.QPN, GID: x.mine.GID, Port: uint8(s.gid.Port), LID: x.mine.LID, Size: uint64(x.size)}
	if x.method == http.MethodPut {
		token.Addr, token.RKey = x.mr.Addr(), x.mr.RKey()
		h.Set(headerMRAddr, strconv.FormatUint(token.Addr, 16))
		h.Set(headerMRRKey, strconv.FormatUint(uint64(token.RKey), 16))
	}
	h.Set(headerReply, "200:"+token.String())
	h.Set(headerSession, x.id)
	h.Set(headerPSN, fmt.Sprintf("%06x", x.mine.PSN))
	h.Set(headerQPN, strconv.FormatUint(uint64(x.mine.QPN), 16))

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return refuse(http.StatusServiceUnavailable, "the server is closed")
	}
	waits = true
	s.sessions[x.id] = x
	x.timer = time.AfterFunc(s.o.Timeout, func() {
		if s.take(x.id) != nil {
			s.end(x)
		}
	})
	return nil
}

// parsePrepare returns the session that a request asks for.
func parsePrepare(r *http.Request) (*session, error) {
	x := &session{method: r.Header.Get(headerOp)}
	if x.method != http.MethodGet && x.method != http.MethodPut {
		return nil, refuse(http.StatusBadRequest, "%s %.20q", headerOp, x.method)
	}
	token, err := ParseRCToken(r.Header.Get(headerToken))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%w", err)
	}
	psn, err := parseHex("PSN", r.Header.Get(headerPSN), 6)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%w", err)
	}
	cookie, err := parseHex("cookie", r.Header.Get(headerCookie), 8)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%w", err)
	}
	size, err := strconv.ParseUint(r.Header.Get(headerSize), 10, 64)
	if err != nil || size == 0 || size > MaxBytes {
		return nil, refuse(http.StatusRequestEntityTooLarge, "%s %.30q is not in 1 to %d", headerSize, r.Header.Get(headerSize), MaxBytes)
	}
	if text := r.Header.Get(headerOffset); text != "" {
		if x.offset, err = strconv.ParseInt(text, 10, 62); err != nil || x.offset < 0 || x.method == http.MethodPut && x.offset != 0 {
			return nil, refuse(http.StatusBadRequest, "%s %.30q", headerOffset, text)
		}
	}
	target := r.Header.Get(headerTarget)
	if x.target, err = url.ParseRequestURI(target); err != nil || !strings.HasPrefix(target, "/") || x.target.Host != "" || x.target.RawQuery != "" || strings.HasPrefix(x.target.Path, rcPath) {
		return nil, refuse(http.StatusBadRequest, "%s %.100q", headerTarget, target)
	}
	x.size, x.cookie, x.peer = int(size), uint32(cookie), verbs.Endpoint{PSN: uint32(psn), LID: token.LID, GID: token.GID}
	x.memory = verbs.Remote{Addr: token.Addr, RKey: token.RKey}
	return x, nil
}

// make makes the session's memory and its end of the connection. It fills the memory for a GET.
func (s *RCServer) make(r *http.Request, x *session) (err error) {
	if x.pd, err = s.dev.AllocPD(); err != nil {
		return err
	}
	var access verbs.AccessFlags // a GET's memory is only sent
	if x.method == http.MethodPut {
		access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	}
	if x.mr, err = x.pd.AllocMR(x.size, verbs.MROptions{Access: access}); err != nil {
		return err
	}
	if x.method == http.MethodGet {
		if err := s.fill(r, x); err != nil {
			return err
		}
	}
	if x.cq, err = s.dev.CreateCQ(verbs.CQOptions{MaxCQE: 2}); err != nil {
		return err
	}
	o := verbs.QPOptions{Type: verbs.RC, SendCQ: x.cq, RecvCQ: x.cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxRecvSGE: -1}}
	if x.qp, err = x.pd.CreateQP(o); err != nil {
		return err
	}
	if x.mine, err = x.qp.Endpoint(s.gid); err != nil {
		return err
	}
	if x.mine.PSN == 0 {
		return refuse(http.StatusServiceUnavailable, "the protocol has no PSN of 0")
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	x.id = hex.EncodeToString(id[:])
	return nil
}

// inner returns the request for the next handler.
func (s *RCServer) inner(r *http.Request, x *session, body io.ReadCloser) *http.Request {
	q := &http.Request{
		Method: x.method, URL: x.target, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor, Host: r.Host, RemoteAddr: r.RemoteAddr,
		RequestURI: x.target.RequestURI(), TLS: r.TLS, Body: body, Header: http.Header{"X-Amz-Content-Sha256": {"UNSIGNED-PAYLOAD"}},
	}
	return q.WithContext(r.Context())
}

// run runs the next handler.
func (s *RCServer) run(w http.ResponseWriter, q *http.Request) error {
	if s.o.Sign != nil {
		if err := s.o.Sign(q); err != nil {
			return err
		}
	}
	s.next.ServeHTTP(w, q)
	return nil
}

// fill gets the object into the session's memory.
func (s *RCServer) fill(r *http.Request, x *session) error {
	q := s.inner(r, x, http.NoBody)
	q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", x.offset, x.offset+int64(x.size)-1))
	w := &memoryWriter{header: make(http.Header), mem: x.mr.Bytes()}
	if err := s.run(w, q); err != nil {
		return err
	}
	switch {
	case w.status != http.StatusPartialContent && w.status != http.StatusOK:
		return refuse(or(w.status, http.StatusInternalServerError), "the object's status is %d", w.status)
	case w.n != x.size || w.over || w.status == http.StatusOK && x.offset > 0:
		return refuse(http.StatusRequestedRangeNotSatisfiable, "the object has %d bytes of %d", w.n, x.size)
	}
	x.etag, x.version = w.header.Get("Etag"), w.header.Get("X-Amz-Version-Id")
	return nil
}

// A memoryWriter is a ResponseWriter into memory, for an object. It drops all other answers.
type memoryWriter struct {
	header http.Header
	status int
	mem    []byte // nil: the answer to a PUT
	n      int
	over   bool // there was more than the memory holds
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.mem == nil || w.status != http.StatusOK && w.status != http.StatusPartialContent {
		return len(p), nil
	}
	n := copy(w.mem[w.n:], p)
	w.n += n
	if n < len(p) {
		w.over = true
		return n, io.ErrShortWrite
	}
	return n, nil
}

// ReadFrom reads into the memory, without a copy.
func (w *memoryWriter) ReadFrom(r io.Reader) (int64, error) {
	w.WriteHeader(http.StatusOK)
	n, err := io.ReadFull(r, w.mem[w.n:])
	w.n += n
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return int64(n), err
}

// ready moves a session's bytes, and stores those of a PUT.
func (s *RCServer) ready(h http.Header, r *http.Request) error {
	x, err := s.claim(r)
	if err != nil {
		return err
	}
	defer s.end(x)
	cookie, err := parseHex("cookie", r.Header.Get(headerCookie), 8)
	if err != nil || uint32(cookie) != x.cookie {
		return refuse(http.StatusForbidden, "another cookie")
	}
	qpn, err := strconv.ParseUint(r.Header.Get(headerQPN), 16, 24)
	if err != nil {
		return refuse(http.StatusBadRequest, "%s %.20q", headerQPN, r.Header.Get(headerQPN))
	}
	if text := r.Header.Get(headerMRAddr); text != "" {
		if x.memory.Addr, err = strconv.ParseUint(text, 16, 64); err != nil {
			return refuse(http.StatusBadRequest, "%s %.20q", headerMRAddr, text)
		}
	}
	if text := r.Header.Get(headerMRRKey); text != "" {
		key, err := strconv.ParseUint(text, 16, 32)
		if err != nil {
			return refuse(http.StatusBadRequest, "%s %.20q", headerMRRKey, text)
		}
		x.memory.RKey = uint32(key)
	}
	x.peer.QPN, x.peer.MTU = uint32(qpn), x.mine.MTU
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Timeout)
	defer cancel()
	if err := s.move(ctx, x); err != nil {
		return refuse(http.StatusBadGateway, "%w", err)
	}
	if x.method == http.MethodPut {
		if err := s.store(r, x); err != nil {
			return err
		}
	}
	h.Set(headerCookie, fmt.Sprintf("%08x", x.cookie))
	h.Set(headerBytes, strconv.Itoa(x.size))
	if x.etag != "" {
		h.Set(headerRCETag, x.etag)
	}
	if x.version != "" {
		h.Set(headerVersion, x.version)
	}
	return nil
}

// move connects the session's QP, and waits until the bytes have moved.
func (s *RCServer) move(ctx context.Context, x *session) error {
	put := x.method == http.MethodPut
	if put {
		if _, err := x.qp.PostRecv(verbs.RecvWR{}); err != nil {
			return err
		}
	}
	o := verbs.ConnectOptions{MaxRDAtomic: -1}
	if put {
		o.Access = verbs.AccessRemoteWrite
	}
	if err := x.qp.Connect(x.peer, o); err != nil {
		return err
	}
	if !put {
		wr := verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, SGL: []verbs.SGE{x.mr.SGE(0, x.size)}, Remote: x.memory, Imm: x.cookie}
		if _, err := x.qp.PostSend(wr); err != nil {
			return err
		}
	}
	var wc [1]verbs.WC
	if _, err := x.cq.PollWait(ctx, wc[:]); err != nil {
		return err
	}
	if err := wc[0].Err(); err != nil || !put {
		return err
	}
	if imm, ok := wc[0].Imm(); !ok || imm != x.cookie || int(wc[0].ByteLen) != x.size {
		return fmt.Errorf("s3rdma: %d bytes were written, want %d; cookie %08x, want %08x", wc[0].ByteLen, x.size, imm, x.cookie)
	}
	return nil
}

// store puts the session's memory.
func (s *RCServer) store(r *http.Request, x *session) error {
	// From here on, the client can't write to it.
	if err := x.qp.Close(); err != nil {
		return err
	}
	// The handler's reader may outlive the handler, but not the memory.
	b := &body{data: x.mr.Bytes(), err: io.EOF, copied: func(int) {}}
	defer b.Close()
	q := s.inner(r, x, b)
	q.ContentLength = int64(x.size)
	q.Header.Set("Content-Length", strconv.Itoa(x.size))
	w := &memoryWriter{header: make(http.Header)}
	if err := s.run(w, q); err != nil {
		return err
	}
	if !success(or(w.status, http.StatusOK)) {
		return refuse(w.status, "the object's status is %d", w.status)
	}
	x.etag, x.version = w.header.Get("Etag"), w.header.Get("X-Amz-Version-Id")
	return nil
}

// cancel ends a session.
func (s *RCServer) cancel(r *http.Request) error {
	x, err := s.claim(r)
	if err == nil {
		s.end(x)
	}
	return err
}

// claim returns the session that a request names, for its sender. Nobody else has it then.
func (s *RCServer) claim(r *http.Request) (*session, error) {
	none := refuse(http.StatusNotFound, "there is no such session")
	s.mu.Lock()
	x := s.sessions[r.Header.Get(headerSession)]
	s.mu.Unlock()
	if x == nil {
		return nil, none
	}
	who, err := s.o.Authorize(r, x.method, x.target.Path)
	if err != nil {
		return nil, refuse(http.StatusForbidden, "%w", err)
	}
	if who != x.who || s.take(x.id) == nil {
		return nil, none
	}
	return x, nil
}

// take removes a session from those that wait.
func (s *RCServer) take(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sessions[id]
	delete(s.sessions, id)
	return x
}

// admit counts a session of a client, unless there are too many.
func (s *RCServer) admit(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.active == s.o.MaxSessions || s.clients[x.who] == s.o.MaxPerClient || x.size > s.o.MemoryBytes-s.bytes {
		return false
	}
	s.active++
	s.bytes += x.size
	s.clients[x.who]++
	return true
}

// end releases what a session has.
func (s *RCServer) end(x *session) {
	if x.timer != nil {
		x.timer.Stop()
	}
	if err := errors.Join(x.qp.Close(), x.cq.Close(), x.mr.Close(), x.pd.Close()); err != nil {
		return // the device holds on to it, and it stays counted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.bytes -= x.size
	if s.clients[x.who]--; s.clients[x.who] == 0 {
		delete(s.clients, x.who)
	}
}
