package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/version"
)

// Const returns the Set of an option that stores a value which isn't its argument.
func Const[T any](to *T, value T) func(string) error {
	return func(string) error {
		*to = value
		return nil
	}
}

// Version is the Set of an option that asks for the version.
func Version(string) error { return Answer(version.Of(called()) + "\n") }

// Text returns the Set of an option whose value is any text but an empty one: a script's variable that isn't set must
// not turn off TLS, serve all hosts or choose another device.
func Text(to *string) func(string) error {
	return func(value string) error {
		*to = value
		if value == "" {
			return errors.New("the value is empty")
		}
		return nil
	}
}

// Word returns the Set of an option whose value is one of some words.
func Word(to *string, words ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("%q is not %s", value, Or(words))
		}
		*to = value
		return nil
	}
}

// Or lists words: "a, b or c".
func Or(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Int returns the Set of an option whose value is a number from lo to hi.
func Int[T ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64](to *T, lo, hi int64) func(string) error {
	return func(value string) error {
		n, err := Number(value, lo, hi)
		if err == nil {
			*to = T(n)
		}
		return err
	}
}

// Number parses a number from lo to hi as strtol with base 0 does: decimal, 0x hexadecimal, 0
// octal.
func Number(value string, lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(value, 0, 64)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%q is not a number from %d to %d", value, lo, hi)
	}
	return n, nil
}

// Size parses a number of bytes from lo to hi, with K or M as the unit or none.
func Size(value string, lo, hi int64) (int64, error) {
	digits, factor := value, int64(1)
	if s, ok := strings.CutSuffix(value, "K"); ok {
		digits, factor = s, 1<<10
	} else if s, ok := strings.CutSuffix(value, "M"); ok {
		digits, factor = s, 1<<20
	}
	n, err := Number(digits, 0, hi/factor)
	if n *= factor; err != nil || n < lo {
		return 0, fmt.Errorf("%q is not a size from %d to %d", value, lo, hi)
	}
	return n, nil
}

// Bits returns the Set of an option whose value is a number of so many bits.
func Bits[T ~uint8 | ~uint16 | ~uint32 | ~uint64](to *T, bits int) func(string) error {
	return func(value string) error {
		n, err := Unsigned(value, bits)
		if err == nil {
			*to = T(n)
		}
		return err
	}
}

// Unsigned parses a number of so many bits, as Number does.
func Unsigned(value string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(value, 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of up to %d bits", value, bits)
	}
	return n, nil
}

// Duration returns the Set of an option whose value is a time: seconds, or a number with a unit.
func Duration(to *time.Duration) func(string) error {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if seconds, number := strconv.ParseFloat(value, 64); number == nil {
			d, err = time.Duration(seconds*float64(time.Second)), nil
			if !(math.Abs(seconds) < math.MaxInt64/float64(time.Second)) {
				err = errors.New("too long")
			}
		}
		if err != nil {
			return fmt.Errorf("%q is not a time, such as 2 (seconds), 500ms or 1m", value)
		}
		if d < 0 {
			return fmt.Errorf("%q is negative", value)
		}
		*to = d
		return nil
	}
}

// Period returns the Set of an option whose value is a time of more than 0.
func Period(to *time.Duration) func(string) error {
	return func(value string) error {
		var d time.Duration
		err := Duration(&d)(value)
		if err == nil && d == 0 {
			err = errors.New("the time must be more than 0")
		}
		if err == nil {
			*to = d
		}
		return err
	}
}

// Milliseconds returns the Set of an option whose value is a number of milliseconds, more than 0.
func Milliseconds(to *time.Duration) func(string) error {
	return func(value string) error {
		n, err := Number(value, 1, math.MaxInt32)
		if err == nil {
			*to = time.Duration(n) * time.Millisecond
		}
		return err
	}
}
