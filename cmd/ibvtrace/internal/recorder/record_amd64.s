#include "go_asm.h"
#include "textflag.h"

// The recorder. It does not run in this process, but is copied into programs. All its jumps
// are relative, and it refers to nothing outside.
//
// A detour calls it in place of a system call, with the registers of the system call, except
// AX, the address of the memory, and CX, the system call's number. As a system call, it
// returns the result in AX, may change CX and R11, and preserves all other registers.

// SAVE and RESTORE save and restore the registers that the code uses. CLAIM claims the next
// slot, if it is free. It sets BX to the slot, R12 to the memory and R14 to the thread's ID,
// shifted as in a state.
#define SAVE \
	LEAQ -88(SP), SP; \
	MOVQ BX, 0(SP);   \
	MOVQ R12, 8(SP);  \
	MOVQ R13, 16(SP); \
	MOVQ R14, 24(SP); \
	MOVQ R15, 32(SP); \
	MOVQ DI, 40(SP);  \
	MOVQ SI, 48(SP);  \
	MOVQ DX, 56(SP);  \
	MOVQ R8, 64(SP);  \
	MOVQ R9, 72(SP);  \
	MOVQ R10, 80(SP)

#define RESTORE \
	MOVQ 0(SP), BX;   \
	MOVQ 8(SP), R12;  \
	MOVQ 16(SP), R13; \
	MOVQ 24(SP), R14; \
	MOVQ 32(SP), R15; \
	MOVQ 40(SP), DI;  \
	MOVQ 48(SP), SI;  \
	MOVQ 56(SP), DX;  \
	MOVQ 64(SP), R8;  \
	MOVQ 72(SP), R9;  \
	MOVQ 80(SP), R10; \
	LEAQ 88(SP), SP

#define CLAIM(full) \
	MOVQ     AX, R12;                        \
	MOVL     $const_callGettid, AX;          \
	SYSCALL;                                 \
	MOVL     AX, R14;                        \
	SHLL     $const_phaseShift, R14;         \
	MOVL     $1, CX;                         \
	LOCK;                                    \
	XADDL    CX, control_next(R12);          \
	ANDL     $const_slotMask, CX;            \
	LEAQ     control_states(R12)(CX*4), R13; \
	SHLL     $const_slotShift, CX;           \
	LEAQ     const_slotsAt(R12)(CX*1), BX;   \
	XORL     AX, AX;                         \
	LEAL     const_phaseTaken(R14), CX;      \
	LOCK;                                    \
	CMPXCHGL CX, 0(R13);                     \
	JNE      full;                           \
	MOVQ     R13, slot_state(BX)

// ALLOWED jumps to no unless the descriptor in R11 is to be recorded.
#define ALLOWED(no) \
	CMPL R11, $const_maxFDs;        \
	JCC  no;                        \
	MOVL R11, CX;                   \
	SHRL $5, CX;                    \
	MOVL control_fds(AX)(CX*4), CX; \
	BTL  R11, CX;                   \
	JCC  no

// CLOCK writes CLOCK_REALTIME to a field of the slot.
#define CLOCK(field) \
	XORL DI, DI;                      \
	LEAQ field(BX), SI;               \
	MOVL $const_callClockGettime, AX; \
	SYSCALL

// READ copies the first R8 remote pieces to the local one. It sets AX to the number of bytes.
#define READ \
	MOVL R14, DI;                       \
	SHRL $const_phaseShift, DI;         \
	LEAQ slot_local(BX), SI;            \
	MOVL $1, DX;                        \
	LEAQ slot_remote(BX), R10;          \
	XORL R9, R9;                        \
	MOVL $const_callProcessVMReadv, AX; \
	SYSCALL

// PIECES sets R8 to the number of remote pieces before R10.
#define PIECES \
	MOVQ R10, R8;             \
	LEAQ slot_remote(BX), AX; \
	SUBQ AX, R8;              \
	SHRQ $4, R8

// PIECE adds a remote piece: the DX bytes that the attribute at SI points at.
#define PIECE \
	MOVQ 8(SI), AX;  \
	MOVQ AX, 0(R10); \
	MOVQ DX, 8(R10); \
	ADDQ $16, R10

// func record()
TEXT ·record(SB), NOSPLIT|NOFRAME, $0-0
	CMPL CX, $const_callMmap
	JEQ  mmap

	// ioctl(DI, SI, DX)
	MOVL $const_verbsIoctl, R11
	CMPL SI, R11
	JNE  plainIoctl
	MOVL DI, R11
	ALLOWED(plainIoctl)
	SAVE
	CLAIM(fullIoctl)
	MOVL $const_callIoctl, slot_call(BX)
	MOVQ DI, (slot_args+0)(BX)
	MOVQ SI, (slot_args+8)(BX)
	MOVQ DX, (slot_args+16)(BX)

	// Read a header with the maximum of attributes. Less may be readable.
	LEAQ slot_data(BX), AX
	MOVQ AX, slot_local(BX)
	MOVQ $const_maxHead, (slot_local+8)(BX)
	MOVQ DX, slot_remote(BX)
	MOVQ $const_maxHead, (slot_remote+8)(BX)
	MOVL $1, R8
	READ
	CMPQ AX, $const_headBytes
	JLT  giveUp

	// R13: the length of header and attributes.
	MOVWLZX (slot_data+6)(BX), CX
	CMPL    CX, $const_maxAttrs
	JHI     giveUp
	MOVL    CX, R13
	SHLL    $4, R13
	ADDL    $const_headBytes, R13
	CMPQ    AX, R13
	JLT     giveUp
	MOVWLZX slot_data(BX), AX
	CMPL    AX, R13
	JNE     giveUp
	MOVL    R13, slot_head(BX)

	// R15: the method.
	MOVL    (slot_data+16)(BX), AX
	CMPL    AX, control_driver(R12)
	JNE     giveUp
	MOVWLZX (slot_data+2)(BX), AX
	CMPL    AX, $const_objects
	JCC     giveUp
	MOVWLZX (slot_data+4)(BX), DX
	CMPL    DX, $const_methods
	JCC     giveUp
	SHLL    $const_methodsShift, AX
	ADDL    DX, AX
	SHLL    $const_methodShift, AX
	LEAQ    control_methods(R12)(AX*1), R15

	// For each attribute: SI points at it, CX counts down. DI becomes the length of the
	// input data, R8 the number of bytes to read after the call.
	LEAQ  (slot_data+const_headBytes)(BX), SI
	LEAQ  slot_remote(BX), R10
	XORL  DI, DI
	MOVL  R13, R8
	TESTL CX, CX
	JEQ   counted

before:
	MOVWLZX 0(SI), AX
	MOVWLZX 2(SI), DX
	MOVL    AX, R11
	SHRL    $12, R11
	CMPL    R11, $1
	JHI     giveUp
	SHLL    $const_attrsShift, R11
	ANDL    $0xfff, AX
	CMPL    AX, $const_attrs
	JCC     giveUp
	ORL     AX, R11
	MOVQ    method_known(R15), AX
	BTQ     R11, AX
	JCC     giveUp
	MOVQ    method_in(R15), AX
	BTQ     R11, AX
	JCC     notIn
	CMPL    DX, $const_inWord
	JHI     pointer
	MOVQ    method_commands(R15), AX
	TESTQ   AX, AX
	JEQ     next
	CMPL    R11, $const_writeCmd
	JNE     next
	MOVQ    8(SI), R9
	CMPQ    R9, $64
	JCC     giveUp
	BTQ     R9, AX
	JCC     giveUp
	JMP     next

pointer:
	PIECE
	ADDL DX, DI
	JMP  next

notIn:
	MOVQ method_out(R15), AX
	BTQ  R11, AX
	JCC  next
	ADDL DX, R8

next:
	ADDQ $const_attrBytes, SI
	DECL CX
	JNE  before

counted:
	// A method that is not recorded has no known attributes.
	CMPQ  method_known(R15), $0
	JEQ   giveUp
	MOVL  DI, slot_in(BX)
	MOVL  R8, slot_want(BX)
	LEAL  (R13)(DI*1), AX
	ADDL  R8, AX
	CMPL  AX, $const_dataBytes
	JHI   giveUp
	TESTL DI, DI
	JEQ   ready
	LEAQ  slot_data(BX)(R13*1), AX
	MOVQ  AX, slot_local(BX)
	MOVQ  DI, (slot_local+8)(BX)
	PIECES
	READ
	MOVL  slot_in(BX), DI
	CMPQ  AX, DI
	JNE   giveUp

ready:
	MOVL $0, slot_out(BX)
	CLOCK(slot_start)
	LEAL const_phaseCalling(R14), AX
	MOVQ slot_state(BX), CX
	MOVL AX, 0(CX)
	MOVQ (slot_args+0)(BX), DI
	MOVQ (slot_args+8)(BX), SI
	MOVQ (slot_args+16)(BX), DX
	MOVQ $(const_Mark<<32), R9
	MOVL $const_callIoctl, AX
	SYSCALL
	MOVQ AX, slot_result(BX)
	CLOCK(slot_end)
	CMPQ slot_result(BX), $0
	JLT  ended

	// Read the header and the attributes again, since the kernel writes there, and the
	// output data. The attributes are those from before the call.
	MOVQ (slot_args+16)(BX), AX
	MOVQ AX, slot_remote(BX)
	MOVQ R13, (slot_remote+8)(BX)
	LEAQ (slot_remote+16)(BX), R10
	LEAQ (slot_data+const_headBytes)(BX), SI
	MOVL R13, CX
	SUBL $const_headBytes, CX
	SHRL $4, CX
	JEQ  pieces

after:
	MOVWLZX 0(SI), AX
	MOVWLZX 2(SI), DX
	MOVL    AX, R11
	SHRL    $(12-const_attrsShift), R11
	ANDL    $const_attrs, R11
	ANDL    $(const_attrs-1), AX
	ORL     AX, R11
	MOVQ    method_out(R15), AX
	BTQ     R11, AX
	JCC     notOut
	PIECE

notOut:
	ADDQ $const_attrBytes, SI
	DECL CX
	JNE  after

pieces:
	LEAQ  slot_data(BX)(R13*1), AX
	MOVL  slot_in(BX), DI
	ADDQ  DI, AX
	MOVQ  AX, slot_local(BX)
	MOVL  slot_want(BX), DI
	MOVQ  DI, (slot_local+8)(BX)
	PIECES
	READ
	TESTQ AX, AX
	JLT   ended
	MOVL  AX, slot_out(BX)

ended:
	// Once the state says that the record has ended, another thread may claim the slot.
	MOVL  $1, CX
	LOCK
	XADDQ CX, control_ended(R12)
	MOVQ  CX, slot_order(BX)
	MOVQ  slot_result(BX), AX
	LEAL  const_phaseEnded(R14), R11
	MOVQ  slot_state(BX), CX
	MOVL  R11, 0(CX)
	RESTORE
	RET

giveUp:
	MOVQ slot_state(BX), CX
	MOVL $0, 0(CX)

fullIoctl:
	RESTORE

plainIoctl:
	// In the handler of a signal that interrupted the code above, R9 may still have the
	// mark of the interrupted call.
	LEAQ -8(SP), SP
	MOVQ R9, 0(SP)
	XORL R9, R9
	MOVL $const_callIoctl, AX
	SYSCALL
	MOVQ 0(SP), R9
	LEAQ 8(SP), SP
	RET

// mmap(DI, SI, DX, R10, R8, R9)
mmap:
	MOVL R10, R11
	ANDL $const_mapTypeAndAnonymous, R11
	CMPL R11, $const_mapShared
	JEQ  shared
	CMPL R11, $const_mapSharedValidate
	JNE  plainMmap

shared:
	MOVL R8, R11
	ALLOWED(plainMmap)
	SAVE
	CLAIM(fullMmap)
	MOVL $const_callMmap, slot_call(BX)
	MOVQ DI, (slot_args+0)(BX)
	MOVQ SI, (slot_args+8)(BX)
	MOVQ DX, (slot_args+16)(BX)
	MOVQ R10, (slot_args+24)(BX)
	MOVQ R8, (slot_args+32)(BX)
	MOVQ R9, (slot_args+40)(BX)
	MOVL $0, slot_head(BX)
	MOVL $0, slot_in(BX)
	MOVL $0, slot_out(BX)
	CLOCK(slot_start)
	LEAL const_phaseCalling(R14), AX
	MOVQ slot_state(BX), CX
	MOVL AX, 0(CX)
	MOVQ (slot_args+0)(BX), DI
	MOVQ (slot_args+8)(BX), SI
	MOVL R8, R8
	MOVQ $(const_Mark<<32), AX
	ORQ  AX, R8
	MOVL $const_callMmap, AX
	SYSCALL
	MOVQ AX, slot_result(BX)
	CLOCK(slot_end)
	JMP  ended

fullMmap:
	RESTORE

plainMmap:
	LEAQ -8(SP), SP
	MOVQ R8, 0(SP)
	MOVL R8, R8
	MOVL $const_callMmap, AX
	SYSCALL
	MOVQ 0(SP), R8
	LEAQ 8(SP), SP
	RET

	// recorderCode finds the end by these bytes.
	UNDEF
	BYTE $0x65; BYTE $0x6e; BYTE $0x64; BYTE $0x21

// func code() unsafe.Pointer
TEXT ·code(SB), NOSPLIT, $0-8
	LEAQ ·record(SB), AX
	MOVQ AX, ret+0(FP)
	RET
