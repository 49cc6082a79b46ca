package perftest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Version is the version that this side announces. From 6.28 on, perftest expects from its peer a
// structure whose layout depends on how perftest was built.
const Version = "6.27"

// oldestVersion is the oldest version that perftest itself accepts.
const oldestVersion = 5.70

// From newCMVersion on, the sides' messages over the connection manager are longer.
const newCMVersion = 6.29

// mark follows the version, where perftest reads nothing. Two sides that see it exchange
// more.
const mark = "\x00goverbs"

const (
	versionLen = 16
	cacheLine  = 64
	keysLenGID = 108
	goodbye    = "done\x00"
)

// keys has what a side must know about a queue pair of the other side.
type keys struct {
	lid   uint16
	outs  uint32 // reads and atomics in flight
	qpn   uint32
	psn   uint32
	rkey  uint32
	vaddr uint64
	gid   verbs.GID
	srqn  uint32
}

// A form is an encoding of keys.
type form int

const (
	plainForm form = iota // text
	gidForm               // text with a GID
	cmForm                // a C structure in network byte order
	newCMForm             // the same, as releases from 6.29 on have it
)

// encode returns the message with the keys.
func (k keys) encode(f form) []byte {
	if f >= cmForm {
		return k.encodeCM(f)
	}
	withGID := f == gidForm
	b := make([]byte, 0, keysLenGID)
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", k.lid, k.outs, k.qpn, k.psn, k.rkey, k.vaddr)
	if withGID {
		for _, c := range k.gid {
			b = fmt.Appendf(b, "%02x:", c)
		}
		return fmt.Appendf(b, "%08x:\x00", k.srqn)
	}
	return fmt.Appendf(b, "%08x\x00", k.srqn)
}

// encodeCM returns the structure. Releases from 6.29 on have another address after vaddr,
// of no use here.
func (k keys) encodeCM(f form) []byte {
	var b []byte
	for _, v := range []uint32{uint32(k.lid), k.outs, k.qpn, k.psn, k.rkey, 0} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = binary.BigEndian.AppendUint64(b, k.vaddr)
	if f == newCMForm {
		b = binary.BigEndian.AppendUint64(b, 0)
	}
	b = append(b, k.gid[:]...)
	b = binary.BigEndian.AppendUint32(b, k.srqn)
	return binary.BigEndian.AppendUint32(b, 0) // its GID index
}

func decodeCM(b []byte, f form) (k keys) {
	word := func(i int) uint32 { return binary.BigEndian.Uint32(b[i:]) }
	k = keys{lid: uint16(word(0)), outs: word(4), qpn: word(8), psn: word(12), rkey: word(16), vaddr: binary.BigEndian.Uint64(b[24:])}
	rest := b[32:]
	if f == newCMForm {
		rest = rest[8:]
	}
	copy(k.gid[:], rest)
	k.srqn = binary.BigEndian.Uint32(rest[len(k.gid):])
	return k
}

func decodeKeys(b []byte, f form) (k keys, err error) {
	if f >= cmForm {
		return decodeCM(b, f), nil
	}
	withGID := f == gidForm
	text, _, _ := strings.Cut(string(b), "\x00")
	bad := fmt.Errorf("%q are not the keys of a queue pair", text)
	fields := strings.Split(strings.TrimSuffix(text, ":"), ":")
	widths := []int{16, 32, 24, 24, 32, 64}
	plain := len(widths)
	if withGID {
		if len(fields) != plain+len(k.gid)+1 {
			return k, bad
		}
		gid := strings.Join(fields[plain:plain+len(k.gid)], "")
		if len(gid) != 2*len(k.gid) {
			return k, bad
		}
		if _, err := hex.Decode(k.gid[:], []byte(gid)); err != nil {
			return k, bad
		}
		fields = append(fields[:plain:plain], fields[plain+len(k.gid)])
	}
	widths = append(widths, 32)
	if len(fields) != len(widths) {
		return k, bad
	}
	var v [7]uint64
	for i, f := range fields {
		if v[i], err = strconv.ParseUint(f, 16, widths[i]); err != nil {
			return k, bad
		}
	}
	k.lid, k.outs, k.qpn, k.psn = uint16(v[0]), uint32(v[1]), uint32(v[2]), uint32(v[3])
	k.rkey, k.vaddr, k.srqn = uint32(v[4]), v[5], uint32(v[6])
	return k, nil
}

// An exchange is the connection over which the sides meet, by TCP or the connection manager.
// In each step the client writes first, and both sides read as many bytes as they write. One goroutine at
// a time takes steps.
type exchange struct {
	conn   io.ReadWriteCloser
	client bool
	form   form
	closed sync.Once

	withIbv bool // the other side is ibv, too
	lonely  bool // there is no connection

	limit time.Duration // how long the other side may be silent; 0: no limit

	mu      sync.Mutex
	arrived *sync.Cond
	inbox   []byte
	err     error // what ended the stream
}

// mostInbox is the limit of bytes that wait for a step. The other side is at most a step ahead, and all
// messages are shorter.
const mostInbox = 1 << 10

// newExchange starts to read the peer's messages, so that a side in a test notices that
// the peer has ended. read has the bytes that have already been read.
func newExchange(conn io.ReadWriteCloser, client bool, read ...byte) *exchange {
	x := &exchange{conn: conn, client: client, inbox: read}
	x.arrived = sync.NewCond(&x.mu)
	go x.listen()
	return x
}

// newLonely returns the exchange of a side that never meets the other side.
func newLonely() *exchange { return &exchange{lonely: true} }

func (x *exchange) listen() {
	b := make([]byte, 512)
	for {
		n, err := x.conn.Read(b)
		x.mu.Lock()
		if x.inbox = append(x.inbox, b[:n]...); len(x.inbox) > mostInbox {
			err = errFlood
		}
		if err != nil {
			x.err = err
		}
		x.arrived.Broadcast()
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// interrupt ends the wait for the peer.
func (x *exchange) interrupt() {
	if x.lonely {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = errInterrupted
	}
	x.arrived.Broadcast()
}

// Close closes the connection. It may be called again.
func (x *exchange) Close() (err error) {
	x.closed.Do(func() { err = x.conn.Close() })
	return err
}

// peer reports whether the peer has ended, and whether its next message has arrived.
func (x *exchange) peer() (gone, waits bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil, len(x.inbox) > 0 || x.lonely
}

func (x *exchange) receive(n int) ([]byte, error) {
	b, err := x.peek(n)
	if err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.inbox = x.inbox[n:]
	}
	return b, err
}

// peek returns the next bytes without consuming them.
func (x *exchange) peek(n int) ([]byte, error) {
	late := false
	if x.limit > 0 {
		defer time.AfterFunc(x.limit, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			late = true
			x.arrived.Broadcast()
		}).Stop()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.inbox) < n && x.err == nil && !late {
		x.arrived.Wait()
	}
	switch {
	case len(x.inbox) >= n:
	case x.err == nil:
		return nil, fmt.Errorf("the other side has been silent for %v: it hangs, or runs another test (--patience)", x.limit)
	case errors.Is(x.err, errInterrupted):
		return nil, x.err
	default:
		return nil, fmt.Errorf("%w: %w", errGone, x.err)
	}
	return x.inbox[:n:n], nil
}

// swap is a step: it sends one message and receives another of the same length. The
// server may add a farewell, which is never read.
func (x *exchange) swap(what string, mine []byte, farewell string) ([]byte, error) {
	var theirs []byte
	var err error
	if !x.client {
		if theirs, err = x.receive(len(mine)); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	if _, err := x.conn.Write(append(mine[:len(mine):len(mine)], farewell...)); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, errGone, err)
	}
	if x.client {
		if theirs, err = x.receive(len(mine)); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	return theirs, nil
}

// versions exchanges versions. The peer's version must be supported by both.
func (x *exchange) versions() error {
	mine := make([]byte, versionLen)
	copy(mine, Version)
	copy(mine[versionLen-len(mark):], mark)
	theirs, err := x.swap("exchanging versions", mine, "")
	if err != nil {
		return err
	}
	version, err := parseVersion(theirs)
	switch {
	case err != nil:
		return err
	case x.form == cmForm && version >= newCMVersion:
		x.form = newCMForm
	}
	x.withIbv = bytes.HasSuffix(theirs, []byte(mark))
	return nil
}

// parseVersion returns a side's version, which must be supported by both sides.
func parseVersion(b []byte) (float64, error) {
	text, _, _ := strings.Cut(string(b), "\x00")
	version, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the other side is no perftest: its version is %q", text)
	case !(version >= oldestVersion):
		return 0, fmt.Errorf("the other side's version %q is too old: it must be %.2f or newer", text, oldestVersion)
	}
	return version, nil
}

// mostLayout is the maximum of either size, on any processor.
const mostLayout = 64 << 10

// layout exchanges the sizes that determine the layout of messages in memory. Both sides use the
// larger sizes.
func (x *exchange) layout() (cycle, line int, err error) {
	for i, size := range []*int{&cycle, &line} {
		*size = []int{os.Getpagesize(), cacheLine}[i]
		theirs, err := x.swap("exchanging the layout", binary.BigEndian.AppendUint32(nil, uint32(*size)), "")
		if err != nil {
			return 0, 0, err
		}
		v := int32(binary.BigEndian.Uint32(theirs))
		if v < 0 || v > mostLayout || v&(v-1) != 0 {
			return 0, 0, fmt.Errorf("the other side's memory has pages or cache lines of %d bytes", v)
		}
		*size = max(*size, int(v))
	}
	return cycle, line, nil
}

// mtu exchanges MTUs and returns the smaller one.
func (x *exchange) mtu(mine verbs.MTU) (verbs.MTU, error) {
	theirs, err := x.swap("exchanging MTUs", []byte{'0' + byte(mine), 0}, "")
	if err != nil {
		return 0, err
	}
	if v := verbs.MTU(theirs[0] - '0'); v >= verbs.MTU256 && v <= verbs.MTU4096 {
		return min(mine, v), nil
	}
	return mine, nil
}

// meet exchanges the keys of one queue pair. A barrier exchanges them again.
func (x *exchange) meet(what string, mine keys) (keys, error) {
	theirs, err := x.swap(what, mine.encode(x.form), "")
	if err != nil {
		return keys{}, err
	}
	return decodeKeys(theirs, x.form)
}

func (x *exchange) barrier(mine keys) error {
	_, err := x.meet("waiting for the other side", mine)
	return err
}

// costs exchanges the costs of the messages. Only two ibv sides do so.
func (x *exchange) costs(mine cost) (theirs cost, err error) {
	out := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(mine.cpu)), mine.messages)
	b, err := x.swap("exchanging costs", out, "")
	if err != nil {
		return theirs, err
	}
	theirs = cost{time.Duration(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}
	if theirs.cpu < 0 {
		return cost{}, fmt.Errorf("the other side's messages have cost %v", theirs.cpu)
	}
	return theirs, nil
}

// part is the last step.
func (x *exchange) part(mine keys) error {
	farewell := ""
	if !x.client && x.form < cmForm {
		farewell = goodbye
	}
	if _, err := x.swap("taking leave", mine.encode(x.form), farewell); err != nil {
		return err
	}
	if x.client && x.form < cmForm {
		// The server may have ended by now.
		_, _ = x.conn.Write([]byte(goodbye))
	}
	return nil
}

// A bandwidth is the result of one size.
type bandwidth struct {
	size, iters   uint64
	peak, average float64
	rate          float64 // 10⁶ messages per second
}

// reports exchanges results.
func (x *exchange) reports(mine bandwidth) (theirs bandwidth, err error) {
	out := []uint64{mine.size, mine.iters, math.Float64bits(mine.peak), math.Float64bits(mine.average), math.Float64bits(mine.rate)}
	in := make([]uint64, len(out))
	for i, v := range out {
		b, err := x.swap("exchanging results", binary.BigEndian.AppendUint64(nil, v), "")
		if err != nil {
			return theirs, err
		}
		in[i] = binary.BigEndian.Uint64(b)
	}
	number := func(bits uint64) float64 {
		if v := math.Float64frombits(bits); v > 0 && v < math.MaxFloat32 {
			return v
		}
		return 0
	}
	return bandwidth{size: in[0], iters: in[1], peak: number(in[2]), average: number(in[3]), rate: number(in[4])}, nil
}

// linger waits until the other side ends, because it may still retry requests whose acknowledgement
// was lost. The wait is short, because the other side may also linger.
func (x *exchange) linger(limit time.Duration) {
	if c, ok := x.conn.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	timer := time.AfterFunc(limit, func() { x.Close() })
	x.mu.Lock()
	for x.err == nil {
		x.arrived.Wait()
	}
	x.mu.Unlock()
	if !timer.Stop() {
		x.Close() // waits until the timer has closed all
	}
}

var errFlood = errors.New("it sends more than any step has")

var errGIDs = errors.New("one side has an IPv4 GID and the other hasn't: choose GIDs of one kind (-x)")
