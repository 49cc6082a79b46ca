//go:build amd64 || arm64

package probes

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestLayout compares what is known of libibverbs' structs with its headers.
func TestLayout(t *testing.T) {
	unit := bytes.NewBufferString("#include <stddef.h>\n#include <infiniband/verbs.h>\n")
	n := 0
	equal := func(expression string, want uint64) {
		n++
		fmt.Fprintf(unit, "_Static_assert(%s == %d, \"want %[2]d\");\n", expression, want)
	}
	offset := func(structure, field string, want uint64) {
		equal(fmt.Sprintf("offsetof(struct %s, %s)", structure, field), want)
	}
	offset("ibv_context", "cmd_fd", contextCmdFD)
	offset("ibv_context", "abi_compat", contextCompat)
	equal("offsetof(struct ibv_context, abi_compat) + sizeof(void *)", contextBytes)
	offset("ibv_qp", "context", qpContext)
	offset("ibv_qp", "handle", qpHandle)
	offset("ibv_qp", "qp_num", qpNumber)
	offset("ibv_qp", "state", qpState)
	offset("ibv_qp", "qp_type", qpType)
	equal("offsetof(struct ibv_qp, qp_type) + sizeof(enum ibv_qp_type)", qpBytes)
	offset("ibv_qp_ex", "wr_id", qpExWRID)
	offset("ibv_qp_ex", "wr_flags", qpExFlags)
	offset("ibv_cq", "handle", cqHandle)
	offset("ibv_cq_ex", "status", cqExStatus)
	offset("ibv_cq_ex", "wr_id", cqExWRID)
	offset("ibv_srq", "handle", srqHandle)
	offset("ibv_wq", "handle", wqHandle)
	offset("ibv_ah", "handle", ahHandle)
	offset("ibv_mw", "handle", mwHandle)
	equal("sizeof(pthread_mutex_t)", mutexBytes)
	equal("sizeof(pthread_cond_t)", condBytes)
	equal("sizeof(struct ibv_send_wr)", sendWRBytes)
	equal("sizeof(struct ibv_recv_wr)", recvWRBytes)
	for _, table := range []struct {
		structure, prefix string
		ops               []operation
	}{
		{"ibv_context", "ops.", contextOps}, {"ibv_qp_ex", "", qpOps}, {"ibv_qp_ex", "", batchOps}, {"ibv_cq_ex", "", cqOps},
	} {
		for i := range table.ops {
			op := &table.ops[i]
			if op.name == "ibv_wr_flush" { // Debian 12's headers end before it
				equal("offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void *)", op.offset)
				continue
			}
			offset(table.structure, table.prefix+strings.TrimPrefix(op.name, "ibv_"), op.offset)
		}
	}
	offset("ibv_wq", "post_recv", wqOps[0].offset)
	if n < 50 {
		t.Errorf("%d comparisons", n)
	}
	cc := exec.Command("gcc", "-fsyntax-only", "-fmax-errors=0", "-x", "c", "-")
	cc.Stdin = unit
	if out, err := cc.CombinedOutput(); err != nil {
		t.Errorf("gcc: %v\n%s", err, out)
	}
}
