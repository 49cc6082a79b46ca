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

// A logFile writes the HCAs' events as lines of JSON. It is safe for concurrent use.
type logFile struct {
	mu    sync.Mutex
	w     *bufio.Writer
	order uint64
	now   func() time.Duration
}

func newLogFile(w io.Writer, now func() time.Duration) *logFile {
	return &logFile{w: bufio.NewWriterSize(w, 1<<20), now: now}
}

// A line is one line of the file. Fields that don't belong to its Event are omitted.
type line struct {
	Order  uint64 // counts the lines of all HCAs
	Time   int64  // nanoseconds since the program started
	HCA    int
	Event  string // command, doorbell, send or receive
	Name   string `json:",omitempty"` // of the command
	Opcode uint16 `json:",omitempty"`
	Status *uint8 `json:",omitempty"`
	In     string `json:",omitempty"` // command mailboxes, in hexadecimal
	Out    string `json:",omitempty"`
	// The address of a doorbell in BAR0, and its size in bytes.
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
		panic(err) // a bug: the line can't be encoded
	}
	// If a write fails, for example because the disk is full, flushing fails too.
	_, _ = f.w.Write(append(text, '\n'))
}

func (f *logFile) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.w.Flush()
}

// An hcaLog is one HCA's part of a logFile. It implements firmware.Log.
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
