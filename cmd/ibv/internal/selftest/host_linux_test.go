package selftest

import "testing"

func TestRelevant(t *testing.T) {
	for line, want := range map[string][2]bool{
		"eth0: link up": {false, false},
		"mlx5_core 0000:01:00.0: firmware version: 16":                         {true, false},
		"infiniband mlx5_0: destroy_qp: failed to destroy":                     {true, true},
		"infiniband mlx5_2: create_qp:3087:(pid 298): Create QP type 2 failed": {true, false},
		"WARNING: CPU: 1 PID: 5 at lib/refcount.c":                             {false, true},
	} {
		if about, trouble := relevant(line); [2]bool{about, trouble} != want {
			t.Errorf("%q: %v, %v", line, about, trouble)
		}
	}
}
