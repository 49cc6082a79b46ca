// Package sa asks the administration of an InfiniBand subnet (SA) about the subnet: its nodes, its
// ports, the paths between them, and the multicast groups. It also joins and leaves these groups.
//
// A [Client] sends over a [umad.Port]. The SA is where the subnet manager is. The kernel keeps the
// manager's LID for each port, and the client reads it for each request, so a client follows when
// another manager takes over.
//
// A query is a record with some of its components given, and a [Mask] that says which. The SA
// answers with the records that agree. With no component given, these are all of them.
//
// The records and the names of their components are those of the InfiniBand Architecture
// Specification, volume 1, chapter 15. The Client's methods for tables send SubnAdmGetTable. The
// kernel assembles answers longer than a MAD, by RMPP.
//
// Nothing that arrives is trusted. An answer whose header doesn't fit the request, or whose length
// doesn't fit its records, is an error.
package sa
