package verbs

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestRemote: a Remote survives both encodings.
func TestRemote(t *testing.T) {
	r := Remote{Addr: 0xfedcba9876543210, RKey: 0x89abcdef}
	var got Remote
	text := string(must(json.Marshal(r))(t))
	if want := `{"addr":18364758544493064720,"rkey":2309737967}`; text != want {
		t.Errorf("JSON is %s, want %s", text, want)
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || got != r {
		t.Errorf("JSON gives %v, %v", got, err)
	}
	b := must(r.MarshalBinary())(t)
	if want := "\xfe\xdc\xba\x98\x76\x54\x32\x10\x89\xab\xcd\xef"; string(b) != want {
		t.Errorf("binary is %x, want %x", b, want)
	}
	got = Remote{}
	if err := got.UnmarshalBinary(b); err != nil || got != r {
		t.Errorf("binary gives %v, %v", got, err)
	}
	if err := got.UnmarshalBinary(b[1:]); !errors.Is(err, ErrInvalid) {
		t.Errorf("11 bytes: %v", err)
	}
	if at := r.At(16); at != (Remote{0xfedcba9876543220, 0x89abcdef}) {
		t.Errorf("16 bytes on is %v", at)
	}
}
