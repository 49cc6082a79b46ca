package firmware

// Mutate makes the HCA make a mistake of package mutant from now on, every n-th time if it
// is made now and then. No name ends it.
func (h *HCA) Mutate(name string, n int) error { return h.mutant.Choose(name, n) }
