package cli

import (
	"fmt"
	"strings"
)

// Shells are those that Completion knows.
var Shells = []string{"bash", "zsh", "fish"}

// Completion returns the script with which a shell completes the program's command lines.
func (s *Set) Completion(shell string) string {
	switch shell {
	case "bash":
		return s.bash()
	case "zsh":
		return s.zsh()
	}
	return s.fish()
}

// devices is the shell's list of RDMA devices.
const devices = "ls /sys/class/infiniband 2>/dev/null"

// dashed returns the option's names, with their dashes.
func (o Option) dashed() (all []string) {
	if o.Short != 0 {
		all = append(all, "-"+string(rune(o.Short)))
	}
	for long := range strings.FieldsSeq(o.Long) {
		all = append(all, "--"+long)
	}
	return all
}

// dashed returns the names of some of the options that the help lists.
func (c *Command) dashed(which func(Option) bool) (all []string) {
	for _, o := range c.shown() {
		if which(o) {
			all = append(all, o.dashed()...)
		}
	}
	return all
}

func (o Option) isDevice() bool { return o.Arg == "DEV" || o.Arg == "DEVICE" }

func (s *Set) commandNames() (names []string) {
	for _, c := range s.Commands {
		names = append(names, c.Name)
	}
	return append(names, "help", "version")
}

func (s *Set) bash() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# bash completion for %[1]s\n\n_%[1]s() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options= words= devices=\n\tCOMPREPLY=()\n", s.Name)
	fmt.Fprintf(&b, "\tif [ \"$COMP_CWORD\" -eq 1 ] || [ \"$prev\" = help ]; then\n\t\tCOMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n\t\treturn\n\tfi\n", strings.Join(s.commandNames(), " "))
	b.WriteString("\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range s.Commands {
		fmt.Fprintf(&b, "\t%s)\n\t\toptions='%s'\n", c.Name, strings.Join(c.dashed(func(Option) bool { return true }), " "))
		if c.Words != nil {
			fmt.Fprintf(&b, "\t\twords='%s'\n", strings.Join(c.Words, " "))
		}
		if names := c.dashed(Option.isDevice); names != nil {
			fmt.Fprintf(&b, "\t\tdevices='%s'\n", strings.Join(names, " "))
		}
		b.WriteString("\t\t;;\n")
	}
	fmt.Fprintf(&b, `	esac
	case " $devices " in
	*" $prev "*)
		COMPREPLY=($(compgen -W "$(%[1]s)" -- "$cur"))
		return
		;;
	esac
	case $cur in
	-*) COMPREPLY=($(compgen -W "$options" -- "$cur")) ;;
	*)
		if [ -n "$words" ] && [ "$COMP_CWORD" -eq 2 ]; then
			COMPREPLY=($(compgen -W "$words" -- "$cur"))
		else
			COMPREPLY=($(compgen -W "$(%[1]s)" -- "$cur") $(compgen -f -- "$cur"))
		fi
		;;
	esac
}
complete -F _%[2]s %[2]s
`, devices, s.Name)
	return b.String()
}

func (s *Set) zsh() string {
	quote := strings.NewReplacer("'", "", "[", "(", "]", ")", ":", ",", "\n", "; ")
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n\n_%[1]s_devices() { compadd -- $(%[2]s) }\n\n_%[1]s() {\n\tif ((CURRENT == 2)) || [[ $words[2] = help ]]; then\n\t\tlocal -a commands=(\n", s.Name, devices)
	for _, c := range s.Commands {
		fmt.Fprintf(&b, "\t\t\t'%s:%s'\n", c.Name, quote.Replace(c.Summary))
	}
	b.WriteString("\t\t\t'help:show the help of a command'\n\t\t\t'version:print the version'\n\t\t)\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tcase $words[2] in\n")
	for _, c := range s.Commands {
		fmt.Fprintf(&b, "\t%s)\n\t\tshift words\n\t\t((CURRENT--))\n\t\t_arguments -s -S", c.Name)
		for _, o := range c.shown() {
			for _, name := range o.dashed() {
				value := ""
				switch {
				case o.isDevice():
					value = fmt.Sprintf(":%s:_%s_devices", o.Arg, s.Name)
				case o.Arg == "FILE":
					value = ":FILE:_files"
				case o.Arg != "":
					value = ":" + quote.Replace(o.Arg) + ":"
				}
				fmt.Fprintf(&b, " \\\n\t\t\t'*%s[%s]%s'", name, quote.Replace(o.Help), value)
			}
		}
		if c.Words != nil {
			fmt.Fprintf(&b, " \\\n\t\t\t'1:what:(%s)'", strings.Join(c.Words, " "))
		}
		b.WriteString(" \\\n\t\t\t'*:argument:_files'\n\t\t;;\n")
	}
	fmt.Fprintf(&b, "\tesac\n}\n\n_%[1]s \"$@\"\n", s.Name)
	return b.String()
}

func (s *Set) fish() string {
	quote := strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", "; ")
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %[1]s\n\ncomplete -c %[1]s -n __fish_use_subcommand -f -a 'help version'\n", s.Name)
	fmt.Fprintf(&b, "complete -c %s -n '__fish_seen_subcommand_from help' -f -a '%s'\n", s.Name, strings.Join(s.commandNames(), " "))
	for _, c := range s.Commands {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d '%s'\n", s.Name, c.Name, quote.Replace(c.Summary))
		when := fmt.Sprintf("complete -c %s -n '__fish_seen_subcommand_from %s'", s.Name, c.Name)
		if c.Words != nil {
			fmt.Fprintf(&b, "%s -a '%s'\n", when, strings.Join(c.Words, " "))
		}
		for _, o := range c.shown() {
			line := when
			if o.Short != 0 {
				line += " -s " + string(rune(o.Short))
			}
			for long := range strings.FieldsSeq(o.Long) {
				line += " -l " + long
			}
			switch {
			case o.isDevice():
				line += fmt.Sprintf(" -x -a '(%s)'", devices)
			case o.Arg == "FILE":
				line += " -r -F"
			case o.Arg != "":
				line += " -x"
			}
			fmt.Fprintf(&b, "%s -d '%s'\n", line, quote.Replace(o.Help))
		}
	}
	return b.String()
}
