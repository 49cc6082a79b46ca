package cli

import (
	"errors"
	"fmt"
	"strings"
)

// An Option is one option of a command.
type Option struct {
	Short byte   // 0: none
	Long  string // its names, separated by spaces; "": none
	Arg   string // what its value is; "": it takes none
	Help  string // "": the help doesn't list it
	Set   func(value string) error

	refused string // if not "": it is refused, and this says why after its name
}

// Opt returns an option with a value, unless arg is "".
func Opt(short byte, long, arg, help string, set func(value string) error) Option {
	return Option{Short: short, Long: long, Arg: arg, Help: help, Set: set}
}

// Flag returns an option without a value, which switches something on.
func Flag(short byte, long, help string, to *bool) Option {
	return Opt(short, long, "", help, Const(to, true))
}

// Ignored returns an option that changes nothing. The help doesn't list it.
func Ignored(short byte, long, arg string) Option {
	return Opt(short, long, arg, "", func(string) error { return nil })
}

// Refuse returns an option that is refused. why follows its name in the message, such as "is not
// supported: there is no multicast here". The help doesn't list it.
func Refuse(short byte, long, arg, why string) Option {
	return Option{Short: short, Long: long, Arg: arg, refused: why}
}

// String returns the option as messages name it.
func (o *Option) String() string {
	if name, _, _ := strings.Cut(o.Long, " "); name != "" {
		return "--" + name
	}
	return "-" + string(rune(o.Short))
}

func (o *Option) set(value string) error {
	if o.refused != "" {
		return fmt.Errorf("%v %s", o, o.refused)
	}
	err := o.Set(value)
	var answer Answer
	if err == nil || errors.As(err, &answer) {
		return err
	}
	return fmt.Errorf("%v: %w", o, err)
}

// parse sets the options in args, and returns the operands. It accepts what getopt_long accepts:
// -n 5, -n5, -ecn5, --iters 5, --iters=5 and --it=5, before, between and after the operands; --
// ends the options. Where several options have the same letter or name, the first counts.
func parse(options []Option, args []string) (operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), nil
		case strings.HasPrefix(arg, "--"):
			args, err = long(options, arg[2:], args)
		case len(arg) > 1 && arg[0] == '-':
			args, err = letters(options, arg[1:], args)
		default:
			operands = append(operands, arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return operands, nil
}

// long sets the option after two dashes, and returns the remaining arguments.
func long(options []Option, text string, args []string) ([]string, error) {
	name, value, given := strings.Cut(text, "=")
	o, err := findLong(options, name)
	switch {
	case err != nil:
		return nil, err
	case given && o.Arg == "":
		return nil, fmt.Errorf("option %v takes no value", o)
	case o.Arg != "" && !given:
		if len(args) == 0 {
			return nil, fmt.Errorf("option %v needs a value", o)
		}
		value, args = args[0], args[1:]
	}
	return args, o.set(value)
}

// letters sets the options after one dash, and returns the remaining arguments.
func letters(options []Option, text string, args []string) ([]string, error) {
	for i := range len(text) {
		o, err := findShort(options, text[i])
		if err != nil {
			return nil, err
		}
		if o.Arg == "" {
			if err := o.set(""); err != nil {
				return nil, err
			}
			continue
		}
		value := text[i+1:]
		if value == "" {
			if len(args) == 0 {
				return nil, fmt.Errorf("option -%c needs a value", text[i])
			}
			value, args = args[0], args[1:]
		}
		return args, o.set(value)
	}
	return args, nil
}

func findShort(options []Option, c byte) (*Option, error) {
	for i := range options {
		if options[i].Short == c {
			return &options[i], nil
		}
	}
	return nil, fmt.Errorf("there is no option -%c", c)
}

// findLong finds an option by one of its names, or by an unambiguous prefix.
func findLong(options []Option, name string) (*Option, error) {
	var found []*Option
	var names, all []string
	for i := range options {
		for long := range strings.FieldsSeq(options[i].Long) {
			if long == name {
				return &options[i], nil
			}
			all = append(all, long)
			if strings.HasPrefix(long, name) && (len(found) == 0 || found[len(found)-1] != &options[i]) {
				found, names = append(found, &options[i]), append(names, "--"+long)
			}
		}
	}
	switch len(found) {
	case 0:
		hint := ""
		if near := nearest(name, all); near != "" {
			hint = "; did you mean --" + near + "?"
		}
		return nil, fmt.Errorf("there is no option --%s%s", name, hint)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("option --%s is ambiguous: %s", name, strings.Join(names, ", "))
}

// nearest returns the word that a mistyped word most likely stands for, or "".
func nearest(typed string, words []string) (near string) {
	least := 1 + min(2, len(typed)/3) // how many typing mistakes are too many
	for _, w := range words {
		if d := distance(typed, w); d < least {
			near, least = w, d
		}
	}
	return near
}

// distance counts the typing mistakes that make a of b: letters that are missing, too many, wrong
// or exchanged with their neighbour.
func distance(a, b string) int {
	var rows [2][]int // the last rows of the table of distances between beginnings of a and b
	for i := range len(a) + 1 {
		row := make([]int, len(b)+1)
		for j := range row {
			switch {
			case i == 0 || j == 0:
				row[j] = i + j
				continue
			case a[i-1] == b[j-1]:
				row[j] = rows[1][j-1]
			default:
				row[j] = 1 + min(rows[1][j], row[j-1], rows[1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], rows[0][j-2]+1)
			}
		}
		rows[0], rows[1] = rows[1], row
	}
	return rows[1][len(b)]
}
