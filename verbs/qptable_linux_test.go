package verbs

import (
	"fmt"
	"testing"
)

// TestQPByNum: a completion's number leads to its QP and to the caller's data, while the QP exists.
func TestQPByNum(t *testing.T) {
	type conn struct{ name string }
	d, k := fakeContext(t)
	x := makeFakes(t, d)
	numbers := []uint32{1, 0x11, 0x100, 0x1ff, 0x10000, 0x123456, 0xffffff}
	qps := make(map[uint32]*QP)
	conns := make(map[uint32]*conn)
	for _, num := range numbers {
		k.answerTo("create_qp", func(f *fakeCall) error { return k.usual(f, "create_qp", num) })
		conns[num] = &conn{fmt.Sprint(num)}
		qps[num] = must(x.pd.CreateQP(QPOptions{Type: UC, SendCQ: x.cq, RecvCQ: x.cq, Value: conns[num]}))(t)
	}
	k.answerTo("create_qp", nil)
	for _, num := range numbers {
		qp := d.QPByNum(num)
		if qp == nil || qp != qps[num] || qp.Num() != num || qp.Value().(*conn) != conns[num] {
			t.Errorf("QP %#x is %p, want %p", num, qp, qps[num])
		}
	}
	for _, num := range []uint32{0, 2, 0x101, 0x20000, 1 << 24, 1<<24 + 1, 1<<32 - 1} {
		if qp := d.QPByNum(num); qp != nil {
			t.Errorf("there is a QP %#x", num)
		}
	}
	num := numbers[5]
	if n := testing.AllocsPerRun(100, func() { d.QPByNum(num).Value() }); n != 0 {
		t.Errorf("a lookup allocates %v times", n)
	}
	if err := qps[num].Close(); err != nil {
		t.Fatal(err)
	}
	if qp := d.QPByNum(num); qp != nil || qps[num].Value() != conns[num] {
		t.Errorf("the closed QP: %v", qp)
	}
	// The kernel reuses a number before its former QP has left the table.
	next := new(QP)
	d.qps.enter(next, num)
	d.qps.leave(qps[num], num)
	if qp := d.QPByNum(num); qp != next {
		t.Error("another QP's number was dropped")
	}
	d.qps.leave(next, num)
	if x.cq.Value() != nil || (*QP)(nil).Value() != nil {
		t.Error("values of nobody")
	}
	cq := must(d.CreateCQ(CQOptions{MaxCQE: 1, Value: 5}))(t)
	if cq.Value() != 5 {
		t.Errorf("the CQ's value is %v", cq.Value())
	}
}

// TestQPByNewNum: a QP whose number changes, such as a DCT, is found by the new number only.
func TestQPByNewNum(t *testing.T) {
	d, _ := fakeContext(t)
	x := makeFakes(t, d)
	old := x.qp.Num()
	d.prov.(*fakeProvider).qps[0].num = 0x777
	if err := x.qp.Modify(QPAttr{State: QPReset}, QPAttrState); err != nil {
		t.Fatal(err)
	}
	if x.qp.Num() != 0x777 || d.QPByNum(0x777) != x.qp || d.QPByNum(old) != nil {
		t.Errorf("number %#x: by the new one %p, by the old one %p, want %p and none", x.qp.Num(), d.QPByNum(0x777), d.QPByNum(old), x.qp)
	}
	if err := x.qp.Close(); err != nil || d.QPByNum(0x777) != nil {
		t.Errorf("after Close: %v, %p", err, d.QPByNum(0x777))
	}
}

// TestQPByNumBesideChanges: lookups find the QP or none while QPs are added and removed.
func TestQPByNumBesideChanges(t *testing.T) {
	var c Device
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for num := range uint32(1000) {
				if qp := c.QPByNum(num); qp != nil && qp.value != num {
					t.Errorf("QP %d is %v", num, qp.value)
				}
			}
		}
	}()
	for range 4 {
		done := make(chan struct{})
		for part := range uint32(4) {
			go func() {
				for num := part; num < 1000; num += 4 {
					qp := &QP{value: num}
					c.qps.enter(qp, num)
					if got := c.QPByNum(num); num != 0 && got != qp {
						t.Errorf("QP %d is %v", num, got)
					}
					c.qps.leave(qp, num)
				}
				done <- struct{}{}
			}()
		}
		for range 4 {
			<-done
		}
	}
	close(stop)
	<-ended
}

func BenchmarkQPByNum(b *testing.B) {
	var c Device
	c.qps.enter(new(QP), 0x1234)
	for b.Loop() {
		if c.QPByNum(0x1234) == nil {
			b.Fatal("gone")
		}
	}
}
