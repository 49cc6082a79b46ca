package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

var (
	handlers    atomic.Int32 // contexts of Interruptible that are in use, or have seen a signal
	interrupted atomic.Bool  // catch has seen a signal
	cutShort    atomic.Bool  // a context has
)

// ending returns the signals that end a command. A script's shell may have the commands in its background ignore
// SIGINT, and nohup SIGHUP.
func ending() (all []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// Interruptible returns a context that ends when the user interrupts the command. The command then has to
// end by itself: only a second signal ends it.
func Interruptible() (context.Context, context.CancelFunc) {
	handlers.Add(1)
	ctx, stop := signal.NotifyContext(context.Background(), ending()...)
	return ctx, sync.OnceFunc(func() {
		if ctx.Err() != nil { // catch may not have seen the signal yet
			cutShort.Store(true)
		} else {
			handlers.Add(-1)
		}
		stop()
	})
}

// catch has a signal end the program with a sentence. To the program's parent it has ended by the signal, so
// that a shell's loop ends, too.
func catch() (release func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, ending()...)
	errorf := Reporter()
	go func() {
		for s := range signals {
			if !interrupted.Swap(true) && handlers.Load() > 0 {
				continue
			}
			errorf("interrupted")
			signal.Reset(s)
			if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(s) != nil {
				os.Exit(Failed)
			}
			return
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
