//go:build amd64 || arm64

package seccomp

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// randomFilter returns a filter that allows all system calls except nr. For nr it computes an
// errno.
func randomFilter(r *rand.Rand, nr uint32) Program {
	p := Program{
		Load(OffsetNr), IfEqual(nr),
		{Code: unix.BPF_JMP | unix.BPF_JA, K: 1},
		Pass,
		{Code: unix.BPF_LDX | unix.BPF_IMM, K: r.Uint32()},
	}
	for i := range uint32(scratchWords) { // the kernel rejects filters that read unwritten words
		p = append(p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_IMM, K: r.Uint32()}, unix.SockFilter{Code: unix.BPF_ST, K: i})
	}
	const n = 60
	for i := range n {
		word := r.Uint32() >> r.IntN(32)
		f := []unix.SockFilter{
			Load(OffsetNr), Load(offsetArch), Load(OffsetArg(r.Uint32N(6))), Load(OffsetArgHigh(r.Uint32N(6))),
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN}, {Code: unix.BPF_LDX | unix.BPF_W | unix.BPF_LEN},
			{Code: unix.BPF_LD | unix.BPF_IMM, K: word}, {Code: unix.BPF_LDX | unix.BPF_IMM, K: word},
			{Code: unix.BPF_LD | unix.BPF_MEM, K: word % scratchWords}, {Code: unix.BPF_LDX | unix.BPF_MEM, K: word % scratchWords},
			{Code: unix.BPF_ST, K: word % scratchWords}, {Code: unix.BPF_STX, K: word % scratchWords},
			{Code: unix.BPF_MISC | unix.BPF_TAX}, {Code: unix.BPF_MISC | unix.BPF_TXA},
			{Code: unix.BPF_ALU | unix.BPF_NEG},
			{Code: unix.BPF_JMP | unix.BPF_JA, K: r.Uint32N(uint32(n - i))},
			{}, {},
		}[r.IntN(18)]
		if f.Code == 0 {
			source := []uint16{unix.BPF_K, unix.BPF_X}[r.IntN(2)]
			alu := []uint16{unix.BPF_ADD, unix.BPF_SUB, unix.BPF_MUL, unix.BPF_DIV, unix.BPF_AND, unix.BPF_OR, unix.BPF_XOR, unix.BPF_LSH, unix.BPF_RSH}
			f = unix.SockFilter{Code: unix.BPF_ALU | source | alu[r.IntN(len(alu))], K: 1 + word%31}
			if r.IntN(2) == 0 {
				test := []uint16{unix.BPF_JEQ, unix.BPF_JGT, unix.BPF_JGE, unix.BPF_JSET}[r.IntN(4)]
				f = unix.SockFilter{Code: unix.BPF_JMP | source | test, K: word, Jt: uint8(r.IntN(n - i)), Jf: uint8(r.IntN(n - i))}
			}
		}
		p = append(p, f)
	}
	return append(p,
		And(0xfff),
		unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_OR | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_A})
}

// TestInterpret compares results of Run with those of the kernel.
func TestInterpret(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	differ, zero := make(map[uint32]bool), 0
	for range 200 {
		p := randomFilter(r, unix.SYS_GETPPID)
		d := Data{Nr: unix.SYS_GETPPID, Arch: ABIs[0].Arch}
		for i := range d.Args {
			d.Args[i] = r.Uint64()
		}
		want, ok := p.Run(&d)
		if !ok {
			t.Fatalf("Run rejects %v", p)
		}
		if want == unix.SECCOMP_RET_KILL_THREAD { // a division by zero, which would kill the thread
			zero++
			continue
		}
		differ[want] = true
		type got struct{ installed, errno unix.Errno }
		result := make(chan got)
		go func() {
			runtime.LockOSThread() // for ever: the thread ends with its filter
			var g got
			unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			fprog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
			_, _, g.installed = unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
			if g.installed == 0 {
				a := d.Args
				_, _, g.errno = unix.RawSyscall6(unix.SYS_GETPPID, uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), uintptr(a[5]))
			}
			result <- g
		}()
		if g := <-result; g.installed != 0 {
			t.Errorf("the kernel rejects %v: %v", p, g.installed)
		} else if g.errno != unix.Errno(want&0xfff) {
			t.Errorf("%v with %+v: the kernel's error is %d, want %d", p, d, g.errno, want&0xfff)
		}
	}
	if len(differ) < 100 || zero > 50 {
		t.Errorf("only %d results differ, %d divisions by zero", len(differ), zero)
	}
}

// TestInterpretNone: Run rejects filters that the kernel rejects, and those that read the
// instruction pointer.
func TestInterpretNone(t *testing.T) {
	for name, p := range map[string]Program{
		"empty":               {},
		"no end":              {Load(OffsetNr)},
		"out of the end":      {{Code: unix.BPF_JMP | unix.BPF_JA, K: 7}, Pass},
		"instruction pointer": {Load(8), Pass},
		"behind":              {Load(64), Pass},
		"odd":                 {Load(17), Pass},
		"scratch":             {{Code: unix.BPF_LD | unix.BPF_MEM, K: 16}, Pass},
		"bytes":               {{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 16}, Pass},
		"unknown":             {{Code: 0xffff}, Pass},
	} {
		if action, ok := p.Run(&Data{}); ok {
			t.Errorf("%s: %#x", name, action)
		}
	}
}
