package verbs

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/uapi"
)

func TestPortAttr(t *testing.T) {
	resp := uapi.IbUverbsQueryPortRespEx{
		LegacyResp: uapi.IbUverbsQueryPortResp{
			PortCapFlags: 0x04010000, MaxMsgSz: 0x40000000, BadPkeyCntr: 1, QkeyViolCntr: 2,
			GidTblLen: 1024, PkeyTblLen: 64, Lid: 3, SmLid: 4, State: 4, MaxMtu: 5, ActiveMtu: 3,
			Lmc: 5, MaxVlNum: 1, SmSl: 6, SubnetTimeout: 7, InitTypeReply: 8,
			ActiveWidth: 2, ActiveSpeed: 1, PhysState: 5, LinkLayer: 2, Flags: 1,
		},
		PortCapFlags2: 0x25,
	}
	want := &PortAttr{
		State: PortActive, MaxMTU: MTU4096, ActiveMTU: MTU1024, GIDTableLen: 1024,
		PortCapFlags: PortCMSup | PortIPBasedGIDs, PortCapFlags2: 0x25, MaxMsgSize: 1 << 30,
		BadPKeyCounter: 1, QKeyViolCounter: 2, PKeyTableLen: 64, LID: 3, SMLID: 4, LMC: 5,
		MaxVLNum: 1, SMSL: 6, SubnetTimeout: 7, InitTypeReply: 8,
		ActiveWidth: Width4X, ActiveSpeed: SpeedSDR, PhysState: PhysLinkUp,
		LinkLayer: LinkLayerEthernet, GRHRequired: true,
	}
	if diff := cmp.Diff(want, portAttr(&resp)); diff != "" {
		t.Errorf("portAttr (-want +got):\n%s", diff)
	}
	// A speed that doesn't fit 8 bits.
	resp.ActiveSpeedEx = 256
	if got := portAttr(&resp).ActiveSpeed; got != SpeedXDR {
		t.Errorf("ActiveSpeed = %v", got)
	}
}

func TestPortStrings(t *testing.T) {
	for _, test := range []struct {
		v    fmt.Stringer
		want string
	}{
		{VLNum(1), "1"},
		{VLNum(4), "8"},
		{VLNum(5), "15"},
		{VLNum(0), "invalid value"},
		{PortCMSup | PortIPBasedGIDs | 1, "CM_SUP|IP_BASED_GIDS|0x1"},
	} {
		if got := test.v.String(); got != test.want {
			t.Errorf("%T(%d).String() = %q, want %q", test.v, test.v, got, test.want)
		}
	}
}
