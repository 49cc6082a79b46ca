// S3 is a small S3 server and its client, whose bodies go by RDMA (s3rdma). It needs an adapter with
// DC, such as ConnectX.
//
//	s3 -listen :9000                  serves objects in memory, until it is killed
//	s3 -connect http://10.0.0.1:9000  is the client
//	s3                                both sides, in one process
//
// The server is a plain http.Handler, and the client a plain http.Client. The client prints
//
//	put 1048576 bytes, 1048576 by RDMA
//	got 1048576 bytes, 1048576 by RDMA
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "serve at this address")
	connect = flag.String("connect", "", "be a client of the server at this URL")
)

func main() {
	flag.Parse()
	switch {
	case *listen != "":
		log.Fatal(serve(must(net.Listen("tcp", *listen))))
	case *connect != "":
		client(*connect)
	default:
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		go serve(l)
		client("http://" + l.Addr().String())
	}
}

// serve serves a store, by RDMA to those who want that.
func serve(l net.Listener) error {
	server := must(s3rdma.NewServer(must(verbs.Open(*device)), new(store), s3rdma.ServerOptions{}))
	return http.Serve(l, server)
}

// A store has objects, by their paths. It knows nothing of RDMA.
type store struct{ objects sync.Map }

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.objects.Store(r.URL.Path, b)
	case http.MethodGet:
		b, ok := s.objects.Load(r.URL.Path)
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.([]byte)))
	}
}

// client puts an object, and gets it.
func client(url string) {
	transport := must(s3rdma.NewClient(must(verbs.Open(*device)), s3rdma.ClientOptions{Assume: true}))
	web := http.Client{Transport: transport}
	sent := bytes.Repeat([]byte("by RDMA!"), 128<<10)

	put := must(http.NewRequest(http.MethodPut, url+"/bucket/key", bytes.NewReader(sent)))
	answer := must(web.Do(put))
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		log.Fatal(answer.Status)
	}
	moved := transport.Stats().Bytes
	fmt.Printf("put %d bytes, %d by RDMA\n", len(sent), moved)

	answer = must(web.Get(url + "/bucket/key"))
	got := must(io.ReadAll(answer.Body))
	answer.Body.Close()
	if !bytes.Equal(got, sent) {
		log.Fatalf("%d other bytes came back", len(got))
	}
	fmt.Printf("got %d bytes, %d by RDMA\n", len(got), transport.Stats().Bytes-moved)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
