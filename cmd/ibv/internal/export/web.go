package export

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// This reads the part of the file of Prometheus's exporter-toolkit (--web.config.file) that is about TLS. The file
// is YAML, of which this knows lines with a key and a plain or quoted value. The rest is refused, because a server
// that ignores a line may let in whom the line keeps out.

// secure returns the configuration of TLS that a file has. Each connection reads the file and the certificates
// again, so that new ones are used without a restart.
func secure(name string, report func(format string, args ...any)) (*tls.Config, error) {
	if _, err := readConfig(name); err != nil {
		return nil, err
	}
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := readConfig(name)
		if err != nil {
			report("%v", err)
		}
		return c, err
	}}, nil
}

func readConfig(name string) (*tls.Config, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c, err := config(string(b), filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// config returns the configuration that a text has. Names of files are relative to folder.
func config(text, folder string) (*tls.Config, error) {
	keys, err := keysOf(text)
	if err != nil {
		return nil, err
	}
	file := func(key string) string {
		if name := keys[key]; name != "" && !filepath.IsAbs(name) {
			return filepath.Join(folder, name)
		}
		return keys[key]
	}
	for _, key := range []string{"cert_file", "key_file"} {
		if keys[key] == "" {
			return nil, fmt.Errorf("tls_server_config has no %s", key)
		}
	}
	cert, err := tls.LoadX509KeyPair(file("cert_file"), file("key_file"))
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}}
	var ok bool
	if c.MinVersion, ok = versions[keys["min_version"]]; !ok {
		return nil, fmt.Errorf("min_version %q is none of TLS10, TLS11, TLS12 and TLS13", keys["min_version"])
	}
	if c.ClientAuth, ok = policies[keys["client_auth_type"]]; !ok {
		return nil, fmt.Errorf("client_auth_type %q is none of NoClientCert, RequestClientCert, RequireAnyClientCert, VerifyClientCertIfGiven and RequireAndVerifyClientCert", keys["client_auth_type"])
	}
	switch ca := file("client_ca_file"); {
	case ca != "" && c.ClientAuth == tls.NoClientCert:
		return nil, errors.New("client_ca_file without a client_auth_type lets in everybody: add client_auth_type: RequireAndVerifyClientCert")
	case ca == "" && c.ClientAuth >= tls.VerifyClientCertIfGiven:
		return nil, fmt.Errorf("client_auth_type %s needs a client_ca_file", keys["client_auth_type"])
	case ca != "":
		b, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		if c.ClientCAs = x509.NewCertPool(); !c.ClientCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s has no certificate", ca)
		}
	}
	return c, nil
}

var versions = map[string]uint16{"": tls.VersionTLS12, "TLS10": tls.VersionTLS10, "TLS11": tls.VersionTLS11, "TLS12": tls.VersionTLS12, "TLS13": tls.VersionTLS13}

var policies = map[string]tls.ClientAuthType{
	"": tls.NoClientCert, "NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
	"RequireAnyClientCert": tls.RequireAnyClientCert, "RequireClientCert": tls.RequireAnyClientCert,
	"VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven, "RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
}

// keysOf returns what the section tls_server_config has, the only one that may be there.
func keysOf(text string) (map[string]string, error) {
	const section = "tls_server_config"
	keys := make(map[string]string)
	inside, indent, n := false, "", 0
	for line := range strings.Lines(text) {
		n++
		rest := strings.TrimLeft(line, " ")
		space := line[:len(line)-len(rest)]
		if rest = strings.TrimSpace(rest); rest == "" || rest[0] == '#' || n == 1 && rest == "---" {
			continue
		}
		key, value, err := pair(rest)
		switch {
		case err != nil:
		case space == "" && key == "basic_auth_users":
			err = errors.New("ibv knows no passwords (basic_auth_users): have clients show certificates (client_auth_type: RequireAndVerifyClientCert), or put a server that knows passwords before ibv")
		case space == "" && (key != section || inside):
			err = fmt.Errorf("ibv doesn't know %s here, only one %s", key, section)
		case space == "" && value != "":
			err = fmt.Errorf("the keys of %s begin on the next line", section)
		case space == "":
			inside = true
		case indent == "":
			indent = space
			fallthrough
		default:
			_, twice := keys[key]
			switch key {
			case "cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version":
			default:
				err = fmt.Errorf("ibv doesn't know %s", key)
			}
			if !inside || space != indent {
				err = errors.New("the line is indented in another way than those before")
			} else if twice {
				err = fmt.Errorf("%s is there twice", key)
			}
			keys[key] = value
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if !inside {
		return nil, fmt.Errorf("there is no %s", section)
	}
	return keys, nil
}

// pair splits a line at its colon. The value is plain, or in quotes without escapes.
func pair(line string) (key, value string, err error) {
	key, value, ok := strings.Cut(line, ":")
	if !ok || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "" || value != "" && value[0] != ' ' {
		return "", "", errors.New("ibv reads only lines like cert_file: /etc/ibv/cert.pem")
	}
	value = strings.TrimLeft(value, " ")
	if value == "" {
		return key, "", nil
	}
	if quote := value[:1]; quote == "'" || quote == `"` {
		var after string
		value, after, ok = strings.Cut(value[1:], quote)
		if after = strings.TrimLeft(after, " "); !ok || after != "" && after[0] != '#' || quote == `"` && strings.Contains(value, `\`) {
			return "", "", fmt.Errorf("ibv doesn't know such quotes: %s", line)
		}
		return key, value, nil
	}
	if i := strings.Index(" "+value, " #"); i >= 0 {
		value = strings.TrimRight(value[:i], " ")
	}
	if value != "" && strings.ContainsAny(value[:1], "&*!|>{}[]%@`-?,:") || strings.Contains(value, ": ") || strings.ContainsAny(value, "\t\r") {
		return "", "", fmt.Errorf("ibv doesn't know such values: %s", line)
	}
	return key, value, nil
}
