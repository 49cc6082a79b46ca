package s3rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// ServerOptions are the options of NewServer. The zero value has the defaults.
type ServerOptions struct {
	GID   verbs.GIDSelector // of the port that reaches the clients; by default the device's best
	DCKey uint64            // of the clients' DC targets; DefaultDCKey by default

	// MaxTransfers limits the transfers at a time; 16 by default. MaxPerClient limits those of one client; by default
	// it is MaxTransfers. Requests beyond a limit are declined, and so go over HTTP.
	MaxTransfers int
	MaxPerClient int // see MaxTransfers

	// ChunkBytes is the size of an RDMA request, 1 MiB by default. A transfer has four chunks of memory, which
	// later ones use again.
	ChunkBytes int

	// Client returns the name of the client that MaxPerClient counts. By default it is the IP address that
	// the request comes from.
	Client func(*http.Request) string

	// Allow is asked before the server uses a token: whether this request may make it reach this port. The request is
	// as it has arrived, with its signature not yet checked. A refused token is declined. By default all ports are
	// allowed.
	Allow func(*http.Request, Token) bool
}

// A Server is an http.Handler that moves the bodies of requests and answers by RDMA, for those requests that have a token,
// and passes all on to another handler. Its methods are safe for concurrent use.
type Server struct {
	o       ServerOptions
	next    http.Handler
	pd      *verbs.PD
	cq      *verbs.CQ
	gid     verbs.GIDEntry
	connect func(*lane) error // makes the lane's QP, or repairs it

	dead    chan struct{} // closed when no completions come any more
	deadErr error         // why
	stop    context.CancelFunc
	stopped chan struct{} // closed when the poller has ended

	mu      sync.Mutex
	lanes   []*lane // by index; nil for one that isn't made
	idle    []*lane
	clients map[string]int // transfers by client
	active  int            // transfers
	closed  bool

	stats serverStats
}

// NewServer creates a Server on a device, which must have DC, in front of a handler.
func NewServer(dev *verbs.Device, next http.Handler, o ServerOptions) (*Server, error) {
	s, err := newServer(dev, next, o)
	if err != nil {
		return nil, fmt.Errorf("s3rdma: %w", err)
	}
	s.connect = initiate
	// The first lane shows that the device has DC.
	l, err := s.newLane(0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("s3rdma: making a DC initiator: %w", err), s.Close())
	}
	s.lanes[0], s.idle = l, []*lane{l}
	return s, nil
}

// newServer is NewServer without a lane.
func newServer(dev *verbs.Device, next http.Handler, o ServerOptions) (*Server, error) {
	o.DCKey = or(o.DCKey, DefaultDCKey)
	o.MaxTransfers = or(o.MaxTransfers, 16)
	o.MaxPerClient = or(o.MaxPerClient, o.MaxTransfers)
	o.ChunkBytes = or(o.ChunkBytes, 1<<20)
	if o.MaxTransfers < 1 || o.MaxPerClient < 1 || o.ChunkBytes < 1 || o.ChunkBytes > MaxBytes {
		return nil, fmt.Errorf("%w: MaxTransfers %d, MaxPerClient %d, ChunkBytes %d", verbs.ErrInvalid, o.MaxTransfers, o.MaxPerClient, o.ChunkBytes)
	}
	if o.Client == nil {
		o.Client = func(r *http.Request) string {
			ip, _, _ := net.SplitHostPort(r.RemoteAddr)
			return ip
		}
	}
	gid, err := dev.FindGID(o.GID)
	if err != nil {
		return nil, err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	cq, err := dev.CreateCQ(verbs.CQOptions{MaxCQE: o.MaxTransfers * depth})
	if err != nil {
		return nil, errors.Join(err, pd.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		o: o, next: next, pd: pd, cq: cq, gid: gid, lanes: make([]*lane, o.MaxTransfers), clients: make(map[string]int),
		dead: make(chan struct{}), stop: stop, stopped: make(chan struct{}),
	}
	go s.poll(ctx)
	return s, nil
}

// poll hands the completions to the lanes.
func (s *Server) poll(ctx context.Context) {
	defer close(s.stopped)
	for wc, err := range s.cq.All(ctx) {
		if err != nil {
			if e := (*verbs.CQEError)(nil); errors.As(err, &e) {
				continue
			}
			s.deadErr = err
			close(s.dead)
			return
		}
		s.mu.Lock()
		l := s.lanes[wc.WRID]
		s.mu.Unlock()
		l.done <- wc // which has room for all requests of the lane
	}
}

// PD returns the protection domain of the Server's requests, for [NewMemoryReader].
func (s *Server) PD() *verbs.PD { return s.pd }

// Close releases the Server's objects. The HTTP server in front of it must have been shut down: Close returns an error that
// matches verbs.ErrBusy while requests are running, and may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.active > 0 {
		return fmt.Errorf("s3rdma: %d transfers: %w", s.active, verbs.ErrBusy)
	}
	var errs []error
	for i, l := range s.lanes {
		if l != nil {
			errs = append(errs, l.close())
			s.lanes[i] = nil
		}
	}
	s.idle = nil
	s.stop()
	<-s.stopped
	return errors.Join(append(errs, s.cq.Close(), s.pd.Close())...)
}

// ServerStats count what a Server has done.
type ServerStats struct {
	Puts, Gets uint64 // bodies that went by RDMA
	Bytes      uint64 // of these
	Copied     uint64 // bytes that the processor copied for these, on the Server's side
	Declined   uint64 // requests whose token was not used
	Failed     uint64 // transfers that were begun, and failed
	Lanes      uint64 // DC initiators that were made or repaired
}

type serverStats struct{ puts, gets, bytes, copied, declined, failed, lanes atomic.Uint64 }

// Stats returns the counts so far.
func (s *Server) Stats() ServerStats {
	c := &s.stats
	return ServerStats{c.puts.Load(), c.gets.Load(), c.bytes.Load(), c.copied.Load(), c.declined.Load(), c.failed.Load(), c.lanes.Load()}
}

// admit counts a transfer of a client, unless there are too many.
func (s *Server) admit(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.active == s.o.MaxTransfers || s.clients[client] == s.o.MaxPerClient {
		return false
	}
	s.active++
	s.clients[client]++
	return true
}

// leave ends a transfer of a client.
func (s *Server) leave(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.clients[client]--; s.clients[client] == 0 {
		delete(s.clients, client)
	}
}

// take returns a lane, of those that lead to the port already if there is one. There are as many lanes as admitted
// transfers.
func (s *Server) take(to port) (*lane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		i := n - 1
		for j, l := range s.idle {
			if l.to == to {
				i = j
			}
		}
		l := s.idle[i]
		s.idle = slices.Delete(s.idle, i, i+1)
		return l, nil
	}
	index := slices.Index(s.lanes, nil)
	if index < 0 {
		return nil, errLanes
	}
	l, err := s.newLane(index)
	if err == nil {
		s.lanes[index] = l
	}
	return l, err
}

var errLanes = errors.New("s3rdma: the device lets go of none of the lanes")

// give takes a lane back. One that can't be repaired is closed, if the device has let go of it, and otherwise lost.
func (s *Server) give(l *lane) {
	err := l.rest()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.idle = append(s.idle, l)
	} else if l.posted == 0 && l.close() == nil {
		s.lanes[l.index] = nil
	}
}

// ServeHTTP serves a request, and its body by RDMA where that is possible.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text := r.Header.Get(headerToken)
	put := r.Method == http.MethodPut
	if text == "" || !put && r.Method != http.MethodGet {
		s.next.ServeHTTP(w, r)
		return
	}
	token, err := ParseToken(text)
	if err != nil {
		if _, rc := ParseRCToken(text); rc != nil {
			writeError(w, http.StatusBadRequest, "InvalidRDMAToken", err.Error())
			return
		}
	}
	inner := new(http.Request)
	*inner = *r
	inner.Header = maps.Clone(r.Header)
	if !signs(r, headerToken) {
		inner.Header.Del(headerToken) // else it would count as a header that lacks a signature
	}
	client := s.o.Client(r)
	hasBody := r.ContentLength != 0
	if err != nil || hasBody || s.o.Allow != nil && !s.o.Allow(r, token) || !s.admit(client) {
		s.stats.declined.Add(1)
		w.Header().Set(headerReply, "501")
		if put && !hasBody {
			writeError(w, http.StatusNotImplemented, "RDMANotSupported", "The body must come over HTTP.")
			return
		}
		s.next.ServeHTTP(w, inner)
		return
	}
	defer s.leave(client)
	if put {
		s.put(w, inner, token)
	} else {
		s.get(w, inner, token)
	}
}

// signs reports whether the request's signature covers a header.
func signs(r *http.Request, header string) bool {
	_, names, found := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	if !found {
		names = r.URL.Query().Get("X-Amz-SignedHeaders")
	}
	names, _, _ = strings.Cut(names, ",")
	return slices.Contains(strings.Split(strings.TrimSpace(names), ";"), strings.ToLower(header))
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>\n", code, escape.Replace(message))
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// put serves a PUT whose body is in the client's memory.
func (s *Server) put(w http.ResponseWriter, r *http.Request, t Token) {
	ctx, cancel := context.WithCancel(r.Context())
	b := &source{transfer: transfer{s: s, token: t, ctx: ctx, size: int(t.Size)}}
	r.Body, r.ContentLength, r.TransferEncoding = b, int64(t.Size), nil
	r.Header.Set("Content-Length", strconv.Itoa(int(t.Size)))
	pw := &putWriter{ResponseWriter: w, body: b}
	defer func() {
		cancel()
		b.finish()
		if n := b.read.Load(); b.failed.Load() != nil {
			s.stats.failed.Add(1)
		} else if n > 0 {
			s.stats.puts.Add(1)
			s.stats.bytes.Add(uint64(n))
		}
	}()
	s.next.ServeHTTP(pw, r)
	pw.begin(http.StatusOK)
}

// A putWriter adds to the answer to a PUT how its body came.
type putWriter struct {
	http.ResponseWriter
	body  *source
	begun bool
	mute  bool // the handler's answer counts no more
}

func (w *putWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *putWriter) WriteHeader(status int) {
	if status < 200 {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.begin(status)
}

func (w *putWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	if w.mute {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

func (w *putWriter) Flush() {
	w.begin(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// begin writes the answer's header, once.
func (w *putWriter) begin(status int) {
	if w.begun {
		return
	}
	w.begun = true
	if why := w.body.failed.Load(); why != nil {
		w.mute = true
		w.Header().Set(headerReply, "500")
		writeError(w.ResponseWriter, http.StatusInternalServerError, "RDMATransferFailed", *why)
		return
	}
	if success(status) {
		w.Header().Set(headerReply, strconv.Itoa(replyStatus(status)))
		w.Header().Set(headerBytes, strconv.FormatInt(w.body.read.Load(), 10))
	}
	w.ResponseWriter.WriteHeader(status)
}

// replyStatus returns the status for headerReply: 200, 204 or 206.
func replyStatus(status int) int {
	if status == http.StatusNoContent || status == http.StatusPartialContent {
		return status
	}
	return http.StatusOK
}

// get serves a GET whose body the client wants in its memory.
func (s *Server) get(w http.ResponseWriter, r *http.Request, t Token) {
	gw := &getWriter{ResponseWriter: w, sink: sink{transfer: transfer{s: s, token: t, ctx: r.Context()}}}
	defer gw.sink.end() // also after a panic
	s.next.ServeHTTP(gw, r)
	gw.finish()
}

// A getWriter writes the answer to a GET to the client's memory, if it is a body that fits, and otherwise
// over HTTP.
type getWriter struct {
	http.ResponseWriter
	sink   sink
	status int // 0 before the answer begins
	rdma   bool
}

func (w *getWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *getWriter) WriteHeader(status int) {
	if w.rdma && status >= 200 {
		return // a second one has no effect
	}
	if w.status != 0 || status < 200 {
		w.ResponseWriter.WriteHeader(status) // which complains about a second one
		return
	}
	w.status = status
	n, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 63)
	switch {
	case status != http.StatusOK && status != http.StatusPartialContent:
	case err != nil || n < 0 || n > int64(w.sink.token.Size):
		w.decline()
	default:
		w.sink.size, w.rdma = int(n), true
		if n > 0 && w.sink.begin() != nil {
			// Nothing is lost yet.
			w.rdma = false
			w.decline()
		}
	}
	if !w.rdma {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *getWriter) decline() {
	w.sink.s.stats.declined.Add(1)
	w.Header().Set(headerReply, "501")
}

func (w *getWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.rdma {
		return w.ResponseWriter.Write(p)
	}
	n, err := w.sink.Write(p)
	if err == io.ErrShortWrite {
		err = http.ErrContentLength
	}
	return n, err
}

func (w *getWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.rdma {
		return io.Copy(w.ResponseWriter, r)
	}
	return w.sink.ReadFrom(r)
}

// Flush begins the answer. It does nothing more while the answer goes by RDMA: its header follows its body.
func (w *getWriter) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.rdma {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// finish completes the answer.
func (w *getWriter) finish() {
	if !w.rdma {
		return
	}
	s := w.sink.s
	if err := w.sink.finish(); err != nil {
		w.sink.end() // the client uses the memory again when it has the answer
		s.stats.failed.Add(1)
		for name := range w.Header() { // those of the object
			w.Header().Del(name)
		}
		w.Header().Set(headerReply, "500")
		writeError(w.ResponseWriter, http.StatusInternalServerError, "RDMATransferFailed", err.Error())
		return
	}
	s.stats.gets.Add(1)
	s.stats.bytes.Add(uint64(w.sink.size))
	w.Header().Set(headerReply, strconv.Itoa(w.status))
	w.Header().Set(headerBytes, strconv.Itoa(w.sink.size))
	w.Header().Set("Content-Length", "0")
	w.ResponseWriter.WriteHeader(w.status)
}
