package verbs

import (
	"testing"
	"unsafe"
)

// TestTracedLayout asserts what cmd/ibvtrace reads of a program on this package.
func TestTracedLayout(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return // not traced there
	}
	var s SendWR
	var w WC
	var r RecvWR
	var g SGE
	for name, x := range map[string][2]uintptr{
		"tracing.on":            {unsafe.Offsetof(tracing.on), 16},
		"tracing.empty":         {unsafe.Offsetof(tracing.empty), 24},
		"SendWR":                {unsafe.Sizeof(s), 240},
		"SendWR.Opcode":         {unsafe.Offsetof(s.Opcode), 8},
		"SendWR.Flags":          {unsafe.Offsetof(s.Flags), 12},
		"SendWR.SGL":            {unsafe.Offsetof(s.SGL), 16},
		"SendWR.Inline":         {unsafe.Offsetof(s.Inline), 40},
		"SendWR.Imm":            {unsafe.Offsetof(s.Imm), 64},
		"SendWR.InvalidateRKey": {unsafe.Offsetof(s.InvalidateRKey), 68},
		"SendWR.RemoteAddr":     {unsafe.Offsetof(s.RemoteAddr), 72},
		"SendWR.RKey":           {unsafe.Offsetof(s.RKey), 80},
		"SendWR.Compare":        {unsafe.Offsetof(s.Compare), 88},
		"SendWR.Swap":           {unsafe.Offsetof(s.Swap), 96},
		"SendWR.Add":            {unsafe.Offsetof(s.Add), 104},
		"SendWR.RemoteQPN":      {unsafe.Offsetof(s.RemoteQPN), 136},
		"SendWR.RemoteQKey":     {unsafe.Offsetof(s.RemoteQKey), 140},
		"RecvWR":                {unsafe.Sizeof(r), 32},
		"RecvWR.SGL":            {unsafe.Offsetof(r.SGL), 8},
		"SGE":                   {unsafe.Sizeof(g), 16},
		"WC":                    {unsafe.Sizeof(w), 48},
		"WC.QPNum":              {unsafe.Offsetof(w.QPNum), 28},
		"WC.Flags":              {unsafe.Offsetof(w.Flags), 36},
	} {
		if x[0] != x[1] {
			t.Errorf("%s is at or has %d, ibvtrace takes it for %d", name, x[0], x[1])
		}
	}
}
