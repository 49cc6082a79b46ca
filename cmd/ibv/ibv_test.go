package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/verbs"
)

// capture runs ibv and returns its exit status and output.
func capture(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	outs := []**os.File{&os.Stdout, &os.Stderr}
	texts := make([]chan string, len(outs))
	for i, out := range outs {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		saved := *out
		*out, texts[i] = w, make(chan string)
		go func() {
			b, _ := io.ReadAll(r)
			texts[i] <- string(b)
		}()
		defer func() { *out = saved }()
	}
	status = run(args)
	os.Stdout.Close()
	os.Stderr.Close()
	return status, <-texts[0], <-texts[1]
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		stdout string // contained
		stderr string
	}{
		{"", exitUsage, "", "Usage: ibv COMMAND"},
		{"-h", exitOK, "Usage: ibv COMMAND", ""},
		{"--version", exitOK, "ibv ", ""},
		{"help", exitOK, "pingpong", ""},
		{"help info", exitOK, "Usage: ibv info", ""},
		{"devices -h", exitOK, "Usage: ibv devices", ""},
		{"info --help", exitOK, "Usage: ibv info", ""},
		{"frobnicate", exitUsage, "", `no command "frobnicate"`},
		{"help frobnicate", exitUsage, "", `no command "frobnicate"`},
		{"devices rxe0", exitUsage, "", `unexpected argument "rxe0"`},
		{"info rxe0", exitUsage, "", `unexpected argument "rxe0"`},
		{"info -i 0", exitUsage, "", "ports count from 1"},
		{"info -i x", exitUsage, "", "ibv info -h"},
		{"info -z", exitUsage, "", "ibv info -h"},
		{"info -l -v", exitUsage, "", "-l"},
		{"doctor -h", exitOK, "Usage: ibv doctor", ""},
		{"doctor rxe0 rxe1", exitUsage, "", `unexpected argument "rxe1"`},
		{"doctor -w -1s", exitUsage, "", "negative"},
		{"doctor --serve --peer node1", exitUsage, "", "can't be combined"},
		{"doctor -g 1", exitUsage, "", "--peer"},
		{"doctor --peer=", exitUsage, "", "host"},
		{"doctor --peer node1 -b ::1", exitUsage, "", "-b needs --serve"},
		{"doctor --serve -G 1", exitUsage, "", "-G needs --peer"},
		{"doctor --peer node1 -p 0", exitUsage, "", "-p 0"},
		{"doctor --peer node1 -g -2", exitUsage, "", "count from 0"},
		{"doctor -z", exitUsage, "", "ibv doctor -h"},
		{"selftest -h", exitOK, "doorbells", ""},
		{"selftest a b c", exitUsage, "", `unexpected argument "c"`},
		{"selftest a a", exitUsage, "", "the devices are the same"},
		{"selftest -i 0", exitUsage, "", "ports count from 1"},
		{"selftest -g -1", exitUsage, "", "indices count from 0"},
		{"selftest -t 0s", exitUsage, "", "more than 0"},
		{"selftest -quick -t 5s", exitUsage, "", "-quick and -t"},
		{"selftest -only data,nonsense", exitUsage, "", `no group "nonsense"`},
		{"link -h", exitOK, "Usage: ibv link", ""},
		{"link add", exitUsage, "", "add needs a name"},
		{"link add rxe9 type", exitUsage, "", "type needs a value"},
		{"link add rxe9 netdev eth0", exitUsage, "", "type is missing"},
		{"link add rxe9 type rxe netdev eth0 mtu 1024", exitUsage, "", `unexpected argument "mtu"`},
		{"link add rxe% type rxe netdev eth0", exitError, "", "add link rxe%: a device's name has no %"},
		{"link add rxe9 type rxe netdev a-name-of-16-byt", exitError, "", "1 to 15 bytes"},
		{"link delete", exitUsage, "", "delete needs a name"},
		{"link delete a b", exitUsage, "", `unexpected argument "b"`},
		{"link show rxe0/x", exitUsage, "", "such as rxe0/1"},
		{"link frobnicate --json", exitUsage, "", "none of show, add and delete"},
		{"dev set rxe0", exitUsage, "", "what to set"},
		{"dev set rxe0 colour red", exitUsage, "", "none of name, netns"},
		{"dev set rxe0 adaptive-moderation maybe", exitUsage, "", "on or off"},
		{"dev show a b", exitUsage, "", `unexpected argument "b"`},
		{"resource show mr dev", exitUsage, "", "dev needs a device"},
		{"resource show qp colour red", exitUsage, "", `"colour" is none of lqpn`},
		{"resource show qp state", exitUsage, "", "state needs a value"},
		{"resource delete", exitUsage, "", "not show"},
		{"stat qp bind", exitUsage, "", "bind needs link DEVICE/PORT"},
		{"stat qp bind link rxe0/1 lqpn x", exitUsage, "", "lqpn x is not a number"},
		{"stat qp unbind link rxe0/1 lqpn 3", exitUsage, "", "cntn is missing"},
		{"stat qp set link rxe0/1 auto colour on", exitUsage, "", "neither type nor pid"},
		{"stat --watch -i 0s", exitUsage, "", "more than 0"},
		{"stat --watch qp", exitUsage, "", "for the counters of ports"},
		{"stat unset link", exitUsage, "", "unset needs link"},
		{"stat show link", exitUsage, "", "link needs a value"},
		{"stat mr dev", exitUsage, "", "dev needs a value"},
		{"stat nothing", exitUsage, "", "none of show, qp"},
		{"system set netns none", exitUsage, "", "shared or exclusive"},
		{"system set netns", exitUsage, "", "netns needs a value"},
		{"system show all", exitUsage, "", `unexpected argument "all"`},
		{"ibstat -h", exitOK, "Usage: ibv ibstat", ""},
		{"ibstat a b c", exitUsage, "", "are not a device and a port"},
		{"ibstat a -1", exitUsage, "", "ibv ibstat -h"},
		{"ibstat a x", exitUsage, "", "are not a device and a port"},
		{"ibstatus -x", exitUsage, "", "ibv ibstatus -h"},
		{"asyncwatch rxe0", exitUsage, "", `unexpected argument "rxe0"`},
		{"links", exitUsage, "", "one folder"},
		{"ucmatose -h", exitOK, "Usage: ibv ucmatose", ""},
		{"ucmatose host", exitUsage, "", `"host" is not an option`},
		{"ucmatose -m", exitUsage, "", "-m is not supported: "},
		{"ucmatose -P udp", exitUsage, "", "tcp and ib"},
		{"ucmatose -c 0", exitUsage, "", "-c"},
		{"udaddy -p 0x106", exitUsage, "", "0x111"},
		{"udaddy -f gid", exitUsage, "", "-f gid is not supported: "},
		{"mckey", exitUsage, "", "-m, the group's address"},
		{"mckey -m there", exitUsage, "", `"there" is not an IP address`},
		{"mckey -M ff12::1", exitUsage, "", "-M is not supported: "},
		{"send_bw -h", exitOK, "Usage: ibv send_bw", ""},
		{"help atomic_lat", exitOK, "--atomic_type", ""},
		{"write_bw --version", exitOK, "Version: 6.", ""},
		{"send_bw -g", exitUsage, "", "--mcg is not supported: "},
		{"write_lat --use_cuda=0 host", exitUsage, "", "--use_cuda is not supported: "},
		{"read_bw -I 8", exitUsage, "", "not an option of read_bw"},
		{"send_bw -n5 -l2", exitUsage, "", "ibv send_bw -h"},
		{"send_lat -s", exitUsage, "", "needs a value"},
		{"send_lat --report", exitUsage, "", "ambiguous"},
	} {
		t.Run(test.args, func(t *testing.T) {
			status, stdout, stderr := capture(t, strings.Fields(test.args)...)
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if !strings.Contains(stdout, test.stdout) || (test.stdout == "") != (stdout == "") {
				t.Errorf("stdout %q, want %q in it", stdout, test.stdout)
			}
			if !strings.Contains(stderr, test.stderr) || (test.stderr == "") != (stderr == "") {
				t.Errorf("stderr %q, want %q in it", stderr, test.stderr)
			}
		})
	}
}

// TestCapsText: capabilities that rxe lacks are printed in ibv_devinfo's layout.
func TestCapsText(t *testing.T) {
	s := newSheet()
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
	if diff := cmp.Diff(want, s.text.String()); diff != "" {
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
