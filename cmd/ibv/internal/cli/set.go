package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/internal/version"
)

// A Set is the commands of a program, in the order of its help. Commands of a group follow each
// other.
type Set struct {
	Name     string
	About    string
	Commands []*Command
	Examples []Example
	Notes    string
}

// Main runs the program with its arguments, of which the first is its name, and returns the exit
// status.
func (s *Set) Main(args []string) int {
	if c, p := s.program(filepath.Base(args[0])); c != nil {
		return c.Main(p.Name, append(strings.Fields(p.Word), args[1:]...))
	}
	args = args[1:]
	calledAs.Store(s.Name)
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, s.help())
		return Wrong
	}
	switch args[0] {
	case "-h", "-help", "--help":
		args = []string{"help"}
	case "-V", "--version":
		args = []string{"version"}
	}
	switch {
	case args[0] == "version":
		return s.print(version.Of(s.Name) + "\n")
	case args[0] == "help" && len(args) == 1:
		return s.print(s.help())
	case args[0] == "help":
		args = []string{args[1], "-h"}
	}
	var names []string
	for _, c := range s.Commands {
		if c.Name == args[0] {
			return c.Main(s.Name+" "+c.Name, args[1:])
		}
		names = append(names, c.Name)
	}
	hint := ""
	if near := nearest(args[0], names); near != "" {
		hint = "; did you mean " + near + "?"
	}
	Errorf("no command %q%s", args[0], hint)
	fmt.Fprintf(os.Stderr, "Try '%s -h' for more information.\n", s.Name)
	return Wrong
}

// print prints a text of the program itself.
func (s *Set) print(text string) int {
	c := &Command{Run: func([]string) error {
		Print(text)
		return nil
	}}
	return c.Main(s.Name, nil)
}

// program returns the command that replaces a program, or nil.
func (s *Set) program(name string) (*Command, Program) {
	for _, c := range s.Commands {
		for _, p := range c.Programs {
			if p.Name == name {
				return c, p
			}
		}
	}
	return nil, Program{}
}

func (s *Set) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s COMMAND [ARG...]\n\n%s\n", s.Name, s.About)
	var names []string
	for _, c := range s.Commands {
		names = append(names, c.Name)
	}
	group, bold := "", PaletteOf(&Stdout)
	for _, c := range s.Commands {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(&b, "\n%s\n", bold.Name(group+":"))
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", longestOf(names), c.Name, c.Summary)
	}
	fmt.Fprintf(&b, "\n%s\n", bold.Name("Examples:"))
	for _, e := range s.Examples {
		fmt.Fprintf(&b, "  %s\n        %s\n", e[0], e[1])
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(wrap(s.Notes, width), "\n"))
	return b.String()
}

// Table returns the table of the programs that the commands replace, in Markdown.
func (s *Set) Table() string {
	var b strings.Builder
	b.WriteString("| program | command | what differs |\n|---|---|---|\n")
	for _, c := range s.Commands {
		for _, p := range c.Programs {
			fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", p.Name, strings.TrimSpace(s.Name+" "+c.Name+" "+p.Word), p.Differs)
		}
	}
	return strings.ReplaceAll(b.String(), "|  |", "| |")
}
