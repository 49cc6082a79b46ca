package info

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/cmd/ibv/internal/sheet"
	"github.com/goverbs/goverbs/verbs"
)

// TestCapsText: capabilities that rxe lacks are printed in ibv_devinfo's layout.
func TestCapsText(t *testing.T) {
	s := sheet.New()
	describeCaps(s, &verbs.DeviceAttr{
		ODP: verbs.ODPCaps{
			General: verbs.ODPSupport | verbs.ODPSupportImplicit | 1<<40,
			RC:      verbs.ODPSupportSend | verbs.ODPSupportSRQRecv | verbs.ODPSupportFlush | 1<<20,
		},
		CompletionTimestampMask: 1<<63 - 1,
		HCACoreClock:            1000000,
		RawPacketCaps:           verbs.RawPacketCVLANStripping | verbs.RawPacketIPCsum,
		DeviceCapFlagsEx:        verbs.DeviceCCDMABounce | verbs.DeviceFlushGlobal | verbs.DeviceXRC,
		RSS: verbs.RSSCaps{
			SupportedQPTs: 1<<8 | 1<<verbs.UD, MaxRWQIndirectionTables: 1024, MaxRWQIndirectionTableSize: 2048,
			RXHashFunction: 1, RXHashFieldsMask: 0x800000FF,
		},
		TSO:          verbs.TSOCaps{MaxTSO: 262144, SupportedQPTs: 1 << 8},
		PacketPacing: verbs.PacketPacingCaps{QPRateLimitMin: 1, QPRateLimitMax: 100, SupportedQPTs: 1<<verbs.RC | 1<<9},
		MaxWQTypeRQ:  8388608,
		TM:           verbs.TMCaps{MaxRndvHdrSize: 64, MaxNumTags: 127, Flags: verbs.TMCapRC, MaxOps: 32768, MaxSGE: 1},
		CQModeration: verbs.CQModerationCaps{MaxCQCount: 65535, MaxCQPeriod: 4095},
		MaxDMSize:    131072,
	})
	want := "\tgeneral_odp_caps:\n" +
		"\t\t\t\t\tODP_SUPPORT\n\t\t\t\t\tODP_SUPPORT_IMPLICIT\n\t\t\t\t\tUnknown flags: 0x10000000000\n" +
		"\trc_odp_caps:\n" +
		"\t\t\t\t\tSUPPORT_SEND\n\t\t\t\t\tSUPPORT_SRQ\n\t\t\t\t\tSUPPORT_FLUSH\n\t\t\t\t\tUnknown flags: 0x100000\n" +
		"\tuc_odp_caps:\n\t\t\t\t\tNO SUPPORT\n\tud_odp_caps:\n\t\t\t\t\tNO SUPPORT\n\txrc_odp_caps:\n\t\t\t\t\tNO SUPPORT\n" +
		"\tcompletion timestamp_mask:\t\t\t0x7fffffffffffffff\n" +
		"\thca_core_clock:\t\t\t1000000kHZ\n" +
		"\traw packet caps:\n\t\t\t\t\tC-VLAN stripping offload\n\t\t\t\t\tIP csum offload\n" +
		"\tdevice_cap_flags_ex:\t\t0x24000100000\n\t\t\t\t\tCC_DMA_BOUNCE\n\t\t\t\t\tUnknown flags: 0x4000000000\n" +
		"\ttso_caps:\n\t\tmax_tso:\t\t\t262144\n\t\tsupported_qp:\n\t\t\t\t\tSUPPORT_RAW_PACKET\n" +
		"\trss_caps:\n\t\tmax_rwq_indirection_tables:\t\t\t1024\n\t\tmax_rwq_indirection_table_size:\t\t\t2048\n" +
		"\t\trx_hash_function:\t\t\t\t0x1\n\t\trx_hash_fields_mask:\t\t\t\t0x800000FF\n" +
		"\t\tsupported_qp:\n\t\t\t\t\tSUPPORT_RAW_PACKET\n\t\t\t\t\tSUPPORT_UD\n" +
		"\tmax_wq_type_rq:\t\t\t8388608\n" +
		"\tpacket_pacing_caps:\n\t\tqp_rate_limit_min:\t1kbps\n\t\tqp_rate_limit_max:\t100kbps\n" +
		"\t\tsupported_qp:\n\t\t\t\t\tSUPPORT_RC\n\t\t\t\t\tUnknown flags: 0x200\n" +
		"\tmax_rndv_hdr_size:\t\t64\n\tmax_num_tags:\t\t\t127\n\tmax_ops:\t\t\t32768\n\tmax_sge:\t\t\t1\n" +
		"\tflags:\n\t\t\t\t\tIBV_TM_CAP_RC\n" +
		"\n\tcq moderation caps:\n\t\tmax_cq_count:\t65535\n\t\tmax_cq_period:\t4095 us\n\n" +
		"\tmaximum available device memory:\t131072Bytes\n\n"
	if diff := cmp.Diff(want, s.Text()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}

	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte(`{"general_odp_caps":["ODP_SUPPORT","ODP_SUPPORT_IMPLICIT","0x10000000000"],`)) {
		t.Errorf("JSON is not in order: %s", b)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"uc_odp_caps":         []any{},
		"device_cap_flags_ex": []any{"FLUSH_GLOBAL", "CC_DMA_BOUNCE"},
		"hca_core_clock":      1e6,
		"tso_caps":            map[string]any{"max_tso": 262144., "supported_qp": []any{"RAW_PACKET"}},
		"cq_moderation_caps":  map[string]any{"max_cq_count": 65535., "max_cq_period": 4095.},
	} {
		if diff := cmp.Diff(want, got[key]); diff != "" {
			t.Errorf("JSON %s (-want +got):\n%s", key, diff)
		}
	}
}

func TestGIDText(t *testing.T) {
	gid := verbs.GID{0: 0xfe, 1: 0x80, 8: 2, 15: 0x1f}
	for _, test := range []struct {
		typ  verbs.GIDType
		link verbs.LinkLayer
		want string
	}{
		{verbs.GIDTypeIB, verbs.LinkLayerInfiniBand, "fe80:0000:0000:0000:0200:0000:0000:001f"},
		{verbs.GIDTypeRoCEv1, verbs.LinkLayerEthernet, "fe80:0000:0000:0000:0200:0000:0000:001f, RoCE v1"},
		{verbs.GIDTypeRoCEv2, verbs.LinkLayerEthernet, "fe80::200:0:0:1f, RoCE v2"},
	} {
		if got := gidText(verbs.GIDEntry{GID: gid, Type: test.typ}, test.link); got != test.want {
			t.Errorf("%v on %v: %q, want %q", test.typ, test.link, got, test.want)
		}
	}
}
