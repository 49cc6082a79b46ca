package export

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// certificate writes a certificate for 127.0.0.1 that is its own authority, and its key, into a folder.
func certificate(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	key := rdmatest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := rdmatest.Must(x509.CreateCertificate(rand.Reader, x509template, x509template, key.Public(), key))(t)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rdmatest.Must(x509.MarshalPKCS8PrivateKey(key))(t)})
	rdmatest.Check(t, os.WriteFile(filepath.Join(dir, name+".pem"), cert, 0o600))
	rdmatest.Check(t, os.WriteFile(filepath.Join(dir, name+".key"), private, 0o600))
	return rdmatest.Must(tls.X509KeyPair(cert, private))(t)
}

var x509template = &x509.Certificate{
	SerialNumber: big.NewInt(1), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), IsCA: true, BasicConstraintsValid: true,
	IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
}

// TestTLS: the standard library's client gets the figures by TLS, with the certificates that the file demands, and
// new certificates count from the next connection on.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	server, friend, stranger := certificate(t, dir, "server"), certificate(t, dir, "friend"), certificate(t, dir, "stranger")
	file := filepath.Join(dir, "web.yml")
	write := func(more string) {
		t.Helper()
		rdmatest.Check(t, os.WriteFile(file, []byte("tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"+more), 0o600))
	}
	write("")
	e, _ := newBed(t)
	var reported []string
	done := make(chan struct{}, 1)
	c, err := secure(file, func(format string, args ...any) {
		reported = append(reported, args[0].(error).Error())
		done <- struct{}{}
	})
	rdmatest.Check(t, err)
	addr := serving(t, e, func(l net.Listener) net.Listener { return tls.NewListener(l, c) })
	// get returns the status, or the error.
	get := func(change func(*tls.Config)) string {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AddCert(server.Leaf)
		c := &tls.Config{RootCAs: roots}
		if change != nil {
			change(c)
		}
		tr := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true, ForceAttemptHTTP2: true}
		r, err := (&http.Client{Transport: tr}).Get("https://" + addr + "/metrics")
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		if b := rdmatest.Must(io.ReadAll(r.Body))(t); !strings.Contains(string(b), "rdma_state_id{") {
			t.Errorf("%s", b)
		}
		return r.Status
	}
	with := func(cert tls.Certificate) func(*tls.Config) {
		return func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		}
	}
	expect := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	old := func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }
	middle := func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }
	expect("anybody", get(nil), "200 OK")
	expect("TLS 1.2", get(middle), "200 OK")
	expect("TLS 1.1", get(old), "protocol version")
	r, err := http.Get("http://" + addr + "/metrics")
	if err == nil {
		r.Body.Close()
		t.Errorf("without TLS: %s", r.Status)
	}
	write("  min_version: TLS13\n")
	expect("TLS 1.2, too old", get(middle), "protocol version")
	expect("TLS 1.3", get(nil), "200 OK")
	write("  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: friend.pem\n")
	expect("no certificate", get(nil), "certificate required")
	expect("a stranger", get(with(stranger)), "unknown certificate authority")
	expect("a friend", get(with(friend)), "200 OK")
	write("  client_auth_type: RequireAnyClientCert\n")
	expect("no certificate", get(nil), "certificate required")
	expect("a stranger whom nobody verifies", get(with(stranger)), "200 OK")

	write("")
	server = certificate(t, dir, "server") // renewed
	expect("the new certificate", get(nil), "200 OK")
	write("  clent_auth_type: RequireAnyClientCert\n")
	expect("a wrong file", get(nil), "internal error")
	<-done
	if diff := cmp.Diff([]string{file + ": line 4: ibv doesn't know clent_auth_type"}, reported); diff != "" {
		t.Error(diff)
	}
}

func TestTLSConfig(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir, "server")
	const begin = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
	for _, text := range []string{
		begin,
		"---\n# all\n\ntls_server_config:  # here\n    cert_file: 'server.pem' # relative\n    # more\n    key_file: \"server.key\"\n    min_version:\n",
		begin + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: server.pem",
		"tls_server_config:\n  cert_file: " + dir + "/server.pem\n  key_file: server.key\n",
	} {
		if _, err := config(text, dir); err != nil {
			t.Errorf("%s%v", text, err)
		}
	}
	for text, want := range map[string]string{
		"":                     "there is no tls_server_config",
		"tls_server_config:\n": "no cert_file",
		begin + "basic_auth_users:\n  alice: $2y$10$x\n": "line 4: ibv knows no passwords",
		begin + "http_server_config:\n  http2: false\n":  "line 4: ibv doesn't know http_server_config",
		begin + begin:              "line 4",
		begin + "  cert_file: x\n": "line 4: cert_file is there twice",
		begin + "  cipher_suites:\n  - TLS_AES_128_GCM_SHA256\n":                                 "line 4: ibv doesn't know cipher_suites",
		begin + "   min_version: TLS13\n":                                                        "line 4: the line is indented",
		begin + "\tmin_version: TLS13\n":                                                         "line 4",
		"  cert_file: server.pem\n":                                                              "line 1: the line is indented",
		"tls_server_config: {cert_file: server.pem, key_file: server.key}\n":                     "line 1",
		begin + "  min_version: TLS14\n":                                                         "min_version \"TLS14\"",
		begin + "  client_auth_type: Everybody\n":                                                "client_auth_type \"Everybody\"",
		begin + "  client_auth_type: RequireAndVerifyClientCert\n":                               "needs a client_ca_file",
		begin + "  client_ca_file: server.pem\n":                                                 "lets in everybody",
		begin + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: server.key\n": "has no certificate",
		begin + "  client_ca_file: \"a\\tb\"\n":                                                  "such quotes",
		begin + "  client_ca_file: 'a'b\n":                                                       "such quotes",
		begin + "  client_ca_file: 'it''s'\n":                                                    "such quotes",
		begin + "  client_ca_file: |\n":                                                          "such values",
		begin + "  client_ca_file: a: b\n":                                                       "such values",
		begin + "  client_ca_file:x\n":                                                           "reads only lines",
		begin + "  \"client_ca_file\": x\n":                                                      "reads only lines",
		begin + "more\n":                                                                         "reads only lines",
		"tls_server_config:\n  cert_file: none.pem\n  key_file: server.key\n":                    "none.pem",
	} {
		if _, err := config(text, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%v, want %s", text, err, want)
		}
	}
	if _, err := secure(filepath.Join(dir, "none.yml"), t.Errorf); err == nil {
		t.Error("a missing file")
	}
}
