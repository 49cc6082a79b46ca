#include "go_asm.h"
#include "textflag.h"

// Loads, and stores to write-back memory, keep their order on this
// architecture. Stores to write-combining memory are ordered by SFENCE alone.

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	RET

// func FlushWrites()
TEXT ·FlushWrites(SB), NOSPLIT, $0-0
	SFENCE
	RET

// func Load32(reg *uint32) uint32
TEXT ·Load32(SB), NOSPLIT, $0-12
	MOVQ reg+0(FP), AX
	MOVL (AX), CX
	MOVL CX, ret+8(FP)
	RET

// func Publish(record *uint32, v uint32)
TEXT ·Publish(SB), NOSPLIT, $0-12
	MOVQ record+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET

// Eight stores, so that a device whose registers are not write-combining sees
// the same order.
#define COPY64(at, src, dst) \
	MOVQ at+0(src), R8   \
	MOVQ at+8(src), R9   \
	MOVQ at+16(src), R10 \
	MOVQ at+24(src), R11 \
	MOVQ R8, at+0(dst)   \
	MOVQ R9, at+8(dst)   \
	MOVQ R10, at+16(dst) \
	MOVQ R11, at+24(dst) \
	MOVQ at+32(src), R8  \
	MOVQ at+40(src), R9  \
	MOVQ at+48(src), R10 \
	MOVQ at+56(src), R11 \
	MOVQ R8, at+32(dst)  \
	MOVQ R9, at+40(dst)  \
	MOVQ R10, at+48(dst) \
	MOVQ R11, at+56(dst)

// func Doorbell(record *uint32, v uint32, reg *uint64, value uint64)
TEXT ·Doorbell(SB), NOSPLIT, $0-32
	MOVQ record+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ reg+16(FP), DI
	MOVQ value+24(FP), DX
	MOVL CX, (AX)
	SFENCE
	MOVQ DX, (DI)
	SFENCE
	RET

// Stores to uncached memory keep their order with those before them to write-back memory.

// func DoorbellUncached(record *uint32, v uint32, reg *uint64, value uint64)
TEXT ·DoorbellUncached(SB), NOSPLIT, $0-32
	MOVQ record+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ reg+16(FP), DI
	MOVQ value+24(FP), DX
	MOVL CX, (AX)
	MOVQ DX, (DI)
	RET

// func RingLocked(reg *uint64, value uint64)
TEXT ·RingLocked(SB), NOSPLIT, $0-16
	MOVQ reg+0(FP), DI
	MOVQ value+8(FP), DX
	MOVQ DX, (DI)
	SFENCE
	RET

// func CopyLocked(reg, entry unsafe.Pointer, blocks int)
TEXT ·CopyLocked(SB), NOSPLIT, $0-24
	MOVQ reg+0(FP), DI
	MOVQ entry+8(FP), SI
	MOVQ blocks+16(FP), BX

next:
	COPY64(0, SI, DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ BX
	JNZ  next
	SFENCE
	RET

// RING publishes v in bell's record, makes the other buffer the next, and has
// this one's address in reg.
#define RING(bell, v, reg) \
	MOVQ Bell_Record(bell), DX \
	MOVQ Bell_Reg(bell), reg   \
	MOVL Bell_Size(bell), R8   \
	MOVL Bell_Offset(bell), R9 \
	MOVL v, (DX)               \
	ADDQ R9, reg               \
	XORL R9, R8                \
	MOVL R8, Bell_Offset(bell) \
	SFENCE

// func BlueFlame(bell *Bell, v uint32, entry unsafe.Pointer, blocks int)
TEXT ·BlueFlame(SB), NOSPLIT, $0-32
	MOVQ bell+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ entry+16(FP), SI
	MOVQ blocks+24(FP), BX
	RING(AX, CX, DI)

next:
	COPY64(0, SI, DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ BX
	JNZ  next
	SFENCE
	RET

// func BlueFlame64(bell *Bell, v uint32, entry unsafe.Pointer)
TEXT ·BlueFlame64(SB), NOSPLIT, $0-24
	MOVQ bell+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ entry+16(FP), SI
	RING(AX, CX, DI)
	COPY64(0, SI, DI)
	SFENCE
	RET

// func BlueFlame128(bell *Bell, v uint32, entry unsafe.Pointer)
TEXT ·BlueFlame128(SB), NOSPLIT, $0-24
	MOVQ bell+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ entry+16(FP), SI
	RING(AX, CX, DI)
	COPY64(0, SI, DI)
	COPY64(64, SI, DI)
	SFENCE
	RET

// The lock's atomic instruction is the fence between the record and the copy. The
// copy's fence comes before the ordinary store that frees the lock.

// func TryFlame(bell *Bell, v uint32, entry unsafe.Pointer, blocks int, shared *Shared) bool
TEXT ·TryFlame(SB), NOSPLIT, $0-41
	MOVQ     bell+0(FP), R10
	MOVL     v+8(FP), CX
	MOVQ     entry+16(FP), SI
	MOVQ     blocks+24(FP), BX
	MOVQ     shared+32(FP), DX
	MOVQ     Bell_Record(R10), R11
	MOVL     CX, (R11)
	MOVL     $1, R12
	XORL     AX, AX
	LOCK
	CMPXCHGL R12, Shared_Lock(DX)
	JNE      busy
	MOVQ     Bell_Reg(R10), DI
	MOVL     Bell_Size(R10), R13
	MOVL     Shared_Offset(DX), R12
	ADDQ     R12, DI
	XORL     R12, R13

next:
	COPY64(0, SI, DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ BX
	JNZ  next
	SFENCE
	MOVL R13, Shared_Offset(DX)
	MOVL $0, Shared_Lock(DX)
	MOVB $1, ret+40(FP)
	RET

busy:
	MOVB $0, ret+40(FP)
	RET
