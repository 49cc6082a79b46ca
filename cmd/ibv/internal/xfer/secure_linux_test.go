package xfer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/rdmatest/strangertest"
)

// An authority signs certificates, and writes them to a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = rdmatest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := rdmatest.Must(x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key))(t)
	a.write("ca", "CERTIFICATE", der)
	return a
}

// write writes PEM to a file.
func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	rdmatest.Check(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func (a *authority) ca() string { return filepath.Join(a.dir, "ca") }

// sign returns the files of a certificate for this host.
func (a *authority) sign(name string) (cert, key string) {
	a.t.Helper()
	k := rdmatest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		IPAddresses: []net.IP{net.ParseIP(here)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der := rdmatest.Must(x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, a.key))(a.t)
	private := rdmatest.Must(x509.MarshalPKCS8PrivateKey(k))(a.t)
	return a.write(name, "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", private)
}

// TestTLS: a fetch and a measurement work when both sides have TLS. When one has none, or the wrong certificates, the
// client is told what is missing.
func TestTLS(t *testing.T) {
	machines(t)
	served := t.TempDir()
	tree(t, served, map[string]int{"file": 100_000})
	a, b := newAuthority(t), newAuthority(t)
	var server, client, stranger security
	server.cert, server.key = a.sign("server")
	client.cert, client.key = a.sign("client")
	stranger.cert, stranger.key = b.sign("stranger")

	open, oneSided, mutual := start(t, served), server, server
	mutual.ca = a.ca()
	known := func(s security, ca string) security {
		s.ca = ca
		return s
	}
	for _, test := range []struct {
		name   string
		server *security
		client security
		want   string // of the error; "" for success
	}{
		{"one certificate", &oneSided, known(security{}, a.ca()), ""},
		{"two certificates", &mutual, known(client, a.ca()), ""},
		{"a client without TLS", &oneSided, security{}, errNeedsTLS.Error()},
		{"a server without TLS", nil, known(security{}, a.ca()), errNoTLS.Error()},
		{"an unknown server", &oneSided, known(security{}, b.ca()), "certificate signed by unknown authority"},
		{"a client without a certificate", &mutual, known(security{}, a.ca()), "certificate required"},
		{"an unknown client", &mutual, known(stranger, a.ca()), "unknown certificate authority"},
		{"half a certificate", nil, security{cert: server.cert}, "belong together"},
		{"no certificates", nil, known(security{}, server.key), "has no certificates"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := open
			if test.server != nil {
				o = startSecure(t, served, rdmatest.Must(test.server.config(""))(t))
			}
			o.security, o.output = test.client, t.TempDir()
			r, err := o.fetched(t.Context(), here, nil)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				return
			}
			rdmatest.Check(t, err)
			if r.Files != 1 || len(r.Failed) != 0 {
				t.Errorf("%+v", r)
			}
			same(t, o.output, served)
			o.Plan = Plan{Op: "write", Sizes: []int{64}, At: []int{1}, Time: time.Millisecond}
			rdmatest.Must(o.benched(t.Context(), here))(t)
		})
	}
	if _, err := (&security{ca: a.ca()}).config(""); err == nil {
		t.Error("a server without a certificate has TLS")
	}
}

// TestHostileCertificate: the names in a server's certificate don't control the terminal.
func TestHostileCertificate(t *testing.T) {
	key := rdmatest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: strangertest.Escapes}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"\x1b[2J"}}
	der := rdmatest.Must(x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key))(t)
	door := rdmatest.Must(tls.Listen("tcp", here+":0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))(t)
	defer door.Close()
	go func() {
		for {
			conn, err := door.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	o := newOptions()
	o.port, o.ca, o.output = door.Addr().(*net.TCPAddr).Port, newAuthority(t).ca(), t.TempDir()
	for _, host := range []string{here, "localhost"} {
		if _, err := o.fetched(t.Context(), host, nil); err == nil || !strings.Contains(err.Error(), "x509") {
			t.Errorf("%s: %v", host, err)
		} else {
			strangertest.Harmless(t, err.Error())
		}
	}
}
