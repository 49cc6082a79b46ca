package rdmanl

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/uapi"
)

func TestDecodeEvents(t *testing.T) {
	const monitor = nldev | uapi.RDMA_NLDEV_CMD_MONITOR
	kind := attribute(uapi.RDMA_NLDEV_ATTR_EVENT_TYPE, 0, u8(2))
	got, err := decodeEvents(append(message(monitor, 0, 0, deviceBody(kind, attribute(uapi.RDMA_NLDEV_ATTR_NDEV_NAME, 0, text("eth0")))),
		message(monitor, 0, 0, attribute(uapi.RDMA_NLDEV_ATTR_EVENT_TYPE, 0, u8(200)))...))
	want := []Event{{Kind: EventNetdevAttached, Index: Some(uint32(3)), Device: Some("rxe0"), Port: Some(uint32(1)), Netdev: Some("eth0")}, {Kind: 200}}
	if diff := cmp.Diff(want, got, optional); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if EventNetdevAttached.String() != "NETDEV_ATTACH" || EventKind(200).String() != "unknown(200)" {
		t.Errorf("the kinds are %v and %v", EventNetdevAttached, EventKind(200))
	}
	for _, bad := range [][]byte{nil, make([]byte, 15), message(monitor, 0, 0, deviceBody()), message(monitor, 0, 99, kind)} {
		if got, err := decodeEvents(bad); !errors.Is(err, ErrAnswer) {
			t.Errorf("% x: %v, %v", bad, got, err)
		}
	}
}
