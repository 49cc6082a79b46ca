package xfer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/xfer"
)

// maxClients are served at a time. Each takes slots*slotBytes of memory.
const maxClients = 16

// A server serves a folder to strangers.
type server struct {
	folder *os.Root // nil: there are no files, but the memory of bench
	engine *xfer.Engine
	tls    *tls.Config    // nil without TLS
	door   net.Listener   // of clients
	inner  *xfer.Listener // of their engines

	mu      sync.Mutex
	clients map[netip.Addr]int // by address
}

// newServer opens the devices, and listens. folder may be "".
func newServer(ctx context.Context, folder, bind string, port int, devices []string, config *tls.Config) (s *server, err error) {
	s = &server{tls: config, clients: make(map[netip.Addr]int)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if folder != "" {
		if s.folder, err = os.OpenRoot(folder); err != nil {
			return s, err
		}
	}
	if s.engine, err = xfer.Open(xfer.Options{Devices: devices, TLS: config, MaxPeers: 2 * maxClients, Admit: s.admit}); err != nil {
		return s, err
	}
	var lc net.ListenConfig
	if s.door, err = lc.Listen(ctx, "tcp", address(bind, port)); err != nil {
		return s, err
	}
	if port != 0 {
		port++
	}
	s.inner, err = s.engine.Listen(ctx, address(bind, port))
	return s, err
}

func (s *server) close() error {
	if s.door != nil {
		s.door.Close()
	}
	err := s.engine.Close()
	if s.folder != nil {
		err = errors.Join(err, s.folder.Close())
	}
	return err
}

// serve serves clients until ctx ends.
func (s *server) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.door.Close() })
	defer stop()
	report := cli.Reporter()
	door := stranger.Door[*guest]{
		Most:  maxClients,
		Greet: s.greet,
		Serve: func(conn net.Conn, g *guest) {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			s.come(g.from, 1)
			err := g.serve()
			conn.Close()
			s.come(g.from, -1)
			if err = errors.Join(err, g.close()); err != nil && ctx.Err() == nil {
				report("%v: %s", g.from, stranger.Text(err.Error()))
			}
		},
		Refused: func(conn net.Conn, err error) {
			var plain tls.RecordHeaderError
			if errors.As(err, &plain) && plain.Conn != nil {
				conn, err = plain.Conn, errNeedsTLS
			}
			if !errors.Is(err, net.ErrClosed) {
				_ = stranger.NewWire(conn, 0).Tell(welcome{Error: err.Error()}, alive) // it may be gone
			}
		},
	}
	l := s.door
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	if err := door.Open(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// come counts a client that comes or goes. Its engine goes with it.
func (s *server) come(from netip.Addr, n int) {
	s.mu.Lock()
	s.clients[from] += n
	last := s.clients[from] == 0
	if last {
		delete(s.clients, from)
	}
	s.mu.Unlock()
	if !last {
		return
	}
	for _, p := range s.engine.Peers() {
		if hostOf(p.Addr()) == from {
			p.Close()
		}
	}
}

// admit lets in only the engines of clients: at most two for each, as one that has broken may not be
// gone yet.
func (s *server) admit(p *xfer.Peer) error {
	from := hostOf(p.Addr())
	there := 0
	for _, other := range s.engine.Peers() {
		if hostOf(other.Addr()) == from {
			there++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if there >= 2*s.clients[from] {
		return errors.New("no client of that address waits for it")
	}
	return nil
}

// hostOf returns the address without the port.
func hostOf(addr string) netip.Addr {
	a, _ := netip.ParseAddrPort(addr) // which the kernel has made
	return a.Addr().Unmap()
}

// A guest is a client that is served.
type guest struct {
	s      *server
	from   netip.Addr
	wire   *stranger.Wire
	memory *xfer.Memory

	file *os.File // the file of the last get
	name string
}

func (s *server) greet(conn net.Conn) (*guest, error) {
	g := &guest{s: s, from: hostOf(conn.RemoteAddr().String()), wire: stranger.NewWire(conn, maxMessage)}
	if s.tls == nil {
		if b, err := g.wire.First(greeting); err == nil && b == recordTLS {
			return nil, errNoTLS
		}
	}
	var h hello
	if err := g.wire.Hear(&h, greeting); err != nil {
		return nil, err
	}
	if h.Protocol != protocol {
		return nil, fmt.Errorf("protocol %d, and this is %d", h.Protocol, protocol)
	}
	return g, nil
}

// serve answers requests until the client leaves.
func (g *guest) serve() (err error) {
	if g.memory, err = g.s.engine.Alloc(slots * slotBytes); err != nil {
		return errors.Join(err, g.wire.Tell(welcome{Error: err.Error()}, patience))
	}
	// A client that writes where the server reads a file to spoils only what it has asked for.
	grant, err := g.memory.All().Grant(xfer.GrantOptions{Access: xfer.Read | xfer.Write})
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(g.s.inner.Addr().String())
	w := welcome{Memory: grant.Remote()}
	if _, err := fmt.Sscan(port, &w.Port); err != nil {
		return err
	}
	for message := any(w); ; {
		if err := g.wire.Tell(message, patience); err != nil {
			return err
		}
		var r request
		if err := g.wire.Hear(&r, patience); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		a, err := g.answer(&r)
		if err != nil {
			a.Error = reason(err)
		}
		message = a
	}
}

func (g *guest) close() error {
	g.shut()
	if g.memory == nil {
		return nil
	}
	return g.memory.Close()
}

// shut closes the file of the last get.
func (g *guest) shut() {
	if g.file != nil {
		g.file.Close() // it was only read
		g.file = nil
	}
}

var errNoFiles = errors.New("no files are served here")

// answer carries out a request. Its error is told to the client.
func (g *guest) answer(r *request) (a reply, err error) {
	if r.Do == "alive" {
		return a, nil
	}
	if g.s.folder == nil {
		return a, errNoFiles
	}
	name, err := inside(r.Path)
	if err != nil {
		return a, err
	}
	switch r.Do {
	case "list":
		return a, g.list(name)
	case "get":
		return a, g.get(&a, name, r)
	}
	return a, fmt.Errorf("an unknown request %q", r.Do)
}

// get reads a piece of a file into a slot.
func (g *guest) get(a *reply, name string, r *request) error {
	if r.Off < 0 || r.N < 0 || r.N > slotBytes || r.Slot < 0 || r.Slot >= slots {
		return fmt.Errorf("%d bytes at %d to slot %d", r.N, r.Off, r.Slot)
	}
	if g.file == nil || g.name != name {
		g.shut()
		// O_NONBLOCK: what is no file must not make this wait.
		f, err := g.s.folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		g.file, g.name = f, name
	}
	info, err := g.file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("not a file: %v", info.Mode())
	}
	b := g.memory.Slice(r.Slot*slotBytes, r.N).Bytes()
	if a.N, err = g.file.ReadAt(b, r.Off); err != nil && err != io.EOF {
		return err
	}
	if info, err = g.file.Stat(); err != nil { // which tells of a change up to now
		return err
	}
	a.Size, a.Time, a.Sum = info.Size(), info.ModTime().UnixNano(), sum(b[:a.N])
	return nil
}

// list sends the entries at and below a path. The caller sends the end.
func (g *guest) list(name string) error {
	info, err := g.s.folder.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return g.tell(name, info)
	}
	f, err := g.s.folder.Open(name)
	if err != nil {
		return err
	}
	all, err := f.ReadDir(-1)
	f.Close() // it was only read
	if err != nil {
		return err
	}
	if err := g.tell(name, info); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range all {
		below := path.Join(name, e.Name())
		if e.IsDir() && len(below) <= maxPath {
			err = g.list(below)
		} else if info, gone := e.Info(); gone == nil {
			err = g.tell(below, info)
		}
		var unread *fs.PathError
		if errors.As(err, &unread) {
			err = g.wire.Tell(reply{Entry: &entry{Path: []byte(below), LeftOut: unread.Err.Error(), Unread: true}}, patience)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tell sends an entry.
func (g *guest) tell(name string, info fs.FileInfo) error {
	e := &entry{Path: []byte(name), Folder: info.IsDir()}
	switch mode := info.Mode(); {
	case e.Folder:
	case len(name) > maxPath:
		e.Path, e.LeftOut = e.Path[:maxPath], "its path is too long"
	case mode&fs.ModeSymlink != 0:
		e.LeftOut = "a symbolic link"
	case !mode.IsRegular():
		e.LeftOut = fmt.Sprintf("not a file: %v", mode)
	case strings.HasSuffix(name, unfinished):
		e.LeftOut = "an unfinished file"
	default:
		e.Size, e.Time, e.Mode = info.Size(), info.ModTime().UnixNano(), uint32(mode.Perm())
	}
	return g.wire.Tell(reply{Entry: e}, patience)
}
