package cli

import (
	"fmt"
	"strings"
)

// Man returns the manual page, for troff.
func (s *Set) Man() string {
	var b strings.Builder
	about, _, _ := strings.Cut(s.About, ".")
	fmt.Fprintf(&b, ".TH %s 1 \"\" goverbs \"User Commands\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(s.Name), s.Name, troff(strings.ToLower(about[:1])+about[1:]))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n.RI [ argument ...]\n.SH DESCRIPTION\n%s\n", s.Name, paragraphs(s.About+"\n\n"+s.Notes))
	group := ""
	for _, c := range s.Commands {
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(&b, ".SH %s\n", troff(strings.ToUpper(group)))
		}
		name := s.Name + " " + c.Name
		lines, comments := c.forms(name)
		fmt.Fprintf(&b, ".SS %s\n.nf\n", troff(name))
		for i, line := range lines {
			fmt.Fprintf(&b, "%s\n", troff(strings.TrimSpace(line+"   "+comments[i])))
		}
		fmt.Fprintf(&b, ".fi\n.PP\n%s\n", paragraphs(c.About))
		for _, o := range c.shown() {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", troff(o.names()), strings.ReplaceAll(troff(o.Help), "\n", "\n.br\n"))
		}
		if c.Notes != "" {
			fmt.Fprintf(&b, ".PP\n%s\n", paragraphs(c.Notes))
		}
		for _, e := range c.Examples {
			fmt.Fprintf(&b, ".PP\n%s\n.nf\n%s\n.fi\n", troff(e[1]), troff(e[0]))
		}
		for _, p := range c.Programs {
			fmt.Fprintf(&b, ".PP\nAlso called\n.BR %s .\n", troff(p.Name))
		}
	}
	return b.String()
}

// paragraphs returns paragraphs for troff. Lists, which are indented, keep their lines.
func paragraphs(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.Contains(p, "\n  ") {
			p = ".nf\n" + troff(p) + "\n.fi"
		} else {
			p = troff(p)
		}
		b.WriteString(p + "\n")
	}
	return strings.TrimSpace(b.String())
}

// troff quotes a text.
func troff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
