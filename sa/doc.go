// Package sa queries the subnet administration (SA) of an InfiniBand subnet about nodes, ports,
// the paths between them, and multicast groups. It also joins and leaves these groups.
//
// A [Client] sends over a [umad.Port]. The SA is at the subnet manager's address. The kernel keeps
// the manager's LID for each port, and the client reads it for each request. So the client follows
// when another manager takes over.
//
// A query is a record with some of its components given, and a [Mask] that selects them. The
// SA answers with the matching records. If no component is given, all records match.
//
// The records and the names of their components are those of the InfiniBand Architecture
// Specification, volume 1, chapter 15. The Client's methods for tables send SubnAdmGetTable. The
// kernel assembles answers longer than a MAD, by RMPP.
//
// Answers are not trusted. An answer whose header doesn't fit the request, or whose length doesn't
// fit its records, is an error.
package sa
