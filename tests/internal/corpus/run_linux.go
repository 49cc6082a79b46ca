package corpus

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// Run runs the entries of a subnet, or the others, with the C programs and with ibv under their names,
// and compares. The names in the command lines stand for their values. A quick run leaves out those with
// a server.
func Run(t *testing.T, subnet bool, names *strings.Replacer) {
	dir := t.TempDir()
	rdmatest.Start(t, rdmatest.Program(t, "ibv"), "links", dir).Succeeds(t)
	same, total := 0, 0
	for _, e := range rdmatest.Must(Entries())(t) {
		if e.Subnet != subnet || e.Serve != "" && testing.Short() {
			continue
		}
		total++
		t.Run(e.Run, func(t *testing.T) {
			theirs := e.play(t, "", names)
			ours := e.play(t, dir, names)
			diff := e.Compare(theirs, ours)
			if diff == "" {
				same++
			}
			switch {
			case diff != "" && e.Differs == "":
				t.Errorf("%s\nfrom %s\nC: %+v\nibv: %+v", diff, e.From, theirs, ours)
			case diff == "" && e.Differs != "":
				t.Errorf("doesn't differ: %s", e.Differs)
			}
		})
	}
	t.Logf("%d of %d are as in C", same, total)
}

// play runs the entry with the programs of a folder, or with those of C.
func (e Entry) play(t *testing.T, dir string, names *strings.Replacer) (o Outcome) {
	t.Helper()
	command := func(line string) []string {
		words := strings.Fields(names.Replace(line))
		if dir != "" {
			words[0] = filepath.Join(dir, words[0])
		}
		return words
	}
	// perftest may fail by itself on a busy machine: it measures the processor's clock before it prints.
	for range 5 {
		o = Outcome{OK: true}
		var server *rdmatest.Process
		if e.Serve != "" {
			server = rdmatest.Start(t, command(e.Serve)...)
			server.Until(t, func() bool { return server.Ended() || e.listens(t, names) })
		}
		for line := range strings.SplitSeq(e.Run, " ; ") {
			p := rdmatest.Start(t, command(line)...)
			o.OK = p.Wait().Success() && o.OK
			o.Stdout += p.Stdout()
			o.Stderr += p.Stderr()
		}
		if server != nil {
			server.Kill()
			if !o.OK {
				o.Stderr += "\nthe server: " + server.Said()
			}
		}
		if !strings.Contains(o.Stderr, "Correlation coefficient") && !strings.Contains(o.Stderr, "Couldn't post send: scnt=") {
			break
		}
	}
	return o
}

// listens reports whether the server can be reached.
func (e Entry) listens(t *testing.T, names *strings.Replacer) bool {
	t.Helper()
	words := strings.Fields(e.At)
	switch words[0] {
	case "tcp":
		return rdmatest.Listening(rdmatest.Must(strconv.Atoi(words[1]))(t))
	case "cm":
		return rdmatest.ListeningCM(t, words[1], uint16(rdmatest.Must(strconv.Atoi(words[2]))(t)))
	case "ibping":
		line := strings.Fields(names.Replace("ibping -f -c 1 -t 300 -C OTHER OWNLID"))
		out, _ := exec.Command(rdmatest.Program(t, "ibv"), line...).Output()
		return strings.Contains(string(out), " 1 received")
	}
	panic(fmt.Sprintf("at %s", e.At))
}
