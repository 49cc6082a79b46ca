package xfer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/goverbs/goverbs/verbstest"
	"github.com/goverbs/goverbs/xfer"
)

// A cache node keeps blocks in one piece of memory, and hands out the right to read them. A client
// asks for a block's place over HTTP, and reads the block itself.
func Example_cacheNode() {
	defer twoMachines()()
	ctx := context.Background()
	const blockSize = 64 << 10

	// The node.
	node := must(xfer.Open(xfer.Options{Devices: []string{"vt0", "vt1"}}))
	defer node.Close()
	blocks := must(node.Alloc(16 * blockSize))
	copy(blocks.Bytes()[3*blockSize:], "the fourth block")
	grant := must(blocks.All().Grant(xfer.GrantOptions{Access: xfer.Read}))
	listener := must(node.Listen(ctx, "127.0.0.1:0"))
	directory := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		fmt.Sscanf(r.URL.Path, "/block/%d", &n)
		json.NewEncoder(w).Encode(grant.Remote().Slice(n*blockSize, blockSize))
	}))
	defer directory.Close()

	// A client.
	client := must(xfer.Open(xfer.Options{Devices: []string{"vt2", "vt3"}}))
	defer client.Close()
	peer := must(client.Dial(ctx, listener.Addr().String()))
	var remote xfer.Remote
	check(json.NewDecoder(must(http.Get(directory.URL + "/block/3")).Body).Decode(&remote))
	mine := must(client.Alloc(blockSize))
	check(peer.Read(ctx, mine.All(), remote))
	fmt.Printf("%s\n", mine.Bytes()[:16])

	// The node takes the memory back.
	check(grant.Revoke(ctx))
	fmt.Println(peer.Read(ctx, mine.All(), remote) != nil)
	// Output:
	// the fourth block
	// true
}

// A file is sent through windows of the receiver's memory, each of which is filled again once it
// has been written to the disk. With windows of 64 MiB, a file of 10 GiB needs no more memory than
// a small one.
func Example_sendFile() {
	defer twoMachines()()
	ctx := context.Background()
	const window, windows = 64 << 10, 4
	dir := must(os.MkdirTemp("", "xfer"))
	defer os.RemoveAll(dir)
	original, received := filepath.Join(dir, "original"), filepath.Join(dir, "copy")
	data := make([]byte, 10*window+1234)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	check(os.WriteFile(original, data, 0o666))

	// The receiver. A notification has the window's number, and the number of bytes in it.
	receiver := must(xfer.Open(xfer.Options{Devices: []string{"vt0", "vt1"}}))
	defer receiver.Close()
	memory := must(receiver.Alloc(windows * window))
	grant := must(memory.All().Grant(xfer.GrantOptions{Access: xfer.Write}))
	listener := must(receiver.Listen(ctx, "127.0.0.1:0"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		file := must(os.Create(received))
		defer file.Close()
		var again xfer.Batch
		for {
			n := must(receiver.Notified(ctx))
			number, length := n.Tag>>32, n.Tag&(1<<32-1)
			must(file.Write(memory.Bytes()[number*window:][:length]))
			again.Reset()
			again.Notify(number) // it may be filled again
			check(n.Peer.Do(ctx, &again))
			if length < window {
				return
			}
		}
	}()

	// The sender.
	sender := must(xfer.Open(xfer.Options{Devices: []string{"vt2", "vt3"}}))
	defer sender.Close()
	peer := must(sender.Dial(ctx, listener.Addr().String()))
	file := must(os.Open(original))
	defer file.Close()
	staging := must(sender.Alloc(windows * window))
	var batches [windows]xfer.Batch
	for i := uint64(0); ; i++ {
		number := i % windows
		if i >= windows {
			must(sender.Notified(ctx)) // windows come back in their order
		}
		piece := staging.Slice(int(number*window), window)
		length, err := io.ReadFull(file, piece.Bytes())
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			log.Fatal(err)
		}
		b := &batches[number]
		b.Reset()
		if length > 0 {
			b.Write(grant.Remote().Slice(int(number*window), length), piece.Slice(0, length))
		}
		b.Notify(number<<32 | uint64(length))
		check(peer.Do(ctx, b))
		if length < window {
			break
		}
	}
	<-done
	fmt.Println(crc32.ChecksumIEEE(must(os.ReadFile(received))) == crc32.ChecksumIEEE(data))
	// Output: true
}

// Many senders write into one receiver's memory, each to a place of its own, and say so.
func Example_gather() {
	defer twoMachines()()
	ctx := context.Background()
	const senders, size = 5, 100_000

	collector := must(xfer.Open(xfer.Options{Devices: []string{"vt0", "vt1"}}))
	defer collector.Close()
	memory := must(collector.Alloc(senders * size))
	listener := must(collector.Listen(ctx, "127.0.0.1:0"))
	for i := range senders {
		place := must(memory.Slice(i*size, size).Grant(xfer.GrantOptions{Access: xfer.Write}))
		go send(ctx, listener.Addr().String(), place.Remote(), uint64(i))
	}
	sum := 0
	for range senders {
		n := must(collector.Notified(ctx))
		for _, b := range memory.Slice(int(n.Tag)*size, size).Bytes() {
			sum += int(b)
		}
	}
	fmt.Println(sum)
	// Output: 1500000
}

// send writes the number i+1 to each byte of a place.
func send(ctx context.Context, collector string, place xfer.Remote, i uint64) {
	e := must(xfer.Open(xfer.Options{Devices: []string{"vt2", "vt3"}}))
	peer := must(e.Dial(ctx, collector))
	mine := must(e.Alloc(place.Len()))
	for j := range mine.Bytes() {
		mine.Bytes()[j] = byte(i + 1)
	}
	var b xfer.Batch
	b.Write(place, mine.All())
	b.Notify(i)
	check(peer.Do(ctx, &b))
	check(e.Close())
}

// twoMachines makes devices in this process: vt0 and vt1 for one machine, vt2 and vt3 for another.
func twoMachines() (end func()) {
	var addrs []netip.Addr
	for i := range byte(4) {
		addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, 1 + i}))
	}
	n := must(verbstest.Open(addrs...))
	return func() { check(n.Close()) }
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
