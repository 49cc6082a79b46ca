//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/rig/internal/control"
)

// A faultCase injects a fault into three messages, and lists what libmlx5 has to report
// for them.
type faultCase struct {
	name    string
	op      string
	wire    control.Request // the fabric's faults
	inject  control.Request // a single fault in the requester's or the responder's queue pair
	at      string          // the queue pair: "requester", "responder" or "" for none
	want    []string
	counter string // the counter of mlx5_0 that has to grow
}

const (
	good    = "requester: success"
	arrived = "responder: success"
	flushed = "requester: Work Request Flushed Error"
	unused  = "responder: Work Request Flushed Error"
	vendor  = 0x77 // of injected completions
)

// syndromes has the syndromes of error CQEs, MLX5_CQE_SYNDROME_*, and libmlx5's texts for
// them.
var syndromes = []struct {
	code uint8
	text string
}{
	{0x01, "local length error"},
	{0x02, "local QP operation error"},
	{0x04, "local protection error"},
	{0x06, "memory management operation error"},
	{0x10, "bad response error"},
	{0x11, "local access error"},
	{0x12, "remote invalid request error"},
	{0x13, "remote access error"},
	{0x14, "remote operation error"},
	{0x15, "transport retry counter exceeded"},
	{0x16, "RNR retry counter exceeded"},
	{0x22, "aborted error"},
}

func faults() (list []faultCase) {
	for _, s := range syndromes {
		list = append(list, faultCase{
			name: "second send fails: " + s.text, op: "send", at: "requester",
			inject: control.Request{Kind: "send", N: 2, Syndrome: s.code, Vendor: vendor},
			want:   []string{good, fmt.Sprintf("requester: %s %#x", s.text, vendor), flushed, arrived},
		})
	}
	for _, s := range syndromes[:3] {
		list = append(list, faultCase{
			name: "second receive fails: " + s.text, op: "send", at: "responder",
			inject: control.Request{Kind: "receive", N: 2, Syndrome: s.code, Vendor: vendor},
			want: []string{good, "requester: remote operation error 0x89", flushed,
				arrived, fmt.Sprintf("responder: %s %#x", s.text, vendor), unused},
		})
	}
	whole := []string{good, good, good, arrived, arrived, arrived}
	return append(list, []faultCase{
		{name: "a packet is lost", op: "write", at: "requester",
			inject: control.Request{Kind: "drop", N: 2}, want: whole, counter: "packet_seq_err"},
		{name: "the last acknowledgement is lost", op: "read", at: "responder",
			inject: control.Request{Kind: "drop", N: 9}, want: whole[:3], counter: "local_ack_timeout_err"},
		{name: "a response is lost", op: "read", at: "responder",
			inject: control.Request{Kind: "drop", N: 2}, want: whole[:3], counter: "implied_nak_seq_err"},
		{name: "a WRITE's address is damaged", op: "write", at: "requester",
			inject: control.Request{Kind: "damage", N: 1}, want: []string{"requester: remote access error 0x88", flushed, flushed, unused, unused, unused},
			counter: "req_remote_access_errors"},
		{name: "a READ's address is damaged", op: "read", at: "requester",
			inject: control.Request{Kind: "damage", N: 2}, want: []string{good, "requester: remote access error 0x88", flushed},
			counter: "req_remote_access_errors"},
		{name: "nothing arrives", op: "send", wire: control.Request{Drop: 1},
			want:    []string{"requester: transport retry counter exceeded 0x81", flushed, flushed},
			counter: "local_ack_timeout_err"},
	}...)
}

func (c faultCase) run(peers string) error {
	before, err := counter("mlx5_0", c.counter)
	if err != nil {
		return err
	}
	p := exec.Command(filepath.Join(peers, "faults"), "mlx5_0", "mlx5_1", c.op)
	var complaints bytes.Buffer
	p.Stderr = &complaints
	in, err := p.StdinPipe()
	if err != nil {
		return err
	}
	pipe, err := p.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Process.Kill()
	out := bufio.NewReader(pipe)
	var a, b uint32
	if _, err := fmt.Fscanf(out, "%d %d\n", &a, &b); err != nil {
		return fmt.Errorf("no numbers of queue pairs: %w\n%s", err, &complaints)
	}
	c.inject.Do, c.wire.Do = "inject", "faults"
	switch c.at {
	case "requester":
		c.inject.QPN = a
	case "responder":
		c.inject.QPN, c.inject.HCA = b, 1
	}
	if c.at != "" {
		err = c.inject.Ask()
	} else {
		err = c.wire.Ask()
		defer control.Request{Do: "faults"}.Ask()
	}
	if err != nil {
		return err
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		return err
	}
	text, err := io.ReadAll(out)
	if err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%w\n%s%s", err, text, &complaints)
	}
	if got := strings.Split(strings.TrimSpace(string(text)), "\n"); !slices.Equal(got, c.want) {
		return fmt.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
	}
	if after, err := counter("mlx5_0", c.counter); err != nil || c.counter != "" && after <= before {
		return fmt.Errorf("%s was %d and is %d (%v)", c.counter, before, after, err)
	}
	return nil
}

// counter reads one of the port's hardware counters, or 0 for no name.
func counter(device, name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	text, err := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/hw_counters/" + name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
