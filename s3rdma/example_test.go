package s3rdma_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbs"
)

// A client whose bodies go by RDMA, and one whose bodies are in its own memory.
func ExampleNewClient() {
	dev := must(verbs.Open("mlx5_0"))
	transport := must(s3rdma.NewClient(dev, s3rdma.ClientOptions{Assume: true}))
	web := &http.Client{Transport: transport} // or minio.Options.Transport, or aws.Config.HTTPClient

	answer := must(web.Get("http://10.0.0.1:9000/bucket/key"))
	n := must(io.Copy(io.Discard, answer.Body))
	answer.Body.Close()
	fmt.Println(n, transport.Stats().Bytes)

	// The object comes into this memory, without a copy.
	mr := must(transport.PD().AllocMR(64<<20, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))
	ctx := s3rdma.WithMemory(context.Background(), mr, 0, mr.Len())
	answer = must(web.Do(must(http.NewRequestWithContext(ctx, http.MethodGet, "http://10.0.0.1:9000/bucket/key", nil))))
	fmt.Println(bytes.Count(mr.Bytes()[:answer.ContentLength], []byte("\n")), "lines")
	answer.Body.Close()
}

// A proxy in front of an S3 server that knows nothing of RDMA. Signatures still hold, because the
// proxy passes on the request that the client has signed.
func ExampleNewServer() {
	backend := must(url.Parse("http://127.0.0.1:9001"))
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(backend)
		r.Out.Host = r.In.Host // which is signed
	}}
	server := must(s3rdma.NewServer(must(verbs.Open("mlx5_0")), proxy, s3rdma.ServerOptions{}))
	log.Fatal(http.ListenAndServe(":9000", server))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
