// Cgobench measures posting and polling with one cgo call each, as a Go program on top of
// libibverbs would do. It is a module of its own, because nothing else here is built with
// C.
package main

// #cgo CFLAGS: -O2 -Wall -I${SRCDIR}/../c
// #cgo LDFLAGS: -libverbs
// #include "world.h"
//
// static int cgo_post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, unsigned flags, uint64_t id, uint64_t addr,
//                     uint32_t length, uint32_t lkey, uint64_t remote, uint32_t rkey)
// {
//	struct ibv_sge sge = { addr, length, lkey };
//	struct ibv_send_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags };
//	wr.wr.rdma.remote_addr = remote;
//	wr.wr.rdma.rkey = rkey;
//	return ibv_post_send(qp, &wr, &bad);
// }
//
// static int cgo_post_ud(struct ibv_qp *qp, uint64_t id, uint64_t addr, uint32_t length, uint32_t lkey, struct ibv_ah *ah,
//                        uint32_t qpn, uint32_t qkey)
// {
//	struct ibv_sge sge = { addr, length, lkey };
//	struct ibv_send_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
//	wr.wr.ud.ah = ah;
//	wr.wr.ud.remote_qpn = qpn;
//	wr.wr.ud.remote_qkey = qkey;
//	return ibv_post_send(qp, &wr, &bad);
// }
//
// static int cgo_recv(struct ibv_qp *qp, uint64_t id, uint64_t addr, uint32_t length, uint32_t lkey)
// {
//	struct ibv_sge sge = { addr, length, lkey };
//	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
//	return ibv_post_recv(qp, &wr, &bad);
// }
//
// static int cgo_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return ibv_poll_cq(cq, n, wc); }
//
// static void drain(struct ring_player *p)
// {
//	int n = ring_complete_sends(p) + ring_complete_recvs(p, SIZE);
//	for (int m; n > 0; n -= m)
//		check((m = ibv_poll_cq(w.cq, LIST, w.wc)) < 1);
// }
//
// static void fill(void)
// {
//	for (int i = 0; i < BATCH / LIST; i++)
//		post(w.rc, w.list);
//	ring_complete_sends(&w.rc_player);
// }
//
// static void nothing(void) {}
//
// static struct world *world(void) { return &w; }
import "C"

import (
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"time"
)

const (
	batch = C.BATCH
	list  = C.LIST
	size  = C.SIZE
)

func check(ok bool) {
	if !ok {
		log.Fatal("post or poll failed")
	}
}

// measure prints the median of the batches' nanoseconds per operation. Each call of op does
// `each` operations.
func measure(name string, batches, each int, before, after, op func()) {
	ns := make([]float64, batches)
	for i := range ns {
		before()
		start := time.Now()
		for j := 0; j < batch; j += each {
			op()
		}
		ns[i] = float64(time.Since(start).Nanoseconds()) / batch
		after()
	}
	slices.Sort(ns)
	fmt.Printf("%s\t%.2f\n", name, ns[batches/2])
}

func main() {
	batches := 2000
	if len(os.Args) > 1 {
		batches, _ = strconv.Atoi(os.Args[1])
	}
	C.make_world()
	var (
		w       = C.world()
		addr    = C.uint64_t(w.sge.addr)
		lkey    = w.mr.lkey
		rkey    = w.mr.rkey
		nothing = func() {}
		drainRC = func() { C.drain(&w.rc_player) }
		drainUD = func() { C.drain(&w.ud_player) }
		fill    = func() { C.fill() }
		wcs     [list]C.struct_ibv_wc
	)
	post := func(name string, opcode C.enum_ibv_wr_opcode, flags C.uint) {
		measure(name, batches, 1, nothing, drainRC, func() {
			check(C.cgo_post(w.rc, opcode, flags, 0, addr, size, lkey, addr, rkey) == 0)
		})
	}
	post("RC write, inline 64 B", C.IBV_WR_RDMA_WRITE, C.IBV_SEND_SIGNALED|C.IBV_SEND_INLINE)
	post("RC write, 1 SGE, made anew", C.IBV_WR_RDMA_WRITE, C.IBV_SEND_SIGNALED)
	post("RC write, 1 SGE", C.IBV_WR_RDMA_WRITE, C.IBV_SEND_SIGNALED)
	post("RC send, 1 SGE", C.IBV_WR_SEND, C.IBV_SEND_SIGNALED)
	measure("UD send, 1 SGE", batches, 1, nothing, drainUD, func() {
		check(C.cgo_post_ud(w.ud, 0, addr, size, lkey, w.ah, 5, 0x1ee7) == 0)
	})
	measure("receive, 1 SGE", batches, 1, nothing, drainRC, func() {
		check(C.cgo_recv(w.rc, 0, addr, size, lkey) == 0)
	})
	measure("poll of 1", batches, 1, fill, nothing, func() { check(C.cgo_poll(w.cq, 1, &wcs[0]) == 1) })
	measure("poll of 16, each", batches, list, fill, nothing, func() { check(C.cgo_poll(w.cq, list, &wcs[0]) == list) })
	measure("empty poll", batches, 1, nothing, nothing, func() { check(C.cgo_poll(w.cq, 1, &wcs[0]) == 0) })
	measure("empty call", batches, 1, nothing, nothing, func() { C.nothing() })
}
