package operr

import (
	"errors"
	"io"
	"syscall"
	"testing"
)

func TestMessage(t *testing.T) {
	for _, c := range []struct {
		err  error
		hint string
		want string
	}{
		{syscall.ENOMEM, "", "verbs: create QP: ENOMEM"},
		{syscall.ENOMEM, "raise the limit", "verbs: create QP: ENOMEM; raise the limit"},
		{syscall.Errno(4000), "", "verbs: create QP: errno 4000"},
		{io.EOF, "", "verbs: create QP: EOF"},
		{Invalid("%d WR", -1), "", "verbs: create QP: -1 WR"},
	} {
		if got := Message("verbs: create QP", c.err, c.hint); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if !errors.Is(Invalid("no"), ErrInvalid) {
		t.Error("a refused argument is not invalid")
	}
}
