package verbs

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// Every field of the kernel's answer ends up in exactly one of DeviceAttr's.
func TestDeviceAttr(t *testing.T) {
	var resp uapi.IbUverbsExQueryDeviceResp
	next := uint64(1)
	var values []uint64
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			name, f := v.Type().Field(i).Name, v.Field(i)
			switch {
			case name == "_" || name == "Reserved" || name == "CompMask" || name == "ResponseLength" || name == "FwVer":
			case f.Kind() == reflect.Struct:
				fill(f)
			default:
				f.SetUint(next)
				values = append(values, next)
				next++
			}
		}
	}
	fill(reflect.ValueOf(&resp).Elem())

	seen := make(map[uint64]int)
	var collect func(v reflect.Value)
	collect = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Struct:
				collect(f)
			case reflect.Int:
				seen[uint64(f.Int())]++
			case reflect.Array: // a GUID, in network order
				var guid GUID
				reflect.Copy(reflect.ValueOf(&guid).Elem(), f)
				for n := range uint64(8) {
					if guid == guidFromBE(n) {
						seen[n]++
					}
				}
			case reflect.String:
			default:
				seen[f.Uint()]++
			}
		}
	}
	collect(reflect.ValueOf(deviceAttr(&resp, "")).Elem())
	for _, v := range values {
		if seen[v] != 1 {
			t.Errorf("the %d. field of the answer is in DeviceAttr %d times", v, seen[v])
		}
	}
	delete(seen, 0) // what a driver's private part says
	if len(seen) != len(values) {
		t.Errorf("DeviceAttr has %d different values, the answer %d", len(seen), len(values))
	}
}

func TestFWVer(t *testing.T) {
	var resp uapi.IbUverbsExQueryDeviceResp
	resp.Base.FwVer = 1<<32 | 2<<16 | 3
	if got := deviceAttr(&resp, "").FWVer; got != "1.2.3" {
		t.Errorf("FWVer = %q", got)
	}
	if got := deviceAttr(&resp, "16.35.2000").FWVer; got != "16.35.2000" {
		t.Errorf("FWVer = %q, want what the driver says", got)
	}
}

func TestDeviceStrings(t *testing.T) {
	for _, test := range []struct {
		v    fmt.Stringer
		want string
	}{
		{AtomicNone, "ATOMIC_NONE"},
		{AtomicHCA, "ATOMIC_HCA"},
		{AtomicGlob, "ATOMIC_GLOB"},
		{AtomicCap(3), "invalid atomic capability"},
		{DeviceBadPKeyCntr | DeviceMemWindowType2B | DeviceAtomicWrite, "BAD_PKEY_CNTR|MEM_WINDOW_TYPE_2B|ATOMIC_WRITE"},
		{ODPSupport | ODPSupportImplicit, "ODP_SUPPORT|ODP_SUPPORT_IMPLICIT"},
		{ODPSupportSRQRecv | ODPSupportFlush, "SRQ_RECV|FLUSH"},
		{RawPacketIPCsum, "IP_CSUM"},
		{TMCapRC, "IBV_TM_CAP_RC"},
	} {
		if got := test.v.String(); got != test.want {
			t.Errorf("%T(%d).String() = %q, want %q", test.v, test.v, got, test.want)
		}
	}
}
