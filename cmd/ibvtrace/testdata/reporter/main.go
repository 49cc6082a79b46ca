// Teller is a program to attach to. It reports posts and polls as package verbs does (see
// package tracing), without a device. It prints its PID, waits until a tracer turns reports
// on, reports, and waits until they are turned off.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/internal/tracing"
	"github.com/goverbs/goverbs/uapi"
)

// report reports a call on an object that belongs to no file.
func report[T any](c tracing.Call, list []T) {
	c.FD = 1<<32 - 1
	tracing.Report(c, unsafe.Pointer(unsafe.SliceData(list)))
	runtime.KeepAlive(list)
}

// received is the completion of a receive that succeeded.
func received(id uint64, length, qpn uint32) tracing.WC {
	return tracing.WC{WRID: id, Opcode: 1 << 7, ByteLen: length, QPNum: qpn} // IBV_WC_RECV
}

// An object is as large as the part that the tracer reads of the objects that work requests
// point to.
type object [tracing.AHLocal + 8]byte

// address returns the object's address. It is a global variable, which does not move.
func (o *object) address() uint64 { return uint64(uintptr(unsafe.Pointer(o))) }

// with writes a handle into the object at an offset, and returns the object's address.
func (o *object) with(handle uint32, offset int) uint64 {
	binary.NativeEndian.PutUint32(o[offset:], handle)
	return o.address()
}

var mr, mw, ah, localAH, inline object

// requests returns a work request for each of the kernel's opcodes, and for OpNop, which the
// kernel does not have.
func requests() []tracing.SendWR {
	localAH[tracing.AHLocal] = 1
	binary.NativeEndian.PutUint64(inline[:], 0x77)
	opcodes := []uint32{tracing.OpNop}
	for _, v := range uapi.EnumIbUverbsWrOpcode.Values {
		opcodes = append(opcodes, uint32(v.Value))
	}
	var out []tracing.SendWR
	for _, o := range opcodes {
		out = append(out, tracing.SendWR{
			WRID: 1, Opcode: o, Flags: uint32(uapi.IB_SEND_SIGNALED),
			Inline: tracing.Slice{Addr: inline.address(), Len: 8, Cap: 8},
			Imm:    2, InvalidateRKey: 3, Remote: tracing.Remote{Addr: 4, RKey: 5}, RemoteSRQN: 6,
			Compare: 7, Swap: 8, Add: 9, CompareMask: 10, SwapMask: 11,
			AH: ah.with(12, tracing.AHHandle), RemoteQPN: 13, RemoteQKey: 14, DCKey: 15,
			Header: tracing.Slice{Addr: 16, Len: 17}, MSS: 18,
			MW:      mw.with(19, tracing.MWHandle),
			Bind:    tracing.MWBindInfo{MR: mr.with(20, tracing.MRHandle), Addr: 21, Length: 22, Access: uint32(uapi.IB_UVERBS_ACCESS_REMOTE_READ)},
			NewRKey: 23, FlushLength: 24, FlushType: uint8(uapi.IB_FLUSH_GLOBAL), FlushLevel: uint8(uapi.IB_FLUSH_MR),
		})
	}
	return out
}

func main() {
	fmt.Println(os.Getpid())
	asked := func() bool { return atomic.LoadUint32(&tracing.Switch.On) != 0 }
	pollEmpty := func(n uint64) { atomic.AddUint64(&tracing.Switch.Empty, n) }
	for !asked() {
		time.Sleep(time.Millisecond)
	}
	pollEmpty(5)
	report[byte](tracing.Call{Point: tracing.Arm, Handle: 9, Kind: 1}, nil)
	report(tracing.Call{Point: tracing.Poll, Handle: 9, Count: 4, N: 2}, []tracing.WC{received(7, 64, 17), received(8, 32, 17)})
	report(tracing.Call{Point: tracing.Poll, Handle: 9, Count: 4, N: 1}, []tracing.WC{received(9, 16, 17)})
	pollEmpty(3)
	report[byte](tracing.Call{Point: tracing.Poll, Handle: 9, Count: 4, Failed: true}, nil)
	report[byte](tracing.Call{Point: tracing.Arm, Handle: 9, Failed: true}, nil)
	report(tracing.Call{Point: tracing.PostRecv, Handle: 3, Number: 17, Kind: uint32(uapi.IB_UVERBS_QPT_RC), Count: 3, N: 1, Failed: true, Full: true},
		make([]tracing.RecvWR, 3))
	report[byte](tracing.Call{Point: 99, Handle: 3, Number: 17}, nil) // unknown: of a later version

	all := requests()
	report(tracing.Call{Point: tracing.PostSend, Handle: 4, Number: 18, Kind: uint32(uapi.IB_UVERBS_QPT_RC), Count: uint32(len(all)), N: uint32(len(all))}, all)
	send := tracing.SendWR{WRID: 1, SGL: tracing.Slice{}, Opcode: uint32(uapi.IB_UVERBS_WR_SEND), AH: ah.address(), RemoteQPN: 13, RemoteQKey: 14, RemoteSRQN: 6, DCKey: 15, DCStream: 25}
	local := send
	local.AH = localAH.address()
	for _, kind := range []uint32{uint32(uapi.IB_UVERBS_QPT_UD), uint32(uapi.IB_UVERBS_QPT_XRC_INI), tracing.DCI} {
		report(tracing.Call{Point: tracing.Built, Handle: 4, Number: 18, Kind: kind, Count: 1, N: 1}, []tracing.SendWR{send})
	}
	report(tracing.Call{Point: tracing.Built, Handle: 4, Number: 18, Kind: uint32(uapi.IB_UVERBS_QPT_UD), Count: 1, N: 1}, []tracing.SendWR{local})
	pollEmpty(2)
	fmt.Println("told")
	for asked() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("let go")
}
