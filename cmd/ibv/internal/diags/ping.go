package diags

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/umad"
)

// DefaultOUI is OpenIB's, which ibping uses.
const DefaultOUI = 0x001405

const classPing umad.Class = 0x32 // a vendor's class

const (
	pingOUI  = 37 // where the OUI is in a MAD
	pingData = 40 // and where the data begin
)

func (c *Client) pingAgent(oui uint32, methods ...umad.Method) (*umad.Agent, error) {
	return c.agent(umad.AgentOptions{Class: classPing, OUI: oui, Methods: methods})
}

// ServePing answers pings, with the host's name, until the context ends.
func (c *Client) ServePing(ctx context.Context, host string, oui uint32) error {
	if _, err := c.pingAgent(oui, umad.MethodGet, umad.MethodSet); err != nil {
		return err
	}
	for {
		m, err := c.port.Receive(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		h, err := umad.ParseHeader(m.MAD)
		if err != nil || m.Err != nil || m.Agent == nil || len(m.MAD) != umad.Size {
			continue
		}
		h.Method, h.Status = umad.MethodGet|umad.MethodResponse, 0
		h.Put(m.MAD)
		clear(m.MAD[pingData:])
		copy(m.MAD[pingData:umad.Size-1], host)
		m.Addr.QKey, m.Timeout = umad.GeneralQKey, 0
		// The other side may have ended. If not, it asks again.
		_ = m.Agent.Send(m)
	}
}

// HostName returns this host's name and domain, as ibping answers with them.
func HostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "?hostname?"
	}
	domain, _ := os.ReadFile("/proc/sys/kernel/domainname")
	return strings.TrimSuffix(name+"."+strings.TrimSpace(string(domain)), ".")
}

// PingOptions are ibping's options.
type PingOptions struct {
	Count int // 0 for no end
	Flood bool
	OUI   uint32
}

// Ping sends pings to a host, and prints the times as ibping does, until Count pings are sent
// or the context ends.
func (c *Client) Ping(ctx context.Context, w io.Writer, t Target, o PingOptions) error {
	a, err := c.pingAgent(o.OUI)
	if err != nil {
		return err
	}
	var s pings
	begin := time.Now()
	for o.Count == 0 || s.sent < o.Count {
		began := time.Now()
		host, err := c.ping(ctx, a, t, o.OUI)
		if ctx.Err() != nil {
			break
		}
		s.sent++
		if err == nil {
			s.add(time.Since(began))
			if s.host == "" {
				s.host = host
			}
			if !o.Flood {
				fmt.Fprintf(w, "Pong from %s (%v): time %s ms\n", host, t, milliseconds(time.Since(began)))
			}
		} else if s.err = err; !answered(err) {
			return err
		}
		if !o.Flood && s.sent != o.Count {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	s.print(w, t, time.Since(begin))
	if s.sent > 0 && s.got == 0 {
		return fmt.Errorf("%w; start the server there: ibv ibping -S", s.err)
	}
	return nil
}

// answered reports whether the error comes from the other side, or from the path to it.
func answered(err error) bool {
	var status umad.Status
	return errors.As(err, &status) || errors.Is(err, syscall.ETIMEDOUT)
}

func (c *Client) ping(ctx context.Context, a *umad.Agent, t Target, oui uint32) (host string, err error) {
	m := umad.Message{
		Addr: umad.Addr{LID: t.LID, QPN: 1, QKey: umad.GeneralQKey},
		MAD:  make([]byte, umad.Size), Timeout: c.Timeout, Retries: retries,
	}
	h := umad.Header{Class: classPing, Version: 1, Method: umad.MethodGet}
	h.Put(m.MAD)
	m.MAD[pingOUI], m.MAD[pingOUI+1], m.MAD[pingOUI+2] = byte(oui>>16), byte(oui>>8), byte(oui)
	answer, err := a.Do(ctx, m)
	if err != nil {
		return "", err
	}
	if len(answer.MAD) < umad.Size {
		return "", umad.ErrMalformed
	}
	return cString(answer.MAD[pingData:]), nil
}

// pings are the statistics.
type pings struct {
	sent, got       int
	min, max, total time.Duration
	host            string
	err             error // the last
}

func (s *pings) add(d time.Duration) {
	if s.got == 0 || d < s.min {
		s.min = d
	}
	s.max = max(s.max, d)
	s.total += d
	s.got++
}

func (s *pings) print(w io.Writer, t Target, took time.Duration) {
	loss, average := 0, time.Duration(0)
	if s.sent > 0 {
		loss = (s.sent - s.got) * 100 / s.sent
	}
	if s.got > 0 {
		average = s.total / time.Duration(s.got)
	}
	fmt.Fprintf(w, "\n--- %s (%v) ibping statistics ---\n", s.host, t)
	fmt.Fprintf(w, "%d packets transmitted, %d received, %d%% packet loss, time %d ms\n", s.sent, s.got, loss, took.Milliseconds())
	fmt.Fprintf(w, "rtt min/avg/max = %s/%s/%s ms\n", milliseconds(s.min), milliseconds(average), milliseconds(s.max))
	cli.Put("host", s.host, "lid", t.LID, "transmitted", s.sent, "received", s.got, "seconds", took.Seconds(),
		"rtt_min_seconds", s.min.Seconds(), "rtt_avg_seconds", average.Seconds(), "rtt_max_seconds", s.max.Seconds())
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%d.%03d", d.Milliseconds(), d.Microseconds()%1000)
}
