// Package event has the events of a trace, and their JSON format. The format is versioned
// and stable. The Go API is not.
//
// # JSON
//
// A trace has one object per line. The first seven of these fields are always present.
// Other fields are omitted if they are empty or zero, unless stated otherwise.
//
//	v         string   version of this format: "1.0"
//	ts        string   RFC 3339 with nanoseconds, UTC: when it began
//	pid       number   process
//	tid       number   thread
//	comm      string   the thread's name
//	kind      string   control, data, cm, event, map, open, close, exit or note
//	verb      string   "ibv_create_qp", "rdma_connect"; the event file's call for events
//	object    string   control: as the kernel's headers name it, or a number
//	method    string   control: as the kernel's headers name it, or a number
//	dev       string   RDMA device, "rxe0"
//	driver    string   RDMA driver, as the kernel's enum rdma_driver_id names it
//	file      number   which open file; unique in a trace, from 1 on
//	fd        number   the file descriptor that was used
//	path      string   what fd refers to, if it is not an RDMA file
//	args      object   the inputs by name, in order
//	out       object   the outputs by name, new objects first
//	types     object   types of values in args and out, see below
//	problem   string   why args are incomplete
//	ret       number   what the call returned, -1 for an error; omitted if it did not return
//	errno     string   such as "ENOSPC"
//	error     string   libc's words for it
//	rejects   string   the argument that the kernel rejects, where that can be told
//	why       string   a failure explained in the words of verbs; a note's text
//	dur_ns    number   duration in nanoseconds; omitted if it is not known
//	created   array    of objects, see below
//	destroyed array    of objects
//	raw       array    with --raw, the ioctl's attributes, see below
//
// In args and out, integers are numbers with all digits (a reader that uses doubles loses
// some of 64-bit integers). Values of enumerations, GIDs and addresses are strings. Sets of
// flags are arrays of strings. Names of values and flags lack the kernel's prefix. Pointers
// are strings such as "0x7f00", and other bytes are strings of hexadecimal digits. Memory
// that could not be read is {"unreadable": "0x7f00"}.
//
// The fields of types are paths such as "args.cap.flags" or "args.sge.0.lkey".
// Their values are the types of numbers and strings: "hex", "fd", "ptr", "text", "bytes",
// "word", "list" or, for a handle, the object type and the generation: "pd#1".
//
// An object is {"type": "qp", "handle": 7, "gen": 1, "file": 2, "num": 17}. num is a QP's
// number or a memory region's lkey. After an object is destroyed, another one may get the
// same file and handle; gen counts them. "before": true marks objects that were created
// before ibvtrace attached.
//
// A raw attribute is {"id": 0, "name": "UVERBS_ATTR_...", "len": 8, "flags": 1,
// "elem": 0, "data": "0x3", "bytes": "0300"}.
//
// New fields, kinds and types increase the second number of the version. Readers skip
// these. All other changes increase the first number. Readers refuse a newer first number.
//
// # Verbs that post and poll
//
// The figure and the statistics rely on these names. ibv_post_send, ibv_post_recv,
// ibv_post_srq_recv and ibv_post_wq_recv have args qp, srq or wq, and wr. The latter is a
// list of structs with wr_id, opcode, length (in bytes, over all SGEs) and the other fields
// of the work request. ibv_poll_cq has args cq and num_entries, and out wc, a list of structs
// with wr_id, status, opcode, byte_len and qp_num. It returns their number. The work requests
// of one doorbell may be one event or several.
package event
