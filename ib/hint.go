package ib

import "errors"

// Hint returns what a person can do about an error of any of this module's packages, or "". The
// error's text ends with it.
func Hint(err error) string {
	for {
		var hinted interface {
			error
			Hint() string
		}
		if !errors.As(err, &hinted) {
			return ""
		}
		if hint := hinted.Hint(); hint != "" {
			return hint
		}
		err = errors.Unwrap(hinted)
	}
}
