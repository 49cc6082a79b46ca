package filter

import (
	"slices"
	"testing"
)

// TestWords: verbs of all kinds may be named: those of ioctls, of write commands and of
// extended ones.
func TestWords(t *testing.T) {
	words := Words()
	for _, want := range []string{
		"all", "failed", "post_send", "create_cq", "reg_mr", "dereg_mr", "alloc_pd", "dealloc_pd", "query_device", "query_port", "query_device_ex",
		"create_ah", "destroy_ah", "attach_mcast", "detach_mcast", "open_xrcd", "close_xrcd", "modify_qp", "query_qp", "resize_cq", "create_flow", "destroy_flow",
	} {
		if !slices.Contains(words, want) {
			t.Errorf("%s is not among the words", want)
		}
	}
	if !slices.IsSorted(words) || len(slices.Compact(slices.Clone(words))) != len(words) {
		t.Error("the words are not sorted, each once")
	}
}
