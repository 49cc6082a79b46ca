package verbs

import (
	"reflect"
	"testing"

	"github.com/goverbs/goverbs/provider"
)

// Lists of these types are passed to the provider without copying.
func TestLayoutsAgree(t *testing.T) {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[SGE](), reflect.TypeFor[provider.SGE]()},
		{reflect.TypeFor[WC](), reflect.TypeFor[provider.WC]()},
		{reflect.TypeFor[WCEx](), reflect.TypeFor[provider.WCEx]()},
		{reflect.TypeFor[RecvWR](), reflect.TypeFor[provider.RecvWR]()},
		{reflect.TypeFor[TagOp](), reflect.TypeFor[provider.TagOp]()},
		{reflect.TypeFor[SendWR](), reflect.TypeFor[provider.SendWR]()},
	} {
		sameLayout(t, pair[0], pair[1])
	}
}

func sameLayout(t *testing.T, a, b reflect.Type) {
	t.Helper()
	if a == b {
		return
	}
	if a.Kind() != b.Kind() || a.Size() != b.Size() {
		t.Errorf("%v: %v of %d bytes; %v: %v of %d bytes", a, a.Kind(), a.Size(), b, b.Kind(), b.Size())
		return
	}
	switch a.Kind() {
	case reflect.Slice:
		sameLayout(t, a.Elem(), b.Elem())
	case reflect.Pointer:
		// An object of this package begins with the provider's type.
		if first := a.Elem().Field(0); first.Type != b.Elem() {
			t.Errorf("%v begins with %v, %v points to %v", a.Elem(), first.Type, b, b.Elem())
		}
	case reflect.Struct:
		if a.NumField() != b.NumField() {
			t.Errorf("%v has %d fields, %v %d", a, a.NumField(), b, b.NumField())
			return
		}
		for i := range a.NumField() {
			fa, fb := a.Field(i), b.Field(i)
			if fa.Offset != fb.Offset || fa.Name != fb.Name && fa.IsExported() {
				t.Errorf("%v.%s at %d; %v.%s at %d", a, fa.Name, fa.Offset, b, fb.Name, fb.Offset)
			}
			sameLayout(t, fa.Type, fb.Type)
		}
	}
}
