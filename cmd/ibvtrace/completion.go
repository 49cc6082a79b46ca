package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/filter"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/summary"
)

const completionUsage = `Usage: ibvtrace completion bash|zsh|fish

Print a script that completes ibvtrace's command line in a shell.

  bash   ibvtrace completion bash >/usr/share/bash-completion/completions/ibvtrace
  zsh    ibvtrace completion zsh >/usr/share/zsh/site-functions/_ibvtrace
  fish   ibvtrace completion fish >~/.config/fish/completions/ibvtrace.fish
`

// completion prints a shell's completion script. It is generated from the flags, so that
// none is missing.
func completion(args []string) error {
	rest, err := parse(flag.NewFlagSet("ibvtrace completion", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	if len(rest) != 1 || shells[rest[0]] == nil {
		return usageError{fmt.Errorf("want one argument: bash, zsh or fish")}
	}
	_, err = os.Stdout.WriteString(shells[rest[0]]())
	return err
}

var shells = map[string]func() string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}

// flagSets returns the flags of each subcommand, and under "" those of tracing.
func flagSets() map[string]*flag.FlagSet {
	return map[string]*flag.FlagSet{
		"":        traceFlags(new(options)),
		"report":  viewFlags("ibvtrace report", new(options)),
		"figure":  figureFlags(new(figureOptions)),
		"diff":    diffFlags(new(diffOptions)),
		"objects": objectsFlags(new(objectsOptions)),
		"record":  recordFlags(new(recordOptions)),
		"dump":    dumpFlags(new(dumpOptions)),
	}
}

// commandNames are the subcommands, in the order of the help text.
var commandNames = []string{"report", "figure", "diff", "objects", "record", "dump", "completion"}

// dashes returns a flag with its dashes: -o, --json. -tt and -ttt are strace's.
func dashes(name string) string {
	if len(strings.Trim(name, "t")) == 0 || len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// takesValue reports whether a flag must have a value.
func takesValue(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return !ok || !b.IsBoolFlag()
}

// valuesOf returns the possible values of a flag, or nil if they are not words.
func valuesOf(name string) []string {
	switch name {
	case "e":
		return filter.Words()
	case "S":
		return summary.Orders
	case "how":
		return ways
	case "on":
		return alarmWords()
	case "color":
		return []string{"auto", "always", "never"}
	}
	return nil
}

func isFile(name string) bool {
	return name == "o" || name == "d" || name == "chrome" || name == "cgroup" || name == "socket"
}

func bashCompletion() string {
	var b strings.Builder
	b.WriteString("# bash completion for ibvtrace\n\n_ibvtrace() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i\n")
	fmt.Fprintf(&b, "\tcase ${COMP_WORDS[1]} in\n\t%s) [ \"$COMP_CWORD\" -eq 1 ] || command=${COMP_WORDS[1]} ;;\n\tesac\n", strings.Join(commandNames, " | "))
	b.WriteString("\tCOMPREPLY=()\n\tcase $prev in\n")
	values := make(map[string]bool)
	for _, command := range append([]string{""}, commandNames...) {
		if set := flagSets()[command]; set != nil {
			set.VisitAll(func(f *flag.Flag) {
				if !takesValue(f) || values[f.Name] {
					return
				}
				values[f.Name] = true
				fmt.Fprintf(&b, "\t%s)\n", dashes(f.Name))
				switch words := valuesOf(f.Name); {
				case words != nil:
					fmt.Fprintf(&b, "\t\tCOMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n", strings.Join(words, " "))
				case isFile(f.Name):
					b.WriteString("\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n")
				case f.Name == "p":
					b.WriteString("\t\tCOMPREPLY=($(compgen -W \"$(cd /proc && echo [0-9]*)\" -- \"$cur\"))\n")
				}
				b.WriteString("\t\treturn\n\t\t;;\n")
			})
		}
	}
	b.WriteString("\tesac\n\tcase $command in\n")
	for _, command := range append(commandNames, "*") {
		set := flagSets()[strings.TrimPrefix(command, "*")]
		switch {
		case command == "completion":
			fmt.Fprintf(&b, "\tcompletion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$cur\")) ;;\n")
		case command == "*":
			fmt.Fprintf(&b, "\t*)\n\t\tcase $cur in\n\t\t-*) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n\t\t*)\n\t\t\tCOMPREPLY=($(compgen -c -- \"$cur\") $(compgen -f -- \"$cur\"))\n"+
				"\t\t\t[ \"$COMP_CWORD\" -gt 1 ] || COMPREPLY+=($(compgen -W '%s' -- \"$cur\"))\n\t\t\t;;\n\t\tesac\n\t\t;;\n",
				strings.Join(flagWords(set), " "), strings.Join(commandNames, " "))
		default:
			fmt.Fprintf(&b, "\t%s)\n\t\tcase $cur in\n\t\t-*) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n\t\t*) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n\t\tesac\n\t\t;;\n",
				command, strings.Join(flagWords(set), " "))
		}
	}
	b.WriteString("\tesac\n}\ncomplete -F _ibvtrace ibvtrace\n")
	return b.String()
}

func flagWords(set *flag.FlagSet) []string {
	out := []string{"-h"}
	set.VisitAll(func(f *flag.Flag) { out = append(out, dashes(f.Name)) })
	return out
}

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef ibvtrace\n\n_ibvtrace() {\n\tlocal -a commands\n\tcase $words[2] in\n")
	quote := strings.NewReplacer("'", "", "[", "(", "]", ")", ":", ",")
	specs := func(set *flag.FlagSet) {
		set.VisitAll(func(f *flag.Flag) {
			value, usage := flag.UnquoteUsage(f)
			fmt.Fprintf(&b, " \\\n\t\t\t'*%s[%s]", dashes(f.Name), quote.Replace(usage))
			if takesValue(f) {
				action := ""
				switch words := valuesOf(f.Name); {
				case words != nil:
					action = "(" + strings.Join(words, " ") + ")"
				case isFile(f.Name):
					action = "_files"
				case f.Name == "p":
					action = "_pids"
				}
				fmt.Fprintf(&b, ":%s:%s", value, action)
			}
			b.WriteByte('\'')
		})
	}
	for _, command := range commandNames {
		fmt.Fprintf(&b, "\t%s)\n\t\tshift words\n\t\t((CURRENT--))\n", command)
		if command == "completion" {
			b.WriteString("\t\t_values shell bash zsh fish\n\t\t;;\n")
			continue
		}
		b.WriteString("\t\t_arguments '-h[help]'")
		specs(flagSets()[command])
		if command != "objects" && command != "dump" {
			b.WriteString(" \\\n\t\t\t'*:trace:_files'")
		}
		b.WriteString("\n\t\t;;\n")
	}
	fmt.Fprintf(&b, "\t*)\n\t\t((CURRENT == 2)) && commands=(%s) && _describe command commands\n\t\t_arguments '-h[help]'", strings.Join(commandNames, " "))
	specs(flagSets()[""])
	b.WriteString(" \\\n\t\t\t'(-):command:_command_names -e' '*::arguments:_normal'\n\t\t;;\n\tesac\n}\n\n_ibvtrace \"$@\"\n")
	return b.String()
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# fish completion for ibvtrace\n\n")
	fmt.Fprintf(&b, "complete -c ibvtrace -n __fish_use_subcommand -a '%s'\n", strings.Join(commandNames, " "))
	b.WriteString("complete -c ibvtrace -n __fish_use_subcommand -a '(__fish_complete_command)'\n")
	b.WriteString("complete -c ibvtrace -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n")
	for _, command := range append([]string{""}, commandNames...) {
		set := flagSets()[command]
		if set == nil {
			continue
		}
		when := "__fish_seen_subcommand_from " + command
		if command == "" {
			when = "not __fish_seen_subcommand_from " + strings.Join(commandNames, " ")
		}
		fmt.Fprintf(&b, "complete -c ibvtrace -n '%s' -s h -d help\n", when)
		set.VisitAll(func(f *flag.Flag) {
			_, usage := flag.UnquoteUsage(f)
			how := "-l " + f.Name
			if d := dashes(f.Name); len(d) == 2 {
				how = "-s " + f.Name
			} else if !strings.HasPrefix(d, "--") {
				how = "-o " + f.Name
			}
			fmt.Fprintf(&b, "complete -c ibvtrace -n '%s' %s", when, how)
			if takesValue(f) {
				switch words := valuesOf(f.Name); {
				case words != nil:
					fmt.Fprintf(&b, " -x -a '%s'", strings.Join(words, " "))
				case isFile(f.Name):
					b.WriteString(" -r -F")
				case f.Name == "p":
					b.WriteString(" -x -a '(__fish_complete_pids)'")
				default:
					b.WriteString(" -x")
				}
			}
			fmt.Fprintf(&b, " -d '%s'\n", strings.ReplaceAll(usage, "'", `\'`))
		})
	}
	return b.String()
}
