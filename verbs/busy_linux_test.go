package verbs

import (
	"errors"
	"testing"
)

// TestCloseBesideBatch: a QP doesn't close, nor go to RESET, while a batch is being
// built, and says so instead of waiting.
func TestCloseBesideBatch(t *testing.T) {
	for _, single := range []bool{false, true} {
		c, k := fakeContext(t)
		x := makeFakes(t, c)
		x.qp.sendMu.single = single
		b := x.qp.StartSends()
		b.Send()
		done := make(chan [2]error)
		go func() { // who has the batch isn't who closes
			closed := x.qp.Close()
			done <- [2]error{closed, x.qp.Modify(QPAttr{State: QPReset}, QPAttrState)}
		}()
		for i, err := range <-done {
			if !errors.Is(err, ErrBusy) {
				t.Errorf("single %v, %d: %v, want ErrBusy", single, i, err)
			}
		}
		if err := c.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("single %v: closing the context: %v, want ErrBusy", single, err)
		}
		if n := k.count("destroy_qp") + k.count("modify_qp"); n != 0 {
			t.Errorf("single %v: the kernel was asked %d times", single, n)
		}
		b.Abort()
		if err := x.qp.Close(); err != nil || k.count("destroy_qp") != 1 {
			t.Errorf("single %v: after the batch: %v", single, err)
		}
	}
}
