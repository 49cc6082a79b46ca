//go:build amd64 || arm64

package tracee

import (
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// ClassCMID is the class of the connection manager's IDs, which are no uverbs objects.
const ClassCMID = 0xfffe

// An ObjectKey identifies an object of a file. Handles are reused.
type ObjectKey struct {
	Class  uint16 // UVERBS_OBJECT_..., or ClassCMID
	Handle uint64
}

// KeyOf returns the key of an object.
func KeyOf(class uint16, handle uint64) ObjectKey { return ObjectKey{class, handle} }

// An object is the last object that had a handle.
type object struct {
	generation int // counts the objects that had the handle, from 1
	before     bool
	Alive      bool
	User       uint64 // user_handle: the address of libibverbs' struct
	Number     uint64 // a QP's number, a memory region's lkey
	UD         bool   // a connection manager's ID is for datagrams
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

// Made records that an object was created.
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

// Seen returns the object with a key. If its creation was not traced, it existed before.
func (f *File) Seen(k ObjectKey) *object {
	o := f.Objects[k]
	if o == nil {
		o = &object{generation: 1, before: true, Alive: true}
		f.Objects[k] = o
	}
	return o
}

// ByUser returns the key of the object with a user_handle.
func (f *File) ByUser(class uint16, user uint64) (ObjectKey, bool) {
	for k, o := range f.Objects {
		if k.Class == class && o.User == user && o.Alive {
			return k, true
		}
	}
	return ObjectKey{}, false
}
