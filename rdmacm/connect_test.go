package rdmacm

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// 0 stands for the defaults, None for 0.
func TestConnParam(t *testing.T) {
	id := &cmID{ps: PortSpaceTCP, qpType: verbs.RC}
	get := func(p *ConnParam) uapi.RdmaUcmConnParam {
		t.Helper()
		named := ConnParam{}
		if p != nil {
			named = *p
		}
		named.QPNum = 0x123456
		param, err := id.param(opConnect, &named, MaxConnectData)
		if err == nil {
			param.InitiatorDepth, err = limit(opConnect, "InitiatorDepth", param.InitiatorDepth, 16)
		}
		if err == nil {
			param.ResponderResources, err = limit(opConnect, "ResponderResources", param.ResponderResources, 32)
		}
		if err != nil {
			t.Fatal(err)
		}
		var c uapi.RdmaUcmConnParam
		param.put(&c)
		return c
	}
	data := [256]uint8{'h', 'i'}
	for _, test := range []struct {
		p    *ConnParam
		want uapi.RdmaUcmConnParam
	}{
		{nil, uapi.RdmaUcmConnParam{InitiatorDepth: 16, ResponderResources: 32, RetryCount: 6, RnrRetryCount: 7}},
		{&ConnParam{PrivateData: []byte("hi")}, uapi.RdmaUcmConnParam{
			InitiatorDepth: 16, ResponderResources: 32, RetryCount: 6, RnrRetryCount: 7, PrivateData: data, PrivateDataLen: 2,
		}},
		{&ConnParam{InitiatorDepth: None, ResponderResources: None, RetryCount: None, RNRRetryCount: -5}, uapi.RdmaUcmConnParam{}},
		{&ConnParam{InitiatorDepth: 1, ResponderResources: 2, RetryCount: 3, RNRRetryCount: 4, FlowControl: true, SRQ: true}, uapi.RdmaUcmConnParam{
			InitiatorDepth: 1, ResponderResources: 2, RetryCount: 3, RnrRetryCount: 4, FlowControl: 1, Srq: 1,
		}},
	} {
		test.want.QpNum, test.want.Valid = 0x123456, 1
		if got := get(test.p); got != test.want {
			t.Errorf("%+v: got %+v, want %+v", test.p, got, test.want)
		}
	}
	if _, err := id.param(opConnect, &ConnParam{QPNum: 1, PrivateData: make([]byte, 57)}, 56); err == nil || !strings.Contains(err.Error(), "57 bytes of private data: the maximum is 56") {
		t.Errorf("long private data: %v", err)
	}
	for _, bad := range []ConnParam{
		{QPNum: 0}, {QPNum: 1 << 24}, {QPNum: 1, RetryCount: 8}, {QPNum: 1, RNRRetryCount: 8},
		{QPNum: 1, PrivateData: make([]byte, MaxConnectData+1)},
	} {
		if _, err := id.param(opConnect, &bad, MaxConnectData); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	// A datagram service is asked for its QP, and answers with it.
	id.qpType = verbs.UD
	if _, err := id.param(opConnect, nil, MaxUDConnectData); err != nil {
		t.Error(err)
	}
	if _, err := id.param(opAccept, nil, MaxUDAcceptData); !errors.Is(err, ErrInvalid) {
		t.Errorf("answering without a QP: %v", err)
	}
}

func TestLimit(t *testing.T) {
	for _, test := range []struct{ wish, bound, want int }{
		{0, 16, 16}, {0, 0, 0}, {5, 16, 5}, {16, 16, 16}, {None, 16, 0}, {-99, 0, 0},
	} {
		if got, err := limit("test", "Number", test.wish, test.bound); got != test.want || err != nil {
			t.Errorf("%d of at most %d: %d, %v", test.wish, test.bound, got, err)
		}
	}
	for _, wish := range []int{17, 255, 256, math.MaxInt} {
		if _, err := limit("test", "Number", wish, 16); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d of at most 16: %v", wish, err)
		}
	}
	// A caller that asks for the maximum gets what the peer offers, or less. A
	// caller that names a number may have up to the device's limit.
	for _, test := range []struct{ wish, peer, device, want int }{
		{0, 4, 16, 4}, {0, 200, 16, 16}, {0, 0, 16, 0}, {3, 0, 16, 16}, {None, 4, 16, 16},
	} {
		if got := grant(test.wish, test.peer, test.device); got != test.want {
			t.Errorf("wish %d, peer %d, device %d: %d", test.wish, test.peer, test.device, got)
		}
	}
}
