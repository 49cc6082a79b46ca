package perftest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
)

// A setup has the settings that both sides must share. Two ibv sides exchange them, so that a mismatch
// is reported. perftest's sides hang, or fail with a completion's status.
type setup struct {
	Tool      string `json:"tool"`
	Transport string `json:"c"`
	QPs       int    `json:"q"`
	Bytes     int    `json:"s"`
	All       bool   `json:"a"`
	Messages  int    `json:"n"`
	Seconds   int    `json:"D"`
	Duplex    bool   `json:"b"`
	Reversed  bool   `json:"reversed"`
	Immediate bool   `json:"imm"`
}

// setupLen is the length of the message, which is padded with spaces.
const setupLen = 256

func (o *options) setup() setup {
	s := setup{
		Tool: o.tool.Name, Transport: o.transport.name, QPs: o.numQPs, Bytes: o.size, All: o.all, Messages: o.iters, Seconds: o.duration,
		Duplex: o.duplex, Reversed: o.reversed, Immediate: o.imm,
	}
	if o.duration > 0 {
		s.Messages = 0
	}
	return s
}

// setups exchanges setups.
func (x *exchange) setups(mine setup) (theirs setup, err error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return theirs, err
	}
	const what = "exchanging what both sides do"
	if b, err = x.swap(what, append(b, bytes.Repeat([]byte{' '}, setupLen-len(b))...), ""); err != nil {
		return theirs, err
	}
	if err = json.Unmarshal(b, &theirs); err != nil {
		return theirs, fmt.Errorf("%s: %w", what, err)
	}
	theirs.Tool, theirs.Transport = stranger.Text(theirs.Tool), stranger.Text(theirs.Transport)
	return theirs, nil
}

// differs returns an error with the settings of the other side that don't match this side's.
func (o *options) differs(theirs setup) error {
	mine := o.setup()
	// A server that only answers accepts any number of messages, of any size that fits its memory.
	answers := !o.receives() && !o.duplex && !(o.tool.latency && o.tool.verb == write)
	asked, memory := mine, theirs
	if !o.sender() {
		asked, memory = theirs, mine
	}
	for _, d := range []struct {
		option       string
		mine, theirs any
		free         bool
	}{
		{"", mine.Tool, theirs.Tool, false},
		{"-c", mine.Transport, theirs.Transport, false},
		{"-q", mine.QPs, theirs.QPs, false},
		{"-b", mine.Duplex, theirs.Duplex, false},
		{"--reversed", mine.Reversed, theirs.Reversed, false},
		{"immediate data", mine.Immediate, theirs.Immediate, false},
		{"-a", mine.All, theirs.All, answers && asked.Bytes <= memory.Bytes},
		{"-s", mine.Bytes, theirs.Bytes, answers && asked.Bytes <= memory.Bytes || mine.All},
		{"-D", mine.Seconds, theirs.Seconds, answers},
		{"-n", mine.Messages, theirs.Messages, answers},
	} {
		if d.mine == d.theirs || d.free {
			continue
		}
		if d.option == "" {
			return fmt.Errorf("the other side runs %v, and this one %v", d.theirs, d.mine)
		}
		return fmt.Errorf("the other side has %s, and this one %s: both need the same", given(d.option, d.theirs), given(d.option, d.mine))
	}
	return nil
}

// given formats an option with its value.
func given(option string, value any) string {
	switch value {
	case true:
		return option
	case false, 0:
		return "no " + option
	}
	return fmt.Sprintf("%s %v", option, value)
}
