package verbs

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/uapi"
)

// TestDeviceAttr: each field of the kernel's response, all with different values, is in its place.
func TestDeviceAttr(t *testing.T) {
	resp := uapi.IbUverbsExQueryDeviceResp{
		Base: uapi.IbUverbsQueryDeviceResp{
			FwVer: 1<<32 | 2<<16 | 3, NodeGuid: 0x0102030405060708, SysImageGuid: 0x1112131415161718, MaxMrSize: 21, PageSizeCap: 22,
			VendorId: 23, VendorPartId: 24, HwVer: 25, MaxQp: 26, MaxQpWr: 27, DeviceCapFlags: 28, MaxSge: 29, MaxSgeRd: 30, MaxCq: 31,
			MaxCqe: 32, MaxMr: 33, MaxPd: 34, MaxQpRdAtom: 35, MaxEeRdAtom: 36, MaxResRdAtom: 37, MaxQpInitRdAtom: 38, MaxEeInitRdAtom: 39,
			AtomicCap: 40, MaxEe: 41, MaxRdd: 42, MaxMw: 43, MaxRawIpv6Qp: 44, MaxRawEthyQp: 45, MaxMcastGrp: 46, MaxMcastQpAttach: 47,
			MaxTotalMcastQpAttach: 48, MaxAh: 49, MaxFmr: 50, MaxMapPerFmr: 51, MaxSrq: 52, MaxSrqWr: 53, MaxSrqSge: 54, MaxPkeys: 55,
			LocalCaAckDelay: 56, PhysPortCnt: 57,
		},
		OdpCaps:       uapi.IbUverbsOdpCaps{GeneralCaps: 58},
		TimestampMask: 62, HcaCoreClock: 63, DeviceCapFlagsEx: 64,
		RssCaps:     uapi.IbUverbsRssCaps{SupportedQpts: 65, MaxRwqIndirectionTables: 66, MaxRwqIndirectionTableSize: 67},
		MaxWqTypeRq: 68, RawPacketCaps: 69,
		TmCaps:           uapi.IbUverbsTmCaps{MaxRndvHdrSize: 70, MaxNumTags: 71, Flags: 72, MaxOps: 73, MaxSge: 74},
		CqModerationCaps: uapi.IbUverbsCqModerationCaps{MaxCqModerationCount: 75, MaxCqModerationPeriod: 76},
		MaxDmSize:        77, XrcOdpCaps: 78,
	}
	per := &resp.OdpCaps.PerTransportCaps
	per.RcOdpCaps, per.UcOdpCaps, per.UdOdpCaps = 59, 60, 61
	want := &DeviceAttr{
		FWVer: "1.2.3", NodeGUID: GUID{8, 7, 6, 5, 4, 3, 2, 1}, SysImageGUID: GUID{0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11},
		MaxMRSize: 21, PageSizeCap: 22, VendorID: 23, VendorPartID: 24, HWVer: 25, MaxQP: 26, MaxQPWR: 27, DeviceCapFlags: 28,
		MaxSGE: 29, MaxSGERD: 30, MaxCQ: 31, MaxCQE: 32, MaxMR: 33, MaxPD: 34, MaxQPRDAtom: 35, MaxEERDAtom: 36, MaxResRDAtom: 37,
		MaxQPInitRDAtom: 38, MaxEEInitRDAtom: 39, AtomicCap: 40, MaxEE: 41, MaxRDD: 42, MaxMW: 43, MaxRawIPv6QP: 44, MaxRawEthyQP: 45,
		MaxMcastGrp: 46, MaxMcastQPAttach: 47, MaxTotalMcastQPAttach: 48, MaxAH: 49, MaxFMR: 50, MaxMapPerFMR: 51, MaxSRQ: 52,
		MaxSRQWR: 53, MaxSRQSGE: 54, MaxPKeys: 55, LocalCAAckDelay: 56, PhysPortCnt: 57,
		ODP:                     ODPCaps{General: 58, RC: 59, UC: 60, UD: 61, XRC: 78},
		CompletionTimestampMask: 62, HCACoreClock: 63, DeviceCapFlagsEx: 64,
		RSS:         RSSCaps{SupportedQPTs: 65, MaxRWQIndirectionTables: 66, MaxRWQIndirectionTableSize: 67},
		MaxWQTypeRQ: 68, RawPacketCaps: 69,
		TM:           TMCaps{MaxRndvHdrSize: 70, MaxNumTags: 71, Flags: 72, MaxOps: 73, MaxSGE: 74},
		CQModeration: CQModerationCaps{MaxCQCount: 75, MaxCQPeriod: 76},
		MaxDMSize:    77,
	}
	if diff := cmp.Diff(want, deviceAttr(&resp, "")); diff != "" {
		t.Errorf("deviceAttr (-want +got):\n%s", diff)
	}
	// No field was left out above, except meaningless ones.
	var unset func(name string, v reflect.Value)
	unset = func(name string, v reflect.Value) {
		for i := range v.NumField() {
			f, field := v.Field(i), v.Type().Field(i).Name
			switch {
			case f.Kind() == reflect.Struct:
				unset(name+"."+field, f)
			case field == "_" || field == "Reserved" || field == "CompMask" || field == "ResponseLength":
			case f.IsZero():
				t.Errorf("%s.%s has no value in this test", name, field)
			}
		}
	}
	unset("resp", reflect.ValueOf(resp))
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
