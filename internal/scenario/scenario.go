// Package scenario describes what both `ibv selftest` and the tests on devices run: exchanges
// of data, atomic operations, and requests that must fail. A scenario fills the memory of two
// ends and says what to post, what must complete, and what the memory must be then. Who runs it
// makes the ends, posts and polls.
package scenario
