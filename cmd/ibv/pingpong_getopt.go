package main

import (
	"fmt"
	"strings"
)

// A longOption is an option in the sense of getopt_long.
type longOption struct {
	short  byte
	long   string
	hasArg bool
}

// getopt calls set for each option in args, and returns the operands. It accepts
// what getopt_long accepts: -n 5, -n5, -ecn5, --iters 5, --iters=5 and --it=5,
// before, between and after the operands; -- ends the options. Package flag
// accepts only some of these.
func getopt(options []longOption, args []string, set func(o longOption, value string) error) (operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), nil
		case strings.HasPrefix(arg, "--"):
			name, value, given := strings.Cut(arg[2:], "=")
			o, err := findLong(options, name)
			if err != nil {
				return nil, err
			}
			switch {
			case given && !o.hasArg:
				return nil, fmt.Errorf("option --%s takes no value", o.long)
			case o.hasArg && !given:
				if value, args, err = next(args, "--"+o.long); err != nil {
					return nil, err
				}
			}
			if err := set(o, value); err != nil {
				return nil, err
			}
		case len(arg) > 1 && arg[0] == '-':
			if args, err = cluster(options, arg[1:], args, set); err != nil {
				return nil, err
			}
		default:
			operands = append(operands, arg)
		}
	}
	return operands, nil
}

// cluster handles the options after one dash and returns the remaining arguments.
func cluster(options []longOption, letters string, args []string, set func(longOption, string) error) ([]string, error) {
	for i := range len(letters) {
		o, err := findShort(options, letters[i])
		if err != nil {
			return nil, err
		}
		value := ""
		if o.hasArg {
			if value = letters[i+1:]; value == "" {
				if value, args, err = next(args, "-"+letters[i:i+1]); err != nil {
					return nil, err
				}
			}
		}
		if err := set(o, value); err != nil {
			return nil, err
		}
		if o.hasArg {
			break
		}
	}
	return args, nil
}

func next(args []string, option string) (value string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, fmt.Errorf("option %s needs a value", option)
	}
	return args[0], args[1:], nil
}

func findShort(options []longOption, c byte) (longOption, error) {
	for _, o := range options {
		if o.short == c {
			return o, nil
		}
	}
	return longOption{}, fmt.Errorf("there is no option -%c", c)
}

// findLong finds an option by its name or by an unambiguous prefix.
func findLong(options []longOption, name string) (longOption, error) {
	var found []longOption
	for _, o := range options {
		if o.long == name {
			return o, nil
		}
		if strings.HasPrefix(o.long, name) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 0:
		return longOption{}, fmt.Errorf("there is no option --%s", name)
	case 1:
		return found[0], nil
	}
	return longOption{}, fmt.Errorf("option --%s is ambiguous: --%s or --%s", name, found[0].long, found[1].long)
}
