package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/ib"
)

// A view is what the user sees of a reading.
type view struct {
	cli.Palette
	now    *reading
	order  int // of orders
	filter string
	first  int // line of the tree on the screen

	typing bool // the filter
	paused bool
	folded bool // queue pairs are not listed
	help   bool
}

// orders are those of a device's users. The first is the first one.
var orders = []struct {
	name    string
	compare func(a, b *user) int
}{
	{"pinned", func(a, b *user) int {
		return cmp.Or(cmp.Compare(b.Pinned, a.Pinned), cmp.Compare(len(b.QPs), len(a.QPs)))
	}},
	{"QPs", func(a, b *user) int { return cmp.Compare(len(b.QPs), len(a.QPs)) }},
	{"operations", func(a, b *user) int { return cmp.Compare(b.ops(), a.ops()) }},
	{"PID", func(a, b *user) int { return cmp.Compare(a.PID, b.PID) }},
	{"command", func(a, b *user) int { return cmp.Compare(a.name(), b.name()) }},
}

func (u *user) ops() float64 {
	if u.Ops == nil {
		return -1
	}
	return *u.Ops
}

// name returns the command line, or whatever else is known.
func (u *user) name() string {
	switch {
	case u.PID == 0:
		return "[" + stranger.Text(cmp.Or(u.Comm, "not visible here")) + "]"
	case u.Command == "":
		return stranger.Text(u.Comm)
	}
	return stranger.Text(u.Command)
}

// columns are those of a user. Narrow screens lack some.
var columns = []struct {
	name  string
	width int // below 0: begins at the left
	from  int // the width of screens that have it
	of    func(u *user) string
}{
	{"PID", 7, 0, func(u *user) string { return blank(int(u.PID), "-") }},
	{"QP", 4, 0, func(u *user) string { return blank(len(u.QPs), "0") }},
	{"CQ", 4, 0, func(u *user) string { return blank(u.CQs, "0") }},
	{"SRQ", 4, 100, func(u *user) string { return blank(u.SRQs, "0") }},
	{"MR", 4, 0, func(u *user) string { return blank(u.MRs, "0") }},
	{"CM_ID", 5, 100, func(u *user) string { return blank(u.CMIDs, "0") }},
	{"PINNED", 10, 0, func(u *user) string { return cli.Bytes(u.Pinned) }},
	{"OPS/S", 8, 80, func(u *user) string {
		if u.Ops == nil {
			return "-"
		}
		return cli.SI(*u.Ops, "")
	}},
	{"STATES", -16, 100, (*user).states},
	{"COMMAND", -7, 0, (*user).name},
}

// blank returns a number, or for 0 another text.
func blank(n int, zero string) string {
	if n == 0 {
		return zero
	}
	return strconv.Itoa(n)
}

// states lists the states of QPs, such as "RTS 3, ERR 1".
func (u *user) states() string {
	var list []string
	for s := ib.QPReset; s <= ib.QPErr; s++ {
		n := 0
		for _, q := range u.QPs {
			if q.state == s {
				n++
			}
		}
		if n > 0 {
			list = append(list, fmt.Sprintf("%v %d", s, n))
		}
	}
	return strings.Join(list, ", ")
}

// row returns the columns of a screen of a width.
func row(width int, of func(column int) string) string {
	line := ""
	for i, c := range columns {
		if width >= c.from {
			line += fmt.Sprintf(" %*s", c.width, of(i))
		}
	}
	return line
}

// screen returns the lines of a screen.
func (v *view) screen(width, height int) []string {
	tree := v.tree(width)
	if v.help {
		tree = strings.Split(helpText, "\n")
	}
	rows := max(height-3, 0)
	v.first = max(0, min(v.first, len(tree)-rows))
	more := ""
	if v.first > 0 {
		more = "↑ "
	}
	if v.first+rows < len(tree) {
		more += "↓ "
	}
	lines := append(v.head(width), tree[v.first:min(len(tree), v.first+rows)]...)
	return append(append(lines, make([]string, max(0, height-1-len(lines)))...), more+v.foot())
}

// all returns the lines of a screen that has room for all.
func (v *view) all() []string {
	const width = 200
	lines := append(v.head(width), v.tree(width)...)
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// head returns the lines above the tree.
func (v *view) head(width int) []string {
	users, qps, pinned := 0, 0, uint64(0)
	for _, d := range v.now.Devices {
		for _, u := range d.Users {
			users, qps, pinned = users+1, qps+len(u.QPs), pinned+u.Pinned
		}
	}
	return []string{
		fmt.Sprintf("%s  devices %d  users %d  QPs %d  pinned %s  %s", v.now.Time.Format(time.TimeOnly), len(v.now.Devices), users, qps, cli.Bytes(pinned), v.now.Host),
		v.Name("  " + row(width, func(i int) string { return columns[i].name })),
	}
}

// foot returns the last line, which names the keys.
func (v *view) foot() string {
	filter := v.filter
	if v.typing {
		return "filter: " + filter + "_  " + v.Dim("Enter: done  Esc: none")
	}
	if filter == "" {
		filter = "filter"
	}
	line := v.Dim(fmt.Sprintf("q quit  s sort: %s  / %s  t tree  p pause  h help", orders[v.order].name, filter))
	if v.paused {
		line = v.Note("PAUSED") + "  " + line
	}
	return line
}

const helpText = `
  q             quit
  s             sort by pinned memory, QPs, operations, PID or command
  / or f        show only users of whose line this is a part
  Esc           show all
  t             list the queue pairs, or don't
  p or space    pause
  arrows, PgUp, PgDn, Home, End
  h             leave this page

  PINNED is the memory of memory regions. OPS/S is counted by
  adapters that can, after ibv stat qp set ... auto pid on.
  A line with ! is a counter that means trouble, and grows:
  ibv doctor finds out why.`

// tree returns the devices with their ports, users and queue pairs.
func (v *view) tree(width int) (lines []string) {
	for _, d := range v.now.Devices {
		users := v.users(d)
		if v.filter != "" && len(users) == 0 {
			continue
		}
		for _, p := range d.Ports {
			lines = append(lines, v.port(d, p, width)...)
		}
		for i, u := range users {
			branch, stem := "├─", "│ "
			if i == len(users)-1 {
				branch, stem = "└─", "  "
			}
			lines = append(lines, branch+row(width, func(i int) string { return columns[i].of(u) }))
			for j, q := range u.QPs {
				if v.folded {
					break
				}
				twig := "├─"
				if j == len(u.QPs)-1 {
					twig = "└─"
				}
				lines = append(lines, stem+"       "+twig+v.qp(q))
			}
		}
	}
	return lines
}

// users returns the users of a device that the filter lets pass, in their order.
func (v *view) users(d *device) []*user {
	users := slices.DeleteFunc(slices.Clone(d.Users), func(u *user) bool {
		line := fmt.Sprint(d.Name, " ", u.PID, " ", u.Comm, " ", u.Command)
		return !strings.Contains(strings.ToLower(line), strings.ToLower(v.filter))
	})
	slices.SortStableFunc(users, func(a, b *user) int { return cmp.Or(orders[v.order].compare(a, b), cmp.Compare(a.PID, b.PID)) })
	return users
}

// port returns the lines of a port: its state, what goes through it, and what is wrong.
func (v *view) port(d *device, p *port, width int) []string {
	state := v.Note(p.State)
	if p.State == ib.PortActive.String() {
		state = v.Good(p.State)
	}
	lines := []string{fmt.Sprintf("%s %s %s", v.Name(fmt.Sprintf("%s/%d", stranger.Text(d.Name), p.Number)), state, stranger.Text(p.Netdev))}
	const least = 24 // columns of a rate, with its history
	flow, shown := "", p.Rates[:min(len(p.Rates), max(1, width/least))]
	for _, r := range shown {
		value, unit := r.PerSecond, "pkt/s"
		if r.Unit == "bytes" {
			value, unit = 8*value, "b/s"
		}
		room := max(0, width/len(shown)-18)
		past := r.past[max(0, len(r.past)-room):]
		flow += fmt.Sprintf("  %-3s %-10s %*s", r.Way, cli.SI(value, unit), room, cli.Bars(past))
	}
	if flow != "" {
		lines = append(lines, flow)
	}
	for _, t := range p.Troubles {
		lines = append(lines, v.Bad(fmt.Sprintf("  ! %s %s (%s: %d)", cli.SI(t.PerSecond, "")+"/s", t.What, t.Counter, t.Value)))
	}
	return lines
}

func (v *view) qp(q qp) string {
	state := q.State
	if q.state == ib.QPErr || q.state == ib.QPSQE {
		state = v.Bad(state)
	}
	line := fmt.Sprintf(" QP %d %s %s", q.Number, q.Type, state)
	if q.Remote != 0 {
		line += fmt.Sprintf(" to QP %d", q.Remote)
	}
	if q.Dest != "" {
		line += " at " + q.Dest
	}
	return line
}

// key does what a key is for, and reports whether that is to quit.
func (v *view) key(k string) (quit bool) {
	if v.typing {
		switch _, n := utf8.DecodeRuneInString(k); {
		case k == "\n":
			v.typing = false
		case k == "\x1b":
			v.typing, v.filter = false, ""
		case k == "\x7f" || k == "\b":
			_, last := utf8.DecodeLastRuneInString(v.filter)
			v.filter = v.filter[:len(v.filter)-last]
		case n == len(k) && k >= " ":
			v.filter += k
		}
		return false
	}
	switch k {
	case "s":
		v.order = (v.order + 1) % len(orders)
	case "/", "f":
		v.typing, v.filter = true, ""
	case "\x1b":
		v.filter = ""
	case "t":
		v.folded = !v.folded
	case "p", " ":
		v.paused = !v.paused
	case "h", "?":
		v.help = !v.help
	case "up":
		v.first--
	case "down":
		v.first++
	case "page up":
		v.first -= 10
	case "page down":
		v.first += 10
	case "home":
		v.first = 0
	case "end":
		v.first = math.MaxInt32
	}
	return k == "q"
}
