//go:build !linux

package verbs

func (c *Context) watchRemoval() (stop func()) { return func() {} }
