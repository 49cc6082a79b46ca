package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

// capture runs ibv and returns its exit status and output.
func capture(t *testing.T, args ...string) (status int, stdout, stderr string) {
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
	status = run(args)
	os.Stdout.Close()
	os.Stderr.Close()
	return status, <-texts[0], <-texts[1]
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		stdout string // contained
		stderr string
	}{
		{"", exitUsage, "", "Usage: ibv COMMAND"},
		{"-h", exitOK, "Usage: ibv COMMAND", ""},
		{"--version", exitOK, "ibv ", ""},
		{"help", exitOK, "pingpong", ""},
		{"help info", exitOK, "Usage: ibv info", ""},
		{"devices -h", exitOK, "Usage: ibv devices", ""},
		{"info --help", exitOK, "Usage: ibv info", ""},
		{"frobnicate", exitUsage, "", `no command "frobnicate"`},
		{"help frobnicate", exitUsage, "", `no command "frobnicate"`},
		{"devices rxe0", exitUsage, "", `unexpected argument "rxe0"`},
		{"info rxe0", exitUsage, "", `unexpected argument "rxe0"`},
		{"info -i 0", exitUsage, "", "not a number from 1"},
		{"info -i x", exitUsage, "", "ibv info -h"},
		{"info -z", exitUsage, "", "ibv info -h"},
		{"doctor -h", exitOK, "Usage: ibv doctor", ""},
		{"doctor rxe0 rxe1", exitUsage, "", `unexpected argument "rxe1"`},
		{"doctor -w -1s", exitUsage, "", "negative"},
		{"doctor --serve --peer node1", exitUsage, "", "can't be combined"},
		{"doctor -g 1", exitUsage, "", "--peer"},
		{"doctor --peer=", exitUsage, "", "host"},
		{"doctor --peer node1 -b ::1", exitUsage, "", "-b needs --serve"},
		{"doctor --serve -G 1", exitUsage, "", "-G needs --peer"},
		{"doctor --peer node1 -p 0", exitUsage, "", "-p 0"},
		{"doctor --peer node1 -g -2", exitUsage, "", "count from 0"},
		{"doctor -z", exitUsage, "", "ibv doctor -h"},
		{"selftest -h", exitOK, "doorbells", ""},
		{"selftest a b c", exitUsage, "", `unexpected argument "c"`},
		{"selftest a a", exitUsage, "", "the devices are the same"},
		{"selftest -i 0", exitUsage, "", "ports count from 1"},
		{"selftest -g -1", exitUsage, "", "indices count from 0"},
		{"selftest -t 0s", exitUsage, "", "more than 0"},
		{"selftest -quick -t 5s", exitUsage, "", "-quick and -t"},
		{"selftest -only data,nonsense", exitUsage, "", `no group "nonsense"`},
		{"link -h", exitOK, "Usage: ibv link", ""},
		{"link add", exitUsage, "", "add needs a name"},
		{"link add rxe9 type", exitUsage, "", "type needs a value"},
		{"link add rxe9 netdev eth0", exitUsage, "", "type is missing"},
		{"link add rxe9 type rxe netdev eth0 mtu 1024", exitUsage, "", `unexpected argument "mtu"`},
		{"link add rxe% type rxe netdev eth0", exitError, "", "add link rxe%: a device's name has no %"},
		{"link add rxe9 type rxe netdev a-name-of-16-byt", exitError, "", "1 to 15 bytes"},
		{"link delete", exitUsage, "", "delete needs a name"},
		{"link delete a b", exitUsage, "", `unexpected argument "b"`},
		{"link show rxe0/x", exitUsage, "", "such as rxe0/1"},
		{"link frobnicate --json", exitUsage, "", "none of show, add and delete"},
		{"dev set rxe0", exitUsage, "", "what to set"},
		{"dev set rxe0 colour red", exitUsage, "", "none of name, netns"},
		{"dev set rxe0 adaptive-moderation maybe", exitUsage, "", "on or off"},
		{"dev show a b", exitUsage, "", `unexpected argument "b"`},
		{"resource show mr dev", exitUsage, "", "dev needs a device"},
		{"resource show qp colour red", exitUsage, "", `"colour" is none of lqpn`},
		{"resource show qp state", exitUsage, "", "state needs a value"},
		{"resource delete", exitUsage, "", "not show"},
		{"stat qp bind", exitUsage, "", "bind needs link DEVICE/PORT"},
		{"stat qp bind link rxe0/1 lqpn x", exitUsage, "", "lqpn x is not a number"},
		{"stat qp unbind link rxe0/1 lqpn 3", exitUsage, "", "cntn is missing"},
		{"stat qp set link rxe0/1 auto colour on", exitUsage, "", "neither type nor pid"},
		{"stat --watch -i 0s", exitUsage, "", "more than 0"},
		{"stat --watch qp", exitUsage, "", "for the counters of ports"},
		{"stat unset link", exitUsage, "", "unset needs link"},
		{"stat show link", exitUsage, "", "link needs a value"},
		{"stat mr dev", exitUsage, "", "dev needs a value"},
		{"stat nothing", exitUsage, "", "none of show, qp"},
		{"system set netns none", exitUsage, "", "shared or exclusive"},
		{"system set netns", exitUsage, "", "netns needs a value"},
		{"system show all", exitUsage, "", `unexpected argument "all"`},
		{"ibstat -h", exitOK, "Usage: ibv ibstat", ""},
		{"ibstat a b c", exitUsage, "", `unexpected argument "c"`},
		{"ibstat a -1", exitUsage, "", "ibv ibstat -h"},
		{"ibstat a x", exitUsage, "", "are not a device and a port"},
		{"ibstatus -x", exitUsage, "", "ibv ibstatus -h"},
		{"asyncwatch rxe0", exitUsage, "", `unexpected argument "rxe0"`},
		{"links", exitUsage, "", "one folder"},
		{"ucmatose -h", exitOK, "Usage: ibv ucmatose", ""},
		{"ucmatose host", exitUsage, "", `unexpected argument "host"`},
		{"ucmatose -m", exitUsage, "", "-m is not supported: "},
		{"ucmatose -P udp", exitUsage, "", `"udp" is not ib or tcp`},
		{"ucmatose -c 0", exitUsage, "", "-c"},
		{"udaddy -p 0x106", exitUsage, "", "0x111"},
		{"udaddy -f gid", exitUsage, "", "-f: gid is not supported: "},
		{"mckey", exitUsage, "", "-m, the group's address"},
		{"mckey -m there", exitUsage, "", `"there" is not an IP address`},
		{"mckey -M ff12::1", exitUsage, "", "-M is not supported: "},
		{"send_bw -h", exitOK, "Usage: ibv send_bw", ""},
		{"help atomic_lat", exitOK, "--atomic_type", ""},
		{"write_bw --version", exitOK, "Version: 6.", ""},
		{"send_bw -g", exitUsage, "", "--mcg is not supported: "},
		{"write_lat --use_cuda=0 host", exitUsage, "", "--use_cuda is not supported: "},
		{"read_bw -I 8", exitUsage, "", "not an option of read_bw"},
		{"send_bw -n5 -l2", exitUsage, "", "ibv send_bw -h"},
		{"send_lat -s", exitUsage, "", "needs a value"},
		{"send_lat --report", exitUsage, "", "ambiguous"},
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
