package verbs

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/internal/tracing"
)

// TestTracedLayout compares a tracer's types with this package's work requests and completions.
func TestTracedLayout(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return // not traced there
	}
	tracedLayout(t, reflect.TypeFor[SendWR](), reflect.TypeFor[tracing.SendWR]())
	tracedLayout(t, reflect.TypeFor[Remote](), reflect.TypeFor[tracing.Remote]())
	tracedLayout(t, reflect.TypeFor[MWBindInfo](), reflect.TypeFor[tracing.MWBindInfo]())
	tracedLayout(t, reflect.TypeFor[RecvWR](), reflect.TypeFor[tracing.RecvWR]())
	tracedLayout(t, reflect.TypeFor[SGE](), reflect.TypeFor[tracing.SGE]())
	tracedLayout(t, reflect.TypeFor[WC](), reflect.TypeFor[tracing.WC]())
	var mr MR
	var mw MW
	var ah AH
	for name, x := range map[string][2]uintptr{
		"the handle of an MR":    {unsafe.Offsetof(mr.object) + unsafe.Offsetof(mr.object.handle), tracing.MRHandle},
		"the handle of an MW":    {unsafe.Offsetof(mw.object) + unsafe.Offsetof(mw.object.handle), tracing.MWHandle},
		"the handle of an AH":    {unsafe.Offsetof(ah.object) + unsafe.Offsetof(ah.object.handle), tracing.AHHandle},
		"whether an AH has none": {unsafe.Offsetof(ah.local), tracing.AHLocal},
		"the handle, in bytes":   {unsafe.Sizeof(mr.object.handle), 4},
		"the switch":             {unsafe.Offsetof(tracing.Switch.On), uintptr(len(tracing.Mark))},
		"OpNop":                  {uintptr(OpNop), tracing.OpNop},
		"DCI":                    {uintptr(DCI), tracing.DCI},
	} {
		if x[0] != x[1] {
			t.Errorf("%s is at or has %d, a tracer takes it for %d", name, x[0], x[1])
		}
	}
}

// tracedLayout compares a struct with the tracer's type: each field must exist at the same
// offset with the same size.
func tracedLayout(t *testing.T, ours, theirs reflect.Type) {
	if ours.Size() != theirs.Size() {
		t.Errorf("%v has %d bytes, a tracer takes it for %d", ours, ours.Size(), theirs.Size())
	}
	for i := range ours.NumField() {
		f := ours.Field(i)
		if f.Name == "_" {
			continue
		}
		name := f.Name
		if name == "ex" {
			name = "Ex"
		}
		g, ok := theirs.FieldByName(name)
		if !ok || f.Offset != g.Offset || f.Type.Size() != g.Type.Size() {
			t.Errorf("%v.%s is at %d with %d bytes, a tracer takes it for %+v", ours, f.Name, f.Offset, f.Type.Size(), g)
		}
	}
}
