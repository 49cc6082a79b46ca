//go:build amd64 || arm64

package ptrace

import "testing"

// TestLendFiltered: where the program's filters don't let memory be mapped, nothing is lent.
func TestLendFiltered(t *testing.T) {
	asked := 0
	in := &Injector{allows: func(uint64, ...uint64) bool { asked++; return false }}
	err := in.Lend([]byte("data"), func(addr uint64) error {
		t.Errorf("lent at %#x", addr)
		return nil
	})
	if err != ErrFiltered || asked != 1 {
		t.Errorf("%v, after %d questions", err, asked)
	}
}
