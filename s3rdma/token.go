package s3rdma

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// ErrToken: a token is malformed, or its fields contradict each other.
var ErrToken = errors.New("s3rdma: invalid token")

// DefaultDCKey is the DC key of cuObject, which tokens don't contain.
const DefaultDCKey = 0xffeeddcc

// MaxBytes is the maximum length of a body that goes by RDMA, the protocol's limit for one operation:
// 1 GiB.
const MaxBytes = 1 << 30

// A Token describes the memory that a client lends for one request, and its DC target. It is the
// value of the header x-amz-rdma-token.
type Token struct {
	Addr uint64    // of the first byte, as the MR has it
	Size uint32    // bytes, 1 to MaxBytes: the length of a PUT's body, the maximum for a GET
	RKey uint32    // of the client's MR
	LID  uint16    // of the client's port; 0 over RoCE
	DCTN uint32    // the DC target's number, 24 bits, not 0
	GID  verbs.GID // of the client's port; zero for none, which needs a LID
}

// ParseToken parses a token of seven fields: address, size, rkey, LID, DC target, 1 or 0 for whether
// there is a GID, and the GID, in hexadecimal digits of fixed width. The address and the size of an
// operation within that memory may follow, of 16 digits each, and a semicolon. The Token then has these.
// Errors match ErrToken.
func ParseToken(s string) (Token, error) {
	s = strings.TrimSuffix(s, ";")
	fields := strings.SplitN(s, ":", 10)
	if len(fields) != 7 && len(fields) != 9 {
		return Token{}, bad("%d fields, want 7 or 9", len(fields))
	}
	var v [9]uint64
	for i, f := range fields {
		if i == 6 {
			continue
		}
		var err error
		if v[i], err = parseHex(tokenFields[i].name, f, tokenFields[i].digits); err != nil {
			return Token{}, err
		}
	}
	t := Token{Addr: v[0], Size: uint32(v[1]), RKey: uint32(v[2]), LID: uint16(v[3]), DCTN: uint32(v[4])}
	if n, err := hex.Decode(t.GID[:], []byte(fields[6])[:min(len(fields[6]), 32)]); err != nil || n != 16 || len(fields[6]) != 32 {
		return Token{}, bad("GID %.40q is not 32 hexadecimal digits", fields[6])
	}
	switch {
	case v[5] > 1:
		return Token{}, bad("GID flag %d is neither 0 nor 1", v[5])
	case v[5] == 1 && t.GID == verbs.GID{}:
		return Token{}, bad("the GID is zero")
	case v[5] == 0 && t.LID == 0:
		return Token{}, bad("neither a GID nor a LID")
	case t.DCTN == 0:
		return Token{}, bad("the DC target is 0")
	case t.Addr > math.MaxUint64-uint64(t.Size):
		return Token{}, bad("address %#x overflows with size %#x", t.Addr, t.Size)
	}
	if v[5] == 0 {
		t.GID = verbs.GID{}
	}
	if len(fields) == 9 {
		addr, size := v[7], v[8]
		if addr < t.Addr || size > uint64(t.Size) || addr-t.Addr > uint64(t.Size)-size {
			return Token{}, bad("%d bytes at %#x are not within %d bytes at %#x", size, addr, t.Size, t.Addr)
		}
		t.Addr, t.Size = addr, uint32(size)
	}
	if t.Size == 0 || t.Size > MaxBytes {
		return Token{}, bad("size %d is not in 1 to %d", t.Size, MaxBytes)
	}
	return t, nil
}

var tokenFields = [9]struct {
	name   string
	digits int
}{{"address", 16}, {"size", 8}, {"rkey", 8}, {"LID", 4}, {"DC target", 6}, {"GID flag", 1}, {}, {"operation's address", 16}, {"operation's size", 16}}

// parseHex parses a number of exactly so many hexadecimal digits.
func parseHex(name, s string, digits int) (uint64, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != digits {
		return 0, bad("%s %.40q is not %d hexadecimal digits", name, s, digits)
	}
	return v, nil
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrToken, fmt.Sprintf(format, args...))
}

// String returns the token's text, of seven fields.
func (t Token) String() string {
	flag := uint64(1)
	if t.GID == (verbs.GID{}) {
		flag = 0
	}
	b := make([]byte, 0, 128)
	for i, v := range [...]uint64{t.Addr, uint64(t.Size), uint64(t.RKey), uint64(t.LID), uint64(t.DCTN), flag} {
		for shift := 4 * (tokenFields[i].digits - 1); shift >= 0; shift -= 4 {
			b = append(b, "0123456789abcdef"[v>>shift&0xf])
		}
		b = append(b, ':')
	}
	return string(hex.AppendEncode(b, t.GID[:]))
}

// MaxRCBytes is the maximum length of an operation of the RC protocol: 2 GiB less one byte.
const MaxRCBytes = math.MaxInt32

// An RCToken describes an end of a reliable connection, in AMD's variant of the protocol
// (hipobj-rc-v2): the client's in its request, the server's in the reply. Memory may be described
// elsewhere; then its fields are 0.
type RCToken struct {
	QPN  uint32    // 24 bits
	GID  verbs.GID // of the port
	RKey uint32    // of the MR
	Addr uint64    // of the first byte, as the MR has it
	Size uint64    // bytes, 0 to MaxRCBytes
	Port uint8     // from 1
	LID  uint16    // of the port; 0 over RoCE
}

// rcTokenLen is the length of an RCToken in bytes, and rcTransport its first byte.
const (
	rcTokenLen  = 44
	rcTransport = 1
)

// ParseRCToken parses a token of 44 bytes, as 88 hexadecimal digits. An address and a size, of up to 16
// digits each, may follow after colons. The RCToken then has these. Errors match ErrToken.
func ParseRCToken(s string) (RCToken, error) {
	fields := strings.SplitN(s, ":", 4)
	var b [rcTokenLen]byte
	if len(fields[0]) != hex.EncodedLen(rcTokenLen) {
		return RCToken{}, bad("%d digits, want %d", len(fields[0]), hex.EncodedLen(rcTokenLen))
	}
	if _, err := hex.Decode(b[:], []byte(fields[0])); err != nil {
		return RCToken{}, bad("%v", err)
	}
	t := RCToken{
		QPN: binary.LittleEndian.Uint32(b[1:]), RKey: binary.LittleEndian.Uint32(b[21:]), Addr: binary.LittleEndian.Uint64(b[25:]),
		Size: binary.LittleEndian.Uint64(b[33:]), Port: b[41], LID: binary.LittleEndian.Uint16(b[42:]),
	}
	copy(t.GID[:], b[5:21])
	switch len(fields) {
	case 1:
	case 3:
		var err error
		if t.Addr, err = parseHex("address", fields[1], max(1, min(len(fields[1]), 16))); err != nil {
			return RCToken{}, err
		}
		if t.Size, err = parseHex("size", fields[2], max(1, min(len(fields[2]), 16))); err != nil {
			return RCToken{}, err
		}
	default:
		return RCToken{}, bad("%d fields, want 1 or 3", len(fields))
	}
	switch {
	case b[0] != rcTransport:
		return RCToken{}, bad("transport %d is not %d, RC", b[0], rcTransport)
	case t.QPN > 0xffffff:
		return RCToken{}, bad("QP number %#x has more than 24 bits", t.QPN)
	case t.GID == verbs.GID{}:
		return RCToken{}, bad("the GID is zero")
	case t.Port == 0:
		return RCToken{}, bad("the port is 0")
	case t.Size > MaxRCBytes || t.Addr > math.MaxUint64-t.Size:
		return RCToken{}, bad("%d bytes at %#x", t.Size, t.Addr)
	}
	return t, nil
}

// String returns the token's text, of 88 digits.
func (t RCToken) String() string {
	b := make([]byte, 0, rcTokenLen)
	b = append(b, rcTransport)
	b = binary.LittleEndian.AppendUint32(b, t.QPN)
	b = append(b, t.GID[:]...)
	b = binary.LittleEndian.AppendUint32(b, t.RKey)
	b = binary.LittleEndian.AppendUint64(b, t.Addr)
	b = binary.LittleEndian.AppendUint64(b, t.Size)
	b = append(b, t.Port)
	b = binary.LittleEndian.AppendUint16(b, t.LID)
	return hex.EncodeToString(b)
}
