package efa

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A compCounter is two words in memory of the process, which the device writes: the number of
// successful operations, and the number of failed ones.
type compCounter struct{ mem []byte }

const counterSize = 8

var errNoCounters = fmt.Errorf("%w: the device has no completion counters", provider.ErrNotSupported)

func (c *context) NewCompCounter(cmd ioctl.CompCntrCreate) (provider.CompCounter, error) {
	if !c.has(uapi.EFA_QUERY_DEVICE_CAPS_COMP_CNTR) {
		return nil, errNoCounters
	}
	mem, err := ioctl.MapMemory(2 * counterSize)
	if err != nil {
		return nil, err
	}
	k := &compCounter{mem}
	cmd.EfaCompBuffer(k.buffer(false))
	cmd.EfaErrBuffer(k.buffer(true))
	return k, nil
}

func (k *compCounter) word(failed bool) *uint64 {
	at := 0
	if failed {
		at = counterSize
	}
	return (*uint64)(unsafe.Pointer(&k.mem[at]))
}

// buffer returns the kernel's description of a word.
func (k *compCounter) buffer(failed bool) uapi.IbUverbsBufferDesc {
	return uapi.IbUverbsBufferDesc{
		Type: uint32(uapi.IB_UVERBS_BUFFER_TYPE_VA), Addr: uint64(uintptr(unsafe.Pointer(k.word(failed)))), Length: counterSize,
	}
}

func (k *compCounter) Read(failed bool) uint64 { return atomic.LoadUint64(k.word(failed)) }

func (k *compCounter) Release() { unmap(&k.mem) }
