package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	width     = 88 // of lines
	nameWidth = 30 // of an option's names; longer ones have a line of their own
)

// helpOption is in each command's help.
var helpOption = Option{Short: 'h', Long: "help", Help: "show this help"}

// shown returns the options that the help lists.
func (c *Command) shown() []Option {
	c.complete()
	own := slices.DeleteFunc(slices.Clone(c.Options), func(o Option) bool { return o.Help == "" })
	return append(own, helpOption)
}

// names returns the option's names and its value: "-d, --ib-dev=DEV".
func (o *Option) names() string {
	text := strings.Join(o.dashed(), ", ")
	switch {
	case o.Arg == "":
		return text
	case o.Long == "":
		return text + " " + o.Arg
	}
	return text + "=" + o.Arg
}

// forms returns the command lines of the usage, and what they do, for a name of the command. A program that is one of
// its variants has no word for it.
func (c *Command) forms(name string) (lines, comments []string) {
	forms := c.Forms
	if forms == nil {
		forms = []string{"[OPTION...]"}
	}
	variant := slices.ContainsFunc(c.Programs, func(p Program) bool { return p.Name == name && p.Word != "" })
	for _, f := range forms {
		line, comment, _ := strings.Cut(f, "\t")
		if variant {
			line = strings.TrimPrefix(line, strings.Join(c.Words, "|")+" ")
		}
		lines, comments = append(lines, strings.TrimSpace(name+" "+line)), append(comments, comment)
	}
	return lines, comments
}

// Help returns the text that -h prints, for a name of the command.
func (c *Command) Help(name string) string {
	var b strings.Builder
	lines, comments := c.forms(name)
	longest := longestOf(lines)
	for i, line := range lines {
		if comments[i] != "" {
			line = fmt.Sprintf("%-*s   %s", longest, line, comments[i])
		}
		fmt.Fprintf(&b, "%-6s %s\n", []string{"Usage:", ""}[min(i, 1)], line)
	}
	fmt.Fprintf(&b, "\n%s\n\n", strings.TrimSpace(c.About))
	options := c.shown()
	var names []string
	for i := range options {
		name := options[i].names()
		if options[i].Short == 0 {
			name = "    " + name
		}
		names = append(names, name)
	}
	column := min(longestOf(names), nameWidth)
	for i, name := range names {
		help := wrap(options[i].Help, width-column-4)
		if utf8.RuneCountInString(name) > column {
			fmt.Fprintf(&b, "  %s\n", name)
			name = ""
		}
		for _, line := range help {
			fmt.Fprintf(&b, "  %-*s  %s\n", column, name, line)
			name = ""
		}
	}
	if c.Notes != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(c.Notes))
	}
	for i, e := range c.Examples {
		if i == 0 {
			b.WriteString("\nExamples:\n")
		}
		for line := range strings.SplitSeq(e[0], "\n") {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		if e[1] != "" {
			fmt.Fprintf(&b, "        %s\n", e[1])
		}
	}
	return b.String()
}

// Wrap breaks a text into lines that a terminal shows behind an indent.
func Wrap(text string, indent int) []string { return wrap(text, width-indent) }

// wrap breaks a text into lines of a width. Its own newlines remain.
func wrap(text string, width int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			if line != "" && utf8.RuneCountInString(line+" "+word) > width {
				lines, line = append(lines, line), ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		lines = append(lines, line)
	}
	return lines
}

func longestOf(texts []string) (n int) {
	for _, t := range texts {
		n = max(n, utf8.RuneCountInString(t))
	}
	return n
}
