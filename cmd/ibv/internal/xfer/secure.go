package xfer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
)

// A security is what the options say of TLS. Both sides have it, or none.
type security struct{ cert, key, ca string }

func (s *security) options() []cli.Option {
	return []cli.Option{
		cli.Opt(0, "tls-cert", "FILE", "the certificate of this side, in PEM: serve then demands TLS", cli.Text(&s.cert)),
		cli.Opt(0, "tls-key", "FILE", "its key", cli.Text(&s.key)),
		cli.Opt(0, "tls-ca", "FILE", "those who may sign the other side's certificate; serve then demands one", cli.Text(&s.ca)),
	}
}

// config returns the configuration of a client of a host, or of a server, for which host is "". It is nil without TLS.
func (s *security) config(host string) (*tls.Config, error) {
	switch {
	case *s == security{}:
		return nil, nil
	case (s.cert == "") != (s.key == ""):
		return nil, cli.Usagef("--tls-cert and --tls-key belong together")
	case host == "" && s.cert == "":
		return nil, cli.Usagef("a server with --tls-ca needs --tls-cert and --tls-key")
	}
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS13}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if s.ca == "" {
		return c, nil // a client asks the system's authorities
	}
	text, err := os.ReadFile(s.ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificates in PEM", s.ca)
	}
	if host == "" {
		c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
	} else {
		c.RootCAs = pool
	}
	return c, nil
}

var (
	errNeedsTLS = errors.New("it demands TLS: see --tls-ca")
	errNoTLS    = errors.New("it has no TLS: it was started without --tls-cert")
)

// recordTLS is the first byte of a connection with TLS.
const recordTLS = 22
