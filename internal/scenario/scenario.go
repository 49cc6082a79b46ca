// Package scenario has the scenarios that both `ibv selftest` and the tests on devices run:
// exchanges of data, atomic operations, and requests that must fail. A scenario fills the
// memory of two ends. It defines the requests to post, the completions to expect, and the final
// contents of memory. Its runner makes the ends, posts and polls.
package scenario
