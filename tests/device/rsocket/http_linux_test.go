package rsocket

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
)

// TestHTTPS runs net/http over TLS, with HTTP 1.1 and 2, and sends small and large bodies,
// many at a time. The largest has 8 MiB, or 100 MiB with GOVERBS_LONG.
func TestHTTPS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[h2], func(t *testing.T) {
			checkLeaks(t)
			l := rdmatest.Must(new(rsocket.ListenConfig).Listen(context.Background(), "tcp", host+":0"))(t)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Served-By", r.Proto)
				body, _ := io.ReadAll(r.Body) // HTTP/1.1 answers after the request
				w.Write(body)
			}))
			server.Listener.Close()
			server.Listener, server.EnableHTTP2 = l, h2
			server.StartTLS()
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			transport := &http.Transport{
				DialContext: new(rsocket.Dialer).DialContext, ForceAttemptHTTP2: h2,
				TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"},
			}
			client := http.Client{Transport: transport, Timeout: patience()}
			large := 8 << 20
			switch {
			case long():
				large = 100 << 20
			case testing.Short():
				large = 300_000
			}
			var wg sync.WaitGroup
			for i, size := range []int{1 << 10, 1 << 10, 100_000, large} {
				wg.Go(func() {
					want := make([]byte, size)
					newStream(byte(i)).Read(want)
					answer, err := client.Post("https://"+l.Addr().String()+"/", "application/octet-stream", bytes.NewReader(want))
					if err != nil {
						t.Error(err)
						return
					}
					defer answer.Body.Close()
					got, err := io.ReadAll(answer.Body)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d of %d bytes came back: %v", len(got), size, err)
					}
					if proto := answer.Header.Get("Served-By"); (proto == "HTTP/2.0") != h2 {
						t.Errorf("served by %s", proto)
					}
				})
			}
			wg.Wait()
			transport.CloseIdleConnections()
			server.Close()
		})
	}
}
