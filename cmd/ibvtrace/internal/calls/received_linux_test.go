//go:build amd64 || arm64

package calls

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
)

// TestRights: the descriptors of a message are found, of programs with 64 and with 32 bits, and
// whatever lengths a program writes there.
func TestRights(t *testing.T) {
	for _, l := range []messageLayout{wideMessage, narrowMessage} {
		put := func(b []byte, v uint64) []byte {
			if l.word == 4 {
				return binary.NativeEndian.AppendUint32(b, uint32(v))
			}
			return binary.NativeEndian.AppendUint64(b, v)
		}
		// block returns an element of ancillary data, which says that it is longer than its
		// data by extra.
		block := func(kind uint32, extra int, data ...uint32) []byte {
			b := put(nil, uint64(int(l.controlHdr)+4*len(data)+extra))
			b = binary.NativeEndian.AppendUint32(b, unix.SOL_SOCKET)
			b = binary.NativeEndian.AppendUint32(b, kind)
			for _, d := range data {
				b = binary.NativeEndian.AppendUint32(b, d)
			}
			for len(b)%l.word != 0 {
				b = append(b, 0)
			}
			return b
		}
		for _, test := range []struct {
			name    string
			control []byte
			want    []int
		}{
			{"none", nil, nil},
			{"three", block(unix.SCM_RIGHTS, 0, 7, 8, 9), []int{7, 8, 9}},
			{"two blocks", append(block(unix.SCM_RIGHTS, 0, 7), block(unix.SCM_RIGHTS, 0, 9)...), []int{7, 9}},
			{"after other data", append(block(unix.SCM_CREDENTIALS, 0, 1, 2, 3), block(unix.SCM_RIGHTS, 0, 7)...), []int{7}},
			{"an empty one", block(unix.SCM_RIGHTS, 0), nil},
			{"too long", block(unix.SCM_RIGHTS, 1000, 7), nil},
			{"too short", block(unix.SCM_RIGHTS, -8, 7), nil},
			{"of length 0", make([]byte, 64), nil},
		} {
			m, addr := memory(t, nil)
			const at = 256 // the ancillary data, behind two headers
			copy(m[at:], test.control)
			for i := range 2 {
				put(put(m[:i*l.next+l.control], addr+at), uint64(len(test.control)))
			}
			controls := l.controls(os.Getpid(), addr, 2)
			// A pointer of 32 bits can't have the address of this test's memory.
			want := control{l.get(put(nil, addr+at)), uint64(len(test.control))}
			if !slices.Equal(controls, []control{want, want}) {
				t.Fatalf("%s: %v, want %v twice", test.name, controls, want)
			}
			if got := l.rights(os.Getpid(), control{addr + at, want.n}); !slices.Equal(got, test.want) {
				t.Errorf("%s: %v, want %v", test.name, got, test.want)
			}
		}
		if c := l.controls(os.Getpid(), 16, 1); c != nil {
			t.Errorf("headers that can't be read: %v", c)
		}
		if fds := l.rights(os.Getpid(), control{16, 1 << 40}); fds != nil {
			t.Errorf("ancillary data that can't be read: %v", fds)
		}
	}
}

// TestReceivedMessages: of the messages that a recvmmsg may receive, only those received count. The headers
// of the others still have the contents of an earlier call.
func TestReceivedMessages(t *testing.T) {
	l := &wideMessage
	for _, test := range []struct {
		name string
		ret  int64
		left []int // descriptors that are still those of before
	}{{"recvmmsg", 1, []int{9}}, {"recvmmsg", 2, nil}, {"recvmsg", 1000, []int{9}}} {
		d, th := withFiles()
		th.TID, th.Proc.PID = os.Getpid(), os.Getpid()
		m, addr := memory(t, nil)
		for i, fd := range []int{7, 9} {
			d.NewFile(th.Proc, 1000+fd, tracee.File{Kind: tracee.FileCM})
			at := 256 + 64*i // the ancillary data
			b := binary.NativeEndian.AppendUint64(m[:i*l.next+l.control], addr+uint64(at))
			binary.NativeEndian.AppendUint64(b, 20)
			b = binary.NativeEndian.AppendUint64(m[:at], 20)
			b = binary.NativeEndian.AppendUint32(b, unix.SOL_SOCKET)
			b = binary.NativeEndian.AppendUint32(b, unix.SCM_RIGHTS)
			binary.NativeEndian.AppendUint32(b, uint32(1000+fd))
		}
		n := uint64(2)
		if test.name == "recvmsg" {
			n = 1
		}
		c := d.EnterReceive(th, test.name, 3, addr, n, true)
		returns(th, c, test.ret)
		var left []int
		for _, fd := range []int{7, 9} {
			if th.Proc.FDs[1000+fd] != nil {
				left = append(left, fd)
			}
		}
		if !slices.Equal(left, test.left) {
			t.Errorf("%s returns %d: %v are those of before, want %v", test.name, test.ret, left, test.left)
		}
	}
}
