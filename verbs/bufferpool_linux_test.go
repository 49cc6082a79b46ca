package verbs

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func pool(t *testing.T, o BufferPoolOptions) *BufferPool {
	t.Helper()
	d, _ := fakeContext(t)
	return must(must(d.AllocPD())(t).NewBufferPool(o))(t)
}

// TestBufferPool: buffers have the requested length, don't overlap, lie at their SGEs'
// addresses, and are reused.
func TestBufferPool(t *testing.T) {
	p := pool(t, BufferPoolOptions{Access: AccessLocalWrite | AccessRemoteRead})
	cq := must(p.pd.dev.CreateCQ(CQOptions{MaxCQE: 4}))(t)
	qp := must(p.pd.CreateQP(QPOptions{Type: RC, SendCQ: cq, RecvCQ: cq}))(t)
	seen := make(map[*byte]bool)
	var held []*Buffer
	for range 3 {
		for _, n := range []int{1, 100, 256, 257, 4096, 5000, 1 << 20, 3 << 20} {
			for range 5 {
				b := must(p.Get(n))(t)
				mem := b.Bytes()
				if b.Len() != n || len(mem) != n || cap(mem) < n {
					t.Fatalf("asked for %d bytes, got %d of %d", n, len(mem), cap(mem))
				}
				if seen[&mem[0]] {
					t.Fatalf("two buffers of %d bytes begin at the same address", n)
				}
				seen[&mem[0]] = true
				at := uint64(uintptr(unsafe.Pointer(&mem[0])))
				if s := b.SGE(); s != (SGE{at, uint32(n), b.mr.LKey()}) {
					t.Errorf("the SGE is %+v, the memory at %#x", s, at)
				}
				if r := b.Remote(); r != (Remote{at, b.mr.RKey()}) {
					t.Errorf("Remote returns %v, the memory is at %#x", r, at)
				}
				if x := p.Completed(b.WRID()); x != b {
					t.Errorf("the buffer of ID %d is another one", b.WRID())
				}
				for i := range mem[:cap(mem)] {
					mem[:cap(mem)][i] = byte(len(held))
				}
				held = append(held, b)
			}
		}
		for i, b := range held {
			for _, x := range b.Bytes() {
				if x != byte(i) {
					t.Fatalf("buffer %d of %d bytes shares memory", i, b.Len())
				}
			}
		}
		slabs := len(p.slabs)
		if err := p.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing with buffers in use: %v", err)
		}
		for _, b := range held {
			b.Release()
			if p.Completed(b.WRID()) != nil {
				t.Error("a free buffer is in use")
			}
		}
		held = nil
		clear(seen)
		if slabs > 30 || len(p.slabs) != slabs {
			t.Errorf("%d registrations", slabs)
		}
	}
	// Without a QP, no request is in flight.
	kept := must(p.Get(1))(t)
	if err := p.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("closing beside a QP, with a buffer in use: %v", err)
	}
	if err := errors.Join(qp.Close(), p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	kept.Release()
	if _, err := p.Get(1); !errors.Is(err, ErrClosed) {
		t.Errorf("a buffer of a closed pool: %v", err)
	}
	if p.Completed(0) != nil {
		t.Error("a closed pool has buffers")
	}
}

// TestBufferPoolReferences: a buffer is free only when it has no reference.
func TestBufferPoolReferences(t *testing.T) {
	p := pool(t, BufferPoolOptions{})
	b := must(p.Get(300))(t)
	b.Retain()
	b.Release()
	other := must(p.Get(300))(t)
	if other == b {
		t.Error("a buffer that is in use was handed out")
	}
	b.Release()
	if again := must(p.Get(300))(t); again != b {
		t.Error("the free buffer was not handed out")
	}
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("released twice")
		}
	}()
	b.Release()
}

// TestBufferPoolBounds: the pool registers no more than its limit, and refuses invalid arguments.
func TestBufferPoolBounds(t *testing.T) {
	p := pool(t, BufferPoolOptions{MaxBytes: 10000, SlabBytes: 8192})
	for range 2 {
		must(p.Get(4096))(t)
	}
	for range 7 { // of the 1808 bytes left
		must(p.Get(256))(t)
	}
	if _, err := p.Get(256); !errors.Is(err, ErrPoolExhausted) {
		t.Errorf("beyond the bound: %v", err)
	}
	for _, n := range []int{-1, 0, 1<<30 + 1} {
		if _, err := p.Get(n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, o := range []BufferPoolOptions{{SlabBytes: 2048}, {SlabBytes: 5000}, {SlabBytes: -4096}, {MaxBytes: -1}, {Access: AccessRemoteWrite}} {
		if _, err := p.pd.NewBufferPool(o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	bad := errors.New("no memory")
	if _, err := must(p.pd.NewBufferPool(BufferPoolOptions{Register: func(int) (*MR, error) { return nil, bad }}))(t).Get(1); !errors.Is(err, bad) {
		t.Errorf("Register fails with %v, Get with %v", bad, err)
	}
	small := must(p.pd.NewBufferPool(BufferPoolOptions{Register: func(int) (*MR, error) { return p.pd.AllocMR(4096, MROptions{}) }}))(t)
	held := p.pd.holds.Load()
	if _, err := small.Get(1); !errors.Is(err, ErrInvalid) || p.pd.holds.Load() != held {
		t.Errorf("Register returns too little, Get %v; the PD is held %d times, before %d", err, p.pd.holds.Load(), held)
	}
	if err := small.Close(); err != nil {
		t.Error(err)
	}
}

// TestBufferPoolShared: goroutines that share a pool never share a buffer.
func TestBufferPoolShared(t *testing.T) {
	p := pool(t, BufferPoolOptions{SlabBytes: 4096})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			var held []*Buffer
			for range 3000 {
				if len(held) > 0 && r.IntN(2) == 0 {
					i := r.IntN(len(held))
					b := held[i]
					for _, x := range b.Bytes() {
						if x != byte(g) {
							t.Errorf("goroutine %d finds %d in its buffer", g, x)
							return
						}
					}
					if p.Completed(b.WRID()) != b {
						t.Error("a buffer has another's ID")
					}
					b.Release()
					held[i] = held[len(held)-1]
					held = held[:len(held)-1]
					continue
				}
				b, err := p.Get(1 + r.IntN(1000))
				if err != nil {
					t.Error(err)
					return
				}
				for i := range b.Bytes() {
					b.Bytes()[i] = byte(g)
				}
				held = append(held, b)
			}
			for _, b := range held {
				b.Release()
			}
		})
	}
	group.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestBufferPoolAllocatesNothing(t *testing.T) {
	p := pool(t, BufferPoolOptions{})
	must(p.Get(4096))(t).Release()
	if n := testing.AllocsPerRun(100, func() {
		b, _ := p.Get(4096)
		if p.Completed(b.WRID()) != b || b.SGE().Length != 4096 {
			t.Fatal("another buffer")
		}
		b.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBufferPool(b *testing.B) {
	p := &BufferPool{o: BufferPoolOptions{SlabBytes: 2 << 20, Register: func(n int) (*MR, error) {
		return &MR{buf: make([]byte, n), length: uint64(n)}, nil
	}}}
	p.buffers.Store(new([]*Buffer))
	b.ReportAllocs()
	for b.Loop() {
		x, _ := p.Get(4096)
		x.Release()
	}
}

// TestBufferPoolRefused: memory that the kernel refuses to deregister is deregistered by the
// next Close.
func TestBufferPoolRefused(t *testing.T) {
	d, k := fakeContext(t)
	p := must(must(d.AllocPD())(t).NewBufferPool(BufferPoolOptions{}))(t)
	must(p.Get(100))(t).Release()
	k.answerTo("dereg_mr", refuse(unix.ENOMEM))
	if err := p.Close(); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("the kernel refuses: %v", err)
	}
	k.answerTo("dereg_mr", nil)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.pd.Close(); err != nil {
		t.Errorf("the memory is still registered: %v", err)
	}
}
