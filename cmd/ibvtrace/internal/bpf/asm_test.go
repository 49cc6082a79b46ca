package bpf

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestEncoding compares instructions with bytes that follow from the kernel's description of the
// instruction set.
func TestEncoding(t *testing.T) {
	for _, x := range []struct {
		name string
		make func(a *Asm)
		want string
	}{
		{"r0 = 0", func(a *Asm) { a.DoImm(Mov, R0, 0) }, "b700000000000000"},
		{"r6 = r1", func(a *Asm) { a.Do(Mov, R6, R1) }, "bf16000000000000"},
		{"r2 += -16", func(a *Asm) { a.DoImm(Add, R2, -16) }, "07020000f0ffffff"},
		{"r1 += r9", func(a *Asm) { a.Do(Add, R1, R9) }, "0f91000000000000"},
		{"r1 |= 2", func(a *Asm) { a.DoImm(Or, R1, 2) }, "4701000002000000"},
		{"r1 &= -8", func(a *Asm) { a.DoImm(And, R1, -8) }, "57010000f8ffffff"},
		{"r9 <<= 4", func(a *Asm) { a.DoImm(Lsh, R9, 4) }, "6709000004000000"},
		{"r0 >>= 32", func(a *Asm) { a.DoImm(Rsh, R0, 32) }, "7700000020000000"},
		{"r1 = 0x1122334455667788 ll", func(a *Asm) { a.Const(R1, 0x1122334455667788) }, "1801000088776655" + "0000000044332211"},
		{"r1 = map 7", func(a *Asm) { a.Map(R1, 7) }, "1811000007000000" + "0000000000000000"},
		{"r1 = *(u64 *)(r6 + 112)", func(a *Asm) { a.Load(DW, R1, R6, 112) }, "7961700000000000"},
		{"r1 = *(u32 *)(r7 + 4)", func(a *Asm) { a.Load(W, R1, R7, 4) }, "6171040000000000"},
		{"r9 = *(u16 *)(r7 + 6)", func(a *Asm) { a.Load(H, R9, R7, 6) }, "6979060000000000"},
		{"r1 = *(u8 *)(r2 + 0)", func(a *Asm) { a.Load(B, R1, R2, 0) }, "7121000000000000"},
		{"*(u32 *)(r10 - 16) = r0", func(a *Asm) { a.Store(W, FP, -16, R0) }, "630af0ff00000000"},
		{"*(u64 *)(r10 - 8) = r9", func(a *Asm) { a.Store(DW, FP, -8, R9) }, "7b9af8ff00000000"},
		{"*(u64 *)(r7 + 128) = 0", func(a *Asm) { a.StoreImm(DW, R7, 128, 0) }, "7a07800000000000"},
		{"lock *(u64 *)(r0 + 0) += r1", func(a *Asm) { a.AtomicAdd(R0, 0, R1) }, "db10000000000000"},
		{"call 14", func(a *Asm) { a.Call(PIDTGID) }, "850000000e000000"},
		{"exit", func(a *Asm) { a.Exit() }, "9500000000000000"},
		{"if r0 == 0 goto +1", func(a *Asm) { a.IfImm(Eq, R0, 0, "l"); a.Exit(); a.Label("l") }, "1500010000000000" + "9500000000000000"},
		{"if r1 > 5 goto -1", func(a *Asm) { a.Label("l"); a.IfImm(Gt, R1, 5, "l") }, "2501ffff05000000"},
		{"if r9 <= 4096 goto +0", func(a *Asm) { a.IfImm(Le, R9, 4096, "l"); a.Label("l") }, "b509000000100000"},
		{"if r8 s< 0 goto +0", func(a *Asm) { a.IfImm(SLt, R8, 0, "l"); a.Label("l") }, "c508000000000000"},
		{"if r1 != r2 goto +0", func(a *Asm) { a.If(Ne, R1, R2, "l"); a.Label("l") }, "5d21000000000000"},
		{"if w1 != 0xc0181b01 goto +0", func(a *Asm) { a.If32(Ne, R1, 0xc0181b01, "l"); a.Label("l") }, "56010000011b18c0"},
		{"goto +1", func(a *Asm) { a.Goto("l"); a.Exit(); a.Label("l") }, "0500010000000000" + "9500000000000000"},
	} {
		var a Asm
		x.make(&a)
		code, err := a.Program()
		if got := hex.EncodeToString(code); got != x.want || err != nil {
			t.Errorf("%s: %s, %v, want %s", x.name, got, err, x.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for want, wrong := range map[string]func(a *Asm){
		"the label l is nowhere":                  func(a *Asm) { a.Goto("l") },
		"the label l is in two places":            func(a *Asm) { a.Label("l"); a.Exit(); a.Label("l") },
		"the offset 32768 has more than 16 bits":  func(a *Asm) { a.Load(W, R1, R1, 1<<15) },
		"the offset -32769 has more than 16 bits": func(a *Asm) { a.Load(W, R1, R1, -1<<15-1) },
		"the offset 40000 has more than 16 bits": func(a *Asm) {
			a.Goto("l")
			for range 40000 {
				a.Exit()
			}
			a.Label("l")
		},
	} {
		var a Asm
		wrong(&a)
		if _, err := a.Program(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestNewLabel(t *testing.T) {
	var a Asm
	if x, y := a.NewLabel(), a.NewLabel(); x == y {
		t.Errorf("both labels are %s", x)
	}
}
