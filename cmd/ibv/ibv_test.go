package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// capture runs ibv and returns its exit status and output.
func capture(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	stdout, stderr = output(t, func() { status = program().Main(append([]string{"ibv"}, args...)) })
	return status, stdout, stderr
}

// output runs a function and returns what it prints.
func output(t *testing.T, f func()) (stdout, stderr string) {
	t.Helper()
	outs := []**os.File{&os.Stdout, &os.Stderr}
	texts := make([]chan string, len(outs))
	for i, out := range outs {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		saved := *out
		*out, texts[i] = w, make(chan string)
		go func() {
			b, _ := io.ReadAll(r)
			texts[i] <- string(b)
		}()
		defer func() { *out = saved }()
	}
	f()
	os.Stdout.Close()
	os.Stderr.Close()
	return <-texts[0], <-texts[1]
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		stdout string // contained
		stderr string
	}{
		{"", cli.Wrong, "", "Usage: ibv COMMAND"},
		{"-h", cli.OK, "Usage: ibv COMMAND", ""},
		{"--version", cli.OK, "ibv ", ""},
		{"help", cli.OK, "pingpong", ""},
		{"help info", cli.OK, "Usage: ibv info", ""},
		{"devices -h", cli.OK, "Usage: ibv devices", ""},
		{"info --help", cli.OK, "Usage: ibv info", ""},
		{"frobnicate", cli.Wrong, "", `no command "frobnicate"`},
		{"help frobnicate", cli.Wrong, "", `no command "frobnicate"`},
		{"devices rxe0", cli.Wrong, "", `unexpected argument "rxe0"`},
		{"info rxe0", cli.Wrong, "", `unexpected argument "rxe0"`},
		{"info -i 0", cli.Wrong, "", "not a number from 1"},
		{"info -i x", cli.Wrong, "", "ibv info -h"},
		{"info -z", cli.Wrong, "", "ibv info -h"},
		{"doctor -h", cli.OK, "Usage: ibv doctor", ""},
		{"doctor rxe0 rxe1", cli.Wrong, "", `unexpected argument "rxe1"`},
		{"doctor -w -1s", cli.Wrong, "", "negative"},
		{"doctor --serve --peer node1", cli.Wrong, "", "can't be combined"},
		{"doctor --serve --json", cli.Wrong, "", "can't be combined"},
		{"doctor -g 1", cli.Wrong, "", "--peer"},
		{"doctor --peer=", cli.Wrong, "", "which host?"},
		{"doctor --peer node1 -b ::1", cli.Wrong, "", "-b needs --serve"},
		{"doctor --serve -G 1", cli.Wrong, "", "-G needs --peer"},
		{"doctor --peer node1 -p 0", cli.Wrong, "", "--port: \"0\""},
		{"doctor --peer node1 -g -2", cli.Wrong, "", "not a number from 0"},
		{"doctor -z", cli.Wrong, "", "ibv doctor -h"},
		{"selftest -h", cli.OK, "doorbells", ""},
		{"selftest a b c", cli.Wrong, "", `unexpected argument "c"`},
		{"selftest a a", cli.Wrong, "", "the devices are the same"},
		{"selftest -i 0", cli.Wrong, "", "not a number from 1"},
		{"selftest -g -1", cli.Wrong, "", "not a number from 0"},
		{"selftest -t 0s", cli.Wrong, "", "more than 0"},
		{"selftest --only data,nonsense", cli.Wrong, "", `no group "nonsense"`},
		{"link -h", cli.OK, "Usage: ibv link", ""},
		{"link add", cli.Wrong, "", "add needs a name"},
		{"link add rxe9 type", cli.Wrong, "", "type needs a value"},
		{"link add rxe9 netdev eth0", cli.Wrong, "", "type is missing"},
		{"link add rxe9 type rxe netdev eth0 mtu 1024", cli.Wrong, "", `unexpected argument "mtu"`},
		{"link add rxe% type rxe netdev eth0", cli.Failed, "", "add link rxe%: a device's name has no %"},
		{"link add rxe9 type rxe netdev a-name-of-16-byt", cli.Failed, "", "1 to 15 bytes"},
		{"link delete", cli.Wrong, "", "delete needs a name"},
		{"link delete a b", cli.Wrong, "", `unexpected argument "b"`},
		{"link show rxe0/x", cli.Wrong, "", "such as rxe0/1"},
		{"link frobnicate --json", cli.Wrong, "", "none of show, add and delete"},
		{"dev set rxe0", cli.Wrong, "", "what to set"},
		{"dev set rxe0 colour red", cli.Wrong, "", "none of name, netns"},
		{"dev set rxe0 adaptive-moderation maybe", cli.Wrong, "", "on or off"},
		{"dev show a b", cli.Wrong, "", `unexpected argument "b"`},
		{"resource show mr dev", cli.Wrong, "", "dev needs a device"},
		{"resource show qp colour red", cli.Wrong, "", `"colour" is none of lqpn`},
		{"resource show qp state", cli.Wrong, "", "state needs a value"},
		{"resource delete", cli.Wrong, "", "not show"},
		{"stat qp bind", cli.Wrong, "", "bind needs link DEVICE/PORT"},
		{"stat qp bind link rxe0/1 lqpn x", cli.Wrong, "", "lqpn x is not a number"},
		{"stat qp unbind link rxe0/1 lqpn 3", cli.Wrong, "", "cntn is missing"},
		{"stat qp set link rxe0/1 auto colour on", cli.Wrong, "", "neither type nor pid"},
		{"stat --watch -i 0s", cli.Wrong, "", "more than 0"},
		{"stat --watch qp", cli.Wrong, "", "for the counters of ports"},
		{"stat unset link", cli.Wrong, "", "unset needs link"},
		{"stat show link", cli.Wrong, "", "link needs a value"},
		{"stat mr dev", cli.Wrong, "", "dev needs a value"},
		{"stat nothing", cli.Wrong, "", "none of show, qp"},
		{"system set netns none", cli.Wrong, "", "shared or exclusive"},
		{"system set netns", cli.Wrong, "", "netns needs a value"},
		{"system show all", cli.Wrong, "", `unexpected argument "all"`},
		{"ibstat -h", cli.OK, "Usage: ibv ibstat", ""},
		{"ibstat a b c", cli.Wrong, "", `unexpected argument "c"`},
		{"ibstat a -1", cli.Wrong, "", "ibv ibstat -h"},
		{"ibstat a x", cli.Wrong, "", "are not a device and a port"},
		{"ibstatus -x", cli.Wrong, "", "ibv ibstatus -h"},
		{"asyncwatch rxe0", cli.Wrong, "", `unexpected argument "rxe0"`},
		{"links", cli.Wrong, "", "one folder"},
		{"completion", cli.Wrong, "", "is not bash, zsh or fish"},
		{"completion bash", cli.OK, "complete -F _ibv ibv", ""},
		{"man", cli.OK, ".TH IBV 1", ""},
		{"devcies", cli.Wrong, "", "did you mean devices?"},
		{"ibstat -z x", cli.Wrong, "", "--config is not supported: "},
		{"ibnetdiscover topology", cli.Wrong, "", "redirect stdout to topology"},
		{"rdma --version", cli.OK, "ibv rdma ", ""},
		{"rdma -f -b x", cli.Wrong, "", "--force is not supported: "},
		{"rdma --batch x", cli.Wrong, "", "--batch is not supported: "},
		{"rdma res show qp -r", cli.Wrong, "", "--raw is not supported: "},
		{"rdma -o stat", cli.Wrong, "", "--oneline is not supported: "},
		{"ucmatose -h", cli.OK, "Usage: ibv ucmatose", ""},
		{"ucmatose host", cli.Wrong, "", `unexpected argument "host"`},
		{"ucmatose -m host", cli.Wrong, "", "unexpected argument"},
		{"ucmatose -P udp", cli.Wrong, "", `"udp" is not ib or tcp`},
		{"ucmatose -c 0", cli.Wrong, "", "-c"},
		{"udaddy -p 0x106", cli.Wrong, "", "0x111"},
		{"udaddy -f gid", cli.Wrong, "", "-f: gid is not supported: "},
		{"mckey", cli.Wrong, "", "-m, the group's address"},
		{"mckey -m there", cli.Wrong, "", `"there" is not an IP address`},
		{"mckey -M ff12::1", cli.Wrong, "", "-M is not supported: "},
		{"rstream -f gid", cli.Wrong, "", "-f: gid is not supported: "},
		{"rstream -T fork", cli.Wrong, "", "-T: fork is not supported: "},
		{"rstream -T r -T x", cli.Wrong, "", `-T: "x" is none of blocking`},
		{"send_bw -h", cli.OK, "Usage: ibv send_bw", ""},
		{"help atomic_lat", cli.OK, "--atomic_type", ""},
		{"write_bw --version", cli.OK, "Version: 6.", ""},
		{"send_bw -g", cli.Wrong, "", "--mcg is not supported: "},
		{"write_lat --use_cuda=0 host", cli.Wrong, "", "--use_cuda is not supported: "},
		{"read_bw -I 8", cli.Wrong, "", "not an option of read_bw"},
		{"send_bw -n5 -l2", cli.Wrong, "", "ibv send_bw -h"},
		{"send_lat -s", cli.Wrong, "", "needs a value"},
		{"send_lat --report", cli.Wrong, "", "ambiguous"},
	} {
		t.Run(test.args, func(t *testing.T) {
			status, stdout, stderr := capture(t, strings.Fields(test.args)...)
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if !strings.Contains(stdout, test.stdout) || (test.stdout == "") != (stdout == "") {
				t.Errorf("stdout %q, want %q in it", stdout, test.stdout)
			}
			if !strings.Contains(stderr, test.stderr) || (test.stderr == "") != (stderr == "") {
				t.Errorf("stderr %q, want %q in it", stderr, test.stderr)
			}
		})
	}
}

// TestJSONEverywhere: every command that prints what a program might read has --json.
func TestJSONEverywhere(t *testing.T) {
	without := map[string]string{
		"ucmatose": "steps", "udaddy": "steps", "mckey": "steps", "proxy": "a service", "links": "nothing", "plot": "pictures",
		"completion": "a script", "man": "a page", "export": "OpenMetrics",
	}
	for _, c := range program().Commands {
		c.Help("") // completes the description
		has := slices.ContainsFunc(c.Options, func(o cli.Option) bool { return slices.Contains(strings.Fields(o.Long), "json") && o.Help != "" })
		if _, ok := without[c.Name]; has == ok && !strings.HasPrefix(c.Name, "raw_ethernet") {
			t.Errorf("%s has --json: %t", c.Name, has)
		}
	}
}
