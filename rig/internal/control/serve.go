package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
)

// Serve replies to requests. Each request and each reply is a line of JSON.
func Serve(l *net.UnixListener, carryOut func(Request) (any, error)) error {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				if _, err := c.Write(append(Answer(lines.Bytes(), carryOut), '\n')); err != nil {
					return
				}
			}
		}()
	}
}

// Answer has a request carried out, and returns the reply.
func Answer(line []byte, carryOut func(Request) (any, error)) []byte {
	var reply struct {
		Error  string `json:",omitempty"`
		Result any    `json:",omitempty"`
	}
	r, err := Parse(line)
	if err == nil {
		reply.Result, err = carryOut(r)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	text, err := json.Marshal(reply)
	if err != nil {
		panic(err) // a bug: the result can't be encoded
	}
	return text
}

// Parse reads a request.
func Parse(line []byte) (r Request, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err = d.Decode(&r)
	return r, err
}
