// Package scenario describes the scenarios of `ibv selftest` and of the tests on devices:
// exchanges of data, atomic operations, and requests that must fail. A scenario fills the
// memory of two ends and says what to post, what must complete, and what the memory must be
// then. The caller makes the ends, posts and polls.
package scenario
