//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/internal/impair"
)

func parsed(t *testing.T, text string) impair.Impairments {
	t.Helper()
	what, err := impair.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return what
}

// TestFate: as many frames as asked for suffer each fate, and a seed repeats it.
func TestFate(t *testing.T) {
	const frames = 100_000
	run := func(text string) (log string, lost, twice, late, damaged float64) {
		what := parsed(t, text)
		f := fate{what: what, rand: rand.New(rand.NewPCG(what.Seed, 0))}
		for i := range frames {
			data := make([]byte, 100)
			times, after := f.of(data, 0)
			if i < 1000 {
				log += fmt.Sprint(times, after, data)
			}
			hurt := slices.Max(data) > 0
			if !bytes.Equal(data[:42], make([]byte, 42)) {
				t.Fatal("the headers are damaged")
			}
			switch {
			case times == 0:
				lost++
			case times == 2:
				twice++
			}
			if after >= reorderDelay {
				late++
			}
			if hurt {
				damaged++
			}
		}
		return log, lost / frames, twice / frames, late / frames, damaged / frames
	}
	const text = "loss=1%,duplicate=4%,reorder=5%,corrupt=2%,seed=7"
	log, lost, twice, late, damaged := run(text)
	for _, c := range []struct {
		what      string
		got, want float64
	}{{"lost", lost, 0.01}, {"delivered twice", twice, 0.04}, {"late", late, 0.05}, {"damaged", damaged, 0.02}} {
		if c.got < c.want*0.9 || c.got > c.want*1.1 {
			t.Errorf("%.2f %% of the frames were %s, want %.0f %%", c.got*100, c.what, c.want*100)
		}
	}
	if again, _, _, _, _ := run(text); again != log {
		t.Error("the same seed gives another sequence")
	}
	if other, _, _, _, _ := run("loss=1%,duplicate=4%,reorder=5%,corrupt=2%,seed=8"); other == log {
		t.Error("another seed gives the same sequence")
	}
}

func TestFlap(t *testing.T) {
	f := fate{what: parsed(t, "flap=10s"), rand: rand.New(rand.NewPCG(1, 1))}
	for at, want := range map[time.Duration]int{0: 1, 8 * time.Second: 1, 9500 * time.Millisecond: 0, 10 * time.Second: 1, 19500 * time.Millisecond: 0} {
		if times, _ := f.of(make([]byte, 60), at); times != want {
			t.Errorf("after %v, a frame arrives %d times, want %d", at, times, want)
		}
	}
}

// TestJoin sends frames between two sockets, over a wire that delays them: all arrive, in order.
func TestJoin(t *testing.T) {
	dir := t.TempDir()
	name := func(s string, i int) string { return filepath.Join(dir, fmt.Sprint(s, i)) }
	var guests [2]*net.UnixConn
	for i := range guests {
		var err error
		if guests[i], err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name("guest", i)}); err != nil {
			t.Fatal(err)
		}
		defer guests[i].Close()
	}
	failed := make(chan error, 1)
	go func() {
		failed <- join(parsed(t, "delay=5ms"), []string{name("wire", 0), name("guest", 0)}, []string{name("wire", 1), name("guest", 1)})
	}()
	const frames = 50
	for i := range guests {
		go func() {
			for n := range frames {
				for {
					_, err := guests[i].WriteToUnix([]byte{byte(n)}, &net.UnixAddr{Net: "unixgram", Name: name("wire", i)})
					if err == nil {
						break // the wire is there
					}
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	for i := range guests {
		for n := range frames {
			var b [10]byte
			if got, _, err := guests[i].ReadFromUnix(b[:]); err != nil || got != 1 || int(b[0]) != n {
				t.Fatalf("guest %d: %v, %v, want frame %d", i, b[:got], err, n)
			}
		}
	}
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}
