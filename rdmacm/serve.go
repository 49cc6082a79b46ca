package rdmacm

import (
	"context"
	"sync"
)

// Serve accepts connections and calls handle for each in a goroutine of its own, until ctx or the Listener
// ends. The context of handle ends then, too. When handle returns, Serve closes its
// connection. When all calls of handle have returned, Serve returns the error of Accept.
func (l *Listener) Serve(ctx context.Context, handle func(context.Context, *Conn)) error {
	if ctx == nil {
		return &OpError{Op: "accept", Err: errNoContext}
	}
	ctx, cancel := context.WithCancel(ctx)
	var handles sync.WaitGroup
	defer handles.Wait()
	defer cancel()
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		handles.Go(func() {
			defer c.Close()
			handle(ctx, c)
		})
	}
}
