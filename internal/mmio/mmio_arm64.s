#include "go_asm.h"
#include "textflag.h"

#define OSHLD $1
#define OSHST $2
#define ST    $14

// func ToDevice()
TEXT ·ToDevice(SB), NOSPLIT, $0-0
	DMB OSHST
	RET

// func FromDevice()
TEXT ·FromDevice(SB), NOSPLIT, $0-0
	DMB OSHLD
	RET

// func FlushWrites()
TEXT ·FlushWrites(SB), NOSPLIT, $0-0
	DSB ST
	RET

// func Load32(reg *uint32) uint32
TEXT ·Load32(SB), NOSPLIT, $0-12
	MOVD  reg+0(FP), R0
	MOVWU (R0), R1
	MOVW  R1, ret+8(FP)
	RET

// func Publish(record *uint32, v uint32)
TEXT ·Publish(SB), NOSPLIT, $0-12
	MOVD record+0(FP), R0
	MOVW v+8(FP), R1
	DMB  OSHST
	MOVW R1, (R0)
	RET

// func Doorbell(record *uint32, v uint32, reg *uint64, value uint64)
TEXT ·Doorbell(SB), NOSPLIT, $0-32
	MOVD record+0(FP), R0
	MOVW v+8(FP), R1
	MOVD reg+16(FP), R2
	MOVD value+24(FP), R3
	DMB  OSHST
	MOVW R1, (R0)
	DSB  ST
	MOVD R3, (R2)
	DSB  ST
	RET

// func DoorbellUncached(record *uint32, v uint32, reg *uint64, value uint64)
TEXT ·DoorbellUncached(SB), NOSPLIT, $0-32
	JMP ·Doorbell(SB)

// func RingLocked(reg *uint64, value uint64)
TEXT ·RingLocked(SB), NOSPLIT, $0-16
	MOVD reg+0(FP), R2
	MOVD value+8(FP), R3
	DSB  ST
	MOVD R3, (R2)
	DSB  ST
	RET

// func CopyLocked(reg, entry unsafe.Pointer, blocks int)
TEXT ·CopyLocked(SB), NOSPLIT, $0-24
	MOVD reg+0(FP), R2
	MOVD entry+8(FP), R3
	MOVD blocks+16(FP), R4
	DSB  ST

next:
	VLD1.P 64(R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1.P [V0.D2, V1.D2, V2.D2, V3.D2], 64(R2)
	SUBS   $1, R4
	BNE    next
	DSB    ST
	RET

// RING publishes v in bell's record, makes the other buffer the next, and has
// this one's address in reg.
#define RING(bell, v, reg) \
	MOVD  Bell_Record(bell), R5 \
	MOVD  Bell_Reg(bell), reg   \
	MOVWU Bell_Size(bell), R6   \
	MOVWU Bell_Offset(bell), R7 \
	DMB   OSHST                 \
	MOVW  v, (R5)               \
	ADD   R7, reg               \
	EORW  R7, R6                \
	MOVW  R6, Bell_Offset(bell) \
	DSB   ST

// func BlueFlame(bell *Bell, v uint32, entry unsafe.Pointer, blocks int)
TEXT ·BlueFlame(SB), NOSPLIT, $0-32
	MOVD bell+0(FP), R0
	MOVW v+8(FP), R1
	MOVD entry+16(FP), R3
	MOVD blocks+24(FP), R4
	RING(R0, R1, R2)

next:
	// One store of 64 bytes, as rdma-core's mmio_memcpy_x64 has it: several
	// smaller ones needn't be combined.
	VLD1.P 64(R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1.P [V0.D2, V1.D2, V2.D2, V3.D2], 64(R2)
	SUBS   $1, R4
	BNE    next
	DSB    ST
	RET

// func BlueFlame64(bell *Bell, v uint32, entry unsafe.Pointer)
TEXT ·BlueFlame64(SB), NOSPLIT, $0-24
	MOVD bell+0(FP), R0
	MOVW v+8(FP), R1
	MOVD entry+16(FP), R3
	RING(R0, R1, R2)
	VLD1 (R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1 [V0.D2, V1.D2, V2.D2, V3.D2], (R2)
	DSB  ST
	RET

// func BlueFlame128(bell *Bell, v uint32, entry unsafe.Pointer)
TEXT ·BlueFlame128(SB), NOSPLIT, $0-24
	MOVD   bell+0(FP), R0
	MOVW   v+8(FP), R1
	MOVD   entry+16(FP), R3
	RING(R0, R1, R2)
	VLD1.P 64(R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1.P [V0.D2, V1.D2, V2.D2, V3.D2], 64(R2)
	VLD1   (R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1   [V0.D2, V1.D2, V2.D2, V3.D2], (R2)
	DSB    ST
	RET

// func TryFlame(bell *Bell, v uint32, entry unsafe.Pointer, blocks int, shared *Shared) bool
TEXT ·TryFlame(SB), NOSPLIT, $0-41
	MOVD   bell+0(FP), R0
	MOVW   v+8(FP), R1
	MOVD   entry+16(FP), R3
	MOVD   blocks+24(FP), R4
	MOVD   shared+32(FP), R8
	MOVD   Bell_Record(R0), R5
	DMB    OSHST
	MOVW   R1, (R5)
	MOVW   $1, R9
	ADD    $Shared_Lock, R8, R10
	LDAXRW (R10), R11
	CBNZW  R11, busy
	STLXRW R9, (R10), R11
	CBNZW  R11, busy
	MOVD   Bell_Reg(R0), R2
	MOVWU  Bell_Size(R0), R6
	MOVWU  Shared_Offset(R8), R7
	ADD    R7, R2
	EORW   R7, R6
	DSB    ST

next:
	VLD1.P 64(R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1.P [V0.D2, V1.D2, V2.D2, V3.D2], 64(R2)
	SUBS   $1, R4
	BNE    next
	DSB    ST
	MOVW   R6, Shared_Offset(R8)
	STLRW  ZR, (R10)
	MOVD   $1, R0
	MOVB   R0, ret+40(FP)
	RET

busy:
	MOVB ZR, ret+40(FP)
	RET
