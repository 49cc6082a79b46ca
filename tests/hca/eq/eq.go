// Package eq is an event queue of the HCA: it writes event queue entries
// (struct mlx5_eqe of include/linux/mlx5/device.h) and interrupts.
package eq

import "github.com/goverbs/goverbs/tests/hca/bus"

// Config is what CREATE_EQ says of a queue.
type Config struct {
	Number  uint8
	Memory  bus.Memory
	Buffer  bus.Buffer
	LogSize uint // entries of 64 bytes
	// Interrupt raises the queue's MSI-X vector.
	Interrupt func()
}

// EQ is an event queue. It is for one goroutine.
type EQ struct {
	c        Config
	producer uint32 // of all entries ever written
	consumer uint32 // 24 bits of it are told by the driver
	armed    bool
	dropped  uint64
}

// New returns an empty queue, not armed.
func New(c Config) *EQ { return &EQ{c: c} }

// Number is what the queue was created with.
func (q *EQ) Number() uint8 { return q.c.Number }

// Post writes an event and interrupts if the queue is armed.
func (q *EQ) Post(e Event) {}

// Doorbell is the driver's write to the queue's UAR: at 0x40 (arm) or at 0x48.
func (q *EQ) Doorbell(arm bool, consumer uint32) {}

// State is the live part of the queue's context, for QUERY_EQ.
type State struct {
	Status             uint8 // 0 OK, 9 write error, 10 overflow
	ST                 uint8 // 9 armed, 10 fired
	Producer, Consumer uint32
}

// State returns it.
func (q *EQ) State() State { return State{} }
