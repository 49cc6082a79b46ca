package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestParse: the parser accepts what getopt_long accepts.
func TestParse(t *testing.T) {
	for _, test := range []struct {
		args string
		want string // options and operands as they come, or the error
	}{
		{"", ""},
		{"-e -g 1 host", "e g=1 host"},
		{"-eg1 -n5", "e g=1 n=5"},
		{"-g=1", "g==1"},
		{"--events --gid-idx 1 --iters=5 host", "e g=1 n=5 host"},
		{"host -e other", "e host other"},
		{"--iter=5 --ev", "n=5 e"},
		{"--iters=", "n="},
		{"--iters --events", "n=--events"},
		{"-n -5", "n=-5"},
		{"-e -- -n host", "e -n host"},
		{"-", "-"},
		{"--ib-dev=a", "d=a"},  // an exact name, though it is the beginning of another
		{"--out=1", "o=1"},     // two names of one option
		{"--out_put=1", "o=1"}, // its second
		{"-x", "there is no option -x"},
		{"-ex", "there is no option -x"},
		{"--nothing", "there is no option --nothing"},
		{"--itres=1", "there is no option --itres; did you mean --iters?"},
		{"--ib=1", "option --ib is ambiguous: --ib-port, --ib-dev, --ib-device"},
		{"-en", "option -n needs a value"},
		{"--iters", "option --iters needs a value"},
		{"--events=1", "option --events takes no value"},
		{"-n x", `--iters: x is bad`},
		{"-k x", `-k: x is bad`},
		{"-z host", "--zero is not supported: there is none"},
		{"-e --", "e"},
	} {
		var got []string
		option := func(short byte, long, arg string) Option {
			return Opt(short, long, arg, "", func(value string) error {
				if value == "x" {
					return errors.New("x is bad")
				}
				word := string(rune(short))
				if arg != "" {
					word += "=" + value
				}
				got = append(got, word)
				return nil
			})
		}
		operands, err := parse([]Option{
			option('e', "events", ""), option('g', "gid-idx", "INDEX"), option('n', "iters", "N"), option('i', "ib-port", "PORT"),
			option('d', "ib-dev", "DEV"), option('D', "ib-device", "DEV"), option('o', "output out_put", "WHAT"), option('k', "", "N"),
			Refuse('z', "zero", "", "is not supported: there is none"),
		}, strings.Fields(test.args))
		got = append(got, operands...)
		if err != nil {
			got = []string{err.Error()}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%q gives %q, want %q", test.args, got, test.want)
		}
	}
}

func TestValues(t *testing.T) {
	var n int
	var u uint16
	var d time.Duration
	var s string
	for _, test := range []struct {
		set   func(string) error
		value string
		want  string // of the error; "": none
	}{
		{Int(&n, -1, 255), "-1", ""},
		{Int(&n, 1, 255), "0x10", ""},
		{Int(&n, 1, 255), "256", `"256" is not a number from 1 to 255`},
		{Int(&n, 1, 255), "9999999999999999999", "not a number"},
		{Bits(&u, 12), "4095", ""},
		{Bits(&u, 12), "4096", `"4096" is not a number of up to 12 bits`},
		{Bits(&u, 12), "-1", "not a number"},
		{Word(&s, "a", "b", "c"), "b", ""},
		{Word(&s, "a", "b", "c"), "d", `"d" is not a, b or c`},
		{Duration(&d), "0", ""},
		{Duration(&d), "-1", `"-1" is negative`},
		{Duration(&d), "1e30", "is not a time"},
		{Duration(&d), "nan", "is not a time"},
		{Duration(&d), "1 s", `"1 s" is not a time, such as 2 (seconds), 500ms or 1m`},
		{Period(&d), "0s", "more than 0"},
		{Period(&d), "500ms", ""},
		{Milliseconds(&d), "0", "not a number"},
	} {
		if err := test.set(test.value); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.value, err, test.want)
		}
	}
	if n != 16 || u != 4095 || d != 500*time.Millisecond || s != "b" {
		t.Errorf("the values are %d, %d, %v, %s", n, u, d, s)
	}
	for value, want := range map[string]time.Duration{"1": time.Second, "0.25": 250 * time.Millisecond, "1m": time.Minute} {
		if err := Duration(&d)(value); err != nil || d != want {
			t.Errorf("%s is %v, %v", value, d, err)
		}
	}
}

func TestSize(t *testing.T) {
	for value, want := range map[string]int64{"8": 8, "0x10": 16, "64K": 64 << 10, "1M": 1 << 20, "1025K": 0, "2M": 0, "7": 0, "0K": 0, "K": 0, "-1K": 0, "1k": 0, "64": 64} {
		n, err := Size(value, 8, 1<<20)
		if n != want || (err == nil) != (want != 0) || err != nil && err.Error() != fmt.Sprintf("%q is not a size from 8 to 1048576", value) {
			t.Errorf("%s: %d, %v", value, n, err)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"devices", "info", "send_bw", "send_lat", "top"}
	for typed, want := range map[string]string{
		"devcies": "devices", "device": "devices", "inof": "info", "sendbw": "send_bw", "send_bv": "send_bw", "tpo": "top",
		"": "", "x": "", "frobnicate": "", "xy": "",
	} {
		if got := nearest(typed, words); got != want {
			t.Errorf("%q is taken for %q, want %q", typed, got, want)
		}
	}
}

// program is a program with two commands. What they do is in the log.
func program(log *[]string) *Set {
	n, device := 0, ""
	say := func(word string, err error) func([]string) error {
		return func(operands []string) error {
			*log = append(*log, word+strings.Join(operands, ","))
			Println(word)
			return err
		}
	}
	first := &Command{
		Name: "first", Group: "Ones", Summary: "do the first", Forms: []string{"[OPTION...]\twait", "[OPTION...] HOST\tgo"}, Operands: 1,
		About: "The first one.", Notes: "A note.",
		Options: []Option{
			Opt('n', "number", "N", "a number", Int(&n, 0, 9)),
			Opt(0, "device", "DEV", strings.Repeat("a device or another ", 8), Text(&device)),
			Opt('V', "version", "", "", Version),
		},
		Examples: []Example{{"ibv first\nibv first host", "both sides"}},
		Programs: []Program{{Name: "one", Differs: "all"}},
		Run:      say("first", nil),
	}
	second := &Command{
		Name: "second", Group: "Others", Summary: "do the second", About: "The second one.", Words: []string{"fail", "report"}, Forms: []string{"fail|report [HOST]"},
		Variant: func(word string) (*Command, error) {
			errs := map[string]error{"fail": errors.New("no luck"), "report": ErrReported, "wrong": Usagef("wrong use")}
			if errs[word] == nil {
				return nil, errors.New("which?")
			}
			return &Command{Run: say(word, errs[word])}, nil
		},
		Programs: []Program{{Name: "two", Word: "fail"}},
	}
	return &Set{Name: "ibv", About: "Show things.", Commands: []*Command{first, second}, Examples: []Example{{"ibv first", "the first"}}, Notes: "The end."}
}

// capture runs a function with stdout and stderr in files, and returns their contents.
func capture(t *testing.T, f func()) (stdout, stderr string) {
	t.Helper()
	outs := []**os.File{&os.Stdout, &os.Stderr}
	var files []*os.File
	for _, out := range outs {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		saved := *out
		*out, files = file, append(files, file)
		defer func() { *out = saved }()
	}
	f()
	var texts []string
	for _, file := range files {
		_, _ = file.Seek(0, io.SeekStart)
		b, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
		file.Close()
	}
	return texts[0], texts[1]
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		args           string
		status         int
		stdout, stderr string // contained
		done           string
	}{
		{"ibv", Wrong, "", "Usage: ibv COMMAND", ""},
		{"ibv -h", OK, "Ones:\n  first   do the first\n\nOthers:\n", "", ""},
		{"ibv help first", OK, "Usage: ibv first [OPTION...]        wait\n       ibv first [OPTION...] HOST   go\n\nThe first one.\n\n  -n, --number=N ", "", ""},
		{"ibv version", OK, "ibv ", "", ""},
		{"ibv frist", Wrong, "", "ibv: no command \"frist\"; did you mean first?\nTry 'ibv -h' for more information.\n", ""},
		{"ibv first -n 3 host", OK, "first\n", "", "firsthost"},
		{"ibv first -n 10", Wrong, "", "ibv first: --number: \"10\" is not a number from 0 to 9\nTry 'ibv first -h' for more information.\n", ""},
		{"ibv first a b", Wrong, "", "ibv first: unexpected argument \"b\"\n", ""},
		{"ibv first -V", OK, "ibv first ", "", ""},
		{"one -V", OK, "one ", "", ""},
		{"/bin/one -h", OK, "Usage: one [OPTION...]  ", "", ""},
		{"one -x", Wrong, "", "one: there is no option -x\nTry 'one -h' for more information.\n", ""},
		{"ibv second", Wrong, "", "ibv second: which?\n", ""},
		{"ibv second -h", OK, "Usage: ibv second fail|report [HOST]\n", "", ""},
		{"two -h", OK, "Usage: two [HOST]\n", "", ""},
		{"ibv second fail -h", OK, "Usage: ibv second", "", ""},
		{"ibv second fail", Failed, "fail\n", "ibv second: no luck\n", "fail"},
		{"ibv second report", Failed, "report\n", "", "report"},
		{"ibv second wrong", Wrong, "wrong\n", "ibv second: wrong use\nTry", "wrong"},
		{"two", Failed, "fail\n", "two: no luck\n", "fail"},
	} {
		var log []string
		status := -1
		stdout, stderr := capture(t, func() { status = program(&log).Main(strings.Fields(test.args)) })
		if status != test.status || strings.Join(log, " ") != test.done {
			t.Errorf("%s: status %d, done: %q", test.args, status, log)
		}
		for _, out := range []struct{ got, want string }{{stdout, test.stdout}, {stderr, test.stderr}} {
			if !strings.Contains(out.got, out.want) || (out.want == "") != (out.got == "") {
				t.Errorf("%s: %q, want %q", test.args, out.got, out.want)
			}
		}
	}
}

// TestFullDisk: a command whose output can't be written fails.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{"ibv -h", "ibv version", "ibv first", "ibv first -h", "ibv second report"} {
		status := -1
		_, stderr := capture(t, func() {
			os.Stdout = full
			var log []string
			status = program(&log).Main(strings.Fields(args))
		})
		if status != Failed || !strings.Contains(stderr, "no space left on device") {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}

// TestJSON: with --json, a command prints what it puts, in order, and no text. A failure keeps what it has put.
func TestJSON(t *testing.T) {
	for _, test := range []struct {
		option func() Option
		args   string
		fails  bool
		want   string
	}{
		{JSONOption, "", false, "text\n"},
		{JSONOption, "--json", false, `[{"z":"<1>","a":[1]},{"n":7}]`},
		{JSONOption, "--json", true, `[{"z":"<1>","a":[1]},{"n":7}]`},
		{JSONLinesOption, "--json", false, "{\"z\":\"<1>\",\"a\":[1]}\n{\"n\":7}\n"},
		{JSONOption, "--json -h", false, ""},
		{JSONOption, "--json x", false, ""},
	} {
		c := &Command{Options: []Option{test.option()}, About: "It.", Run: func([]string) error {
			Println("text")
			Put("z", Value("<1>"), "a", []int{1})
			Put("n", Value("7"))
			if test.fails {
				return errors.New("no luck")
			}
			return nil
		}}
		stdout, stderr := capture(t, func() { c.Main("x", strings.Fields(test.args)) })
		switch {
		case strings.HasSuffix(test.args, "-h"):
			if !strings.HasPrefix(stdout, "Usage: x") {
				t.Errorf("%s: %q", test.args, stdout)
			}
			continue
		case strings.HasPrefix(test.want, "["):
			var b bytes.Buffer
			if err := json.Compact(&b, []byte(stdout)); err != nil {
				t.Error(err)
			}
			stdout = b.String()
		}
		if stdout != test.want || test.fails != (stderr == "x: no luck\n") {
			t.Errorf("%s: %q, %q, want %q", test.args, stdout, stderr, test.want)
		}
	}
	stdout, _ := capture(t, func() {
		c := &Command{Options: []Option{JSONOption()}, Run: func([]string) error { return nil }}
		c.Main("x", []string{"--json"})
	})
	if stdout != "[]\n" {
		t.Errorf("nothing: %q", stdout)
	}
}

func TestHelpFits(t *testing.T) {
	for line := range strings.Lines(program(new([]string)).Commands[0].Help("ibv first")) {
		if n := utf8.RuneCountInString(line); n > width+1 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestTable(t *testing.T) {
	want := "| program | command | what differs |\n|---|---|---|\n| `one` | `ibv first` | all |\n| `two` | `ibv second fail` | |\n"
	if got := program(new([]string)).Table(); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestMan(t *testing.T) {
	page := program(new([]string)).Man()
	for _, want := range []string{
		".TH IBV 1 ", "ibv \\- show things\n", ".SH ONES\n.SS ibv first\n.nf\nibv first [OPTION...]   wait\n", ".TP\n.B \\-n, \\-\\-number=N\na number\n",
		"both sides\n.nf\nibv first\nibv first host\n.fi\n", ".BR one .\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	if text := troff(".a\n'b-\\"); text != "\\&.a\n\\&'b\\-\\e" {
		t.Errorf("quoted: %q", text)
	}
}
