package selftest

import "testing"

func TestRelevant(t *testing.T) {
	for line, want := range map[string][2]bool{
		"eth0: link up": {false, false},
		"mlx5_core 0000:01:00.0: firmware version: 16":                         {true, false},
		"infiniband mlx5_0: destroy_qp: failed to destroy":                     {true, true},
		"infiniband mlx5_2: create_qp:3087:(pid 298): Create QP type 2 failed": {true, false},
		"mlx5_core 0000:03:00.0: mlx5_cmd_out_err:808:(pid 404): ALLOC_XRCD(0x80e) op_mod(0x0) failed, status no resources(0xf), syndrome (0x0), err(-11)": {true, false},
		"mlx5_core 0000:03:00.0: mlx5_cmd_out_err:808:(pid 404): CREATE_QP(0x500) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x0), err(-22)": {true, true},
		"WARNING: CPU: 1 PID: 5 at lib/refcount.c": {false, true},
	} {
		if about, trouble := relevant(line); [2]bool{about, trouble} != want {
			t.Errorf("%q: %v, %v", line, about, trouble)
		}
	}
}
