package event

import (
	"strings"
	"time"
)

// A Kind is the kind of an event.
type Kind string

const (
	Control Kind = "control" // a verb that the kernel runs
	Data    Kind = "data"    // a verb that posts or polls, in the program's memory
	CM      Kind = "cm"      // a command of the connection manager
	Async   Kind = "event"   // an event was read: of a completion channel, asynchronous, or of the connection manager
	Map     Kind = "map"     // a device's pages were mapped
	Open    Kind = "open"    // a device or an event file was opened
	Close   Kind = "close"   // the last descriptor of such a file was closed, which destroys its objects
	Exit    Kind = "exit"    // a process ended
	Note    Kind = "note"    // a message of ibvtrace, in Why
)

// An Event is a call of a traced program, or another event of the trace: see Kind.
type Event struct {
	Time time.Time // when it began
	PID  int
	TID  int
	Comm string // the thread's name
	Kind Kind

	// Verb is the corresponding C function: "ibv_create_qp", "rdma_connect". For an unknown
	// verb it has numbers: "ibv_object_0x33_method_0x2".
	Verb   string
	Object string // a control verb's object in the kernel's headers: "QP"
	Method string // and its method: "UVERBS_METHOD_QP_CREATE"

	Device string // "rxe0"; "" if the file is not a device's
	Driver string // the kernel's rdma_driver_id: "RXE"
	File   int    // the number of the open file, unique in a trace, from 1; 0 if unknown
	FD     int    // the descriptor that was used, or -1
	Path   string // what FD refers to, if it is not an RDMA file

	Args []Field // the inputs, in order
	Out  []Field // the outputs, new objects first
	// Problem is why Args are incomplete or missing.
	Problem string

	Returned bool   // if false, its thread died in it, and Ret to Timed are not set
	Ret      int64  // what the call returned: -1 for an error
	Errno    string // "ENOMEM", "" if it did not fail
	Error    string // libc's words for it
	// Rejects is the argument that the kernel rejects, if that is known.
	Rejects string
	// Why explains a failure of the call or of a completion, in terms of verbs. For a Note it
	// is the text.
	Why      string
	Duration time.Duration
	Timed    bool // Duration is known

	Created   []Object
	Destroyed []Object

	// Raw has the attributes of the ioctl as they were passed.
	Raw []RawAttr
}

// Failed reports whether the verb failed.
func (e *Event) Failed() bool { return e.Errno != "" }

// NoError begins the Why of a verb that fails in programs in which all is well.
const NoError = "no error: "

// Harmless reports whether a failure is none of the program: the verb fails where all is well, or
// the kernel restarts it after a signal.
func (e *Event) Harmless() bool {
	return strings.HasPrefix(e.Why, NoError) || strings.HasPrefix(e.Errno, "ERESTART")
}

// Wrong reports whether the verb failed or returned a failed completion, and not harmlessly.
func (e *Event) Wrong() bool {
	_, broken := e.Broken()
	return (e.Failed() || broken > 0) && !e.Harmless()
}

// Broken returns the status of the first failed completion that the verb returned, or "",
// and the number of failed completions.
func (e *Event) Broken() (status string, n int) {
	wcs := Find(e.Out, "wc")
	if wcs == nil {
		return "", 0
	}
	for i := range wcs.Elems {
		if s := Find(wcs.Elems[i].Fields, "status"); s != nil && s.Form == Word && s.Str != "SUCCESS" {
			if n++; n == 1 {
				status = s.Str
			}
		}
	}
	return status, n
}

// An Object is a program's object in the kernel.
type Object struct {
	Type   string `json:"type"`             // "pd", "mr", "cq", "qp", "comp_channel", "cm_id", ...
	Handle uint64 `json:"handle"`           // the kernel's handle, unique among the existing objects of File
	Gen    int    `json:"gen"`              // counts the objects with this handle, from 1: handles are reused
	File   int    `json:"file"`             // see [Event].File
	Num    uint64 `json:"num,omitempty"`    // a QP's number; an MR's lkey
	Before bool   `json:"before,omitempty"` // it existed before ibvtrace attached
}

// A RawAttr is one struct ib_uverbs_attr.
type RawAttr struct {
	ID    uint16
	Name  string // "UVERBS_ATTR_CREATE_QP_PD_HANDLE", "" if unknown
	Len   uint16
	Flags uint16
	Elem  uint16 // the union beside flags: an enumeration's element
	Data  uint64 // the value, or its address
	Bytes []byte // the bytes at the address, if they were read
}

// A Sink receives events in the order in which they ended. Close writes remaining output.
type Sink interface {
	Event(*Event) error
	Close() error
}
