package s3rdma

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

// published is the token that cuObject's and versitygw's descriptions have as their example. Its size,
// 16 MiB and a little, is allowed.
const published = "0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10"

func TestToken(t *testing.T) {
	gid := verbs.GID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	for s, want := range map[string]Token{
		published:       {0x0102030405060708, 0x01020304, 0x01020304, 0x0102, 0x010203, gid},
		published + ";": {0x0102030405060708, 0x01020304, 0x01020304, 0x0102, 0x010203, gid},
		published + ":0102030405060709:0000000001020303":                                    {0x0102030405060709, 0x01020303, 0x01020304, 0x0102, 0x010203, gid},
		published + ":0102030405060708:0000000000000001;":                                   {0x0102030405060708, 1, 0x01020304, 0x0102, 0x010203, gid},
		"0000000000000000:40000000:FFFFFFFF:0001:ffffff:0:00000000000000000000000000000000": {0, MaxBytes, math.MaxUint32, 1, 0xffffff, verbs.GID{}},
		// The GID counts only with the flag.
		"0000000000000000:00000001:00000000:0001:000001:0:0102030405060708090a0b0c0d0e0f10": {0, 1, 0, 1, 1, verbs.GID{}},
		// The registered memory may be larger than one operation.
		"0000000000000000:ffffffff:00000000:0001:000001:0:00000000000000000000000000000000:00000000bfffffff:0000000040000000": {0xbfffffff, MaxBytes, 0, 1, 1, verbs.GID{}},
	} {
		got, err := ParseToken(s)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
		}
		if again, err := ParseToken(got.String()); err != nil || again != got {
			t.Errorf("%s: formatted as %s, which is %+v, %v", s, got, again, err)
		}
	}
	if got, err := ParseToken(published); err != nil || got.String() != published {
		t.Errorf("%s is formatted as %s, %v", published, got, err)
	}
}

// TestWrongToken: each field is checked, by its width, its digits and its value.
func TestWrongToken(t *testing.T) {
	fields := strings.Split(published, ":")
	with := func(i int, s string) string {
		f := append([]string(nil), fields...)
		f[i] = s
		return strings.Join(f, ":")
	}
	wrong := []string{
		"", ";", ":::::::", strings.Join(fields[:6], ":"), published + ":", published + ":0102030405060708",
		published + ":0102030405060708:0000000000000001:1", published + ":0102030405060708:0000000000000001:1:1", published + ";;", " " + published,
		with(0, "ffffffffffffffff"), with(1, "00000000"), with(1, "40000001"), with(4, "000000"), with(5, "2"),
		with(6, strings.Repeat("0", 32)), strings.Replace(with(5, "0"), ":0102:", ":0000:", 1),
		published + ":0102030405060707:0000000000000001", published + ":0102030405060708:0000000001020305", published + ":0102030405060708:0000000000000000",
		published + ":0102030406080a0c:0000000000000001", published + ":0102030405060709:0000000001020304", published + ":ffffffffffffffff:ffffffffffffffff",
	}
	for i, f := range fields {
		wrong = append(wrong, with(i, ""), with(i, f+"0"), with(i, f[1:]), with(i, "g"+f[1:]), with(i, "+"+f[1:]), with(i, "-"+f[1:]), with(i, "_"+f[1:]), with(i, " "+f[1:]))
		if len(f) > 2 {
			wrong = append(wrong, with(i, "0x"+f[2:]), with(i, f[:1]+"_"+f[2:]))
		}
	}
	for _, s := range wrong {
		if got, err := ParseToken(s); !errors.Is(err, ErrToken) || got != (Token{}) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
}

// exampleRC has each field's bytes in order.
const exampleRC = "01" + "33221100" + "0102030405060708090a0b0c0d0e0f10" + "f3f2f1f0" + "0807060504030201" + "0010000000000000" + "01" + "3412"

func TestRCToken(t *testing.T) {
	gid := verbs.GID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	want := RCToken{0x112233, gid, 0xf0f1f2f3, 0x0102030405060708, 4096, 1, 0x1234}
	got, err := ParseRCToken(exampleRC)
	if err != nil || got != want || got.String() != exampleRC {
		t.Errorf("%+v %s, %v; want %+v", got, got, err, want)
	}
	want.Addr, want.Size = 0x77, MaxRCBytes
	if got, err := ParseRCToken(strings.ToUpper(exampleRC) + ":77:000000007fffffff"); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	at := func(i int, s string) string { return exampleRC[:2*i] + s + exampleRC[2*i+len(s):] }
	for _, s := range []string{
		"", published, exampleRC[2:], exampleRC + "00", exampleRC + ":", exampleRC + ":1", exampleRC + ":1:", exampleRC + "::1", exampleRC + ":1:1:1",
		exampleRC + ":00000000000000001:1", exampleRC + ":1:00000000000000001", exampleRC + ":0x1:1", exampleRC + ":1:-1", exampleRC + ":1:80000000", exampleRC + ":ffffffffffffffff:1",
		at(0, "00"), at(0, "02"), at(0, "0g"), at(4, "01"), at(5, strings.Repeat("0", 32)), at(36, "80"), at(41, "00"), strings.Repeat("0", 88),
		at(25, strings.Repeat("f", 16)),
	} {
		if got, err := ParseRCToken(s); !errors.Is(err, ErrToken) || got != (RCToken{}) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
}

// FuzzToken: a token that is accepted lies within the memory and the limits that it names, and its own
// text is accepted as the same.
func FuzzToken(f *testing.F) {
	f.Add(published)
	f.Add(published + ":0102030405060709:0000000001020303;")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseToken(s)
		if err != nil {
			if !errors.Is(err, ErrToken) || got != (Token{}) {
				t.Fatalf("%+v, %v", got, err)
			}
			return
		}
		if got.Size == 0 || got.Size > MaxBytes || got.Addr+uint64(got.Size) < got.Addr || got.DCTN == 0 || got.DCTN > 0xffffff || got.LID == 0 && got.GID == (verbs.GID{}) {
			t.Errorf("%q is accepted as %+v", s, got)
		}
		// The registered memory is the first two fields.
		var addr uint64
		var size uint32
		if _, err := fmt.Sscanf(s, "%16x:%8x:", &addr, &size); err != nil || got.Addr < addr || got.Addr+uint64(got.Size) > addr+uint64(size) {
			t.Errorf("%q is accepted as %+v", s, got)
		}
		if again, err := ParseToken(got.String()); err != nil || again != got {
			t.Errorf("%q is %+v, and formatted %+v, %v", s, got, again, err)
		}
	})
}

// FuzzRCToken is FuzzToken for the tokens of RC.
func FuzzRCToken(f *testing.F) {
	f.Add(exampleRC)
	f.Add(exampleRC + ":77:7fffffff")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseRCToken(s)
		if err != nil {
			if !errors.Is(err, ErrToken) || got != (RCToken{}) {
				t.Fatalf("%+v, %v", got, err)
			}
			return
		}
		if got.QPN > 0xffffff || got.Size > MaxRCBytes || got.Addr+got.Size < got.Addr || got.Port == 0 || got.GID == (verbs.GID{}) {
			t.Errorf("%q is accepted as %+v", s, got)
		}
		if again, err := ParseRCToken(got.String()); err != nil || again != got {
			t.Errorf("%q is %+v, and formatted %+v, %v", s, got, again, err)
		}
	})
}
