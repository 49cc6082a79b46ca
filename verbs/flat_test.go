package verbs

import (
	"reflect"
	"testing"

	"github.com/goverbs/goverbs/provider"
)

// Lists of these are handed over without copying.
func TestLayoutsAgree(t *testing.T) {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[SGE](), reflect.TypeFor[provider.SGE]()},
		{reflect.TypeFor[WC](), reflect.TypeFor[provider.WC]()},
	} {
		a, b := pair[0], pair[1]
		if a.Size() != b.Size() || a.NumField() != b.NumField() {
			t.Errorf("%v: %d bytes, %d fields; %v: %d bytes, %d fields", a, a.Size(), a.NumField(), b, b.Size(), b.NumField())
			continue
		}
		for i := range a.NumField() {
			fa, fb := a.Field(i), b.Field(i)
			if fa.Offset != fb.Offset || fa.Type.Kind() != fb.Type.Kind() {
				t.Errorf("%v.%s: %v at %d; %v.%s: %v at %d", a, fa.Name, fa.Type.Kind(), fa.Offset, b, fb.Name, fb.Type.Kind(), fb.Offset)
			}
		}
	}
}
