// Package release has the store that ends a critical section, or hands over what
// was written before it, where sync/atomic has only a costlier one.
package release
