package mlx5

import (
	"bytes"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// TestDataOrder: the firmware is queried for its capability, and then for the queue pair.
// Numbers and positions of bits are those of rdma-core's mlx5_ifc.h.
func TestDataOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		q       *qp
		command []byte // about the QP
		at      int    // the byte of the answer that has the bit
		bit     byte
	}{
		"QP":  {&qp{number: 0x123456}, []byte{0x05, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0}, 24 + 11, 0x20},
		"DCT": {&qp{number: 7, target: true}, []byte{0x07, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0}, 16 + 3, 0x04},
	} {
		t.Run(name, func(t *testing.T) {
			capable, ordered, asked := byte(0), byte(0), 0
			refuse := syscall.Errno(0)
			tt.q.ctx = &context{devx: true, file: fakeFile(t, func(c call) syscall.Errno {
				asked++
				in, out, want, at, answer := uint16(uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN), uint16(uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT),
					[]byte{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 16+12, capable
				if c.method == uapi.MLX5_IB_METHOD_DEVX_OBJ_QUERY {
					in, out, want, at, answer = uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, tt.command, tt.at, ordered
					if h := uint32(c.value(t, uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE)); h != 99 {
						t.Errorf("asked about object %d", h)
					}
				}
				if got := read(t, c.value(t, in), 16); !bytes.Equal(got, want) {
					t.Errorf("the command is % x, want % x", got, want)
				}
				if err := syscalltest.Write(c.value(t, out)+uint64(at), []byte{answer}); err != nil {
					t.Error(err)
				}
				return refuse
			})}
			for _, x := range []struct {
				capable, ordered byte
				asked            int
				want             provider.DataOrder
			}{
				{0, 0xff, 1, provider.DataUnordered},
				{^byte(0x20), 0xff, 1, provider.DataUnordered},
				{0x20, 0, 2, provider.DataUnordered},
				{0x20, ^tt.bit, 2, provider.DataUnordered},
				{0x20, tt.bit, 2, provider.DataInOrder},
			} {
				capable, ordered, asked = x.capable, x.ordered, 0
				if got, err := tt.q.DataOrder(99, 0); got != x.want || err != nil || asked != x.asked {
					t.Errorf("%+v: %v, %v, asked %d times", x, got, err, asked)
				}
			}
			refuse = unix.EINVAL
			if got, err := tt.q.DataOrder(99, 0); got != provider.DataUnordered || err != unix.EINVAL {
				t.Errorf("refused: %v, %v", got, err)
			}
			asked = 0
			tt.q.raw = true
			if got, err := tt.q.DataOrder(99, 0); got != provider.DataUnordered || err != nil || asked != 0 {
				t.Errorf("raw packets: %v, %v", got, err)
			}
			tt.q.raw, tt.q.ctx.devx = false, false
			if got, err := tt.q.DataOrder(99, 0); got != provider.DataUnordered || err != nil || asked != 0 {
				t.Errorf("without DEVX: %v, %v", got, err)
			}
		})
	}
}
