// Package cli has what the commands of ibv share: the description of a command, from which its
// help, manual page and completion are generated; one option parser; errors and exit statuses.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

// Exit statuses of every command.
const (
	OK     = 0
	Failed = 1
	Wrong  = 2 // wrong usage
)

// The groups of commands, in the order of the help.
const (
	Look    = "Look at devices"
	Change  = "Devices and links of the kernel"
	Measure = "Measure"
	Connect = "Try connections"
	Sockets = "Sockets over RDMA"
	Subnet  = "Look at an InfiniBand subnet"
	Own     = "ibv itself"
)

// A Command describes a command, and runs it. Its options are bound to variables, so that a
// Command runs once.
type Command struct {
	Name     string
	Group    string
	Summary  string    // what it does, without a full stop
	Forms    []string  // of the command line after the name, each with a comment after a tab; default "[OPTION...]"
	About    string    // paragraphs
	Options  []Option  // -h and --help need no entry
	Notes    string    // paragraphs after the options
	Examples []Example // with the whole command lines
	Programs []Program // that it replaces
	Operands int       // how many operands it takes at most; Any: any number
	Words    []string  // what the first operand may be, for completion; nil: names of files and devices

	// Server has the options with which the command is the server, if it has one. An error of a refused
	// connection says how to start it.
	Server string
	// ServerWord is the variant that is the server, if it is another one.
	ServerWord string

	// Variant returns the command for the first argument, such as the "rc" of "ibv pingpong rc".
	// nil: there are no variants.
	Variant func(word string) (*Command, error)
	Run     func(operands []string) error

	// Late sets Options and Run when they are needed, of a command with many options: all commands are
	// described whenever the program starts.
	Late func(*Command)
}

// complete completes the description.
func (c *Command) complete() {
	if c.Late != nil {
		c.Late(c)
		c.Late = nil
	}
}

// Any is the number of operands of a command that takes any number.
const Any = -1

// An Example is command lines, separated by newlines, and what they are for.
type Example [2]string

// A Program is one that a command replaces. Under its name, ibv behaves as the program.
type Program struct {
	Name    string
	Word    string // the variant of the command, or ""
	Differs string // what differs from the program, in Markdown
}

// calledAs is how the user called the command: "ibv info" or "ibv_devinfo". Messages begin with it.
var calledAs atomic.Value

// server is how the other side of the command is started.
var server atomic.Value

func init() {
	calledAs.Store("ibv")
	server.Store("ibv")
}

func called() string { return calledAs.Load().(string) }

// AsProgram reports whether the command was called by the name of a program that it replaces.
func AsProgram() bool { return called() != "ibv" && !strings.HasPrefix(called(), "ibv ") }

// A usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef returns an error for a mistake in the command line.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// ErrReported is the error of a command that has already reported its failure.
var ErrReported = errors.New("the failure has been reported")

// An Answer is the error of an option that asks for a text, such as -h. The command prints the
// text, and succeeds.
type Answer string

func (a Answer) Error() string { return string(a) }

// Main runs the command and returns the exit status. as is how the user called it.
func (c *Command) Main(as string, args []string) int {
	calledAs.Store(as)
	Stdout.reset()
	defer catch()()
	err := c.run(args)
	Quiet()
	if err == nil || err == ErrReported {
		if failed := Stdout.failure(); failed != nil {
			err = failed
		}
	}
	var answer Answer
	switch {
	case err == nil:
		return OK
	case err == ErrReported:
		return Failed
	case errors.As(err, &answer):
		Stdout.reset()
		Print(string(answer))
		if err := Stdout.failure(); err != nil {
			Errorf("%v", err)
			return Failed
		}
		return OK
	case (interrupted.Load() || cutShort.Load()) && errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	Errorf("%v", err)
	if _, wrong := err.(usageError); wrong {
		fmt.Fprintf(os.Stderr, "Try '%s -h' for more information.\n", called())
		return Wrong
	}
	return Failed
}

func (c *Command) run(args []string) error {
	c.complete()
	chosen := c
	server.Store(called())
	if c.Variant != nil && (len(args) == 0 || args[0] != "-h" && !strings.HasPrefix(args[0], "--h")) {
		word := ""
		if len(args) > 0 {
			word, args = args[0], args[1:]
		}
		var err error
		if chosen, err = c.Variant(word); err != nil {
			return usageError{err}
		}
		if !AsProgram() {
			server.Store(called() + " " + cmp.Or(chosen.ServerWord, word))
		}
	}
	help := func(string) error { return Answer(c.Help(called())) }
	chosen.Options = append(chosen.Options, Option{Short: 'h', Long: "help", Set: help})
	operands, err := chosen.Parse(args)
	if err != nil {
		return usageError{err}
	}
	if chosen.Server != "" {
		server.Store(server.Load().(string) + " " + chosen.Server)
	}
	err = Refused(chosen.Run(operands))
	if _, wrong := err.(usageError); !wrong {
		Stdout.end()
	}
	return err
}

// Refused returns the error. If nobody listens where the command has connected, it says how to start the
// server there.
func Refused(err error) error {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return fmt.Errorf("%w; start the server there: %s", err, server.Load())
}

// Parse sets the options in the arguments, and returns the operands. None of them is empty: for Text's reason.
func (c *Command) Parse(args []string) (operands []string, err error) {
	c.complete()
	operands, err = parse(c.Options, args)
	switch {
	case err != nil:
	case c.Operands != Any && len(operands) > c.Operands:
		err = fmt.Errorf("unexpected argument %q", operands[c.Operands])
	case slices.Contains(operands, ""):
		err = errors.New("an argument is empty")
	}
	return operands, err
}
