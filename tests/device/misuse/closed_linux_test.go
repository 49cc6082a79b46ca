package misuse

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

var noContext context.Context

// TestNilAndZeroObjects calls every method that returns an error on a nil pointer and on
// a zero object, with zero arguments.
func TestNilAndZeroObjects(t *testing.T) {
	for _, x := range []any{
		(*verbs.DeviceInfo)(nil), (*verbs.Device)(nil), (*verbs.PD)(nil), (*verbs.MR)(nil), (*verbs.MW)(nil), (*verbs.AH)(nil),
		(*verbs.CompChannel)(nil), (*verbs.CQ)(nil), (*verbs.SRQ)(nil), (*verbs.QP)(nil),
	} {
		callAll(t, reflect.ValueOf(x), verbs.ErrInvalid, verbs.ErrClosed)
	}
	for _, x := range []any{
		new(verbs.Device), new(verbs.PD), new(verbs.MR), new(verbs.MW), new(verbs.AH),
		new(verbs.CompChannel), new(verbs.CQ), new(verbs.SRQ), new(verbs.QP),
	} {
		callAll(t, reflect.ValueOf(x), verbs.ErrClosed, verbs.ErrInvalid)
	}
}

// TestClosed calls every method that returns an error on closed objects, also
// on objects that were closed along with their context.
func TestClosed(t *testing.T) {
	rdmatest.CheckLeaks(t)
	c := rdmatest.Must(verbs.Open(rdmatest.Device))(t)
	x := makeThings(t, c)
	one := []any{x.mw, x.mw1, x.qp, x.srq, x.ah, x.cq, x.ch, x.mr}
	for _, o := range x.all() {
		rdmatest.Close(t, o)
	}
	pd := rdmatest.Must(c.AllocPD())(t)
	rdmatest.Close(t, pd)
	one = append(one, pd)
	y := makeThings(t, c)
	rdmatest.Close(t, c)
	for _, o := range append(one, c, y.pd, y.mr, y.mw, y.mw1, y.ah, y.ch, y.cq, y.srq, y.qp) {
		callAll(t, reflect.ValueOf(o), verbs.ErrClosed)
	}
}

// callAll calls x's methods whose last result is an error, and loops over those that
// return an iterator with errors. Close and CloseAll must do nothing. The others must return one of
// the errors.
func callAll(t *testing.T, x reflect.Value, want ...error) {
	t.Helper()
	errorType := reflect.TypeFor[error]()
	called := 0
	for i := range x.NumMethod() {
		m := x.Type().Method(i)
		n := m.Type.NumOut()
		if n == 0 || m.Type.Out(n-1) != errorType && !iterates(m.Type.Out(n-1)) || x.Type() == reflect.TypeFor[*verbs.DeviceInfo]() && m.Name == "Err" {
			continue
		}
		called++
		name := strings.TrimPrefix(x.Type().String(), "*verbs.") + "." + m.Name
		var args []reflect.Value
		for j := 1; j < m.Type.NumIn(); j++ {
			if m.Type.IsVariadic() && j == m.Type.NumIn()-1 {
				args = append(args, reflect.Zero(m.Type.In(j).Elem()))
				continue
			}
			arg := reflect.Zero(m.Type.In(j))
			if m.Type.In(j) == reflect.TypeFor[context.Context]() {
				arg = reflect.ValueOf(canceled)
			}
			switch m.Type.In(j) {
			case reflect.TypeFor[[]verbs.WC](), reflect.TypeFor[[]verbs.WCEx]():
				arg = reflect.MakeSlice(m.Type.In(j), 1, 1)
			case reflect.TypeFor[func(*verbs.SendBuilder) error]():
				arg = reflect.ValueOf(func(b *verbs.SendBuilder) error { b.Send(1, 0, verbs.SGE{}); return nil })
			}
			args = append(args, arg)
		}
		panicked, err := call(x.Method(i), args)
		switch {
		case panicked != nil:
			t.Errorf("%s panics: %v", name, panicked)
		case strings.HasPrefix(m.Name, "Close"):
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil:
			t.Errorf("%s does something", name)
		case !strings.HasPrefix(err.Error(), "verbs: "):
			t.Errorf("%s: %q doesn't begin with verbs:", name, err)
		default:
			matches := false
			for _, w := range want {
				matches = matches || errors.Is(err, w)
			}
			if !matches {
				t.Errorf("%s: %v, want one of %v", name, err, want)
			}
		}
	}
	if called == 0 {
		t.Errorf("%v has no methods to call", x.Type())
	}
}

func call(f reflect.Value, args []reflect.Value) (panicked any, err error) {
	defer func() { panicked = recover() }()
	out := f.Call(args)
	last := out[len(out)-1]
	if iterates(last.Type()) {
		for _, e := range last.Seq2() {
			last = e
		}
	}
	err, _ = last.Interface().(error)
	return nil, err
}

// iterates reports whether a type is an iter.Seq2 whose second value is an error.
func iterates(t reflect.Type) bool {
	return t.CanSeq2() && t.Kind() == reflect.Func && t.In(0).In(1) == reflect.TypeFor[error]()
}
