// Kvcache is a node that keeps blocks of a language model's KV cache in memory, and its workers, which
// put blocks there and get them, over all links between the machines. The node's program only says where
// blocks are, over HTTP. Their bytes go directly from memory to memory.
//
//	kvcache -listen 10.0.0.1:7480                  is a node, until it is interrupted
//	kvcache -connect 10.0.0.1:7480 put KEY FILE    puts a block that has the file's contents
//	kvcache -connect 10.0.0.1:7480 get KEY         prints a block
//	kvcache                                        a node with 8 workers in one process
//
// Without arguments, it prints
//
//	8 workers have put 32 blocks
//	16 were got, and 16 had been evicted
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/xfer"
)

var (
	devices = flag.String("device", "", "the RDMA devices, separated by commas; by default, all")
	listen  = flag.String("listen", "", "be a node at this address")
	connect = flag.String("connect", "", "use the node at this address")
)

const (
	blockBytes = 64 << 10
	places     = 16               // for blocks
	hurry      = 10 * time.Second // in which a worker writes its block
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case *listen != "":
		n := must(newNode(ctx, *listen))
		<-ctx.Done()
		check(n.close())
	case *connect != "":
		w := must(newWorker(ctx, *connect))
		defer w.close()
		if flag.Arg(0) == "put" {
			check(w.put(ctx, flag.Arg(1), must(os.ReadFile(flag.Arg(2)))))
		} else {
			os.Stdout.Write(must(w.get(ctx, flag.Arg(1))))
		}
	default:
		demo(ctx)
	}
}

// demo has workers put more blocks than the node has places. Then each gets the blocks of another.
func demo(ctx context.Context) {
	const workers, each = 8, 4
	n := must(newNode(ctx, "127.0.0.1:0"))
	content := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%06d, ", i)), blockBytes/8) }
	all := make([]*worker, workers)
	for i := range all {
		all[i] = must(newWorker(ctx, n.addr))
	}
	var running sync.WaitGroup
	for i, w := range all {
		running.Go(func() {
			for j := range each {
				check(w.put(ctx, fmt.Sprint("block-", i*each+j), content(i*each+j)))
			}
		})
	}
	running.Wait()
	fmt.Printf("%d workers have put %d blocks\n", workers, workers*each)
	var got, evicted int
	for i := range workers * each {
		switch b, err := all[(i/each+1)%workers].get(ctx, fmt.Sprint("block-", i)); {
		case errors.Is(err, errMiss):
			evicted++
		case err != nil:
			log.Fatal(err)
		case !bytes.Equal(b, content(i)):
			log.Fatalf("block %d has other bytes", i)
		default:
			got++
		}
	}
	fmt.Printf("%d were got, and %d had been evicted\n", got, evicted)
	for _, w := range all {
		check(w.close())
	}
	check(n.close())
}

// A node has places for blocks in one piece of memory, which is registered once.
type node struct {
	engine *xfer.Engine
	l      *xfer.Listener
	memory *xfer.Memory
	server http.Server
	addr   string
	taking sync.WaitGroup

	mu     sync.Mutex
	free   []int
	blocks []*block // the oldest first
}

// A block is what a place has. Its grant lets a worker write it, and later all workers read it.
type block struct {
	key   string
	place int
	n     int
	tag   uint64 // of the notification that it is written
	grant *xfer.Grant
	since time.Time
	ready chan struct{} // closed when it may be read
}

// A where says where a block is. It is the node's answer to a worker.
type where struct {
	Remote xfer.Remote
	Tag    uint64 // of the notification, if the worker is to write the block
}

func newNode(ctx context.Context, addr string) (*node, error) {
	engine, err := open()
	if err != nil {
		return nil, err
	}
	n := &node{engine: engine}
	if n.memory, err = engine.Alloc(places * blockBytes); err != nil {
		return nil, err
	}
	for i := range places {
		n.free = append(n.free, i)
	}
	web, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	n.addr = web.Addr().String()
	host, _, _ := net.SplitHostPort(n.addr)
	if n.l, err = engine.Listen(ctx, net.JoinHostPort(host, "0")); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /engine", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, n.l.Addr()) })
	mux.HandleFunc("PUT /blocks/{key}", n.reserve)
	mux.HandleFunc("GET /blocks/{key}", n.find)
	n.server.Handler = mux
	n.taking.Go(n.take)
	go n.server.Serve(web)
	return n, nil
}

func (n *node) close() error {
	err := errors.Join(n.server.Close(), n.engine.Close())
	n.taking.Wait()
	return err
}

func (n *node) block(key string) *block {
	if i := slices.IndexFunc(n.blocks, func(b *block) bool { return b.key == key }); i >= 0 {
		return n.blocks[i]
	}
	return nil
}

// reserve gives a worker a place for a block.
func (n *node) reserve(w http.ResponseWriter, r *http.Request) {
	var length int
	if _, err := fmt.Sscan(r.FormValue("bytes"), &length); err != nil || length < 1 || length > blockBytes {
		http.Error(w, "a block has 1 to 65536 bytes", http.StatusBadRequest)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.block(r.PathValue("key")) != nil {
		http.Error(w, "the block is there", http.StatusConflict)
		return
	}
	if len(n.free) == 0 {
		if err := n.evict(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	b := &block{key: r.PathValue("key"), place: n.free[0], n: length, tag: rand.Uint64(), since: time.Now(), ready: make(chan struct{})}
	var err error
	if b.grant, err = n.piece(b).Grant(xfer.GrantOptions{Access: xfer.Write, Expires: b.since.Add(hurry)}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	n.free, n.blocks = n.free[1:], append(n.blocks, b)
	json.NewEncoder(w).Encode(where{b.grant.Remote(), b.tag})
}

func (n *node) piece(b *block) xfer.Piece { return n.memory.Slice(b.place*blockBytes, b.n) }

// evict frees the place of the oldest block that is written, or that its worker has given up. When Revoke has
// returned, no worker reads or writes there any more.
func (n *node) evict(ctx context.Context) error {
	i := slices.IndexFunc(n.blocks, func(b *block) bool { return isClosed(b.ready) || time.Since(b.since) > hurry })
	if i < 0 {
		return errors.New("all blocks are being written")
	}
	b := n.blocks[i]
	if err := b.grant.Revoke(ctx); err != nil {
		return err
	}
	n.blocks, n.free = slices.Delete(n.blocks, i, i+1), append(n.free, b.place)
	return nil
}

// take learns of blocks that are written. From then on, their writers can't change them.
func (n *node) take() {
	for {
		note, err := n.engine.Notified(context.Background())
		if err != nil {
			return // the engine is closed
		}
		n.mu.Lock()
		i := slices.IndexFunc(n.blocks, func(b *block) bool { return b.tag == note.Tag && !isClosed(b.ready) })
		if i >= 0 {
			if err := n.publish(n.blocks[i]); err != nil {
				log.Printf("%s: %v", n.blocks[i].key, err)
			}
		}
		n.mu.Unlock()
	}
}

func (n *node) publish(b *block) error {
	if err := b.grant.Revoke(context.Background()); err != nil {
		return err
	}
	g, err := n.piece(b).Grant(xfer.GrantOptions{Access: xfer.Read})
	if err != nil {
		return err
	}
	b.grant = g
	close(b.ready)
	return nil
}

// find says where a block is, once it is written.
func (n *node) find(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	b := n.block(r.PathValue("key"))
	n.mu.Unlock()
	if b == nil {
		http.NotFound(w, r)
		return
	}
	select {
	case <-b.ready:
	case <-time.After(hurry):
		http.NotFound(w, r)
		return
	case <-r.Context().Done():
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	json.NewEncoder(w).Encode(where{Remote: b.grant.Remote()}) // if it has been evicted, reads fail
}

// A worker puts blocks into a node's memory, and gets them.
type worker struct {
	engine *xfer.Engine
	peer   *xfer.Peer
	node   string

	mu     sync.Mutex
	memory *xfer.Memory // for one block
}

func newWorker(ctx context.Context, node string) (*worker, error) {
	engine, err := open()
	if err != nil {
		return nil, err
	}
	w := &worker{engine: engine, node: "http://" + node}
	if w.memory, err = engine.Alloc(blockBytes); err != nil {
		return nil, err
	}
	addr, err := w.ask(ctx, "GET", "/engine")
	if err != nil {
		return nil, err
	}
	w.peer, err = engine.Dial(ctx, string(addr))
	return w, err
}

func (w *worker) close() error { return w.engine.Close() }

// errMiss: the node doesn't have the block, or not any more.
var errMiss = errors.New("there is no such block")

// ask asks the node.
func (w *worker) ask(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.node+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusNotFound:
		return nil, errMiss
	case answer.StatusCode == http.StatusServiceUnavailable: // until a block is written
		select {
		case <-time.After(10 * time.Millisecond):
			return w.ask(ctx, method, path)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s", answer.Status, b)
	}
	return b, nil
}

func (w *worker) put(ctx context.Context, key string, value []byte) error {
	answer, err := w.ask(ctx, "PUT", fmt.Sprintf("/blocks/%s?bytes=%d", key, len(value)))
	if err != nil {
		return err
	}
	var to where
	if err := json.Unmarshal(answer, &to); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	copy(w.memory.Bytes(), value)
	var b xfer.Batch
	b.Write(to.Remote, w.memory.Slice(0, len(value)))
	b.Notify(to.Tag)
	return w.peer.Do(ctx, &b)
}

func (w *worker) get(ctx context.Context, key string) ([]byte, error) {
	answer, err := w.ask(ctx, "GET", "/blocks/"+key)
	if err != nil {
		return nil, err
	}
	var from where
	if err := json.Unmarshal(answer, &from); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := w.memory.Slice(0, min(from.Remote.Len(), blockBytes))
	if err := w.peer.Read(ctx, mine, from.Remote); errors.Is(err, xfer.ErrRevoked) {
		return nil, errMiss // evicted meanwhile
	} else if err != nil {
		return nil, err
	}
	return bytes.Clone(mine.Bytes()), nil
}

func open() (*xfer.Engine, error) {
	var o xfer.Options
	if *devices != "" {
		o.Devices = strings.Split(*devices, ",")
	}
	return xfer.Open(o)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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
