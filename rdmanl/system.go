package rdmanl

import (
	"context"

	"github.com/goverbs/goverbs/uapi"
)

// A NetnsMode determines how network namespaces share the system's devices.
type NetnsMode uint8

const (
	NetnsExclusive NetnsMode = 0 // each device is in one namespace
	NetnsShared    NetnsMode = 1 // all devices are in all namespaces
)

func (m NetnsMode) String() string { return named([]string{"exclusive", "shared"}, m) }

// A System has the settings of the kernel's RDMA subsystem.
type System struct {
	Netns          Optional[NetnsMode] // how namespaces share devices
	PrivilegedQKey Optional[bool]      // unprivileged programs may use privileged Q_Keys
	Monitor        Optional[bool]      // the kernel reports events: see Watcher
	CopyOnFork     Optional[bool]      // programs may fork without preparation
}

func decodeSystem(d *decoder, b []byte) System {
	var s System
	d.each(b, func(kind uint16, v []byte) {
		switch kind {
		case uapi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE:
			s.Netns = Some(NetnsMode(d.u8(v)))
		case uapi.RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE:
			s.PrivilegedQKey = Some(d.u8(v) != 0)
		case uapi.RDMA_NLDEV_SYS_ATTR_MONITOR_MODE:
			s.Monitor = Some(d.u8(v) != 0)
		case uapi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK:
			s.CopyOnFork = Some(d.u8(v) != 0)
		}
	})
	return s
}

// GetSystem returns the settings of the kernel's RDMA subsystem.
func GetSystem(ctx context.Context) (System, error) {
	bodies, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_SYS_GET))
	if err == nil {
		var s System
		if s, err = decodeOne(bodies, decodeSystem); err == nil {
			return s, nil
		}
	}
	return System{}, opErr("get system", "", err)
}

func setSystem(ctx context.Context, op string, attr uint16, v uint8) error {
	if _, err := ask(ctx, get(uapi.RDMA_NLDEV_CMD_SYS_SET).u8(attr, v)); err != nil {
		return opErr(op, "", err)
	}
	return nil
}

// SetNetnsMode sets how devices are shared between network namespaces. While there are other
// namespaces than the first, the kernel refuses with EBUSY.
func SetNetnsMode(ctx context.Context, mode NetnsMode) error {
	return setSystem(ctx, "set network namespaces "+mode.String(), uapi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, uint8(mode))
}

// SetPrivilegedQKey sets whether unprivileged programs may use privileged Q_Keys. Kernels
// since 6.7 have this.
func SetPrivilegedQKey(ctx context.Context, on bool) error {
	return setSystem(ctx, "set privileged Q_Keys", uapi.RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE, boolean(on))
}
