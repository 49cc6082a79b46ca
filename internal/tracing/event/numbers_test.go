package event

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestNumberForms: numbers of each form are decimal in JSON, and come back.
func TestNumberForms(t *testing.T) {
	e := &Event{Time: time.Unix(1, 0).UTC(), Kind: Note, FD: -1, Returned: true, Args: []Field{
		{"a", Value{Form: Uint, Num: math.MaxUint64}},
		{"b", Value{Form: Int, Num: 1234567}},
		{"c", Value{Form: Int, Num: uint64(math.MaxUint64 - 1234566)}},
		{"d", Value{Form: FD, Num: 98765}},
		{"e", Value{Form: Hex, Num: 0x123456789}},
		{"f", Value{Form: Handle, Str: "qp", Num: 4321, Gen: 87}},
	}}
	var b bytes.Buffer
	if err := NewWriter(&b).Event(e); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"a":18446744073709551615`, `"b":1234567`, `"c":-1234567`, `"d":98765`, `"e":4886718345`, `"f":4321`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in %s", want, &b)
		}
	}
	got, err := NewReader(&b).Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e.Args, got.Args); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestGenerationRefused: a handle's generation is a number.
func TestGenerationRefused(t *testing.T) {
	const line = `{"v":"1.0","ts":"2026-01-02T03:04:05Z","kind":"note","args":{"a":5},"types":{"args.a":"qp#x"}}`
	if e, err := Parse([]byte(line)); err == nil || !strings.Contains(err.Error(), `the type of args.a is "qp#x"`) {
		t.Errorf("%v, %v", e, err)
	}
}
