package verbs

import (
	"errors"
	"strings"
	"testing"
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
