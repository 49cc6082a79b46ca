package perftest

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/verbs"
)

func tool(t *testing.T, name string) Tool {
	t.Helper()
	for _, tool := range Tools {
		if tool.Name == name {
			return tool
		}
	}
	t.Fatalf("no tool %s", name)
	return Tool{}
}

// parse takes options and operands.
func parse(t *testing.T, name, line string) (*options, error) {
	t.Helper()
	o := newOptions(tool(t, name))
	c := &cli.Command{Options: o.commandLine(), Operands: 1}
	operands, err := c.Parse(strings.Fields(line))
	if err != nil {
		return nil, err
	}
	return o, o.finish(operands)
}

// The depths and numbers are those that perftest 4.5 prints for the same options.
func TestDefaults(t *testing.T) {
	type numbers struct{ size, iters, tx, rx, signal int }
	for _, test := range []struct {
		tool, line string
		want       numbers
	}{
		{"send_bw", "", numbers{65536, 1000, 128, 512, 1}},
		{"send_bw", "--size=1K", numbers{1024, 1000, 128, 512, 100}},
		{"send_bw", "--size=1024 --iters=10", numbers{1024, 10, 10, 10, 10}},
		{"send_bw", "--connection=UD --size=1024", numbers{1024, 1000, 128, 1000, 100}},
		{"send_bw", "--connection=UD --size=1024 --iters=50000", numbers{1024, 50000, 128, 16000, 100}},
		{"send_bw", "--all", numbers{8 << 20, 1000, 128, 512, 100}},
		{"send_bw", "--size=64 --post_list=20", numbers{64, 1000, 128, 512, 20}},
		{"send_bw", "--size=64 --connection=SRD", numbers{64, 1000, 128, 512, 1}},
		{"send_bw", "--size=64 --post_list=20 --cq-mod=10", numbers{64, 1000, 128, 512, 10}},
		{"send_bw", "--cq-mod=50", numbers{65536, 1000, 128, 512, 50}},
		{"send_bw", "--duration=10 --iters=10 --size=64", numbers{64, 10, 128, 512, 100}},
		{"write_bw", "", numbers{65536, 5000, 128, 1, 1}},
		{"write_lat", "", numbers{2, 1000, 1, 1, 1}},
		{"send_lat", "", numbers{2, 1000, 1, 512, 1}},
		{"atomic_bw", "", numbers{8, 1000, 128, 1, 100}},
	} {
		o, err := parse(t, test.tool, test.line)
		if err != nil {
			t.Errorf("%s %s: %v", test.tool, test.line, err)
			continue
		}
		if got := (numbers{o.size, o.iters, o.txDepth, o.rxDepth, o.signal}); got != test.want {
			t.Errorf("%s %s: %+v, want %+v", test.tool, test.line, got, test.want)
		}
	}
}

func TestWrongUse(t *testing.T) {
	for _, test := range []struct{ tool, line, says string }{
		{"send_bw", "a b", "unexpected argument"},
		{"send_bw", "--iters=4", "--iters"},
		{"send_bw", "--size=0", "--size"},
		{"send_bw", "--size=4G", "--size"},
		{"send_bw", "--mtu=1000", "--mtu"},
		{"atomic_bw", "--connection=SRD", `"SRD" is not one of <RC/`},
		{"send_bw", "--rdma_cm --connection=SRD", "-R and -c SRD"},
		{"send_bw", "--use-srq --connection=SRD", "no shared receive queues"},
		{"send_bw", "--cq-mod=4 --connection=SRD", "has a completion"},
		{"send_bw", "--rdma_cm --connection=UC", "-R and -c UC"},
		{"send_bw", "--rdma_cm --connection=XRC", "-R and -c XRC"},
		{"send_bw", "--tos=3", "needs -R"},
		{"send_bw", "--use-srq --qp=20 --rx-depth=10", "--use-srq"},
		{"write_bw", "--use-srq", "consume receives"},
		{"write_bw", "--rx-depth=3", "consume receives"},
		{"read_bw", "--use-srq", "not an option of read_bw"},
		{"send_bw", "--run_infinitely --bidirectional", "--run_infinitely and -b"},
		{"send_bw", "--run_infinitely --events", "-D and -e"},
		{"send_bw", "--run_infinitely --all", "-D and -a"},
		{"send_bw", "--run_infinitely --out_json", "--out_json"},
		{"send_lat", "--run_infinitely", "not an option of send_lat"},
		{"send_bw", "--mmap=/dev/null --use_hugepages", "--use_hugepages"},
		{"send_bw", "--mmap-offset=4096", "needs --mmap"},
		{"send_bw", "--write_with_imm", "not an option of send_bw"},
		{"send_bw", "--connection=TCP", "TCP"},
		{"write_bw", "--connection=UD", `"UD" is not one of <RC/`},
		{"read_lat", "--connection=UC", `"UC" is not one of <RC/`},
		{"send_bw", "--duration=4 --margin=2", "two margins"},
		{"send_bw", "--duration=4 --events", "-e"},
		{"send_bw", "--duration=4 --all", "-a"},
		{"send_bw", "--vector=1", "-e"},
		{"send_bw", "--post_list=3", "multiple"},
		{"send_bw", "--post_list=10 --cq-mod=3", "multiple"},
		{"send_bw", "--post_list=200", "doesn't fit"},
		{"send_bw", "--report-both", "-b"},
		{"send_bw", "--output=latency", "--output"},
		{"send_lat", "--output=bandwidth", "--output"},
		{"send_lat", "--bidirectional", "not an option of send_lat"},
		{"send_lat", "--qp=2", "not an option of send_lat"},
		{"write_bw", "--events", "--write_with_imm"},
		{"atomic_bw", "--size=8", "not an option of atomic_bw"},
		{"read_bw", "--inline_size=8", "not an option of read_bw"},
		{"send_bw", "--nonsense", "no option"},
	} {
		if _, err := parse(t, test.tool, test.line); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s %s: %v, want %q in it", test.tool, test.line, err, test.says)
		}
	}
}

// TestFlags: names are unique, and a refusal says why.
func TestFlags(t *testing.T) {
	longs, shorts := map[string]bool{}, map[byte]bool{}
	for _, f := range newOptions(Tools[0]).commandLine() {
		for long := range strings.FieldsSeq(f.Long) {
			if longs[long] {
				t.Errorf("--%s twice", long)
			}
			longs[long] = true
		}
		if f.Short != 0 && shorts[f.Short] {
			t.Errorf("-%c twice", f.Short)
		}
		shorts[f.Short] = true
	}
}

// TestEveryOption goes through the options of perftest 4.5-0.17 and of its newest release: each
// tool takes each option, or refuses it with a sentence. A line of these files is a name, which
// ends with = if it takes a value, and a letter.
func TestEveryOption(t *testing.T) {
	known := map[string]cli.Option{}
	for _, f := range newOptions(Tools[0]).commandLine() {
		for long := range strings.FieldsSeq(f.Long) {
			known[long] = f
		}
	}
	values := map[string]string{
		"connection": "RC", "mtu": "1024", "output": "latency", "rate_units": "p",
		"atomic_type": "FETCH_AND_ADD", "rate_limit_type": "SW", "iters": "10", "margin": "0",
	}
	for _, release := range []string{"4.5", "26.04"} {
		b, err := os.ReadFile("testdata/options-" + release)
		if err != nil {
			t.Fatal(err)
		}
		options := strings.Split(strings.TrimSpace(string(b)), "\n")
		if len(options) < 110 {
			t.Errorf("perftest %s has %d options", release, len(options))
		}
		for _, line := range options {
			name, letter, _ := strings.Cut(line, " ")
			name, takes := strings.CutSuffix(name, "=")
			f, is := known[name]
			if name == "help" {
				continue
			}
			if !is || (f.Arg != "") != takes || letter != "" && f.Short != letter[0] {
				t.Errorf("perftest %s has %s, and here it is %+v", release, line, f)
				continue
			}
			for _, tool := range Tools {
				value := values[name]
				switch {
				case strings.HasSuffix(name, "_mac"):
					value = "02:00:00:00:00:01"
				case strings.HasSuffix(name, "_ip"):
					value = "192.0.2.1"
				case tool.raw && name == "connection":
					value = "RawEth"
				}
				if takes && value == "" {
					value = "1"
				}
				words := []string{"--" + name}
				if takes {
					words = append(words, value)
				}
				_, err := tool.command().Parse(words)
				first, _, _ := strings.Cut(f.Long, " ")
				var answer cli.Answer
				switch {
				case err == nil || errors.As(err, &answer):
				case strings.HasPrefix(err.Error(), "--"+first+" is not supported: "),
					err.Error() == "--"+first+" is not an option of "+tool.Name:
				default:
					t.Errorf("%s %s %s: %v", tool.Name, line, value, err)
				}
			}
		}
	}
}

func TestSizes(t *testing.T) {
	s := &side{options: newOptions(tool(t, "send_bw")), pathMTU: verbs.MTU1024, port: &verbs.PortAttr{MaxMsgSize: 1 << 14}}
	s.all = true
	if sizes := s.sizes(); len(sizes) != 14 || sizes[13] != 1<<14 {
		t.Errorf("RC, short messages: %d", sizes)
	}
	s.port.MaxMsgSize = 1 << 30
	if sizes := s.sizes(); len(sizes) != 23 || sizes[0] != 2 || sizes[22] != 8<<20 {
		t.Errorf("RC: %d", sizes)
	}
	s.transport = ud
	if sizes := s.sizes(); len(sizes) != 10 || sizes[9] != 1024 {
		t.Errorf("UD: %d", sizes)
	}
}

func TestHex0x(t *testing.T) {
	for v, want := range map[uint64]string{0: "0000", 0x1: "0x01", 0x1b2c3: "0x1b2c3"} {
		if got := hex0x(4, v); got != want {
			t.Errorf("%#x: %s, want %s", v, got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, tool := range Tools {
		u := tool.command().Help("ibv " + tool.Name)
		if !strings.HasPrefix(u, "Usage: ibv "+tool.Name) || strings.Contains(u, "--bidirectional") == tool.latency ||
			strings.Contains(u, "--source_mac") != tool.raw || strings.Contains(u, "%!") {
			t.Error(u)
		}
	}
}

// TestLimit: a limit is read as perftest reads it.
func TestLimit(t *testing.T) {
	for value, want := range map[string]float64{"100M": 100, "0.5": 0.5, "10G": 10, "-1": -1, "M": -1, "1x": -1} {
		v := -1.0
		if err := atLeast(&v)(value); v != want || (err == nil) != (want >= 0) {
			t.Errorf("%s: %v, %v, want %v", value, v, err, want)
		}
	}
}
