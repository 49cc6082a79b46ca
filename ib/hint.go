package ib

import "errors"

// Hint returns advice for the user about an error from any package of this module, or "". The
// error's text ends with the advice.
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
