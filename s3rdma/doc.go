// Package s3rdma moves the bodies of S3 requests by RDMA. It speaks the protocol of NVIDIA's
// cuObject, which S3 servers such as AIStor, Ceph, NooBaa and versitygw know, on both sides.
//
// Requests, answers and signatures travel over HTTP as before. A client that has a body in
// registered memory describes that memory in the header x-amz-rdma-token. The server reads the
// body of a PUT from there, or writes that of a GET to there, and says so in x-amz-rdma-reply.
// The HTTP body is then empty. The transport is DC, over InfiniBand and RoCE, which mlx5 adapters
// have: there are no connections, and the client's processor takes no part.
//
// # Clients
//
// A [Client] is an http.RoundTripper, for the clients of S3 that let a program choose one:
//
//	dev, err := verbs.Open("")
//	transport, err := s3rdma.NewClient(dev, s3rdma.ClientOptions{})
//	s3 := minio.New(endpoint, &minio.Options{Transport: transport, …})
//
// It sends the bodies of PutObject and UploadPart, and receives those of GetObject, in whole or in
// ranges. All other requests, and those that the server declines, take the way of
// [ClientOptions.Next] unchanged. A body that was offered and declined is sent again over HTTP from
// the registered memory, so that the caller's reader is read once.
//
// A server that doesn't know the protocol ignores the token, and stores an empty object. So a body
// is offered only to a host that has shown that it knows the protocol, by the reply to a GET, or if
// [ClientOptions.Assume] says that all do. A PUT counts as done if the server confirms it, by
// x-amz-rdma-reply or by repeating the request's checksum. Otherwise the body is sent over HTTP.
//
// A body that the caller has in registered memory needs no copy: see [WithMemory].
//
// # Signatures
//
// S3's clients sign a request before the RoundTripper sees it. What the Client changes then is
// the token, which is not signed, and the length of the HTTP body. This package's [Server] restores
// the request that was signed before it passes it on. So signatures hold, also those that contain
// a hash of the body.
//
// Other servers check the request as it arrives: with the token among the signed headers, no
// content-length, and UNSIGNED-PAYLOAD in place of the hash. [ClientOptions.Sign] signs each request
// again. It takes a few lines with the signer of the client at hand: see docs/s3rdma.md.
//
// A body in chunks with signatures or trailers of their own (aws-chunked) is no object but a message
// to the server's HTTP side. It always goes over HTTP.
//
// # Servers
//
// A [Server] is an http.Handler in front of any S3 server: one written in Go, or another behind
// httputil.ReverseProxy. The handler finds a request's body in Request.Body, and writes an answer's to
// its ResponseWriter:
//
//	server, err := s3rdma.NewServer(dev, handler, s3rdma.ServerOptions{})
//	http.ListenAndServe(":9000", server)
//
// The body is read when the handler first asks for it, and an answer is written when the handler
// begins it. So a handler that refuses a stranger moves nothing.
//
// # Reliable connections
//
// Devices without DC, such as Soft-RoCE's, have AMD's variant of the protocol: [NewRCClient] and
// [RCServer]. It takes two requests and a connection for each body, and passes on less of a request.
//
// # What a token grants
//
// A token is the right to read, or to write, one piece of the client's memory. Whoever has it and
// reaches the client's port can use it: the DC key, which has to match, is the same for everybody
// unless [ClientOptions.DCKey] says otherwise. So tokens need TLS where strangers listen. The data itself is
// not encrypted.
//
// A Client registers memory for PUTs for reading only, and memory for GETs for writing only, each buffer
// for itself. The token of a buffer stays valid while the Client uses the buffer for later requests.
// With [ClientOptions.Revoke], it ends with its request. When a request ends without an answer, its
// buffer is deregistered in any case: the server may still be at work on it.
//
// A Server takes tokens for what they are, input from a stranger. It checks each field, and uses only the
// memory that the token names. [ServerOptions.Allow] restricts the ports that it will reach.
package s3rdma
