package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// links is the command links.
func links(s *cli.Set) *cli.Command {
	return &cli.Command{
		Name:     "links",
		Group:    cli.Own,
		Summary:  "make links with the names of the programs that ibv replaces",
		Forms:    []string{"DIR"},
		Operands: 1,
		About: `Make symbolic links to this program in a folder, with the names of the programs
that it replaces: ib_write_bw, ibv_devinfo, rping and so on. Under such a name
it behaves as that program. The folder must exist. Links to ibv that are there
remain. Anything else with such a name is an error, and then no link is made.`,
		Run: func(operands []string) error {
			if len(operands) == 0 {
				return cli.Usagef("it needs one folder")
			}
			target, err := os.Executable()
			if err != nil {
				return err
			}
			return linkAll(programs(s), target, operands[0])
		},
	}
}

// programs returns the names of the programs that a link can have.
func programs(s *cli.Set) (names []string) {
	for _, c := range s.Commands {
		for _, p := range c.Programs {
			if !strings.Contains(p.Name, " ") {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// linkAll makes links to the target.
func linkAll(names []string, target, dir string) error {
	var missing []string
	for _, name := range names {
		path := filepath.Join(dir, name)
		_, err := os.Lstat(path)
		to, _ := os.Readlink(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, path)
		case err != nil:
			return err
		case to != target:
			return fmt.Errorf("%s is there and is no link to %s", path, target)
		}
	}
	for _, path := range missing {
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

// completion is the command completion.
func completion(s *cli.Set) *cli.Command {
	return &cli.Command{
		Name:     "completion",
		Group:    cli.Own,
		Summary:  "print what completes command lines in a shell",
		Forms:    []string{strings.Join(cli.Shells, "|")},
		Words:    cli.Shells,
		Operands: 1,
		About:    "Print a script that completes ibv's command lines in a shell.",
		Examples: []cli.Example{
			{"ibv completion bash >/usr/share/bash-completion/completions/ibv"},
			{"ibv completion zsh >/usr/share/zsh/site-functions/_ibv"},
			{"ibv completion fish >~/.config/fish/completions/ibv.fish"},
		},
		Run: func(operands []string) error {
			var shell string
			if err := cli.Word(&shell, cli.Shells...)(strings.Join(operands, "")); err != nil {
				return cli.Usagef("%w", err)
			}
			cli.Print(s.Completion(shell))
			return nil
		},
	}
}

// man is the command man.
func man(s *cli.Set) *cli.Command {
	return &cli.Command{
		Name:     "man",
		Group:    cli.Own,
		Summary:  "print the manual page",
		About:    "Print the manual page of ibv and its commands, for troff.",
		Examples: []cli.Example{{"ibv man | man -l -", "read it"}, {"ibv man >/usr/share/man/man1/ibv.1", "install it"}},
		Run: func([]string) error {
			cli.Print(s.Man())
			return nil
		},
	}
}
