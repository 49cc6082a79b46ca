package probes

import "encoding/binary"

// The probes work as those for amd64, in code_linux_amd64.go. A getpid changes no register but
// x0.

// probePost traps, calls the function, and traps again with the result in the fourth argument.
var probePost = words(
	0xd503245f, // bti c
	0xa9bd7bfd, // stp x29, x30, [sp, #-48]!
	0x910003fd, // mov x29, sp
	0xa90107e0, // stp x0, x1, [sp, #16]
	0xf90013e2, // str x2, [sp, #32]
	0x58000265, // ldr x5, before
	0xd2801588, // mov x8, #172
	0xd4000001, // svc #0x0
	0xf9400be0, // ldr x0, [sp, #16]
	0x580001b0, // ldr x16, function
	0xd63f0200, // blr x16
	0xf90017e0, // str x0, [sp, #40]
	0xaa0003e3, // mov x3, x0
	0xa94107e0, // ldp x0, x1, [sp, #16]
	0xf94013e2, // ldr x2, [sp, #32]
	0x58000165, // ldr x5, after
	0xd2801588, // mov x8, #172
	0xd4000001, // svc #0x0
	0xf94017e0, // ldr x0, [sp, #40]
	0xa8c37bfd, // ldp x29, x30, [sp], #48
	0xd65f03c0, // ret
	0x00000000, // (alignment)
)

// probePoll calls the function. If that returns 0, it increments the counter, otherwise it traps
// as probePost does.
var probePoll = words(
	0xd503245f, // bti c
	0xa9bd7bfd, // stp x29, x30, [sp, #-48]!
	0x910003fd, // mov x29, sp
	0xa90107e0, // stp x0, x1, [sp, #16]
	0xf90013e2, // str x2, [sp, #32]
	0x58000270, // ldr x16, function
	0xd63f0200, // blr x16
	0x34000140, // cbz w0, L1
	0xf90017e0, // str x0, [sp, #40]
	0xaa0003e3, // mov x3, x0
	0xa94107e0, // ldp x0, x1, [sp, #16]
	0xf94013e2, // ldr x2, [sp, #32]
	0x58000205, // ldr x5, after
	0xd2801588, // mov x8, #172
	0xd4000001, // svc #0x0
	0xf94017e0, // ldr x0, [sp, #40]
	0x14000006, // b L3
	0x580001b0, // L1: ldr x16, counter
	0xc85f7e09, // L2: ldxr x9, [x16]
	0x91000529, // add x9, x9, #0x1
	0xc80a7e09, // stxr w10, x9, [x16]
	0x35ffffaa, // cbnz w10, L2
	0xa8c37bfd, // L3: ldp x29, x30, [sp], #48
	0xd65f03c0, // ret
)

// probeCall traps and jumps to the function, which returns nothing. The trap needs the register
// of the sixth argument, whose lowest byte is put into the trap word.
var probeCall = words(
	0xd503245f, // bti c
	0xa9bf17e0, // stp x0, x5, [sp, #-16]!
	0x58000149, // ldr x9, before
	0x92401caa, // and x10, x5, #0xff
	0xaa0a4125, // orr x5, x9, x10, lsl #16
	0xd2801588, // mov x8, #172
	0xd4000001, // svc #0x0
	0xa8c117e0, // ldp x0, x5, [sp], #16
	0x58000050, // ldr x16, function
	0xd61f0200, // br x16
)

// probeStartPoll is for functions that advance an extended CQ to a completion. It calls the
// function. If that returns ENOENT, it increments the counter. Otherwise it traps with the
// result and the address of the completion's opcode, vendor_err, qp_num, byte_len, wc_flags
// and imm_data. It reads them by the CQ's read functions, since the program may not call all.
var probeStartPoll = words(
	0xd503245f, // bti c
	0xa9bc7bfd, // stp x29, x30, [sp, #-64]!
	0x910003fd, // mov x29, sp
	0xf9000bf3, // str x19, [sp, #16]
	0xaa0003f3, // mov x19, x0
	0x58000830, // ldr x16, function
	0xd63f0200, // blr x16
	0xf9001be0, // str x0, [sp, #48]
	0x7100081f, // cmp w0, #0x2
	0x54000660, // b.eq L8
	0x35000560, // cbnz w0, L7
	0xb9001bff, // str wzr, [sp, #24]
	0x2904ffff, // stp wzr, wzr, [sp, #36]
	0xb9002fff, // str wzr, [sp, #44]
	0x2a1f03e0, // mov w0, wzr
	0xf9405e70, // ldr x16, [x19, #184] (read_vendor_err)
	0xb4000070, // cbz x16, L1
	0xaa1303e0, // mov x0, x19
	0xd63f0200, // blr x16
	0xb9001fe0, // L1: str w0, [sp, #28]
	0x2a1f03e0, // mov w0, wzr
	0xf9406a70, // ldr x16, [x19, #208] (read_qp_num)
	0xb4000070, // cbz x16, L2
	0xaa1303e0, // mov x0, x19
	0xd63f0200, // blr x16
	0xb90023e0, // L2: str w0, [sp, #32]
	0xb9408e69, // ldr w9, [x19, #140] (status)
	0x35000349, // cbnz w9, L7
	0x2a1f03e0, // mov w0, wzr
	0xf9405a70, // ldr x16, [x19, #176] (read_opcode)
	0xb4000070, // cbz x16, L3
	0xaa1303e0, // mov x0, x19
	0xd63f0200, // blr x16
	0xb9001be0, // L3: str w0, [sp, #24]
	0x2a1f03e0, // mov w0, wzr
	0xf9406270, // ldr x16, [x19, #192] (read_byte_len)
	0xb4000070, // cbz x16, L4
	0xaa1303e0, // mov x0, x19
	0xd63f0200, // blr x16
	0xb90027e0, // L4: str w0, [sp, #36]
	0x2a1f03e0, // mov w0, wzr
	0xf9407270, // ldr x16, [x19, #224] (read_wc_flags)
	0xb4000070, // cbz x16, L5
	0xaa1303e0, // mov x0, x19
	0xd63f0200, // blr x16
	0xb9002be0, // L5: str w0, [sp, #40]
	0x360800e0, // tbz w0, #1, L7
	0x2a1f03e0, // mov w0, wzr
	0xf9406670, // ldr x16, [x19, #200] (read_imm_data)
	0xb4000070, // cbz x16, L6
	0xaa1303e0, // mov x0, x19
	0xd63f0200, // blr x16
	0xb9002fe0, // L6: str w0, [sp, #44]
	0xaa1303e0, // L7: mov x0, x19
	0x910063e1, // add x1, sp, #0x18
	0xf9401be3, // ldr x3, [sp, #48]
	0x58000245, // ldr x5, after
	0xd2801588, // mov x8, #172
	0xd4000001, // svc #0x0
	0x14000006, // b L10
	0x58000210, // L8: ldr x16, counter
	0xc85f7e09, // L9: ldxr x9, [x16]
	0x91000529, // add x9, x9, #0x1
	0xc80a7e09, // stxr w10, x9, [x16]
	0x35ffffaa, // cbnz w10, L9
	0xf9401be0, // L10: ldr x0, [sp, #48]
	0xf9400bf3, // ldr x19, [sp, #16]
	0xa8c47bfd, // ldp x29, x30, [sp], #64
	0xd65f03c0, // ret
	0x00000000, // (alignment)
)

// words returns the instructions as they are in memory.
func words(instructions ...uint32) []byte {
	var b []byte
	for _, i := range instructions {
		b = binary.LittleEndian.AppendUint32(b, i)
	}
	return b
}
