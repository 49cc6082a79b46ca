package uapi

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
)

//go:embed testdata/qp_states.txt
var kernelStates string

type stateChange struct{ from, to, typ string }

// kernelTransitions returns the required and the optional attributes of each transition:
// those of testdata/qp_states.txt, mlx5's for DC from modify_dci_qp_is_ok and
// mlx5_ib_modify_dct, and efa's from srd_qp_state_table.
func kernelTransitions(t *testing.T) map[stateChange][2]IbQpAttrMask {
	t.Helper()
	const dc = `
RESET INIT DCI PKEY_INDEX|PORT -
INIT INIT DCI - PKEY_INDEX|PORT
INIT RTR DCI PATH_MTU PKEY_INDEX|AV
RTR RTS DCI TIMEOUT|RETRY_CNT|RNR_RETRY|MAX_QP_RD_ATOMIC|SQ_PSN MIN_RNR_TIMER
RTS RTS DCI - MIN_RNR_TIMER
RESET RESET DCI - -
INIT RESET DCI - -
RTR RESET DCI - -
RTS RESET DCI - -
SQD RESET DCI - -
SQE RESET DCI - -
ERR RESET DCI - -
INIT ERR DCI - -
RTR ERR DCI - -
RTS ERR DCI - -
SQD ERR DCI - -
SQE ERR DCI - -
ERR ERR DCI - -
RESET INIT DCT ACCESS_FLAGS|PKEY_INDEX|PORT -
INIT RTR DCT MIN_RNR_TIMER|AV|PATH_MTU -
`
	const srd = `
RESET INIT SRD PKEY_INDEX|PORT|QKEY -
INIT INIT SRD - PKEY_INDEX|PORT|QKEY
INIT RTR SRD - PKEY_INDEX|QKEY
RTR RTS SRD SQ_PSN CUR_STATE|QKEY|RNR_RETRY
RTS RTS SRD - CUR_STATE|QKEY
RTS SQD SRD - EN_SQD_ASYNC_NOTIFY
SQD RTS SRD - CUR_STATE|QKEY
SQD SQD SRD - PKEY_INDEX|QKEY
SQE RTS SRD - CUR_STATE|QKEY
RESET RESET SRD - -
INIT RESET SRD - -
RTR RESET SRD - -
RTS RESET SRD - -
SQD RESET SRD - -
SQE RESET SRD - -
ERR RESET SRD - -
INIT ERR SRD - -
RTR ERR SRD - -
RTS ERR SRD - -
SQD ERR SRD - -
SQE ERR SRD - -
ERR ERR SRD - -
`
	all := make(map[stateChange][2]IbQpAttrMask)
	for line := range strings.Lines(kernelStates + dc + srd) {
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		var c stateChange
		var names [2]string
		if _, err := fmt.Sscan(line, &c.from, &c.to, &c.typ, &names[0], &names[1]); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var masks [2]IbQpAttrMask
		for i := range names {
			for name := range strings.SplitSeq(names[i], "|") {
				masks[i] |= valueOf(t, EnumIbQpAttrMask, name)
			}
		}
		all[c] = masks
	}
	return all
}

func valueOf(t *testing.T, e *Enum, name string) IbQpAttrMask {
	t.Helper()
	if name == "-" || name == "RATE_LIMIT" { // which is beyond the standard's attributes
		return 0
	}
	for _, v := range e.Values {
		if v.CName == e.Prefix+name {
			return IbQpAttrMask(v.Value)
		}
	}
	t.Fatalf("%s has no %s", e.CName, name)
	return 0
}

// leftOut reports whether the kernel's table allows a change without attributes that no
// driver supports.
func leftOut(c stateChange) bool {
	switch {
	case c.from == "SQE" && c.to == "RTS":
		return c.typ != "UC" && c.typ != "UD" && c.typ != "SRD"
	case c.typ == "RAW_PACKET":
		return c.to == "SQD" || c.from == "SQD" && c.to == "RTS"
	}
	return false
}

// WhyNotModifyQP agrees with the kernel for every change of state of every type, with each
// of the attributes.
func TestWhyNotModifyQP(t *testing.T) {
	kernel := kernelTransitions(t)
	states := []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	for _, typ := range []string{"RC", "UC", "UD", "XRC_INI", "XRC_TGT", "RAW_PACKET", "DCI", "DCT", "SRD"} {
		for from := range states {
			for to := range states {
				c := stateChange{states[from], states[to], typ}
				masks, known := kernel[c]
				known = known && !leftOut(c)
				required, optional := masks[0], masks[1]
				ask := func(mask IbQpAttrMask, allowed bool) {
					t.Helper()
					mask |= IB_QP_STATE
					if why := WhyNotModifyQP(typ, IbQpState(from), IbQpState(to), mask); (why == "") != (known && allowed) {
						t.Errorf("%s from %s to %s with %s: %q", typ, c.from, c.to, EnumIbQpAttrMask.Short(uint64(mask)), why)
					}
				}
				ask(required, true)
				ask(required|optional, true)
				for bit := IB_QP_CUR_STATE; bit <= IB_QP_DEST_QPN; bit <<= 1 {
					switch {
					case required&bit != 0:
						ask(required|optional&^bit, true)
						ask((required|optional)&^bit, false)
					default:
						ask(required|bit, optional&bit != 0)
					}
				}
			}
		}
	}
	for _, x := range []struct {
		typ      string
		from, to IbQpState
		mask     IbQpAttrMask
		want     string
	}{
		{"RC", IB_QPS_RTS, 7, IB_QP_STATE, "there is no state 7"},
		{"RC", 9, IB_QPS_RESET, IB_QP_STATE, "there is no state 9"},
		{"RC", IB_QPS_RTS, IB_QPS_RTS, 1 << 30, "unknown bits 0x40000000"},
		{"R", IB_QPS_RESET, IB_QPS_INIT, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT, "a R QP can't go from RESET to INIT"},
		{"RC", IB_QPS_INIT, IB_QPS_RTR, IB_QP_STATE, "needs AV|PATH_MTU|"},
		{"UD", IB_QPS_INIT, IB_QPS_RTR, IB_QP_STATE | IB_QP_AV, "INIT to RTR of a UD QP doesn't take AV"},
		{"UD", IB_QPS_RTS, IB_QPS_ERR, IB_QP_STATE | IB_QP_CUR_STATE, "RTS to ERR takes no attributes, not CUR_STATE"},
	} {
		if why := WhyNotModifyQP(x.typ, x.from, x.to, x.mask); !strings.Contains(why, x.want) {
			t.Errorf("%q, want %q in it", why, x.want)
		}
	}
}

// Each status that a program meets has a meaning of its own.
func TestWCMeaning(t *testing.T) {
	statuses := make(map[string]IbWcStatus)
	for s, want := range map[IbWcStatus]string{
		0: "success", 1: "fit", 2: "path", 4: "lkey", 5: "error state", 6: "window", 7: "not understood", 8: "protection",
		9: "invalid", 10: "rkey", 11: "could not complete", 12: "didn't answer", 13: "no receive", 19: "device failed",
		IBV_WC_TM_ERR: "no longer", IBV_WC_TM_RNDV_INCOMPLETE: "did not get the data",
	} {
		meaning := WCMeaning(s)
		if other, ok := statuses[meaning]; ok || !strings.Contains(meaning, want) {
			t.Errorf("status %d: %q, want %q in it (as %d)", s, meaning, want, other)
		}
		statuses[meaning] = s
	}
	for _, s := range []IbWcStatus{3, 14, 21, 24, 1 << 31} {
		if got := WCMeaning(s); got != "unspecified failure" {
			t.Errorf("status %d: %q", s, got)
		}
	}
}
