package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

func TestCheckTransition(t *testing.T) {
	init := QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrAccess
	rtr := QPAttrState | QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMaxDestRDAtomic | QPAttrMinRNRTimer
	rts := QPAttrState | QPAttrTimeout | QPAttrRetryCount | QPAttrRNRRetry | QPAttrSQPSN | QPAttrMaxRDAtomic
	tests := []struct {
		typ      QPType
		from, to QPState
		mask     QPAttrMask
		want     string // in the error; empty: allowed
	}{
		{RC, QPReset, QPInit, init, ""},
		{RC, QPReset, QPInit, init &^ QPAttrPort, "RESET to INIT of a RC QP needs PORT too"},
		{RC, QPReset, QPInit, init | QPAttrQKey, "doesn't take QKEY"},
		{UD, QPReset, QPInit, init&^QPAttrAccess | QPAttrQKey, ""},
		{UD, QPReset, QPInit, init, "needs QKEY too"},
		{RC, QPReset, QPReset, QPAttrState, ""},
		{RC, QPReset, QPErr, QPAttrState, "can't go from RESET to ERR"},
		{RC, QPReset, QPRTS, rts, "can't go from RESET to RTS"},
		{RC, QPInit, QPRTR, rtr, ""},
		{UC, QPInit, QPRTR, rtr &^ (QPAttrMaxDestRDAtomic | QPAttrMinRNRTimer), ""},
		{UC, QPInit, QPRTR, rtr, "doesn't take MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC"},
		{UD, QPInit, QPRTR, QPAttrState, ""},
		{RC, QPRTR, QPRTS, rts, ""},
		{RC, QPRTR, QPRTS, QPAttrState | QPAttrSQPSN, "needs TIMEOUT|RETRY_CNT|RNR_RETRY|MAX_QP_RD_ATOMIC too"},
		{RC, QPRTS, QPSQD, QPAttrState | QPAttrEnSQDAsyncNotify, ""},
		{RC, QPSQD, QPRTS, QPAttrState, ""},
		{RC, QPSQE, QPRTS, QPAttrState, "can't go from SQE to RTS"},
		{UC, QPSQE, QPRTS, QPAttrState, ""},
		{RC, QPRTS, QPErr, QPAttrState, ""},
		{RC, QPRTS, QPReset, QPAttrState | QPAttrPort, "takes no attributes, not PORT"},
		{RC, QPErr, QPRTS, QPAttrState, "can't go from ERR to RTS"},
		{RC, QPErr, QPReset, QPAttrState, ""},
		{RC, QPRTS, 9, QPAttrState, "no state 9"},
		{RC, QPRTS, QPRTS, 1 << 30, "unknown bits 0x40000000"},
	}
	for _, tt := range tests {
		err := checkTransition("modify QP", tt.typ, tt.from, tt.to, tt.mask)
		switch {
		case tt.want == "":
			if err != nil {
				t.Errorf("%v %v to %v: %v", tt.typ, tt.from, tt.to, err)
			}
		case err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, ErrInvalid):
			t.Errorf("%v %v to %v: error %v, want ErrInvalid with %q", tt.typ, tt.from, tt.to, err, tt.want)
		}
	}
}

// kernelStates are the transitions that Linux 6.1 allows each type, apart from those to
// RESET and to ERR: qp_state_table in drivers/infiniband/core/verbs.c, modify_dci_qp_is_ok
// and mlx5_ib_modify_dct in hw/mlx5/qp.c. A line has the type, the states, the attributes
// that are needed, and after a bar those that may be given.
const kernelStates = `
RC RESET INIT PKEY_INDEX PORT ACCESS_FLAGS |
RC INIT INIT | PKEY_INDEX PORT ACCESS_FLAGS
RC INIT RTR AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER | ALT_PATH ACCESS_FLAGS PKEY_INDEX
RC RTR RTS TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
RC RTS RTS | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
RC RTS SQD | EN_SQD_ASYNC_NOTIFY
RC SQD RTS | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
RC SQD SQD | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE

UC RESET INIT PKEY_INDEX PORT ACCESS_FLAGS |
UC INIT INIT | PKEY_INDEX PORT ACCESS_FLAGS
UC INIT RTR AV PATH_MTU DEST_QPN RQ_PSN | ALT_PATH ACCESS_FLAGS PKEY_INDEX
UC RTR RTS SQ_PSN | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
UC RTS RTS | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
UC RTS SQD | EN_SQD_ASYNC_NOTIFY
UC SQD RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
UC SQD SQD | AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
UC SQE RTS | CUR_STATE ACCESS_FLAGS

UD RESET INIT PKEY_INDEX PORT QKEY |
UD INIT INIT | PKEY_INDEX PORT QKEY
UD INIT RTR | PKEY_INDEX QKEY
UD RTR RTS SQ_PSN | CUR_STATE QKEY
UD RTS RTS | CUR_STATE QKEY
UD RTS SQD | EN_SQD_ASYNC_NOTIFY
UD SQD RTS | CUR_STATE QKEY
UD SQD SQD | PKEY_INDEX QKEY
UD SQE RTS | CUR_STATE QKEY

XRC_INI RESET INIT PKEY_INDEX PORT ACCESS_FLAGS |
XRC_INI INIT INIT | PKEY_INDEX PORT ACCESS_FLAGS
XRC_INI INIT RTR AV PATH_MTU DEST_QPN RQ_PSN | ALT_PATH ACCESS_FLAGS PKEY_INDEX
XRC_INI RTR RTS TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
XRC_INI RTS RTS | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE
XRC_INI RTS SQD | EN_SQD_ASYNC_NOTIFY
XRC_INI SQD RTS | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
XRC_INI SQD SQD | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE

XRC_TGT RESET INIT PKEY_INDEX PORT ACCESS_FLAGS |
XRC_TGT INIT INIT | PKEY_INDEX PORT ACCESS_FLAGS
XRC_TGT INIT RTR AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER | ALT_PATH ACCESS_FLAGS PKEY_INDEX
XRC_TGT RTR RTS TIMEOUT SQ_PSN | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
XRC_TGT RTS RTS | CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER
XRC_TGT RTS SQD | EN_SQD_ASYNC_NOTIFY
XRC_TGT SQD RTS | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
XRC_TGT SQD SQD | PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE

RAW_PACKET RESET INIT PORT |
RAW_PACKET INIT INIT |
RAW_PACKET INIT RTR |
RAW_PACKET RTR RTS |
RAW_PACKET RTS RTS |

DCI RESET INIT PKEY_INDEX PORT |
DCI INIT INIT | PKEY_INDEX PORT
DCI INIT RTR PATH_MTU | PKEY_INDEX AV
DCI RTR RTS TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC SQ_PSN | MIN_RNR_TIMER
DCI RTS RTS | MIN_RNR_TIMER

DCT RESET INIT ACCESS_FLAGS PKEY_INDEX PORT |
DCT INIT RTR MIN_RNR_TIMER AV PATH_MTU |
`

// TestTransitionsOfAllTypes compares checkTransition with the kernel's table: for each type
// and each two states, with each attribute left out or added.
func TestTransitionsOfAllTypes(t *testing.T) {
	type change struct {
		typ      QPType
		from, to QPState
	}
	type attrs struct{ required, optional QPAttrMask }
	types := []QPType{RC, UC, UD, XRCSend, XRCRecv, RawPacket, DCI, DCT}
	states := []QPState{QPReset, QPInit, QPRTR, QPRTS, QPSQD, QPSQE, QPErr}
	all := QPAttrMask(uapi.IB_QP_ATTR_STANDARD_BITS) &^ QPAttrState

	typeNamed, stateNamed, attrNamed := map[string]QPType{}, map[string]QPState{}, map[string]QPAttrMask{}
	for _, typ := range types {
		typeNamed[typ.String()] = typ
	}
	for _, s := range states {
		stateNamed[s.String()] = s
	}
	for bit := QPAttrMask(1); bit != 0; bit <<= 1 {
		if bit&all != 0 {
			attrNamed[bit.String()] = bit
		}
	}
	named := func(words string) (m QPAttrMask) {
		for _, w := range strings.Fields(words) {
			if attrNamed[w] == 0 {
				t.Fatalf("there is no attribute %s", w)
			}
			m |= attrNamed[w]
		}
		return m
	}
	table := make(map[change]attrs)
	for line := range strings.Lines(kernelStates) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		typ, ok := typeNamed[f[0]]
		if !ok {
			t.Fatalf("there is no type %s", f[0])
		}
		required, optional, _ := strings.Cut(strings.Join(f[3:], " "), "|")
		c := change{typ, stateNamed[f[1]], stateNamed[f[2]]}
		if _, twice := table[c]; twice {
			t.Fatalf("%s: twice", line)
		}
		table[c] = attrs{named(required), named(optional)}
	}

	for _, typ := range types {
		for _, from := range states {
			for _, to := range states {
				c := change{typ, from, to}
				row, ok := table[c]
				if (to == QPReset || to == QPErr && from != QPReset) && typ != DCT {
					ok = true
				}
				try := func(mask QPAttrMask, want bool) {
					t.Helper()
					err := checkTransition("modify QP", typ, from, to, mask|QPAttrState)
					if (err == nil) != want || err != nil && !errors.Is(err, ErrInvalid) {
						t.Errorf("%v %v to %v with %v: %v", typ, from, to, mask, err)
					}
				}
				if !ok {
					try(0, false)
					try(all, false)
					continue
				}
				try(row.required, true)
				try(row.required|row.optional, true)
				for bit := QPAttrMask(1); bit != 0; bit <<= 1 {
					switch {
					case bit&row.required != 0:
						try(row.required&^bit, false)
					case bit == QPAttrCurState && (to == QPReset || to == QPErr):
						// With the state, it does no harm.
					case bit&all != 0:
						try(row.required|bit, bit&row.optional != 0)
					}
				}
			}
		}
	}
}
