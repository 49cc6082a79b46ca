package xfer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/goverbs/goverbs/verbs"
)

// The control connection carries messages: four bytes of length, and a JSON object. Both sides
// begin with a hello. The other messages are requests, which the receiver answers with a message of
// the kind answer and the request's ID, and news, which have no ID.

// A kind is what a message is about. Its comment names the members that it needs.
type kind string

const (
	hello  kind = "hello"  // Version, Engine, Rails, Notifications, Liveness; of the side that has dialed also Earlier, of the other one Token
	answer kind = "answer" // ID, and Code and Text if the request has failed

	openLink  kind = "open"   // request: Link, Rail of the receiver, Transport, with rc and srd Endpoint; its answer has Token, Address and a key of eight bytes for fences, and Endpoint, Listens or DCKey
	closeLink kind = "close"  // request: Link
	attach    kind = "attach" // request: Grant, Secret; its answer has Address, Length, Access, Keys
	revoke    kind = "revoke" // request: Grant; its answer says that none of its requests is in flight

	credit   kind = "credit" // news: Count more notifications may be sent
	railUp   kind = "rail"   // news: Rail of the sender is up, or down
	skipNote kind = "skip"   // news: there is no notification with the number Count
	alive    kind = "alive"  // news: a sign of life
	bye      kind = "bye"    // news: the sender closes the connection
)

type message struct {
	Kind kind   `json:"kind"`
	ID   uint64 `json:"id,omitempty"`
	Code string `json:"code,omitempty"` // of an error
	Text string `json:"text,omitempty"` // of an error

	Version       int        `json:"version,omitempty"`
	Engine        []byte     `json:"engine,omitempty"`
	Rails         []railInfo `json:"rails,omitempty"`
	Notifications int        `json:"notifications,omitempty"` // that the sender takes before a credit
	Liveness      int64      `json:"liveness,omitempty"`      // milliseconds of silence after which the sender takes the receiver for lost

	Earlier [][]byte `json:"earlier,omitempty"` // tokens of connections that are lost

	Link     uint32          `json:"link,omitempty"`
	Rail     int             `json:"rail,omitempty"`
	Up       bool            `json:"up,omitempty"`
	Endpoint *verbs.Endpoint `json:"endpoint,omitempty"`
	Count    uint64          `json:"count,omitempty"`

	Transport string `json:"transport,omitempty"`
	Token     []byte `json:"token,omitempty"`   // of the target, or of the connection
	Listens   string `json:"listens,omitempty"` // the address to connect to
	DCKey     []byte `json:"dc_key,omitempty"`

	Grant   uint64   `json:"grant,omitempty"`
	Secret  []byte   `json:"secret,omitempty"`
	Address uint64   `json:"address,omitempty"`
	Length  uint64   `json:"length,omitempty"`
	Access  Access   `json:"access,omitempty"`
	Keys    []uint32 `json:"keys,omitempty"` // by rail
}

// A railInfo tells a peer of a rail.
type railInfo struct {
	Name   string `json:"name"`
	Up     bool   `json:"up"`
	Atomic bool   `json:"atomic,omitempty"` // it carries out all atomic operations

	Transports []string `json:"transports"`
}

const (
	version    = 2
	maxMessage = 64 << 10
	maxRails   = 64

	// maxCredit is the number of notifications that a peer may send before the program takes them.
	maxCredit = 1 << 20

	maxLiveness = 1 << 40 // milliseconds
)

// appendMessage appends a message as it is on the wire.
func appendMessage(b []byte, m *message) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes is too long", len(body))
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...), nil
}

// readMessage reads the next message, and refuses those that no engine sends.
func readMessage(r io.Reader) (*message, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes, and the maximum is %d", n, maxMessage)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, unexpected(err)
	}
	return parseMessage(body)
}

// unexpected returns the error of a read in the middle of a message.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseMessage(body []byte) (*message, error) {
	m := new(message)
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("a message that is not one: %w", err)
	}
	return m, m.check()
}

// check refuses messages without what their kind needs, and with numbers out of range.
func (m *message) check() error {
	bad := func(what string) error { return fmt.Errorf("a message %q with a wrong %s", string(m.Kind), what) }
	request := m.Kind == openLink || m.Kind == closeLink || m.Kind == attach || m.Kind == revoke
	switch {
	case (request || m.Kind == answer) != (m.ID != 0):
		return bad("ID")
	case m.Rail < 0 || m.Rail >= maxRails:
		return bad("rail")
	case m.Count > maxCredit && m.Kind == credit:
		return bad("count")
	case len(m.Keys) > maxRails || len(m.Rails) > maxRails:
		return bad("number of rails")
	case m.Length > 1<<62 || m.Address > ^uint64(0)-m.Length:
		return bad("range of memory")
	}
	switch m.Kind {
	case hello:
		switch {
		case m.Version != version:
			return bad("version")
		case len(m.Engine) != len(engineID{}):
			return bad("engine")
		case len(m.Rails) == 0:
			return bad("number of rails")
		case m.Notifications < 1 || m.Notifications > maxCredit:
			return bad("number of notifications")
		case m.Liveness < 0 || m.Liveness > maxLiveness:
			return bad("liveness")
		case len(m.Earlier) > maxEarlier || slices.ContainsFunc(m.Earlier, func(b []byte) bool { return len(b) != len(token{}) }):
			return bad("earlier connection")
		}
	case attach:
		if len(m.Secret) != len(secret{}) {
			return bad("secret")
		}
	case answer, openLink, closeLink, revoke, credit, railUp, skipNote, alive, bye:
	default:
		return bad("kind")
	}
	return nil
}

// failure returns the error in an answer, or nil.
func (m *message) failure() error {
	if m.Text == "" && m.Code == "" {
		return nil
	}
	text := m.Text
	if len(text) > 300 {
		text = text[:300]
	}
	if is := codes[m.Code]; is != nil {
		return &remoteError{text, is}
	}
	return &remoteError{text, nil}
}

// fail makes the message an answer that says why the request has failed.
func (m *message) fail(err error) { m.Code, m.Text = codeOf(err), err.Error() }

// A remoteError is an error at the peer.
type remoteError struct {
	text string
	is   error // or nil
}

func (e *remoteError) Error() string { return fmt.Sprintf("the peer says: %q", e.text) }
func (e *remoteError) Unwrap() error { return e.is }
