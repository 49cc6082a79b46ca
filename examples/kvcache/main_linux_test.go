package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// TestBlocks: blocks come back as they were put, the oldest ones are evicted, and a writer can't change what it has
// put.
func TestBlocks(t *testing.T) {
	verbstest.New(t)
	ctx := t.Context()
	n := must(newNode(ctx, "127.0.0.1:0"))
	a, b := must(newWorker(ctx, n.addr)), must(newWorker(ctx, n.addr))
	for i := range places + 3 {
		check(a.put(ctx, fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, 1000+i)))
		if got := must(b.get(ctx, fmt.Sprint(i))); !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, 1000+i)) {
			t.Errorf("block %d has %d bytes", i, len(got))
		}
	}
	for i := range places + 3 {
		if _, err := b.get(ctx, fmt.Sprint(i)); errors.Is(err, errMiss) != (i < 3) || err != nil && i >= 3 {
			t.Errorf("block %d: %v", i, err)
		}
	}
	if err := a.put(ctx, "5", make([]byte, 10)); err == nil {
		t.Error("a block was put twice")
	}
	if err := a.put(ctx, "large", make([]byte, blockBytes+1)); err == nil {
		t.Error("a block is too large")
	}
	check(a.close())
	check(b.close())
	check(n.close())
}
