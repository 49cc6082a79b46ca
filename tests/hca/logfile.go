//go:build linux

package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// logFile writes what happens to HCAs as lines of JSON. It is for any goroutine.
type logFile struct {
	mu    sync.Mutex
	w     *bufio.Writer
	order uint64
	now   func() time.Duration
}

func newLogFile(w io.Writer, now func() time.Duration) *logFile {
	return &logFile{w: bufio.NewWriterSize(w, 1<<20), now: now}
}

// line is one line of the file: what of it does not belong to an Event is left out.
type line struct {
	Order  uint64 // counts the lines of all HCAs
	Time   int64  // nanoseconds since the program began
	HCA    int
	Event  string // command, doorbell, send or receive
	Name   string `json:",omitempty"` // of the command
	Opcode uint16 `json:",omitempty"`
	Status *uint8 `json:",omitempty"`
	In     string `json:",omitempty"` // boxes, in hexadecimal
	Out    string `json:",omitempty"`
	// Address is that of a doorbell in BAR0, Size its bytes.
	Address uint64  `json:",omitempty"`
	Size    int     `json:",omitempty"`
	QPN     uint32  `json:",omitempty"`
	SRQN    uint32  `json:",omitempty"`
	Index   *uint16 `json:",omitempty"` // of the WQE in its queue
	Bytes   string  `json:",omitempty"` // of the doorbell or the WQE, in hexadecimal
}

func (f *logFile) put(l line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.order++
	l.Order, l.Time = f.order, int64(f.now())
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // no line has what JSON does not know
	}
	// A write that fails (a full disk) fails again when flushed.
	_, _ = f.w.Write(append(text, '\n'))
}

func (f *logFile) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w.Flush()
}

// hcaLog is the part of a logFile that belongs to one HCA; it implements
// firmware.Log.
type hcaLog struct {
	f   *logFile
	hca int
}

func (t hcaLog) Command(opcode uint16, name string, status uint8, in, out []byte) {
	t.f.put(line{HCA: t.hca, Event: "command", Name: name, Opcode: opcode, Status: &status, In: hex.EncodeToString(in), Out: hex.EncodeToString(out)})
}

func (t hcaLog) Doorbell(uar, offset uint32, data []byte) {
	const uarSize = 4096
	t.f.put(line{HCA: t.hca, Event: "doorbell", Address: uint64(uar)*uarSize + uint64(offset), Size: len(data), Bytes: hex.EncodeToString(data)})
}

func (t hcaLog) Send(qpn uint32, index uint16, wqe []byte) {
	t.f.put(line{HCA: t.hca, Event: "send", QPN: qpn, Index: &index, Bytes: hex.EncodeToString(wqe)})
}

func (t hcaLog) Receive(qpn, srqn uint32, index uint16, wqe []byte) {
	t.f.put(line{HCA: t.hca, Event: "receive", QPN: qpn, SRQN: srqn, Index: &index, Bytes: hex.EncodeToString(wqe)})
}
