package xfer

import (
	"errors"
	"hash/crc32"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goverbs/goverbs/xfer"
)

// A client connects by TCP, and sends a hello. The server answers with a welcome, and then each
// request in its order. All messages are JSON, one a line. What files contain goes over RDMA: the
// server reads a piece of a file into a slot of memory, where only this client may read and write,
// and the client reads it from there.

const (
	protocol  = 1
	slots     = 16
	slotBytes = 1 << 20
	maxPath   = 4096

	maxMessage = 16 << 10    // bytes
	greeting   = time.Minute // for a hello
	patience   = 2 * time.Minute
	alive      = patience / 4 // between a client's signs of life
)

type hello struct {
	Protocol int `json:"ibv_xfer"`
}

type welcome struct {
	Error  string      `json:"error,omitempty"` // why this client isn't served
	Port   int         `json:"port"`            // where the engine listens
	Memory xfer.Remote `json:"memory,omitzero"` // the slots
}

// A request asks for what is at a path, which is relative to the served folder. Paths are bytes:
// they need not be text.
type request struct {
	Do   string `json:"do"` // list, get, alive
	Path []byte `json:"path,omitempty"`
	Off  int64  `json:"off,omitempty"` // get: the place in the file, and the slot that it goes to
	N    int    `json:"n,omitempty"`
	Slot int    `json:"slot,omitempty"`
}

// A reply answers a request. A list is answered by a reply for each entry, and one without.
type reply struct {
	Error string `json:"error,omitempty"`
	Entry *entry `json:"entry,omitempty"`
	// get: the file as it is now, how many bytes are in the slot, and their sum
	Size int64  `json:"size,omitempty"`
	Time int64  `json:"time,omitempty"`
	N    int    `json:"n,omitempty"`
	Sum  uint32 `json:"sum,omitempty"`
}

// An entry is a file or a folder.
type entry struct {
	Path    []byte `json:"path"`
	Folder  bool   `json:"folder,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Time    int64  `json:"time,omitempty"`     // of its last change, in nanoseconds since 1970
	Mode    uint32 `json:"mode,omitempty"`     // permissions
	LeftOut string `json:"left_out,omitempty"` // why it is not served
	Unread  bool   `json:"unread,omitempty"`   // it should be, and could not be read
}

// sum is the checksum of a slot. It finds what a link or a memory has damaged. It is no proof
// against a server, which may send what it wants anyway.
func sum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// reason returns the text of an error about a path that the reader knows.
func reason(err error) string {
	if p, ok := err.(*fs.PathError); ok {
		err = p.Err
	}
	return err.Error()
}

// unfinished ends the names of files that aren't whole yet.
const unfinished = ".ibv-part"

var errPath = errors.New("not a path inside the folder")

// inside checks a path that the other side names: it doesn't leave the folder that it is relative to.
// That it doesn't by way of a symbolic link either is the concern of os.Root.
func inside(p []byte) (string, error) {
	name := string(p)
	if len(name) > maxPath || path.Clean(name) != name || !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return "", errPath
	}
	return name, nil
}
