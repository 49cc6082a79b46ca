// The peer in a script that is played on a device: another queue pair on the same device,
// to which the script's queue pair is connected.
#pragma once
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPE_DCI = 0x1d }; // the script's number for it

static const int pair_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
static const uint32_t pair_qkey = 0x1ee7;
static const int pair_gid = 1; // over RoCE, the index of the IPv4 address's GID
static const uint32_t pair_flow = 0x54321; // without a flow label, the UDP source port is arbitrary
static const uint64_t pair_dc_key = 0x1122334455667788;

struct pair {
	struct ibv_context *ctx;
	struct ibv_ah_attr way; // the path to the device itself
	struct ibv_xrcd *domain;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	uint32_t number; // the QP, SRQ or DCT number in requests
};

static void pair_die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static struct pair *pair_on(struct ibv_context *ctx)
{
	static struct pair p;
	struct ibv_port_attr port;
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0100, // O_CREAT
	};
	p.ctx = ctx;
	if (ibv_query_port(ctx, 1, &port) || !(p.domain = ibv_open_xrcd(ctx, &domain)))
		pair_die("query port, open XRCD");
	p.way.port_num = 1;
	p.way.dlid = port.lid;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		p.way.is_global = 1;
		p.way.grh.sgid_index = pair_gid;
		p.way.grh.hop_limit = 64;
		p.way.grh.flow_label = pair_flow;
		if (ibv_query_gid(ctx, 1, pair_gid, &p.way.grh.dgid))
			pair_die("query GID");
	}
	return &p;
}

static void pair_move(struct pair *p, struct ibv_qp *qp, unsigned type, int dct, uint32_t dest)
{
	int uc = type == IBV_QPT_UC, ud = type == IBV_QPT_UD, dci = type == IBV_QPT_DRIVER && !dct;
	int sends = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || dci;
	int receives = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = pair_qkey, .qp_access_flags = pair_access,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .ah_attr = p->way,
		.min_rnr_timer = 12, .max_rd_atomic = 4, .max_dest_rd_atomic = 4,
		.timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= ud ? IBV_QP_QKEY : dci ? 0 : IBV_QP_ACCESS_FLAGS;
	if (ibv_modify_qp(qp, &a, mask))
		pair_die("to INIT");
	a.qp_state = IBV_QPS_RTR;
	mask = IBV_QP_STATE;
	if (!ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU;
	if (receives || uc || type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (receives)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC;
	if (receives || dct)
		mask |= IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(qp, &a, mask))
		pair_die("to RTR");
	if (dct)
		return;
	a.qp_state = IBV_QPS_RTS;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (sends)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if (type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
	if (ibv_modify_qp(qp, &a, mask))
		pair_die("to RTS");
}

// pair_make creates a peer with room for cap's receives, and connects both.
static void pair_make(struct pair *p, struct ibv_pd *pd, struct ibv_qp *qp, unsigned type, int use_srq,
		      struct ibv_qp_cap cap)
{
	int dc = type == IBV_QPT_DRIVER, xrc = type == IBV_QPT_XRC_SEND;
	if (!(p->cq = ibv_create_cq(p->ctx, 255, NULL, NULL, 0)))
		pair_die("create the peer's CQ");
	if (use_srq || dc || xrc) {
		struct ibv_srq_init_attr_ex s = {
			.attr = { .max_wr = cap.max_recv_wr, .max_sge = cap.max_recv_sge }, .pd = pd,
			.srq_type = xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC, .xrcd = p->domain, .cq = p->cq,
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
				     (xrc ? IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ : 0),
		};
		if (!(p->srq = ibv_create_srq_ex(p->ctx, &s)))
			pair_die("create the peer's SRQ");
		cap.max_recv_wr = cap.max_recv_sge = 0;
	}
	struct ibv_qp_init_attr_ex init = {
		.qp_type = xrc ? IBV_QPT_XRC_RECV : type, .send_cq = p->cq, .recv_cq = p->cq, .srq = p->srq, .cap = cap,
		.pd = pd, .xrcd = p->domain, .comp_mask = xrc ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
	};
	struct mlx5dv_qp_init_attr dct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = pair_dc_key },
	};
	if (xrc)
		init.send_cq = init.recv_cq = NULL, init.srq = NULL;
	if (dc || xrc)
		memset(&init.cap, 0, sizeof init.cap);
	if (!(p->qp = dc ? mlx5dv_create_qp(p->ctx, &init, &dct) : ibv_create_qp_ex(p->ctx, &init)))
		pair_die("create the peer");
	pair_move(p, p->qp, init.qp_type, dc, qp->qp_num);
	pair_move(p, qp, type, 0, p->qp->qp_num);
	p->number = p->qp->qp_num;
	if (xrc && ibv_get_srq_num(p->srq, &p->number))
		pair_die("SRQ number");
	struct mlx5dv_qp queue = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = qp, .out = &queue } };
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP))
		pair_die("find the queue");
	printf("qpn %x\npeer %x\ndest %x\nlid %x\nblocks %x\n", qp->qp_num, p->qp->qp_num, p->number, p->way.dlid, queue.sq.wqe_cnt);
}

static void pair_destroy(struct pair *p)
{
	if (!p->qp)
		return;
	if (ibv_destroy_qp(p->qp) || (p->srq && ibv_destroy_srq(p->srq)) || ibv_destroy_cq(p->cq))
		pair_die("destroy the peer");
	p->qp = NULL;
	p->srq = NULL;
}

// pair_clear clears an idle send queue. Bytes that libmlx5 leaves unwritten in the next
// requests are zero then, as with this library.
static void pair_clear(struct ibv_qp *qp)
{
	struct mlx5dv_qp queue = { 0 };
	struct mlx5dv_obj obj = { .qp = { .in = qp, .out = &queue } };
	if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP))
		pair_die("find the queue");
	if (queue.sq.buf)
		memset(queue.sq.buf, 0, (size_t)queue.sq.wqe_cnt * queue.sq.stride);
}

// pair_poll waits for completions.
static void pair_poll(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc;
	while (n > 0) {
		int r = ibv_poll_cq(cq, 1, &wc);
		if (r < 0)
			pair_die("poll");
		if (r == 0)
			continue;
		n--;
		printf("wc %llx status %x\n", (unsigned long long)wc.wr_id, wc.status);
	}
}

// pair_bind makes the peer bind a window to all memory.
static void pair_bind(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr, uint32_t key)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { mw, key, { mr, (uintptr_t)mr->addr, mr->length, IBV_ACCESS_REMOTE_WRITE } },
	};
	if (ibv_post_send(p->qp, &wr, &bad))
		pair_die("bind");
	pair_poll(p->cq, 1);
	pair_clear(p->qp);
}
