package event

import "time"

// A Kind says what an event is.
type Kind string

const (
	Control Kind = "control" // a verb that the kernel runs
	Data    Kind = "data"    // a verb that posts or polls, in the program's own memory
	CM      Kind = "cm"      // a command of the connection manager
	Async   Kind = "event"   // an event that was read: a completion channel's, an asynchronous one, the connection manager's
	Map     Kind = "map"     // a device's pages were mapped
	Open    Kind = "open"    // a device or an event file was opened
	Close   Kind = "close"   // such a file was closed for the last time, and with it all that it held
	Exit    Kind = "exit"    // a process ended
	Note    Kind = "note"    // something that ibvtrace says, in Why
)

// An Event is something that a traced program did.
type Event struct {
	Time time.Time // when it began
	PID  int
	TID  int
	Comm string // the thread's name
	Kind Kind

	// Verb is the function that a C program calls for this: "ibv_create_qp",
	// "rdma_connect". Unknown ones have numbers: "ibv_object_0x33_method_0x2".
	Verb   string
	Object string // a control verb's object in the kernel's headers: "QP"
	Method string // and its method: "UVERBS_METHOD_QP_CREATE"

	Device string // "rxe0"; "" if the file is none of a device
	Driver string // the kernel's rdma_driver_id: "RXE"
	File   int    // which open file, unique in a trace, from 1 on; 0: none that is known
	FD     int    // the descriptor that was used; -1: none
	Path   string // what FD is if it is none of RDMA's

	Args []Field // what went in, in order
	Out  []Field // what came out, new objects first
	// Problem is why Args are incomplete or missing.
	Problem string

	Returned bool   // else Ret to Timed say nothing: its thread died in it
	Ret      int64  // what the call returned: -1 for an error
	Errno    string // "ENOMEM", "" if it did not fail
	Error    string // libc's words for it
	// Rejects is the argument that the kernel rejects, where that can be told.
	Rejects string
	// Why explains a failure in the words of verbs, that of a completion too; a
	// Note's text.
	Why      string
	Duration time.Duration
	Timed    bool // Duration is known

	Created   []Object
	Destroyed []Object

	// Raw are the attributes of the ioctl as they were given.
	Raw []RawAttr
}

// Failed reports whether the verb failed.
func (e *Event) Failed() bool { return e.Errno != "" }

// Broken returns the status of the first completion that the verb gave and that is
// no success, "" if there is none, and how many there are.
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

// An Object is one that the kernel holds for a program.
type Object struct {
	Type   string `json:"type"`             // "pd", "mr", "cq", "qp", "comp_channel", "cm_id", ...
	Handle uint64 `json:"handle"`           // what the kernel calls it, unique among those that live in File
	Gen    int    `json:"gen"`              // which one with this handle, from 1 on: handles are used again
	File   int    `json:"file"`             // see [Event].File
	Num    uint64 `json:"num,omitempty"`    // a QP's number; an MR's lkey
	Before bool   `json:"before,omitempty"` // it was there before ibvtrace attached
}

// A RawAttr is one struct ib_uverbs_attr.
type RawAttr struct {
	ID    uint16
	Name  string // "UVERBS_ATTR_CREATE_QP_PD_HANDLE", "" if unknown
	Len   uint16
	Flags uint16
	Elem  uint16 // the union beside flags: an enumeration's element
	Data  uint64 // the value, or its address
	Bytes []byte // what is there, if it was read
}

// A Sink takes events in the order in which they ended. Close writes what is left.
type Sink interface {
	Event(*Event) error
	Close() error
}
