package stranger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"time"
)

// A Wire exchanges messages with a peer: JSON, one a line. One goroutine at a time may call Tell, and
// one Hear.
type Wire struct {
	conn net.Conn
	in   *bufio.Reader
	most int
}

// NewWire returns a wire over a connection. most is the length of the longest message that it
// receives, in bytes.
func NewWire(conn net.Conn, most int) *Wire {
	return &Wire{conn: conn, in: bufio.NewReader(conn), most: most}
}

// Tell sends a message within the limit; 0 means no limit.
func (w *Wire) Tell(message any, limit time.Duration) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if err := w.conn.SetWriteDeadline(end(limit)); err != nil {
		return err
	}
	_, err = w.conn.Write(append(b, '\n'))
	return err
}

// Hear receives a message within the limit, and replaces its strings by their Text. A limit of 0
// means no limit. The error is io.EOF if the peer has ended the connection before the message.
func (w *Wire) Hear(message any, limit time.Duration) error {
	if err := w.conn.SetReadDeadline(end(limit)); err != nil {
		return err
	}
	var line []byte
	for {
		part, err := w.in.ReadSlice('\n')
		if len(line)+len(part) > w.most {
			return fmt.Errorf("a message is longer than %d bytes", w.most)
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if err == io.EOF && len(line) > 0 {
			return io.ErrUnexpectedEOF
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	if err := json.Unmarshal(line, message); err != nil {
		return err
	}
	clean(reflect.ValueOf(message))
	return nil
}

// First returns the first byte of the next message, which comes within the limit.
func (w *Wire) First(limit time.Duration) (byte, error) {
	if err := w.conn.SetReadDeadline(end(limit)); err != nil {
		return 0, err
	}
	b, err := w.in.Peek(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// Close closes the connection.
func (w *Wire) Close() error { return w.conn.Close() }

func end(limit time.Duration) time.Time {
	if limit == 0 {
		return time.Time{}
	}
	return time.Now().Add(limit)
}
