package mlx5

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A call is a command in the kernel's form: struct ib_uverbs_ioctl_hdr, with the addresses
// of the attributes' values by their numbers.
type call struct {
	object, method uint16
	values         map[uint16]uint64
}

// fakeFile returns a device whose commands the function answers, and whose memory is a file.
func fakeFile(t *testing.T, answer func(c call) syscall.Errno) *ioctl.File {
	t.Helper()
	syscalltest.SkipUnderEmulator(t)
	fd, err := unix.MemfdCreate("mlx5", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, 64<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	probed := false
	f := ioctl.NewFile(kernel.Answering(fd, func(at uint64) syscall.Errno {
		if !probed {
			return unix.EPROTONOSUPPORT // it is an mlx5 device
		}
		head := read(t, at, 24)
		c := call{object: binary.NativeEndian.Uint16(head[2:]), method: binary.NativeEndian.Uint16(head[4:]), values: make(map[uint16]uint64)}
		for i := range uint64(binary.NativeEndian.Uint16(head[6:])) {
			attr := at + 24 + 16*i
			c.values[binary.NativeEndian.Uint16(read(t, attr, 2))] = attr + 8
		}
		return answer(c)
	}))
	t.Cleanup(func() { f.Close() })
	if ok, err := f.Probe(uapi.RDMA_DRIVER_MLX5); !ok || err != nil {
		t.Fatal(ok, err)
	}
	probed = true
	return f
}

func read(t *testing.T, at uint64, n int) []byte {
	b, err := syscalltest.Read(at, n)
	if err != nil {
		t.Error(err)
	}
	return b
}

// value returns an attribute's value: a number, or the address of longer data.
func (c call) value(t *testing.T, attr uint16) uint64 {
	return binary.NativeEndian.Uint64(read(t, c.values[attr], 8))
}

// put writes an attribute's value, and out writes the data that it points to.
func (c call) put(t *testing.T, attr uint16, value uint64) {
	if err := syscalltest.Write(c.values[attr], binary.NativeEndian.AppendUint64(nil, value)); err != nil {
		t.Error(err)
	}
}

func (c call) out(t *testing.T, attr uint16, fields ...any) {
	var b bytes.Buffer
	for _, f := range fields {
		binary.Write(&b, binary.NativeEndian, f)
	}
	if err := syscalltest.Write(c.value(t, attr), b.Bytes()); err != nil {
		t.Error(err)
	}
}

// TestDeviceExtra: each field of the driver's response is in its place. The bytes have the
// layout of struct mlx5_ib_query_device_resp.
func TestDeviceExtra(t *testing.T) {
	f := fakeFile(t, func(c call) syscall.Errno {
		c.out(t, uapi.UVERBS_ATTR_UHW_OUT,
			uint32(0), uint32(80), // comp_mask, response_length
			uint32(1), uint32(2), // tso_caps: max_tso, supported_qpts
			uint64(3), uint8(4), [7]byte{}, // rss_caps: fields, function
			uint32(5), uint32(6), // cqe_comp_caps: max_num, supported_format
			uint32(7), uint32(8), uint32(9), uint32(0), // packet_pacing_caps: min, max, supported_qpts
		)
		return 0
	})
	cmd := ioctl.NewWriteExQueryDevice()
	defer cmd.Release()
	if new(context).QueryDevice(cmd) != nil {
		t.Error("asked a driver that doesn't answer")
	}
	extra := (&context{queryExtra: true}).QueryDevice(cmd)
	if err := cmd.Run(f); err != nil {
		t.Fatal(err)
	}
	want := provider.DeviceExtra{
		MaxTSO: 1, TSOQPTs: 2, RSSFields: 3, RSSFunctions: 4, CompressedCQEs: 5, CQEFormats: 6,
		MinPacing: 7, MaxPacing: 8, PacingQPTs: 9,
	}
	if got := extra(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestPagesOfRegisters: a page is allocated when no register is left, first for registers
// of one QP each, then for shared ones, then no more. All pages are freed in the end.
func TestPagesOfRegisters(t *testing.T) {
	size := uint64(os.Getpagesize())
	var given, taken []uint32 // handles
	none := false             // no page is left
	f := fakeFile(t, func(c call) syscall.Errno {
		if c.object != uapi.MLX5_IB_OBJECT_UAR {
			t.Errorf("a command for object %#x", c.object)
		}
		switch c.method {
		case uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC:
			if none {
				return unix.ENOMEM
			}
			if kind := c.value(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE); kind != uint64(uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF) {
				t.Errorf("a page of kind %d", kind)
			}
			n := uint64(len(given))
			given = append(given, uint32(500+n))
			c.put(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 500+n)
			c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, (1+n)*size)
			c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, uint32(size))
			c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uint32(70+n))
		case uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY:
			taken = append(taken, uint32(c.value(t, uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)))
		default:
			t.Errorf("method %#x", c.method)
		}
		return 0
	})
	u := &uars{perPage: 1, registerSize: 512, maxDedicated: 4, maxCommon: 2}
	places := make(map[*register]int)
	for i := range 10 {
		r, err := u.take(f, false)
		if err != nil {
			t.Fatal(err)
		}
		if pages := min(i/2+1, 3); len(given) != pages {
			t.Errorf("%d pages for %d registers, want %d", len(given), i+1, pages)
		}
		if shares := i >= 4; (r.shared != nil) != shares || !r.dynamic || r.size != 256 {
			t.Errorf("register %d: %+v", i, r)
		}
		places[r]++
		// The registers of a page begin at 0x800. Stores to them reach the device.
		*(*uint32)(r.base) = uint32(i + 1)
		found := false
		for n := range uint64(2) {
			var b [4]byte
			unix.Pread(f.FD(), b[:], int64((1+uint64(r.page-70))*size+0x800+n*512))
			found = found || binary.NativeEndian.Uint32(b[:]) == uint32(i+1)
		}
		if !found {
			t.Errorf("register %d is not in page %d", i, r.page)
		}
	}
	if len(places) != 6 {
		t.Errorf("%d registers, want 6", len(places))
	}
	for r, n := range places {
		if want := map[bool]int{false: 1, true: 3}[r.shared != nil]; n != want || r.users != want {
			t.Errorf("a register of page %d was given %d times, has %d users; want %d", r.page, n, r.users, want)
		}
	}
	// A QP with SingleOwner shares its register with no other, however many QPs there are.
	for i := range 5 {
		r, err := u.take(f, true)
		if err != nil {
			t.Fatal(err)
		}
		if r.shared != nil || places[r] != 0 {
			t.Errorf("register %d for one owner: %+v, given %d times before", i, r, places[r])
		}
		places[r]++
	}
	none = true
	if r, err := u.take(f, true); err != nil || r.shared != nil || places[r] != 0 {
		t.Errorf("the last register of a page: %+v, %v", r, err)
	}
	if r, err := u.take(f, true); r != nil || !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "SingleOwner") {
		t.Errorf("without a page left: %v, %v", r, err)
	}
	if r, err := u.take(f, false); err != nil || r.shared == nil {
		t.Errorf("one to share: %+v, %v", r, err)
	}
	u.release(f)
	slices.Sort(taken)
	if !slices.Equal(given, taken) {
		t.Errorf("pages %v were given, %v went back", given, taken)
	}
}

// TestPagesOfSeveralUARs: if the system's pages are larger than the adapter's, each UAR of a page has
// its own number, and its registers are in its part.
func TestPagesOfSeveralUARs(t *testing.T) {
	const perPage = 4
	f := fakeFile(t, func(c call) syscall.Errno {
		c.put(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 500)
		c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, uint64(1<<20))
		c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, uint32(perPage*uarSize))
		c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uint32(70))
		return 0
	})
	for _, dedicated := range []int{0, 2 * perPage} {
		u := &uars{perPage: perPage, registerSize: 512, maxDedicated: dedicated, maxCommon: 2 * perPage}
		if err := u.more(f, false); err != nil {
			t.Fatal(err)
		}
		all := append(slices.Clone(u.free), u.common...)
		if len(all) != 2*perPage || len(u.free) != dedicated {
			t.Fatalf("%d registers of one QP each, %d common ones", len(u.free), len(u.common))
		}
		for i, r := range all {
			*(*uint32)(r.base) = uint32(i + 1)
			var b [4]byte
			unix.Pread(f.FD(), b[:], 1<<20+int64(i/2)*uarSize+0x800+int64(i%2)*512)
			if binary.NativeEndian.Uint32(b[:]) != uint32(i+1) || r.page != 70+uint32(i/2) || !r.dynamic {
				t.Errorf("register %d: UAR %d, memory % x", i, r.page, b)
			}
		}
		for _, p := range u.pages {
			ioctl.Munmap(p.mem)
		}
	}
}

// TestStaticRegisters: in the pages that the kernel allocated with the context, QPs may share
// each register. The first register takes only doorbells.
func TestStaticRegisters(t *testing.T) {
	u := &uars{}
	f := fakeFile(t, func(call) syscall.Errno { return syscall.EINVAL })
	if err := u.open(f, &uapi.Mlx5IbAllocUcontextResp{BfRegSize: 512, TotBfregs: 3 * usableRegisters}); err != nil {
		t.Fatal(err)
	}
	defer u.release(f)
	if len(u.pages) != 3 || len(u.static) != 3*registersPerUAR || u.cq != u.pages[0] {
		t.Errorf("%d pages, %d registers", len(u.pages), len(u.static))
	}
	users := make(map[*sharing]bool)
	for i, r := range u.static {
		if r.shared == nil || users[r.shared] || (r.size == 0) != (i == 0) {
			t.Errorf("register %d: %+v", i, r)
		}
		users[r.shared] = true
	}
}

// TestOddRegisters: if registers are too long for a UAR or too short, WQEs are not copied. The
// device still works.
func TestOddRegisters(t *testing.T) {
	for _, size := range []uint32{0, leastRegister / 2, 2 * maxRegister} {
		u := &uars{}
		f := fakeFile(t, func(call) syscall.Errno { return syscall.EINVAL })
		if err := u.open(f, &uapi.Mlx5IbAllocUcontextResp{BfRegSize: size, TotBfregs: 3 * usableRegisters}); err != nil {
			t.Errorf("registers of %d bytes: %v", size, err)
			continue
		}
		for i, r := range u.static {
			if r.size != 0 {
				t.Errorf("registers of %d bytes: %d bytes are copied to register %d", size, r.size, i)
			}
		}
		u.release(f)
	}
}

// TestNoDeviceMemory: memory of the adapter that can't be mapped is refused.
func TestNoDeviceMemory(t *testing.T) {
	f := fakeFile(t, func(call) syscall.Errno { return syscall.EINVAL })
	size := uint64(os.Getpagesize())
	for _, start := range []uint64{2, size - 4, 0} {
		if start == 0 {
			f.Close()
		}
		d := &dm{file: f, n: 8, start: &start, page: new(uint16)}
		if err := d.Adopt(); err == nil || d.pages != nil {
			t.Errorf("at %#x of its page: %v", start, err)
		}
	}
}

// TestNoPage: without a page there is no register, and all allocations are freed.
func TestNoPage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		errno  syscall.Errno
		length uint32
		offset uint64
		back   int
	}{
		{"refused", syscall.ENOMEM, 0, 0, 0},
		{"short", 0, uarSize - 1, 0, 1},
		{"not to be mapped", 0, uarSize, 1, 1}, // not at a page
	} {
		back := 0
		f := fakeFile(t, func(c call) syscall.Errno {
			if c.method == uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY {
				back++
				return 0
			}
			c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, tt.offset)
			c.out(t, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, tt.length)
			return tt.errno
		})
		u := &uars{perPage: 1, registerSize: 512, maxDedicated: 1, maxCommon: 1}
		if r, err := u.take(f, false); r != nil || err == nil {
			t.Errorf("%s: took %v, %v", tt.name, r, err)
		}
		if back != tt.back || len(u.pages) != 0 {
			t.Errorf("%s: %d pages went back, %d are kept", tt.name, back, len(u.pages))
		}
	}
}

// TestNullKey: an adapter has a null key if the driver reports one.
func TestNullKey(t *testing.T) {
	const key = 0x500
	for mask, want := range map[uapi.Mlx5IbAllocUcontextRespMask]uint32{
		0: 0, uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY: key,
	} {
		f := fakeFile(t, func(c call) syscall.Errno { return unix.ENOMEM })
		cmd := ioctl.NewGetContext()
		p, err := newContext(f, cmd)
		if err != nil {
			t.Fatal(err)
		}
		c := p.(*context)
		*c.resp = uapi.Mlx5IbAllocUcontextResp{
			ResponseLength: minResponse, CqeVersion: 1, BfRegSize: 512, LogUarSize: 12, NumUarsPerPage: 1,
			MaxSqDescSz: 1024, MaxRqDescSz: 512, MaxSendWqebb: 1 << 15, CompMask: uint32(mask), DumpFillMkey: key,
		}
		_ = c.Adopt() // fails later, for want of a register
		if got, ok := c.NullKey(); got != want || ok != (want != 0) {
			t.Errorf("mask %#x: %#x, %v", uint32(mask), got, ok)
		}
		cmd.Release()
	}
}

// TestContextAnswers: each bit of the kernel's response turns on its feature, and no other.
func TestContextAnswers(t *testing.T) {
	type answers struct{ ece, ahInKernel, queryExtra, wall bool }
	usual := uapi.Mlx5IbAllocUcontextResp{
		ResponseLength: minResponse, CqeVersion: 1, BfRegSize: 512, LogUarSize: 12, NumUarsPerPage: 1,
		MaxSqDescSz: 1024, MaxRqDescSz: 512, MaxSendWqebb: 1 << 15,
	}
	for _, tt := range []struct {
		set  func(*uapi.Mlx5IbAllocUcontextResp)
		want answers
	}{
		{func(*uapi.Mlx5IbAllocUcontextResp) {}, answers{}},
		{func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.CompMask = uint32(uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE)
		}, answers{ece: true}},
		{func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.CmdsSuppUhw = uint8(uapi.MLX5_USER_CMDS_SUPP_UHW_CREATE_AH)
		}, answers{ahInKernel: true}},
		{func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.CmdsSuppUhw = uint8(uapi.MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE)
		}, answers{queryExtra: true}},
		{func(r *uapi.Mlx5IbAllocUcontextResp) { r.ClockInfoVersions = 1 << uapi.MLX5_IB_CLOCK_INFO_V1 }, answers{wall: true}},
	} {
		cmd := ioctl.NewGetContext()
		p, err := newContext(fakeFile(t, func(call) syscall.Errno { return unix.ENOMEM }), cmd)
		if err != nil {
			t.Fatal(err)
		}
		c := p.(*context)
		*c.resp = usual
		tt.set(c.resp)
		_ = c.Adopt() // fails later, for want of a register
		if got := (answers{c.ece, c.ahInKernel, c.queryExtra, c.wall.offered}); got != tt.want {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
		cmd.Release()
	}
}

// TestClockPlace: the counter is in one page, aligned to its words.
func TestClockPlace(t *testing.T) {
	size := uint64(os.Getpagesize())
	f := fakeFile(t, func(call) syscall.Errno { return unix.ENOMEM })
	for offset, want := range map[uint64]bool{0: true, 4: true, size - 8: true, size + 16: true, 2: false, size - 4: false, size - 2: false} {
		var x context
		x.clock.open(f, offset)
		if _, got := x.Clock(); got != want {
			t.Errorf("at %d: there is a clock: %t, want %t", offset, got, want)
		}
		if x.clock.mem != nil {
			unix.Munmap(x.clock.mem)
		}
	}
}

// TestCQRequest: the driver's request for a CQ, with the page for its doorbells if the kernel
// allocates such pages: in a field if it fits, else as an attribute. The fields are those of struct
// mlx5_ib_create_cq.
func TestCQRequest(t *testing.T) {
	for _, tt := range []struct {
		page  uint32
		flags uint16
		field uint16
		attr  bool
		real  bool // timestamps of the real time
		size  uint32
		pad   bool
	}{
		{0, 0, 0, false, false, 64, false},
		{0, uint16(uapi.MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS), 0, false, true, 64, false},
		{0xffff, uint16(uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX), 0xffff, false, false, 64, false},
		{0x10000, 0, 0, true, false, 64, false},
		{0, 0, 0, false, false, 128, false},
		{0, uint16(uapi.MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD), 0, false, false, 128, true},
	} {
		r := newRig(t, cqeVersion1)
		init := provider.CQInit{CQE: 10, CQESize: tt.size, Extra: driverapi.MLX5CQOptions{Pad: tt.pad}}
		if r.realTime = tt.real; tt.real {
			init.Fields = provider.FieldWallClock
		}
		r.uars.cqObject, r.uars.cqPage = tt.page != 0, tt.page
		var got uapi.Mlx5IbCreateCq
		var attr uint64
		f := fakeFile(t, func(c call) syscall.Errno {
			b := read(t, c.value(t, uapi.UVERBS_ATTR_UHW_IN), binary.Size(&got))
			if _, err := binary.Decode(b, binary.NativeEndian, &got); err != nil {
				t.Error(err)
			}
			if _, ok := c.values[uapi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX]; ok {
				attr = c.value(t, uapi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX)
			}
			return 0
		})
		cmd := ioctl.NewCqCreate()
		cmd.Handle()
		cmd.Cqe(10)
		cmd.UserHandle(1)
		cmd.CompVector(0)
		cmd.RespCqe()
		p, err := r.NewCQ(cmd, &init)
		if err == nil {
			err = cmd.Run(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd.Release()
		q := p.(*cq)
		want := uapi.Mlx5IbCreateCq{BufAddr: q.buf.addr(), DbAddr: q.record.addr(), CqeSize: tt.size, Flags: tt.flags, UarPageIndex: tt.field}
		if got != want || (attr == uint64(tt.page)) != (tt.attr || tt.page == 0) {
			t.Errorf("page %#x: %+v and the attribute %#x, want %+v", tt.page, got, attr, want)
		}
		free := len(r.records.free)
		q.Release()
		if now := len(r.records.free); now != free+1 {
			t.Errorf("%d doorbell records are free, before %d", now, free)
		}
	}
}

// TestQPFlags: the driver's request has the flags of a QP's options.
func TestQPFlags(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*provider.QPInit)
		flag uint32
	}{
		{"none", func(*provider.QPInit) {}, 0},
		{"scatter to CQE", func(o *provider.QPInit) { o.Scatter = func(uint32, uint64, []byte) bool { return true } }, uapi.MLX5_QP_FLAG_SCATTER_CQE},
		{"signatures", func(o *provider.QPInit) { o.Sign = true }, uapi.MLX5_QP_FLAG_SIGNATURE},
		{"credits for packets", func(o *provider.QPInit) { o.Extra = driverapi.MLX5QPOptions{Credits: true} }, uapi.MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got uapi.Mlx5IbCreateQp
			f := fakeFile(t, func(c call) syscall.Errno {
				b := read(t, c.value(t, uapi.UVERBS_ATTR_UHW_IN), binary.Size(&got))
				if _, err := binary.Decode(b, binary.NativeEndian, &got); err != nil {
					t.Error(err)
				}
				return 0
			})
			init := provider.QPInit{Type: uapi.IB_UVERBS_QPT_RC, Cap: capOf(1, 1, 0)}
			tt.set(&init)
			cmd := ioctl.NewQpCreate()
			defer cmd.Release()
			cmd.Handle()
			cmd.PdHandle(1)
			cmd.UserHandle(1)
			cmd.Type(init.Type)
			cmd.Cap(init.Cap)
			cmd.RespCap()
			cmd.RespQpNum()
			p, err := newRig(t, cqeVersion1).NewQP(cmd, &init)
			if err == nil {
				err = cmd.Run(f)
			}
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			const all = uapi.MLX5_QP_FLAG_SCATTER_CQE | uapi.MLX5_QP_FLAG_SIGNATURE | uapi.MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE
			if got.Flags&all != tt.flag {
				t.Errorf("flags %#x, want %#x of %#x", got.Flags, tt.flag, all)
			}
		})
	}
}

// TestDisorderTold: each move to INIT requests receives in any order. Other moves don't.
func TestDisorderTold(t *testing.T) {
	r := newRig(t, 1)
	var given uapi.Mlx5IbModifyQp
	f := fakeFile(t, func(c call) syscall.Errno {
		if _, err := binary.Decode(read(t, c.value(t, uapi.UVERBS_ATTR_UHW_IN), binary.Size(&given)), binary.NativeEndian, &given); err != nil {
			t.Error(err)
		}
		return 0
	})
	target := provider.QPInit{
		Type: uapi.IB_UVERBS_QPT_DRIVER, Driver: provider.DCTarget, SRQ: r.newSRQ(t, provider.SRQInit{MaxWR: 1, MaxSGE: 1}),
		Extra: driverapi.MLX5QPOptions{OutOfOrder: true},
	}
	for _, init := range []provider.QPInit{outOfOrder(r.newCQ(t, provider.CQInit{CQE: 7}), 4, 1), target} {
		cmd := ioctl.NewQpCreate()
		defer cmd.Release()
		p, err := r.NewQP(cmd, &init)
		if err != nil {
			t.Fatal(err)
		}
		q := p.(*qp)
		t.Cleanup(q.Release)
		if err := q.Adopt(1, 5, &init.Cap); err != nil {
			t.Fatal(err)
		}
		for _, to := range []uapi.IbQpState{uapi.IB_QPS_INIT, uapi.IB_QPS_RTR, uapi.IB_QPS_RTS, uapi.IB_QPS_RESET, uapi.IB_QPS_INIT} {
			cmd, ok := q.Modify()
			if !ok {
				t.Fatalf("to %v: without the driver's part", to)
			}
			want := uint32(0)
			if to == uapi.IB_QPS_INIT {
				want = uint32(uapi.MLX5_IB_MODIFY_QP_OOO_DP)
			}
			if err := cmd.Run(f); err != nil || given.CompMask != want {
				t.Errorf("to %v: %#x, want %#x: %v", to, given.CompMask, want, err)
			}
			cmd.Release()
			q.Moved(to)
		}
	}
}

// TestDM: memory of the adapter is mapped at the kernel's offset, and its words are in
// order. Memory that doesn't fit the kernel's pages is refused.
func TestDM(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, tt := range []struct {
		n     int
		start uint64
		ok    bool
	}{
		{int(page), 0, true}, {64, page - 64, true}, {5, page - 8, true}, {int(page) + 64, page - 64, true},
		{64, page - 60, false}, {64, 2, false}, {int(page), 4, false}, {5, page - 4, false},
	} {
		f := fakeFile(t, func(c call) syscall.Errno {
			c.out(t, uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, 0x7000000+tt.start)
			c.out(t, uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, uint16(7))
			return 0
		})
		cmd := ioctl.NewDmAlloc()
		cmd.Handle()
		cmd.Length(uint64(tt.n))
		cmd.Alignment(0)
		p, err := (&context{file: f}).NewDM(cmd, tt.n)
		if err == nil {
			err = cmd.Run(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = p.Adopt()
		cmd.Release()
		if (err == nil) != tt.ok {
			t.Errorf("%d bytes at %#x: %v", tt.n, tt.start, err)
		}
		if err != nil {
			continue
		}
		d := p.(*dm)
		at, start := d.Mapping()
		if want := mmapOffset(uapi.MLX5_IB_MMAP_DEVICE_MEM, 7); at != want || start != tt.start {
			t.Errorf("%d bytes at %#x: they begin at %#x of what is mapped from %#x, want %#x", tt.n, tt.start, start, at, want)
		}
		n := tt.n &^ 3
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * 3)
		}
		d.Store(0, data)
		d.Store(n-4, []byte{1, 2, 3, 4})
		copy(data[n-4:], []byte{1, 2, 3, 4})
		got := make([]byte, n)
		d.Load(got, 0)
		if !bytes.Equal(got, data) || !bytes.Equal(d.pages[start:start+uint64(n)], data) {
			t.Errorf("%d bytes at %#x: they changed", tt.n, tt.start)
		}
		if d.Load(got[:4], n-4); !bytes.Equal(got[:4], data[n-4:]) {
			t.Errorf("%d bytes at %#x: the last are % x", tt.n, tt.start, got[:4])
		}
		d.Release()
	}
}
