// Queue pairs on the fake device, and the measured operations. Shared by the C program and
// the cgo program.
#pragma once
#include <errno.h>
#include <infiniband/verbs.h>

#include "../../../fakemlx5/rings/rings.h"

enum { RING = 256, BATCH = 128, LIST = 16, SIZE = 64, DATA = 1 << 16 };

static struct world {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	struct ibv_qp *rc, *ud, *wr; // wr is for ibv_wr_*
	struct ibv_qp_ex *qpx;
	struct ring_player rc_player, ud_player, wr_player;
	char *data;
	uint32_t produced;
	struct ibv_sge sge;
	struct ibv_send_wr write, write_inline, send, ud_send, list[LIST];
	struct ibv_recv_wr recv, recv_list[LIST];
	struct ibv_wc wc[LIST];
} w;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_qp *make_qp(enum ibv_qp_type type, uint32_t depth, uint64_t ops, struct ring_player *player)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = w.cq, .recv_cq = w.cq, .qp_type = type, .pd = w.pd,
		.cap = { depth, depth, 1, 1, SIZE }, .comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	if (ops) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = ops;
	}
	struct ibv_qp *qp = ibv_create_qp_ex(w.ctx, &init);
	if (!qp)
		die("create QP");
	*player = (struct ring_player){
		.qp = ring_last(w.ctx->cmd_fd, RING_QP), .cq = ring_last(w.ctx->cmd_fd, RING_CQ), .produced = &w.produced,
	};
	// The driver needs the state. The device doesn't check the other attributes.
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (ibv_modify_qp(qp, &attr, mask | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)))
		die("to INIT");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("to RTS");
	return qp;
}

static void make_world(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list || !list[0])
		die("no device: run this under fakemlx5");
	if (!(w.ctx = ibv_open_device(list[0])))
		die("open device");
	w.pd = ibv_alloc_pd(w.ctx);
	w.cq = ibv_create_cq(w.ctx, 2 * RING - 1, NULL, NULL, 0);
	if (posix_memalign((void **)&w.data, 4096, DATA))
		die("memory");
	memset(w.data, 7, DATA);
	if (!w.pd || !w.cq || !(w.mr = ibv_reg_mr(w.pd, w.data, DATA, IBV_ACCESS_LOCAL_WRITE)))
		die("PD, CQ, MR");
	struct ibv_ah_attr ah = { .dlid = 1, .port_num = 1 };
	if (!(w.ah = ibv_create_ah(w.pd, &ah)))
		die("AH");
	w.rc = make_qp(IBV_QPT_RC, RING, 0, &w.rc_player);
	w.ud = make_qp(IBV_QPT_UD, RING, 0, &w.ud_player);
	w.wr = make_qp(IBV_QPT_RC, RING, IBV_QP_EX_WITH_RDMA_WRITE, &w.wr_player);
	w.qpx = ibv_qp_to_qp_ex(w.wr);

	w.sge = (struct ibv_sge){ (uintptr_t)w.data, SIZE, w.mr->lkey };
	w.write = (struct ibv_send_wr){
		.sg_list = &w.sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)w.data, w.mr->rkey },
	};
	w.write_inline = w.write;
	w.write_inline.send_flags |= IBV_SEND_INLINE;
	w.send = w.write;
	w.send.opcode = IBV_WR_SEND;
	w.ud_send = w.send;
	w.ud_send.wr.ud.ah = w.ah;
	w.ud_send.wr.ud.remote_qpn = 5;
	w.ud_send.wr.ud.remote_qkey = 0x1ee7;
	w.recv = (struct ibv_recv_wr){ .sg_list = &w.sge, .num_sge = 1 };
	for (int i = 0; i < LIST; i++) {
		w.list[i] = w.write;
		w.list[i].next = i + 1 < LIST ? &w.list[i + 1] : NULL;
		w.recv_list[i] = w.recv;
		w.recv_list[i].next = i + 1 < LIST ? &w.recv_list[i + 1] : NULL;
	}
}

static inline void check(int failed)
{
	if (__builtin_expect(failed, 0))
		die("post or poll");
}

static inline void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	check(ibv_post_send(qp, wr, &bad));
}

// post_anew builds the request each time, as programs do.
static inline void post_anew(uint64_t id)
{
	struct ibv_sge sge = w.sge;
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { w.sge.addr, w.mr->rkey },
	};
	post(w.rc, &wr);
}

static inline void post_recv(struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	check(ibv_post_recv(w.rc, wr, &bad));
}

static inline void wr_write(int n)
{
	ibv_wr_start(w.qpx);
	for (int i = 0; i < n; i++) {
		w.qpx->wr_id = i;
		w.qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(w.qpx, w.mr->rkey, (uintptr_t)w.data);
		ibv_wr_set_sge(w.qpx, w.sge.lkey, w.sge.addr, w.sge.length);
	}
	check(ibv_wr_complete(w.qpx));
}

static inline void poll(int n) { check(ibv_poll_cq(w.cq, n, w.wc) != n); }
