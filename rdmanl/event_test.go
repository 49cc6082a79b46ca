package rdmanl

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/ib"
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

// TestChanges: only ports whose state has changed are reported. A missing port is down.
func TestChanges(t *testing.T) {
	link := func(device string, state ib.PortState) Link {
		return Link{Device: device, State: Some(state), Netdev: Some("eth0")}
	}
	event := func(dev, port uint32, device string, state ib.PortState) Event {
		return Event{Kind: EventPortState, Index: Some(dev), Device: Some(device), Port: Some(port), State: Some(state), Netdev: Some("eth0")}
	}
	before := map[portKey]Link{
		{1, 1}: link("mlx5_0", ib.PortActive), {1, 2}: link("mlx5_0", ib.PortDown), {2, 1}: link("rxe0", ib.PortActive),
		{3, 1}: link("rxe1", ib.PortDown), {5, 1}: {Device: "siw0"},
	}
	after := map[portKey]Link{
		{1, 1}: link("mlx5_7", ib.PortActive), {1, 2}: link("mlx5_7", ib.PortInit),
		{4, 1}: link("rxe2", ib.PortActive), {6, 1}: link("rxe3", ib.PortDown), {5, 1}: {Device: "siw0"},
	}
	want := []Event{event(1, 2, "mlx5_7", ib.PortInit), event(2, 1, "rxe0", ib.PortDown), event(4, 1, "rxe2", ib.PortActive)}
	if diff := cmp.Diff(want, changes(before, after), optional); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if EventPortState.String() != "PORT_STATE" {
		t.Errorf("the kind is %v", EventPortState)
	}
	if _, err := Watch(t.Context(), WatchOptions{Interval: -1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an interval of less than nothing: %v", err)
	}
}
