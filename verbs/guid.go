package verbs

import "github.com/goverbs/goverbs/ib"

// A GUID is a 64-bit identifier of a node or a system, in network byte order
// (InfiniBand Architecture Specification, volume 1, 4.1).
type GUID = ib.GUID
