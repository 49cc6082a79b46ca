package why

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/rdmanl"
)

// looks takes two views of a host with a change between them, and compares them.
func looks(t testing.TB, h *Host, between func()) *Report {
	t.Helper()
	l := &look{host: h}
	before, err := l.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	between()
	after, err := l.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return compare(h, before, after)
}

// verdict returns the findings and conditions of a report in short.
func verdict(r *Report) string {
	var parts []string
	for _, f := range r.Findings {
		parts = append(parts, fmt.Sprint(f.ID, f.QPs))
	}
	for _, q := range r.QPs {
		parts = append(parts, fmt.Sprintf("%d %s", q.Number, q.Condition))
	}
	return strings.Join(parts, ", ")
}

// rxe is a bed with Soft-RoCE and two connected queue pairs.
func rxe(t testing.TB) *bed {
	b := newBed(t, "rxe0")
	b.process(7, "victim", "S", "0")
	for _, n := range []uint32{17, 18} {
		b.qps[n] = &bedQP{state: ib.QPRTS, typ: ib.RC, remote: 100 + n, sq: 5, rq: 9, pid: 7, peer: "192.0.2.2"}
	}
	b.count = map[string]uint64{"rcvd_rnr_err": 1, "send_rnr_err": 2, "completer_retry_err": 3, "sent_pkts": 4}
	return b
}

// siw is a bed with soft-iWARP, whose sequence numbers are always 0.
func siw(t testing.TB) *bed {
	b := rxe(t)
	b.name, b.kind, b.count = "siw0", "iw", nil
	for _, q := range b.qps {
		q.sq, q.rq = 0, 0
	}
	return b
}

// efa is a bed with an EFA.
func efa(t testing.TB) *bed {
	b := siw(t)
	b.name, b.kind = "rdmap0s6", ""
	b.link("../../bus/pci/drivers/efa", "sys/class/infiniband/rdmap0s6/device/driver")
	return b
}

// mlx5 is a bed with a ConnectX and two connected queue pairs, of which nothing is outstanding.
func mlx5(t testing.TB) *bed {
	b := newBed(t, "mlx5_0")
	b.process(7, "victim", "S", "0")
	for _, n := range []uint32{17, 18} {
		b.qps[n] = &bedQP{state: ib.QPRTS, typ: ib.RC, remote: 100 + n, sq: 5, rq: 9, pid: 7, fields: map[field]uint64{
			qpState: 3, qpLogRQ: 4, qpLogSQ: 6, qpRemote: uint64(100 + n), qpGRH: 1, qpTimeout: 14, qpDGIDLow: 0xffff_c000_0202, qpRetries: 7, qpSendCQ: 40, qpRecvCQ: 40,
			qpNextPSN: 5, qpAcked: 4, qpRecvPSN: 9, qpSQTaken: 2, qpSQPosted: 2, qpRQTaken: 3, qpRQPosted: 8,
			qpRetryNow: 7, qpRNRNow: 7, qpMTU: 3, qpSGID: 1,
		}}
	}
	b.cqs[1] = &bedCQ{pid: 7, number: 40, fields: map[field]uint64{cqArmed: 10, cqLogSize: 4, cqProduced: 20, cqConsumed: 20}}
	b.count = map[string]uint64{"rnr_nak_retry_err": 1, "out_of_buffer": 2, "local_ack_timeout_err": 3}
	b.write("0000:0000:0000:0000:0000:ffff:c000:0201", "sys/class/infiniband/mlx5_0/ports/1/gids/1")
	return b
}

// unanswered makes 17 wait for the answer to two packets.
func (b *bed) unanswered() { b.qps[17].fields[qpNextPSN] = 7 }

func TestFindings(t *testing.T) {
	nothing := func(*bed) {}
	for name, c := range map[string]struct {
		bed           func(testing.TB) *bed
		plant, happen func(*bed)
		want          string
	}{
		"rxe: quiet":               {rxe, nothing, nothing, "17 quiet, 18 quiet"},
		"rxe: moving":              {rxe, nothing, func(b *bed) { b.qps[17].sq++; b.count["sent_pkts"]++ }, "17 moving, 18 quiet"},
		"rxe: drains":              {rxe, func(b *bed) { b.qps[17].state = ib.QPSQD }, nothing, "draining[17], 17 stuck, 18 quiet"},
		"rxe: RNR":                 {rxe, nothing, func(b *bed) { b.count["rcvd_rnr_err"]++ }, "peer-not-ready[17 18], 17 stuck, 18 stuck"},
		"rxe: RNR of one":          {rxe, func(b *bed) { delete(b.qps, 18) }, func(b *bed) { b.count["rcvd_rnr_err"]++; b.count["completer_retry_err"]++ }, "peer-not-ready[17], 17 stuck"},
		"rxe: RNR while one moves": {rxe, nothing, func(b *bed) { b.count["rcvd_rnr_err"]++; b.qps[18].sq++ }, "17 quiet, 18 moving"},
		"rxe: both ends": {rxe, func(b *bed) {
			b.qps[17].remote, b.qps[18].remote = 18, 17
			b.qps[17].sq, b.qps[17].rq, b.qps[18].sq, b.qps[18].rq = 6, 9, 9, 5
		},
			func(b *bed) { b.count["rcvd_rnr_err"]++; b.count["send_rnr_err"]++ }, "no-receive[18], peer-not-ready[17], 17 stuck, 18 stuck"},
		"rxe: no receive":           {rxe, func(b *bed) { delete(b.qps, 18) }, func(b *bed) { b.count["send_rnr_err"]++ }, "no-receive[17], 17 stuck"},
		"rxe: no answer":            {rxe, func(b *bed) { delete(b.qps, 18) }, func(b *bed) { b.count["completer_retry_err"]++ }, "no-ack[17], 17 stuck"},
		"rxe: error":                {rxe, func(b *bed) { b.qps[17].state = ib.QPErr }, nothing, "in-error[17], 17 error, 18 quiet"},
		"rxe: error meanwhile":      {rxe, nothing, func(b *bed) { b.qps[17].state = ib.QPErr }, "in-error[17], 17 error, 18 quiet"},
		"rxe: not connected":        {rxe, func(b *bed) { b.qps[17].state = ib.QPInit; b.qps[18].state = ib.QPReset }, nothing, "17 unconnected, 18 unconnected"},
		"rxe: port down":            {rxe, func(b *bed) { b.state = ib.PortDown }, nothing, "port-down[17 18], 17 stuck, 18 stuck"},
		"rxe: stopped":              {rxe, func(b *bed) { b.process(7, "victim", "T", "0") }, nothing, "stopped[17 18], 17 stuck, 18 stuck"},
		"rxe: stopped for a moment": {rxe, func(b *bed) { b.process(7, "victim", "t", "0") }, func(b *bed) { b.process(7, "victim", "S", "0") }, "17 quiet, 18 quiet"},
		"rxe: created meanwhile":    {rxe, func(b *bed) { delete(b.qps, 18) }, func(b *bed) { b.qps[19] = b.qps[17] }, "17 quiet"},
		"rxe: datagrams are quiet":  {rxe, func(b *bed) { delete(b.qps, 18); b.qps[17].typ = ib.UD }, func(b *bed) { b.count["rcvd_rnr_err"]++ }, "17 quiet"},

		"siw":            {siw, nothing, nothing, "17 untold, 18 untold"},
		"siw: port down": {siw, func(b *bed) { b.state = ib.PortDown }, nothing, "port-down[17 18], 17 stuck, 18 stuck"},
		"siw: in error":  {siw, func(b *bed) { b.qps[17].state = ib.QPErr }, nothing, "in-error[17], 17 error, 18 untold"},
		"siw: stopped":   {siw, func(b *bed) { b.process(7, "victim", "T", "0") }, nothing, "stopped[17 18], 17 stuck, 18 stuck"},
		"efa":            {efa, nothing, nothing, "17 untold, 18 untold"},

		"mlx5: idle":                  {mlx5, nothing, nothing, "17 idle, 18 idle"},
		"mlx5: idle with old trouble": {mlx5, nothing, func(b *bed) { b.count["rnr_nak_retry_err"]++; b.count["local_ack_timeout_err"]++ }, "17 idle, 18 idle"},
		"mlx5: sends":                 {mlx5, (*bed).unanswered, func(b *bed) { b.qps[17].fields[qpAcked]++ }, "17 moving, 18 idle"},
		"mlx5: receives":              {mlx5, nothing, func(b *bed) { b.qps[18].fields[qpRQTaken]++ }, "17 idle, 18 moving"},
		"mlx5: RNR":                   {mlx5, (*bed).unanswered, func(b *bed) { b.count["rnr_nak_retry_err"]++ }, "peer-not-ready[17], 17 stuck, 18 idle"},
		"mlx5: RNR of few":            {mlx5, (*bed).unanswered, func(b *bed) { b.qps[17].fields[qpRNRNow]-- }, "peer-not-ready[17], 17 stuck, 18 idle"},
		"mlx5: no answer":             {mlx5, (*bed).unanswered, func(b *bed) { b.count["local_ack_timeout_err"]++ }, "no-ack[17], 17 stuck, 18 idle"},
		"mlx5: no answer yet":         {mlx5, (*bed).unanswered, nothing, "no-ack[17], 17 stuck, 18 idle"},
		"mlx5: sends again": {mlx5, (*bed).unanswered, func(b *bed) { b.qps[17].fields[qpSQTaken]--; b.qps[17].fields[qpRetryNow]-- },
			"no-ack[17], 17 stuck, 18 idle"},
		"mlx5: address removed": {mlx5, func(b *bed) {
			b.unanswered()
			b.write("0000:0000:0000:0000:0000:0000:0000:0000", "sys/class/infiniband/mlx5_0/ports/1/gids/1")
		}, nothing, "gid-gone[17], 17 stuck, 18 idle"},
		"mlx5: RoCE v1": {mlx5, func(b *bed) {
			b.unanswered()
			b.qps[17].fields[qpRQTaken] = 0
			b.write("IB/RoCE v1", "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1")
		}, nothing, "gid-type[17], 17 stuck, 18 idle"},
		"mlx5: RoCE v1, which has worked": {mlx5, func(b *bed) {
			b.unanswered()
			b.write("IB/RoCE v1", "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1")
		}, nothing, "no-ack[17], 17 stuck, 18 idle"},
		"mlx5: RoCE v1, which has been acknowledged": {mlx5, func(b *bed) {
			b.unanswered()
			f := b.qps[17].fields
			f[qpRQTaken], f[qpSQTaken], f[qpSQPosted] = 0, 100, 100
			b.write("IB/RoCE v1", "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1")
		}, nothing, "no-ack[17], 17 stuck, 18 idle"},
		"mlx5: large MTU": {mlx5, func(b *bed) { b.unanswered(); b.qps[17].fields[qpMTU] = 5 }, nothing, "mtu-large[17], 17 stuck, 18 idle"},
		"mlx5: P_Key": {mlx5, func(b *bed) {
			b.unanswered()
			b.layer = ib.LinkLayerInfiniBand
			b.qps[17].fields[qpPKey] = 2
			b.write("0x0000", "sys/class/infiniband/mlx5_0/ports/1/pkeys/2")
		}, nothing, "pkey-gone[17], 17 stuck, 18 idle"},
		"mlx5: not begun":        {mlx5, func(b *bed) { b.qps[17].fields[qpSQPosted] += 3 }, nothing, "not-taken[17], 17 stuck, 18 idle"},
		"mlx5: paused":           {mlx5, func(b *bed) { b.qps[17].fields[qpSQPosted] += 3; b.count["port_xmit_wait"] = 1 }, func(b *bed) { b.count["port_xmit_wait"]++ }, "paused[17], 17 stuck, 18 idle"},
		"mlx5: paused, Ethernet": {mlx5, func(b *bed) { b.qps[17].fields[qpSQPosted] += 3; b.count["rx_pause_ctrl_phy"] = 1 }, func(b *bed) { b.count["rx_pause_ctrl_phy"]++ }, "paused[17], 17 stuck, 18 idle"},
		"mlx5: paused in a message": {mlx5, func(b *bed) { b.unanswered(); b.count["rx_prio3_pause"], b.count["port_xmit_packets"] = 1, 9 },
			func(b *bed) { b.count["rx_prio3_pause"]++ }, "paused[17], 17 stuck, 18 idle"},
		"mlx5: no answer to a busy port": {mlx5, func(b *bed) { b.unanswered(); b.count["rx_prio3_pause"], b.count["port_xmit_packets"] = 1, 9 },
			func(b *bed) { b.count["rx_prio3_pause"]++; b.count["port_xmit_packets"]++ }, "no-ack[17], 17 stuck, 18 idle"},
		"mlx5: no receive": {mlx5, func(b *bed) { b.qps[17].fields[qpRQTaken] = 8 }, func(b *bed) { b.count["out_of_buffer"]++ },
			"no-receive[17], 17 stuck, 18 idle"},
		"mlx5: overrun":          {mlx5, func(b *bed) { b.cqs[1].fields[cqStatus] = 9 }, nothing, "cq-overrun[17 18], 17 stuck, 18 stuck"},
		"mlx5: fatal":            {mlx5, nothing, func(b *bed) { b.failure = syscall.EIO }, "device-fatal[]"},
		"mlx5: fatal, Linux 6.1": {mlx5, nothing, func(b *bed) { b.failure = syscall.ENOLINK }, "device-fatal[]"},
		"mlx5: fatal too":        {mlx5, nothing, func(b *bed) { b.refusal = syscall.EIO }, "device-fatal[]"},
		"mlx5: no root":          {mlx5, func(b *bed) { b.refusal = syscall.EPERM }, nothing, "17 quiet, 18 quiet"},
		"mlx5: no root, RNR": {mlx5, func(b *bed) { b.refusal = syscall.EPERM; delete(b.qps, 18) }, func(b *bed) { b.count["rnr_nak_retry_err"]++ },
			"peer-not-ready[17], 17 stuck"},
		// What the adapter has last seen polled may be long ago.
		"mlx5: polled, perhaps": {mlx5, func(b *bed) { b.cqs[1].fields[cqConsumed] = 4; b.cqs[1].fields[cqRecord] = 0x1000 }, nothing, "17 idle, 18 idle"},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.bed(t)
			c.plant(b)
			r := looks(t, b.host(), func() { c.happen(b) })
			if got := verdict(r); got != c.want {
				var text strings.Builder
				r.Text(&text, true)
				t.Errorf("%s, want %s:\n%s", got, c.want, &text)
			}
			for _, f := range r.Findings {
				if len(f.Evidence) == 0 || f.Look == "" {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestCompletions: what a program has polled is known from its own record only.
func TestCompletions(t *testing.T) {
	bedOf := func(st uint64, waits string) *bed {
		b := mlx5(t)
		b.process(7, "victim", "S", waits)
		b.cqs[1].fields[cqArmed] = st
		return b
	}
	for _, c := range []struct {
		name          string
		st            uint64
		polled, armed uint32
		event         uint32 // when the last one was reported
		waits         string
		want          *Kind
	}{
		{"all polled", 10, 20, 20, 20, "ib_uverbs_event_read", nil},
		{"polled now and then", 10, 10, 0, 0, "0", nil},
		{"sleeps elsewhere", 10, 10, 0, 0, "ib_uverbs_event_read", nil},
		{"full", 10, 6, 0, 0, "0", notPolled},
		{"event lost", 10, 19, 19, 20, "ib_uverbs_event_read.isra.0", notWoken},
		{"event not read", 10, 19, 19, 20, "futex_wait", nil},
		{"not armed again", 10, 19, 18, 19, "ib_uverbs_event_read", notArmed},
		{"first event lost", 10, 0, 0, 1, "ib_uverbs_event_read", notWoken},
		{"armed once", 10, 1, 0, 1, "ib_uverbs_event_read", notArmed},
		{"armed for others", 6, 19, 19, 20, "ib_uverbs_event_read", notArmed},
	} {
		b := bedOf(c.st, c.waits)
		l := &look{host: b.host()}
		v, err := l.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q := v.devices[0].cqs[40]
		q.record, q.LastEvent = record{true, c.polled, c.armed}, c.event
		if got := completionKind(q, q); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		later := *q
		later.record.polled++
		if got := completionKind(q, &later); got != nil {
			t.Errorf("%s, and polled meanwhile: %+v", c.name, got)
		}
	}
}

func TestUnseen(t *testing.T) {
	b := mlx5(t)
	b.refusal = syscall.EPERM
	r := looks(t, b.host(), func() {})
	if want := []string{"what mlx5_0 itself knows of its queues: this needs CAP_NET_ADMIN"}; !slices.Equal(r.Unseen, want) {
		t.Errorf("%q", r.Unseen)
	}
	b = rxe(t)
	r = looks(t, b.host(), func() { b.count["rcvd_rnr_err"]++; b.qps[18].sq++ })
	if want := []string{"rxe0 port 1: which queue pairs have counted rcvd_rnr_err 1, then 2; 1 move, and 1 don't"}; !slices.Equal(r.Unseen, want) {
		t.Errorf("%q", r.Unseen)
	}
}

func TestProcess(t *testing.T) {
	b := newBed(t, "rxe0")
	id := strings.Repeat("0123456789abcdef", 4)
	b.process(7, "victim", "S", "poll_schedule_timeout")
	b.write("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-"+id+".scope\n", "proc/7/cgroup")
	p := b.host().Process(&rdmanl.Owner{PID: rdmanl.Some(uint32(7))})
	if p.PID != 7 || p.Comm != "victim" || p.State != "S" || p.Container != id || !p.waits("poll_schedule") || p.name() != "victim (pid 7)" {
		t.Errorf("%+v", p)
	}
	// A name in a hierarchy of cgroup v1 isn't taken for that of v2.
	b.write("4:memory:/a::/kubepods/"+id+"\n0::/\n", "proc/7/cgroup")
	if p := b.host().Process(&rdmanl.Owner{PID: rdmanl.Some(uint32(7))}); p.Cgroup != "" || p.Container != "" {
		t.Errorf("%+v", p)
	}
	if p := b.host().Process(&rdmanl.Owner{Kernel: rdmanl.Some("nvme_rdma")}); p.name() != "[nvme_rdma]" {
		t.Errorf("%+v", p)
	}
	if p := b.host().Process(&rdmanl.Owner{PID: rdmanl.Some(uint32(8))}); p.name() != "a process (pid 8)" {
		t.Errorf("%+v", p)
	}
	for cgroup, want := range map[string]string{"/docker/" + id: id, "/user.slice": "", "/docker/" + id[:63] + "g": "", "/system.slice/docker-" + id + ".scope/init": id} {
		if got := ContainerOf(cgroup); got != want {
			t.Errorf("%s is of %q", cgroup, got)
		}
	}
}

func TestSelection(t *testing.T) {
	b := rxe(t)
	for operand, want := range map[string]string{"rxe0": "", "7": "", "17": "", "0x12": "", "99": "no queue pair and no process has the number 99", "mlx5_0": `there is no device "mlx5_0"; the devices are rxe0`} {
		s := newSelection([]string{operand})
		v, err := (&look{host: b.host(), wanted: s.wanted}).take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.check(v); fmt.Sprint(err) != want && !(err == nil && want == "") {
			t.Errorf("%s: %v", operand, err)
		}
		n := 0
		for _, q := range v.devices[0].qps {
			if q.wanted {
				n++
			}
		}
		if operand == "0x12" && n != 1 || operand == "7" && n != 2 {
			t.Errorf("%s chooses %d", operand, n)
		}
	}
}

// TestKinds: each kind has its own ID.
func TestKinds(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range Kinds {
		if seen[k.ID] || k.Title == "" || k.Mend == "" {
			t.Errorf("%+v", k)
		}
		seen[k.ID] = true
	}
}

// BenchmarkMany looks twice at 5,000 queue pairs of a ConnectX, and compares. The two looks of ibv why,
// less what the kernel needs, take as long.
func BenchmarkMany(b *testing.B) {
	bed := mlx5(b)
	for n := range uint32(5000) {
		q := *bed.qps[17]
		bed.qps[1000+n] = &q
	}
	for b.Loop() {
		r := looks(b, bed.host(), func() {})
		if len(r.QPs) != 5002 || len(r.Findings) != 0 {
			b.Fatal(len(r.QPs), r.Findings)
		}
	}
}
