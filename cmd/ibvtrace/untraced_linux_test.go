//go:build amd64

package main

import (
	"testing"
)

// TestUntraced traces a program that makes children which no tracer is to have. They have
// its filters all the same, so their opens must not fail, and they are shown.
func TestUntraced(t *testing.T) {
	needDevice(t)
	program := compiled(t, "untraced")
	for _, how := range []string{"clone", "clone3", "thread"} {
		t.Run(how, func(t *testing.T) {
			p := onDevice(t, "--", program, how)
			if err := p.Run(); err != nil {
				t.Fatalf("%v %s", err, p.out.String())
			}
			shown := make(map[string]int)
			for _, e := range readEvents(t, p.file) {
				shown[e.Verb]++
			}
			if shown["open"] != 1 || shown["ibv_dealloc_pd"] != 1 {
				t.Errorf("the child's verbs: %v", shown)
			}
		})
	}
}
