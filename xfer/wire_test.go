package xfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// A Remote that is accepted has numbers in range, and encodes to what it was decoded from.
func FuzzRemote(f *testing.F) {
	r := Remote{engine: engineID{1}, grant: 2, secret: secret{3}, access: Read | Atomic, off: 4, n: 5}
	b, _ := r.MarshalBinary()
	f.Add(b)
	j, _ := r.MarshalJSON()
	f.Add(j)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Remote
		if r.UnmarshalBinary(b) == nil {
			if back, err := r.MarshalBinary(); err != nil || !bytes.Equal(back, b) {
				t.Errorf("%x became %x, %v", b, back, err)
			}
		} else if json.Unmarshal(b, &r) != nil {
			return
		}
		j, err := json.Marshal(r)
		var back Remote
		if err != nil || json.Unmarshal(j, &back) != nil || back != r {
			t.Errorf("%v became %s, and that %v; %v", r, j, back, err)
		}
		if r.Len() < 0 || r.off+r.n < r.off || r.Slice(0, r.Len()) != r || r.Slice(1, r.Len()) != (Remote{}) {
			t.Errorf("%v reaches out of range", r)
		}
	})
}

// A Remote that was sliced out of range travels, and is refused for that reason.
func TestRemoteOutOfRange(t *testing.T) {
	r := Remote{engine: engineID{1}, access: Read, n: 5}.Slice(1, 5)
	b, _ := r.MarshalBinary()
	j, _ := r.MarshalJSON()
	for _, err := range []error{new(Remote).UnmarshalBinary(b), json.Unmarshal(j, new(Remote))} {
		if !errors.Is(err, errRemote) {
			t.Error(err)
		}
	}
}

// A message that is accepted can be handled: its numbers are in range.
func FuzzMessage(f *testing.F) {
	for _, m := range []*message{
		{Kind: hello, Version: version, Engine: make([]byte, 16), Rails: []railInfo{{"mlx5_0/1", true, true, []string{"rc"}}}, Notifications: 7},
		{Kind: attach, ID: 1, Grant: 2, Secret: make([]byte, 16)}, {Kind: answer, ID: 1, Address: 4096, Length: 4096, Access: Read | Write, Keys: []uint32{1, 2}},
		{Kind: answer, ID: 2, Code: "revoked", Text: "x"}, {Kind: credit, Count: 9}, {Kind: railUp, Rail: 3, Up: true},
	} {
		b, err := appendMessage(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b))
		if err != nil {
			return
		}
		if m.Rail < 0 || m.Rail >= maxRails || len(m.Keys) > maxRails || m.Address+m.Length < m.Address || m.Kind == credit && m.Count > maxCredit {
			t.Errorf("%+v is out of range", m)
		}
		out, err := appendMessage(nil, m)
		if err != nil {
			return // longer than it was
		}
		back, err := readMessage(bytes.NewReader(out))
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if a, b := asJSON(m), asJSON(back); !reflect.DeepEqual(a, b) {
			t.Errorf("%s became %s", a, b)
		}
	})
}

func asJSON(m *message) string {
	b, _ := json.Marshal(m)
	return string(b)
}
