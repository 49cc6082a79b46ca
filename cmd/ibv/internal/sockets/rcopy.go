package sockets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/rsocket"
)

// rcopyOptions are the command line.
type rcopyOptions struct {
	bind, port     string
	file, host, to string // of a client
}

// Rcopy is the command rcopy.
func Rcopy() *cli.Command { return (&rcopyOptions{port: "7427"}).command() }

func (o *rcopyOptions) command() *cli.Command {
	return &cli.Command{
		Name:     "rcopy",
		Group:    cli.Sockets,
		Summary:  "copy a file to another host over a socket on RDMA",
		Forms:    []string{"[-b ADDR] [-p PORT]", "FILE HOST[:DESTINATION] [-p PORT]"},
		Operands: 2,
		About: `Copy a file to another host over a socket on RDMA. The first form is the server,
which writes the files that clients name, anywhere: run it in a container or as a
user that may write nothing else. The other side may be rdma-core's rcopy.`,
		Options: []cli.Option{
			cli.JSONOption(),
			cli.Opt('b', "", "ADDR", "server: address to listen on (default all)", cli.Text(&o.bind)),
			cli.Opt('p', "", "PORT", "port in the RDMA TCP port space (default 7427)", cli.Text(&o.port)),
		},
		Notes: `The destination is a path on the server, by default the same as FILE. HOST may be an
IPv6 address in brackets.`,
		Examples: []cli.Example{{"ibv rcopy\nibv rcopy image.raw 192.168.77.1:/srv/image.raw", "a server and, elsewhere, its client"}},
		Programs: []cli.Program{{Name: "rcopy", Differs: "serves 16 clients at a time, and drops one that is silent for a minute"}},
		Run: func(operands []string) error {
			if err := o.finish(operands); err != nil {
				return err
			}
			if o.file == "" {
				defer cli.Waits("listening on port %s", o.port)()
				return o.serve()
			}
			defer cli.Waits("copying %s to %s", o.file, o.host)()
			return o.copy()
		},
	}
}

// finish takes the operands.
func (o *rcopyOptions) finish(operands []string) error {
	switch {
	case len(operands) == 0:
		return nil
	case len(operands) != 2:
		return cli.Usagef("want a file and a host")
	case o.bind != "":
		return cli.Usagef("-b is for the server")
	}
	o.file = operands[0]
	if in6, rest, ok := strings.Cut(operands[1], "]"); ok && strings.HasPrefix(in6, "[") {
		o.host, o.to = in6[1:], strings.TrimPrefix(rest, ":")
	} else {
		o.host, o.to, _ = strings.Cut(operands[1], ":")
	}
	if o.to == "" {
		o.to = o.file
	}
	if len(o.to) > rcopyMaxPath {
		return cli.Usagef("the destination has more than %d bytes", rcopyMaxPath)
	}
	return nil
}

// The protocol's messages begin with this header. Numbers are in the host's byte order, which must be the
// same on both hosts. The header of a write is followed by the file's size, that of an open by the path and
// a NUL.
type rcopyHeader struct {
	Version uint8
	Command uint8
	Len     uint16
	Data    uint32 // of an open: the mode; of an answer: an errno
	ID      uint64
}

const (
	rcopyOpen     = 1
	rcopyClose    = 2
	rcopyWrite    = 3
	rcopyAnswer   = 0x80
	rcopyHeadLen  = 16
	rcopyWriteLen = rcopyHeadLen + 8
	rcopyMaxPath  = 4096
)

// message returns a message with data after the header.
func (h rcopyHeader) message(data []byte) []byte {
	h.Len = uint16(rcopyHeadLen + len(data))
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, h) // writing to a Buffer doesn't fail
	b.Write(data)
	return b.Bytes()
}

func readRcopyHeader(r io.Reader) (h rcopyHeader, err error) {
	var b [rcopyHeadLen]byte
	if _, err = io.ReadFull(r, b[:]); err != nil {
		return h, err
	}
	if _, err = binary.Decode(b[:], binary.NativeEndian, &h); err != nil {
		return h, err
	}
	if h.Version != 0 || h.Len < rcopyHeadLen {
		return h, fmt.Errorf("invalid version %d or length %d", h.Version, h.Len)
	}
	return h, nil
}

// copy is the client.
func (o *rcopyOptions) copy() error {
	f, err := os.Open(o.file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", o.file)
	}
	c, err := rsocket.Dial("tcp", net.JoinHostPort(o.host, o.port))
	if err != nil {
		return err
	}
	defer c.Close()
	path := make([]byte, (len(o.to)+8)&^7) // padded with NULs
	copy(path, o.to)
	open := rcopyHeader{Command: rcopyOpen, Data: syscall.S_IFREG | uint32(info.Mode().Perm())}
	if err := request(c, open, path, nil); err != nil {
		return fmt.Errorf("opening %s on the server: %w", o.to, err)
	}
	size := binary.NativeEndian.AppendUint64(nil, uint64(info.Size()))
	start := time.Now()
	if err := request(c, rcopyHeader{Command: rcopyWrite}, size, &io.LimitedReader{R: f, N: info.Size()}); err != nil {
		return fmt.Errorf("copying to %s: %w", o.to, err)
	}
	took := time.Since(start)
	if err := request(c, rcopyHeader{Command: rcopyClose}, nil, nil); err != nil {
		return fmt.Errorf("closing %s on the server: %w", o.to, err)
	}
	cli.Printf("%d bytes in %.2f seconds = %.2f Gb/sec\n", info.Size(), took.Seconds(), float64(info.Size())*8/float64(took.Nanoseconds()))
	cli.Put("bytes", info.Size(), "seconds", took.Seconds(), "bits_per_second", float64(info.Size())*8/took.Seconds())
	// This process ends now. Close must send the end of the stream before.
	if err := c.(*rsocket.Conn).SetLinger(1); err != nil {
		return err
	}
	return c.Close()
}

// request sends a message and the data that follows it, and returns the server's answer.
func request(c net.Conn, h rcopyHeader, data []byte, then *io.LimitedReader) error {
	if _, err := c.Write(h.message(data)); err != nil {
		return err
	}
	if then != nil {
		if _, err := io.Copy(c, then); err != nil {
			return err
		}
		if then.N > 0 {
			return fmt.Errorf("the file has become shorter, by %d bytes", then.N)
		}
	}
	answer, err := readRcopyHeader(c)
	switch {
	case err != nil:
		return err
	case answer.Command != h.Command|rcopyAnswer || answer.Len != rcopyHeadLen:
		return fmt.Errorf("unexpected answer %#x to command %d", answer.Command, h.Command)
	case answer.Data != 0:
		return syscall.Errno(answer.Data)
	}
	return nil
}

const (
	rcopyClients  = 16          // at a time
	rcopyPatience = time.Minute // for the next message, or the next bytes of a file
)

// serve serves clients.
func (o *rcopyOptions) serve() error {
	l, err := rsocket.Listen("tcp", net.JoinHostPort(o.bind, o.port))
	if err != nil {
		return err
	}
	defer l.Close()
	return serveRcopies(l)
}

func serveRcopies(l net.Listener) error {
	door := stranger.Door[rcopyHeader]{
		Most:  rcopyClients,
		Greet: nextRcopy,
		Serve: func(c net.Conn, first rcopyHeader) {
			if err := serveRcopy(c, first); err != nil {
				cli.Errorf("%v: %s", c.RemoteAddr(), stranger.Text(err.Error()))
			}
			_ = c.Close() // the client is gone
		},
	}
	return door.Open(l)
}

// nextRcopy waits for a client's next message.
func nextRcopy(c net.Conn) (h rcopyHeader, err error) {
	if err := c.SetDeadline(time.Now().Add(rcopyPatience)); err != nil {
		return h, err
	}
	return readRcopyHeader(c)
}

// A patientReader is a connection whose peer may be slow, but not silent.
type patientReader struct{ net.Conn }

func (r patientReader) Read(b []byte) (int, error) {
	if err := r.SetDeadline(time.Now().Add(rcopyPatience)); err != nil {
		return 0, err
	}
	return r.Conn.Read(b)
}

// serveRcopy serves a client, whose first message has begun.
func serveRcopy(c net.Conn, h rcopyHeader) (err error) {
	var f *os.File
	defer func() {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for ; err == nil; h, err = nextRcopy(c) {
		var failed error // of the request; it is reported to the client
		switch h.Command {
		case rcopyOpen:
			var path string
			if path, err = readPath(c, h); err != nil {
				return err
			}
			if f != nil {
				failed = syscall.EBUSY
				break
			}
			f, failed = os.OpenFile(path, os.O_RDWR|os.O_CREATE, fs.FileMode(h.Data).Perm())
			cli.Printf("%s, from %v\n", stranger.Text(path), c.RemoteAddr())
		case rcopyWrite:
			failed, err = receiveFile(c, h, f)
			if err != nil {
				return err
			}
		case rcopyClose:
			if f != nil {
				failed = f.Close()
				f = nil
			}
		default:
			failed = syscall.EINVAL
		}
		answer := rcopyHeader{Command: h.Command | rcopyAnswer, ID: h.ID}
		if failed != nil {
			errno := syscall.EIO
			errors.As(failed, &errno)
			answer.Data = uint32(errno)
		}
		if _, err := c.Write(answer.message(nil)); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}

func readPath(c net.Conn, h rcopyHeader) (string, error) {
	b := make([]byte, h.Len-rcopyHeadLen)
	if _, err := io.ReadFull(c, b); err != nil {
		return "", err
	}
	path, _, ended := bytes.Cut(b, []byte{0})
	if !ended || len(path) == 0 || len(path) > rcopyMaxPath {
		return "", errors.New("a path without its end")
	}
	return string(path), nil
}

// receiveFile receives a file's contents. err is a failure of the connection.
func receiveFile(c net.Conn, h rcopyHeader, f *os.File) (failed, err error) {
	if f == nil || h.Len != rcopyWriteLen {
		return syscall.EINVAL, nil
	}
	var b [8]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return nil, err
	}
	size := binary.NativeEndian.Uint64(b[:])
	if size > 1<<62 {
		return syscall.EFBIG, nil
	}
	n, failed := io.CopyN(f, patientReader{c}, int64(size))
	// What was there before ends only now: a client of this host may copy the file to itself.
	if at, unable := f.Seek(0, io.SeekCurrent); unable == nil {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			failed = errors.Join(failed, f.Truncate(at))
		}
	}
	var lost *net.OpError
	if errors.As(failed, &lost) || errors.Is(failed, io.EOF) {
		return nil, fmt.Errorf("after %d of %d bytes: %w", n, size, failed)
	}
	return failed, nil
}
