package ibvtrace

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// A fault is a rule of --inject, and a part of what a program says when it meets the fault.
type fault struct{ rule, says string }

// TestInjected makes clients in C and Go fail in many ways. Each must report the fault that was asked
// for. With a rule that is about no process, they say what they say without ibvtrace.
func TestInjected(t *testing.T) {
	programs := []struct {
		name string
		pair
		faults []fault
	}{
		{"perftest", perftest("ib_send_bw"), []fault{
			{"reg_mr:error=ENOMEM", "Couldn't allocate MR"},
			{"create_qp:error=EINVAL", "Unable to create QP"},
			{"poll_cq:status=RETRY_EXC_ERR:when=5", "Failed status 12"},
			{"alloc_pd:error=ENOMEM", "Couldn't allocate PD"},
			{"create_cq:error=ENOMEM", "Couldn't create CQ"},
			{"modify_qp:error=EINVAL:when=1", "Failed to modify QP to INIT, ret=22"},
			{"modify_qp:error=ETIMEDOUT:when=2", " to RTR"},
			{"modify_qp:error=EIO:when=3", "Failed to modify QP to RTS"},
			{"query_port:error=EIO", "Unable to query port 1 attributes"},
			{"poll_cq:status=RNR_RETRY_EXC_ERR", "Failed status 13"},
			{"poll_cq:status=WR_FLUSH_ERR:when=2", "Failed status 5"},
			{"poll_cq:status=REM_OP_ERR:when=3+", "Failed status 11"},
			{"destroy_qp:error=EBUSY", "Couldn't destroy QP - Device or resource busy"},
			{"destroy_cq:error=EBUSY", "Failed to destroy CQ - Device or resource busy"},
			{"dereg_mr:error=EBUSY", "Failed to deregister MR #1"},
		}},
		{"pingpong", pingpong("rc", "-e"), []fault{
			{"create_cq:error=EMFILE", "Couldn't create CQ"},
			{"modify_qp:error=ETIMEDOUT:when=2", "Failed to modify QP to RTR"},
			{"poll_cq:status=RNR_RETRY_EXC_ERR:when=7", "RNR retry counter exceeded"},
			{"create_comp_channel:error=EMFILE", "Couldn't create completion channel"},
			{"alloc_pd:error=ENOMEM", "Couldn't allocate PD"},
			{"reg_mr:error=ENOMEM", "Couldn't register MR"},
			{"create_qp:error=EINVAL", "Couldn't create QP"},
			{"modify_qp:error=EINVAL:when=1", "Failed to modify QP to INIT"},
			{"modify_qp:error=EIO:when=3", "Failed to modify QP to RTS"},
			{"query_port:error=EIO", "Couldn't get port info"},
			{"poll_cq:status=RETRY_EXC_ERR", "transport retry counter exceeded (12)"},
			{"poll_cq:status=LOC_PROT_ERR:when=3", "local protection error (4)"},
			{"destroy_qp:error=EBUSY", "Couldn't destroy QP"},
			{"destroy_cq:error=EBUSY", "Couldn't destroy CQ"},
			{"dereg_mr:error=EBUSY", "Couldn't deregister MR"},
		}},
	}
	if !mlx5 { // mlx5's port has no IP address
		c := rping(t)
		g := c
		g.client = append([]string{rdmatest.Program(t, "ibv")}, c.client...)
		programs = append(programs, struct {
			name string
			pair
			faults []fault
		}{"rping", c, []fault{
			{"get_cm_event:event=REJECTED:reason=28", "RDMA_CM_EVENT_REJECTED, error 28"},
			{"get_cm_event:event=UNREACHABLE:reason=0xffffff92", "RDMA_CM_EVENT_UNREACHABLE, error -110"},
			{"create_qp:error=EINVAL", "rdma_create_qp: Invalid argument"},
			{"get_cm_event:event=ADDR_ERROR:reason=0xffffff8f", "RDMA_CM_EVENT_ADDR_ERROR, error -113"},
			{"get_cm_event:event=ROUTE_ERROR:reason=0xffffff92", "RDMA_CM_EVENT_ROUTE_ERROR, error -110"},
			{"rdma_create_id:error=ENODEV", "rdma_create_id: No such device"},
			{"rdma_resolve_addr:error=EADDRNOTAVAIL", "rdma_resolve_addr: Cannot assign requested address"},
			{"rdma_resolve_route:error=ENETUNREACH", "rdma_resolve_route: Network is unreachable"},
			{"rdma_connect:error=ECONNRESET", "rdma_connect: Connection reset by peer"},
			{"alloc_pd:error=ENOMEM", "RDMA_CM_EVENT_ADDR_ERROR, error -1"},
			{"create_comp_channel:error=EMFILE", "ibv_create_comp_channel failed"},
			{"create_cq:error=ENOMEM", "ibv_create_cq failed"},
			{"reg_mr:error=ENOMEM", "recv_buf reg_mr failed"},
			{"modify_qp:error=EINVAL:when=1", "rdma_create_qp: Invalid argument"},
			{"poll_cq:status=RETRY_EXC_ERR:when=2", "cq completion failed status 12"},
		}}, struct {
			name string
			pair
			faults []fault
		}{"Go's rping", g, []fault{
			{"get_cm_event:event=REJECTED:reason=28", "rejected"},
			{"get_cm_event:event=UNREACHABLE:reason=0xffffff92", "unreachable"},
			{"reg_mr:error=ENOMEM", "ENOMEM"},
			{"get_cm_event:event=ADDR_ERROR:reason=0xffffff8f", "address resolution failed: EHOSTUNREACH"},
			{"get_cm_event:event=ROUTE_ERROR:reason=0xffffff92", "route resolution failed: ETIMEDOUT"},
			{"rdma_create_id:error=ENODEV", "ENODEV"},
			{"rdma_resolve_addr:error=EADDRNOTAVAIL", "EADDRNOTAVAIL"},
			{"rdma_resolve_route:error=ENETUNREACH", "ENETUNREACH"},
			{"rdma_connect:error=ECONNRESET", "ECONNRESET"},
			{"alloc_pd:error=ENOMEM", "ENOMEM"},
			{"create_comp_channel:error=EMFILE", "EMFILE"},
			{"create_cq:error=ENOSPC", "ENOSPC"},
			{"create_qp:error=EINVAL", "EINVAL"},
			{"modify_qp:error=EIO:when=1", "EIO"},
			{"poll_cq:status=RETRY_EXC_ERR:when=2", "RETRY_EXC_ERR"},
		}})
	}
	if !mlx5 && !testing.Short() { // it looks at each entry of the table of GIDs, which takes long
		programs = append(programs, struct {
			name string
			pair
			faults []fault
		}{"fi_pingpong", fabric(), []fault{
			{"get_cm_event:event=REJECTED:reason=28", "eq_readerr: Unknown error -28"},
			{"get_cm_event:event=UNREACHABLE:reason=0xffffff92", "Connection timed out"},
			{"get_cm_event:event=ADDR_ERROR:reason=0xffffff8f", "ret=-61 (No data available)"},
			{"get_cm_event:event=ROUTE_ERROR:reason=0xffffff92", "Connection timed out"},
			{"rdma_create_id:error=ENODEV", "ret=-61 (No data available)"},
			{"rdma_resolve_addr:error=EADDRNOTAVAIL", "ret=-61 (No data available)"},
			{"rdma_resolve_route:error=ENETUNREACH", "ret=-101 (Network is unreachable)"},
			{"rdma_connect:error=ECONNRESET", "ret=-104 (Connection reset by peer)"},
			{"alloc_pd:error=ENOMEM", "ret=-61 (No data available)"},
			{"poll_cq:status=RNR_RETRY_EXC_ERR:when=3", "RNR retry counter exceeded"},
			{"create_cq:error=ENOMEM", "ret=-61 (No data available)"},
			{"create_qp:error=EINVAL", "ret=-61 (No data available)"},
			{"reg_mr:error=ENOMEM", "ret=-12 (Cannot allocate memory)"},
			{"modify_qp:error=EINVAL:when=1", "ret=-22 (Invalid argument)"},
			{"poll_cq:status=RETRY_EXC_ERR:when=2", "transport retry counter exceeded"},
		}})
	}
	differs := regexp.MustCompile(`(0x[0-9a-f]+|[0-9a-fA-F.:]*[0-9][0-9a-fA-F.:]*)\s*`) // from run to run
	for _, p := range programs {
		faults := p.faults
		if testing.Short() {
			faults = faults[:3]
		}
		run := func(t *testing.T, prefix ...string) *rdmatest.Process {
			t.Helper()
			server := rdmatest.Start(t, p.server...)
			server.Until(t, p.ready)
			client := rdmatest.Start(t, append(prefix, p.client...)...)
			client.Wait()
			server.Kill()
			return client
		}
		t.Run(p.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "trace")
			spare := traced(t, file, "--inject", "alloc_pd,reg_mr,create_qp:error=EIO:process=other", "--inject", "poll_cq:status=RETRY_EXC_ERR:process=other")
			alone, spared := run(t), run(t, spare...)
			said := func(p *rdmatest.Process) string { return differs.ReplaceAllString(p.Said(), "N ") }
			if !alone.OK() || !spared.OK() || said(alone) != said(spared) {
				t.Errorf("with rules about another process:\n%v\nwithout:\n%v", spared, alone)
			}
		})
		for _, f := range faults {
			t.Run(p.name+" "+f.rule, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "trace")
				client := run(t, traced(t, file, "--inject", f.rule)...)
				if client.Wait().Success() && p.name != "perftest" || !strings.Contains(client.Said(), f.says) {
					t.Errorf("the client reports no %q: %v", f.says, client)
				}
				checkInjected(t, file, f.rule)
			})
		}
	}
}

// checkInjected checks that a trace marks calls of a rule's verb as injected, with the errno that it
// names, and no others.
func checkInjected(t *testing.T, file, rule string) {
	t.Helper()
	verb, keys, _ := strings.Cut(rule, ":")
	errno := ""
	for key := range strings.SplitSeq(keys, ":") {
		if name, ok := strings.CutPrefix(key, "error="); ok {
			errno = name
		}
	}
	injected := 0
	for _, e := range rdmatest.ReadTrace(t, file) {
		if e.Why != "injected" {
			continue
		}
		injected++
		v := strings.TrimSuffix(strings.TrimPrefix(e.Verb, "ibv_"), "_ex")
		if v != verb && v != "rdma_"+verb || e.Errno != errno {
			t.Errorf("injected: %s, %q", e.Verb, e.Errno)
		}
	}
	if injected == 0 {
		t.Error("no line says that it was injected")
	}
}
