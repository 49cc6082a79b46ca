package event

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// full returns an event with all fields set, and with values of every form.
func full() *Event {
	return &Event{
		Time: time.Date(2026, 2, 3, 10, 31, 7, 120345678, time.UTC), PID: 4711, TID: 4712, Comm: "ser\"v\xc3\xa9r",
		Kind: Control, Verb: "ibv_create_qp", Object: "QP", Method: "UVERBS_METHOD_QP_CREATE",
		Device: "rxe0", Driver: "RXE", File: 2, FD: 3, Path: "/dev/x",
		Args: []Field{
			{"pd", Value{Form: Handle, Num: 3, Str: "pd", Gen: 2}},
			{"user_handle", Value{Form: Pointer, Num: 0xffffffffffffffff}},
			{"cap", Value{Form: Struct, Fields: []Field{
				{"max_send_wr", Value{Form: Uint, Num: 18446744073709551615}},
				{"delta", Value{Form: Int, Num: ^uint64(0)}},
				{"positive", Value{Form: Int, Num: 5}},
				{"key", Value{Form: Hex, Num: 0x11}},
			}}},
			{"type", Value{Form: Word, Str: "RC"}},
			{"word", Value{Form: Word, Str: "0x10"}},
			{"flags", Value{Form: Flags, Words: []string{"A", "0x40"}}},
			{"none", Value{Form: Flags}},
			{"on", Value{Form: Bool, Num: 1}},
			{"off", Value{Form: Bool}},
			{"fd", Value{Form: FD, Num: ^uint64(0)}},
			{"fd2", Value{Form: FD, Num: 7}},
			{"name", Value{Form: Text, Str: "a\nb\\"}},
			{"data", Value{Form: Bytes, Str: "\x00\xff"}},
			{"list", Value{Form: List, Elems: []Value{{Form: Hex, Num: 1}, {Form: Struct, Fields: []Field{{"x", Value{}}}}, {Form: List}}}},
			{"lost", Value{Form: Lost, Num: 0x7f00}},
			{"empty", Value{Form: Struct}},
		},
		Out:      []Field{{"qp_num", Value{Form: Hex, Num: 17}}},
		Problem:  "half of it",
		Returned: true, Ret: -1, Errno: "EINVAL", Error: "Invalid argument", Rejects: "cap.max_send_wr", Why: "too many",
		Duration: 84 * time.Microsecond, Timed: true,
		Created:   []Object{{Type: "qp", Handle: 7, Gen: 1, File: 2, Num: 17}},
		Destroyed: []Object{{Type: "mr", Handle: 1 << 40, Gen: 3, File: 1, Before: true}},
		Raw:       []RawAttr{{ID: 0x1000, Name: "UVERBS_ATTR_UHW_IN", Len: 8, Flags: 1, Elem: 2, Data: 1 << 63, Bytes: []byte{1, 2}}},
	}
}

func TestRoundTrip(t *testing.T) {
	events := []*Event{
		full(),
		{Time: time.Unix(1, 0).UTC(), Kind: Note, Why: "x", FD: -1},
		{Time: time.Unix(0, 1).UTC(), Kind: Data, Verb: "ibv_poll_cq", FD: 0, Returned: true},
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, e := range events {
		if err := w.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != len(events) {
		t.Errorf("%d lines for %d events", n, len(events))
	}
	r := NewReader(&b)
	for _, want := range events {
		got, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if _, err := r.Read(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// TestNewerVersion reads a line that a later ibvtrace may write.
func TestNewerVersion(t *testing.T) {
	line := `{"v":"1.7","ts":"2026-01-02T03:04:05Z","new":{"a":[1.5e3,null]},"kind":"hologram","verb":"ibv_x",` +
		`"args":{"a":5,"b":"s","c":null,"d":-1.5},"types":{"args.a":"quaternion","args.b":"tensor","args":7}}`
	e, err := Parse([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want := &Event{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Kind: "hologram", Verb: "ibv_x", FD: -1,
		Args: []Field{{"a", Value{Form: Uint, Num: 5}}, {"b", Value{Form: Word, Str: "s"}}, {"c", Value{Form: Word, Str: "null"}}, {"d", Value{Form: Word, Str: "-1.5"}}},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRefused(t *testing.T) {
	const head = `{"v":"1.0","ts":"2026-01-02T03:04:05Z","kind":"note"`
	for line, want := range map[string]string{
		"nonsense":                       "not JSON",
		"[1]":                            "not an event",
		"{}":                             "no version",
		`{"v":1}`:                        "no version",
		`{"v":"2.0"}`:                    `version "2.0"`,
		`{"v":"1.0"}`:                    "ts or kind is missing",
		`{"v":"1.0","ts":"yesterday"}`:   "ts",
		head + `,"pid":"x"}`:             "pid is not a number",
		head + `,"pid":1e9}`:             "pid is not a number",
		head + `,"comm":1}`:              "comm is not a string",
		head + `,"args":[]}`:             "args is not an object",
		head + `,"created":{}}`:          "created is not an array",
		head + `,"raw":[{"data":"12"}]}`: "data is not an address",
		head + `} {`:                     "not JSON",
		head + `,"args":{"a":"\q"}}`:     "not JSON",
		head + `,"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`: "nested too deep",
		head + `,"args":{"a":[1` + strings.Repeat(",1", maxValues) + `]}}`:           "too many values",
		`{"v":"1.0","ts":"9999-12-31T23:59:59-01:00","kind":"note"}`:                 "ts is",
		`{"v":"1.0","ts":"0000-01-01T00:00:00+01:00","kind":"note"}`:                 "ts is",
	} {
		if e, err := Parse([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, %v; want an error with %q", line, e, err, want)
		}
	}
}

func TestReaderGoesOn(t *testing.T) {
	good := `{"v":"1.0","ts":"2026-01-02T03:04:05Z","kind":"note"}`
	r := NewReader(strings.NewReader("\n" + good + "\nrubbish\n" + strings.Repeat(" ", maxLine) + "\n  \n" + good + "\n" + good[:20]))
	var got []string
	for {
		_, err := r.Read()
		got = append(got, fmt.Sprint(err))
		if err == io.EOF {
			break
		}
	}
	want := []string{"<nil>", "line 3: not JSON", "line 4: longer than 16 MiB", "<nil>", "line 7: unexpected EOF", "EOF"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if e, err := NewReader(strings.NewReader(good)).Read(); err != nil || e.Kind != Note {
		t.Errorf("without a last newline: %v, %v", e, err)
	}
}

// TestTorn: an error of the underlying reader is told once.
func TestTorn(t *testing.T) {
	good := `{"v":"1.0","ts":"2026-01-02T03:04:05Z","kind":"note"}` + "\n"
	r := NewReader(io.MultiReader(strings.NewReader(good+good[:20]), iotest.ErrReader(io.ErrUnexpectedEOF)))
	var got []string
	for range 4 {
		_, err := r.Read()
		got = append(got, fmt.Sprint(err))
	}
	if diff := cmp.Diff([]string{"<nil>", "line 2: unexpected EOF", "EOF", "EOF"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full().AppendJSON(nil))
	f.Add([]byte(`{"v":"1.0","ts":"2026-01-02T03:04:05Z","kind":"note","args":{"a.b":1,"a":{"b":2},"c":[1,[2]]},"types":{"args.a.b":"x#y"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := Parse(line)
		if err != nil {
			return
		}
		// Writing an event and reading it again must not change it.
		once := e.AppendJSON(nil)
		again, err := Parse(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if twice := again.AppendJSON(nil); !bytes.Equal(once, twice) {
			t.Errorf("\n%s\n%s", once, twice)
		}
	})
}

// TestBool: any value other than 0 becomes 1 in an event.
func TestBool(t *testing.T) {
	for n, want := range map[uint64]uint64{0: 0, 1: 1, 2: 1, 1 << 63: 1} {
		got := ValueOf(&ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeBool, Size: 1}, Num: n})
		if got.Form != Bool || got.Num != want {
			t.Errorf("%d is %+v, want %d", n, got, want)
		}
	}
}

func TestFields(t *testing.T) {
	u := &uapi.Type{Kind: uapi.TypeUint, Size: 4}
	values := []ioctl.NamedValue{
		{Name: "a", Value: ioctl.Value{Type: u, Num: 1}},
		{Name: "a", Value: ioctl.Value{Type: u, Num: 2}},
		{Name: "a", Value: ioctl.Value{Type: u, Num: 3}},
		{Name: "h", Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeHandle, Object: uapi.UVERBS_OBJECT_COMP_CHANNEL}, Num: 4}},
		{Name: "gid", Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeGID}, Bytes: append([]byte{0xfe, 0x80}, make([]byte, 14)...)}},
		{Name: "mac", Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeMAC}, Bytes: []byte{1, 2, 3, 4, 5, 255}}},
		{Name: "access", Value: ioctl.Value{Type: &uapi.Type{Kind: uapi.TypeFlags, Enum: uapi.EnumIbUverbsAccessFlags}, Num: 3}},
		{Name: "lost", Value: ioctl.Value{Addr: 5, Err: io.EOF}},
	}
	want := []Field{
		{"a", Value{Num: 1}},
		{"a_2", Value{Num: 2}},
		{"a_3", Value{Num: 3}},
		{"h", Value{Form: Handle, Str: "comp_channel", Num: 4}},
		{"gid", Value{Form: Word, Str: "fe80::"}},
		{"mac", Value{Form: Word, Str: "01:02:03:04:05:ff"}},
		{"access", Value{Form: Flags, Words: []string{"LOCAL_WRITE", "REMOTE_WRITE"}}},
		{"lost", Value{Form: Lost, Num: 5}},
	}
	if diff := cmp.Diff(want, Fields(values)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWalk: Walk reaches each value once, however deep.
func TestWalk(t *testing.T) {
	number := func(n uint64) Field { return Field{Value: Value{Num: n}} }
	fields := []Field{
		number(1),
		{Value: Value{Form: Struct, Num: 2, Fields: []Field{number(3), {Value: Value{Form: List, Num: 4, Elems: []Value{{Num: 5}, {Num: 6, Fields: []Field{number(7)}}}}}}}},
		number(8),
	}
	var got []uint64
	Walk(fields, func(v *Value) { got = append(got, v.Num) })
	if want := []uint64{1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDocumented checks that the package comment and the manual page have every field of the
// JSON.
func TestDocumented(t *testing.T) {
	n, err := parse(full().AppendJSON(nil))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	man, err := os.ReadFile("../../../cmd/ibvtrace/ibvtrace.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range n.names {
		if !strings.Contains(string(doc), "\n//\t"+name+" ") {
			t.Errorf("%s is not in doc.go", name)
		}
		if !regexp.MustCompile(`(?m)^\.BR? ` + name + `( |$)`).Match(man) {
			t.Errorf("%s is not in ibvtrace.1", name)
		}
	}
	if len(n.names) < 25 {
		t.Errorf("only %d fields", len(n.names))
	}
}
