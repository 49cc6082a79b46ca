package rdma

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/rdmanl"
)

// TestRdma: rdma takes its options before the object, abbreviations and help.
func TestRdma(t *testing.T) {
	for line, want := range map[string]int{
		"help": cli.OK, "": cli.OK, "link help": cli.OK, "-V": cli.OK, "-jp res show help": cli.OK, "-x": cli.Wrong, "frob": cli.Wrong,
		"li frob": cli.Wrong, "-j li add": cli.Wrong, "sys sh all": cli.Wrong, "stat qp b": cli.Wrong, "res show qp state FOO": cli.Wrong, "res show cm_id state LISTEN,RTS": cli.Wrong, "dev se rxe0": cli.Wrong,
	} {
		if status := Rdma().Main("rdma", strings.Fields(line)); status != want {
			t.Errorf("rdma %s: status %d, want %d", line, status, want)
		}
	}
	if status := Rdma().Main("rdma", strings.Fields("system show netns")); status == cli.Wrong {
		t.Error("rdma system show netns is wrong usage")
	}
	for words, want := range map[string]string{"del rxe0": "delete rxe0", "s": "show", "unset": "unset", "frob": "frob", "": ""} {
		if got := strings.Join(expand(strings.Fields(words), "add", "delete", "show", "set", "unset"), " "); got != want {
			t.Errorf("%q is %q, want %q", words, got, want)
		}
	}
}

// TestCompact: rdma has a line for each link, and ibv stat one for each counter.
func TestCompact(t *testing.T) {
	for compact, want := range map[bool]string{true: "link rxe0/1 a 1 b 2 ", false: "link rxe0/1 \n    a 1 \n    b 2 "} {
		s := ofPort(rdmanl.Device{Name: "rxe0"}, 1)
		(&flags{compact: compact}).counters(s, []rdmanl.Counter{{Name: "a", Value: 1}, {Name: "b", Value: 2}})
		if got := s.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
