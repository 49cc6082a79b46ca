package rdmatest

import (
	"testing"
	"time"
)

// Must returns the result of a call that must succeed:
//
//	pd := rdmatest.Must(c.AllocPD())(t)
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Check(t, err)
		return v
	}
}

// Check fails the test if there is an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Until polls until missing returns "". After Patience it fails the test with what is missing.
func Until(t testing.TB, missing func() string) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		what := missing()
		if what == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// UntilNot polls until is returns false. After Patience it fails the test with what is still true.
func UntilNot(t testing.TB, what string, is func() bool) {
	t.Helper()
	Until(t, func() string {
		if is() {
			return what
		}
		return ""
	})
}
