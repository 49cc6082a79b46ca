package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// completers are programs of the shells that complete lines with a script, and print <ibv WORD>. zsh completes only
// what somebody types.
var completers = map[string]string{
	"bash": `. "$1"; for line in "${@:2}"; do COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ibv; echo "<ibv ${COMPREPLY[*]}>"; done`,
	"fish": `source $argv[1]; for line in $argv[2..]; echo "<ibv "(complete -C $line | string replace -r '\t.*' '')">"; end`,
	"zsh": `zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "fpath=(${1:h} \$fpath); autoload -Uz compinit; compinit -u -D; show() { print -r -- \"<\$BUFFER>\"; BUFFER=; }; zle -N show; bindkey '^T' show; print re'ad'y"
zpty -r z out '*ready*'
for line in "${@:2}"; do
	zpty -w -n z "$line"$'\t\C-t'
	zpty -r z out '*<ibv*>*'
	print -r -- "$out"
done`,
}

// TestCompletion: each shell completes commands, their options and their words.
func TestCompletion(t *testing.T) {
	lines := []string{"ibv devi", "ibv help iblinki", "ibv info --verb", "ibv pingpong xs", "ibv write_bw --report_g"}
	want := []string{"devices", "iblinkinfo", "--verbose", "xsrq", "--report_gbits"}
	shown := regexp.MustCompile(`<ibv (?:[^<>]* )?([\w-]+) ?>`)
	for _, shell := range cli.Shells {
		if _, err := exec.LookPath(shell); err != nil {
			t.Errorf("%v: rig/setup %s installs it", err, shell)
			continue
		}
		script := filepath.Join(t.TempDir(), "_ibv")
		rdmatest.Check(t, os.WriteFile(script, []byte(program().Completion(shell)), 0o644))
		args := append([]string{"-c", completers[shell], "x", script}, lines...)
		if shell == "fish" {
			args = slices.Delete(args, 2, 3) // it has no name for the program
		}
		ctx, stop := context.WithTimeout(t.Context(), rdmatest.Patience)
		c := exec.CommandContext(ctx, shell, args...)
		c.Env = append(os.Environ(), "HOME="+t.TempDir(), "TERM=xterm")
		out, err := c.CombinedOutput()
		stop()
		var got []string
		for _, m := range shown.FindAllStringSubmatch(string(out), -1) {
			got = append(got, m[1])
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q are completed to %q, %v, want %q", shell, lines, out, err, want)
		}
	}
}
