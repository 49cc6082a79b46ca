// Https is a web server and its client over TLS, on sockets over RDMA (rsocket).
//
//	https -listen :7443           serves until it is interrupted
//	https -connect 10.0.0.1:7443  is the client; the address is the RDMA device's
//	https                         both sides, in one process
//
// Package net/http has no code for RDMA: it gets a net.Listener, and a function that makes a
// net.Conn. The certificate is made anew for each run, and the client doesn't verify it. The
// client prints
//
//	GET: 200 OK, "hello over RDMA"
//	POST: 200 OK, 1048576 bytes came back
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

var (
	device  = flag.String("device", "", "without an address: the RDMA device; by default, the first one")
	listen  = flag.String("listen", "", "serve at this address")
	connect = flag.String("connect", "", "be a client of the server at this address")
)

func main() {
	flag.Parse()
	switch {
	case *listen != "":
		log.Fatal(serve(must(rsocket.Listen("tcp", *listen))))
	case *connect != "":
		client(*connect)
	default:
		l := must(rsocket.Listen("tcp", net.JoinHostPort(address(), "0")))
		go serve(l)
		client(l.Addr().String())
	}
}

// address returns an IP address of the device.
func address() string {
	dev := must(verbs.Open(*device))
	defer dev.Close()
	return must(must(dev.GIDTable()).Find(verbs.GIDSelector{Port: 1})).GID.Addr().String()
}

func serve(l net.Listener) error {
	http.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello over RDMA") })
	http.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body := must(io.ReadAll(r.Body)) // HTTP/1.1 answers after the request
		w.Write(body)
	})
	server := http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}}
	return server.ServeTLS(l, "", "")
}

func client(address string) {
	web := http.Client{Transport: &http.Transport{
		DialContext:     new(rsocket.Dialer).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate is self-signed
	}}
	answer := must(web.Get("https://" + address + "/"))
	fmt.Printf("GET: %s, %q\n", answer.Status, must(io.ReadAll(answer.Body)))
	answer.Body.Close()

	sent := make([]byte, 1<<20)
	rand.Read(sent)
	answer = must(web.Post("https://"+address+"/echo", "application/octet-stream", bytes.NewReader(sent)))
	defer answer.Body.Close()
	if got := must(io.ReadAll(answer.Body)); !bytes.Equal(got, sent) {
		log.Fatalf("%d bytes came back, and they are others", len(got))
	}
	fmt.Printf("POST: %s, %d bytes came back\n", answer.Status, len(sent))
}

// certificate makes a self-signed certificate.
func certificate() tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
