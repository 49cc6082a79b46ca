package why

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
)

// fewQPs is how many queue pairs are listed without being asked for.
const fewQPs = 16

// Text writes the report as text, with all queue pairs or only a few.
func (r *Report) Text(w io.Writer, all bool) {
	for _, f := range r.Findings {
		f.text(w)
	}
	for _, u := range r.Users {
		var parts []string
		total := 0
		for _, c := range slices.Sorted(maps.Keys(u.QPs)) {
			total += u.QPs[c]
			parts = append(parts, fmt.Sprintf("%d %s", u.QPs[c], c))
		}
		fmt.Fprintf(w, "%s: %s: %s: %s\n", stranger.Text(u.Device), u.Process.name(), queuePairs(total), strings.Join(parts, ", "))
		if u.Process.Container != "" {
			fmt.Fprintf(w, "  container %s\n", u.Process.Container)
		}
	}
	if all || len(r.QPs) <= fewQPs {
		for _, q := range r.QPs {
			q.text(w)
		}
	}
	for _, u := range r.Unseen {
		fmt.Fprintf(w, "not seen: %s\n", stranger.Text(u))
	}
	switch n := len(r.Findings); {
	case n == 1:
		fmt.Fprintln(w, "1 finding")
	case n > 1:
		fmt.Fprintf(w, "%d findings\n", n)
	case len(r.QPs) == 0:
		fmt.Fprintln(w, "there are no queue pairs")
	default:
		fmt.Fprintln(w, "nothing is seen to be stuck")
	}
}

// where returns the place of a finding.
func (f *Finding) where() string {
	where := stranger.Text(f.Device)
	if f.Port != 0 {
		where += fmt.Sprintf(" port %d", f.Port)
	}
	if len(f.QPs) == 1 {
		where += fmt.Sprintf(" QP %d", f.QPs[0])
	} else if len(f.QPs) > 1 {
		where += " QPs " + numbers(f.QPs)
	}
	if f.Process != nil {
		where += ", " + f.Process.name()
	}
	return where
}

func (f *Finding) text(w io.Writer) {
	fmt.Fprintf(w, "FINDING: %s: %s [%s]\n", f.where(), f.What, f.ID)
	for _, e := range f.Evidence {
		fmt.Fprintf(w, "  seen    %s: %s\n", e.Source, e.Value)
	}
	if f.Guilty != "" {
		fmt.Fprintf(w, "  guilty  %s\n", f.Guilty)
	}
	fmt.Fprintf(w, "  look    %s\n\n", f.Look)
}

func (q *QP) text(w io.Writer) {
	fmt.Fprintf(w, "  %s QP %d %s %s: %s", stranger.Text(q.Device), q.Number, q.Type, q.State, q.Condition)
	if q.Remote != 0 {
		fmt.Fprintf(w, ", to QP %d", q.Remote)
		if q.Peer != "" {
			fmt.Fprintf(w, " at %s", q.Peer)
		}
	}
	if k := q.Queues; k != nil {
		fmt.Fprintf(w, "; %d of %d blocks to send, %d packets without an answer", k.Waiting, k.SendBlocks, k.Unacknowledged)
		if k.RecvRequests > 0 {
			fmt.Fprintf(w, ", %d of %d receives posted", k.Receivable, k.RecvRequests)
		}
	}
	fmt.Fprintln(w)
}

func queuePairs(n int) string {
	if n == 1 {
		return "1 queue pair"
	}
	return fmt.Sprintf("%d queue pairs", n)
}

// numbers lists a few numbers.
func numbers(all []uint32) string {
	const few = 8
	var parts []string
	for _, n := range all[:min(len(all), few)] {
		parts = append(parts, fmt.Sprint(n))
	}
	if len(all) > few {
		parts = append(parts, fmt.Sprintf("and %d others", len(all)-few))
	}
	return strings.Join(parts, ", ")
}
