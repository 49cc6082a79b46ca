//go:build amd64 || arm64

package tracee

import (
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// ClassCMID is the class of the connection manager's ids, which have no number
// among the objects of uverbs.
const ClassCMID = 0xfffe

// An ObjectKey names an object of a file. Handles are used again.
type ObjectKey struct {
	Class  uint16 // UVERBS_OBJECT_..., or classCMID
	Handle uint64
}

// KeyOf returns the key of the object of a class that has a handle.
func KeyOf(class uint16, handle uint64) ObjectKey { return ObjectKey{class, handle} }

// An object is one, or the trace of one that is gone.
type object struct {
	generation int // counts those that had the handle, from 1
	before     bool
	Alive      bool
	User       uint64 // what the program calls it: user_handle
	Number     uint64 // a QP's number, a memory region's lkey
	UD         bool   // of the connection manager: for datagrams
}

// ClassName returns the word for a class of objects.
func ClassName(driver uapi.RdmaDriverId, class uint16) string {
	if class == ClassCMID {
		return "cm_id"
	}
	if o := uapi.LookupObject(driver, class); o != nil {
		return strings.ToLower(o.Name)
	}
	return "object"
}

// Made notes that an object has come to be.
func (f *File) Made(k ObjectKey) *object {
	o := f.Objects[k]
	if o == nil {
		o = &object{}
		f.Objects[k] = o
	}
	o.generation++
	*o = object{generation: o.generation, Alive: true}
	return o
}

// Seen returns an object that was named. If nobody saw it come, it was there before.
func (f *File) Seen(k ObjectKey) *object {
	o := f.Objects[k]
	if o == nil {
		o = &object{generation: 1, before: true, Alive: true}
		f.Objects[k] = o
	}
	return o
}

// ByUser returns the object that the program calls so.
func (f *File) ByUser(class uint16, user uint64) (ObjectKey, bool) {
	for k, o := range f.Objects {
		if k.Class == class && o.User == user && o.Alive {
			return k, true
		}
	}
	return ObjectKey{}, false
}
