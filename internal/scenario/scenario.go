// Package scenario describes the scenarios that both `ibv selftest` and the tests on devices run: exchanges
// of data, atomic operations, and requests that must fail. A scenario fills the memory of two
// ends. It returns the requests to post, and the expected completions and memory. The caller
// creates the ends, posts and polls.
package scenario
