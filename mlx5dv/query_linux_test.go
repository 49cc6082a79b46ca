package mlx5dv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

// A fakeAdapter is a context that was opened with DEVX, or without.
type fakeAdapter bool

func (fakeAdapter) UseDEVX()         {}
func (a fakeAdapter) DEVX() bool     { return bool(a) }
func (fakeAdapter) UseRegisters(int) {}

// TestQueryDevice: the capabilities are the driver's flags. The numbers of receives out of
// order are for the types that the firmware reports. The firmware is queried only on a device
// with DEVX whose driver reports the capability.
func TestQueryDevice(t *testing.T) {
	const pad = uint32(uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD)
	const disorder = uint32(uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP)
	for _, tt := range []struct {
		flags uint32
		devx  bool
		bits  byte // of the firmware
		asks  bool
		want  OutOfOrderCaps
	}{
		{pad, true, 0xff, false, OutOfOrderCaps{}},
		{pad | disorder, false, 0xff, false, OutOfOrderCaps{}},
		{disorder, true, 0x08, true, OutOfOrderCaps{MaxRC: 500}},
		{disorder, true, 0x10, true, OutOfOrderCaps{MaxDC: 1000}},
		{disorder, true, 0x40, true, OutOfOrderCaps{MaxUC: 500}},
		{disorder, true, 0x80, true, OutOfOrderCaps{MaxUD: 500}},
		{disorder, true, 0x27, true, OutOfOrderCaps{}}, // XRC, and unrelated bits
	} {
		asked, probed := false, false
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := ioctl.NewFile(kernel.Answering(fd, func(at uint64) syscall.Errno {
			if !probed {
				return unix.EPROTONOSUPPORT // it is an mlx5 device
			}
			read := func(at uint64, n int) []byte {
				b, err := syscalltest.Read(at, n)
				if err != nil {
					t.Error(err)
				}
				return b
			}
			write := func(at uint64, b []byte) {
				if err := syscalltest.Write(at, b); err != nil {
					t.Error(err)
				}
			}
			head := read(at, 24)
			values := map[uint16]uint64{}
			for i := range uint64(binary.NativeEndian.Uint16(head[6:])) {
				attr := read(at+24+16*i, 16)
				values[binary.NativeEndian.Uint16(attr)] = binary.NativeEndian.Uint64(attr[8:])
			}
			if binary.NativeEndian.Uint16(head[2:]) == uapi.MLX5_IB_OBJECT_DEVX {
				asked = true
				if in := read(values[uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN], 16); !bytes.Equal(in, []byte{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}) {
					t.Errorf("the command is % x", in)
				}
				write(values[uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT]+16+0x66, []byte{tt.bits})
				return 0
			}
			core := uapi.IbUverbsExQueryDeviceResp{}
			core.Base.MaxQpWr = 1000
			b, _ := binary.Append(nil, binary.NativeEndian, core)
			write(values[uapi.UVERBS_ATTR_CORE_OUT], b)
			b, _ = binary.Append(nil, binary.NativeEndian, uapi.Mlx5IbQueryDeviceResp{
				Flags: tt.flags, DciStreamsCaps: uapi.Mlx5IbDciStreamsCaps{MaxLogNumConcurent: 3, MaxLogNumErrored: 4},
			})
			write(values[uapi.UVERBS_ATTR_UHW_OUT], b)
			return 0
		}))
		if ok, err := f.Probe(uapi.RDMA_DRIVER_MLX5); !ok || err != nil {
			t.Fatal(ok, err)
		}
		probed = true
		got, err := queryDevice(&driverapi.Call{File: f, Device: fakeAdapter(tt.devx)})
		want := DeviceAttr{Caps: Caps(tt.flags), OutOfOrder: tt.want, MaxStreams: DCIStreams{LogConcurrent: 3, LogErrored: 4}}
		if err != nil || got != want || asked != tt.asks {
			t.Errorf("flags %#x, DEVX %t, bits %#x: %+v, %v, the firmware was asked %t, want %+v", tt.flags, tt.devx, tt.bits, got, err, asked, want)
		}
		f.Close()
	}
}

// TestAllow: options that a device doesn't support are refused.
func TestAllow(t *testing.T) {
	all := DeviceAttr{Caps: CapOutOfOrder | CapPacketCredits, OutOfOrder: OutOfOrderCaps{MaxRC: 1, MaxDC: 1}}
	unasked := DeviceAttr{Caps: CapOutOfOrder}
	for _, tt := range []struct {
		device                DeviceAttr
		typ                   verbs.QPType
		outOfOrder, inPackets bool
		want                  error
	}{
		{DeviceAttr{}, verbs.RC, false, false, nil},
		{DeviceAttr{}, verbs.RC, true, false, verbs.ErrNotSupported},
		{DeviceAttr{}, verbs.RC, false, true, verbs.ErrNotSupported},
		{all, verbs.RC, true, true, nil},
		{all, verbs.DCI, true, false, nil},
		{all, verbs.DCT, true, false, nil},
		{all, verbs.UC, true, false, verbs.ErrNotSupported},
		{all, verbs.UD, true, false, verbs.ErrNotSupported},
		{all, verbs.XRCSend, true, false, verbs.ErrInvalid},
		{all, verbs.RawPacket, true, false, verbs.ErrInvalid},
		{unasked, verbs.UC, true, false, nil},
		{unasked, verbs.UC, false, true, verbs.ErrNotSupported},
	} {
		o := QPOptions{QPOptions: verbs.QPOptions{Type: tt.typ}, OutOfOrder: tt.outOfOrder, PacketCredits: tt.inPackets}
		if err := tt.device.allow(&o); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt, err, tt.want)
		}
	}
	if _, err := CreateQP(nil, QPOptions{QPOptions: verbs.QPOptions{Type: verbs.UD}, PacketCredits: true}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("credits of a UD QP: %v", err)
	}
	if _, err := CreateCQ(nil, CQOptions{}); err == nil {
		t.Error("a CQ on no device")
	}
}
