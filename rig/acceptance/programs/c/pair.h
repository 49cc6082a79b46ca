/*
 * Two connected RC queue pairs on two devices.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

enum {
	MESSAGE = 1 << 20, /* bytes of each of a buffer's DEPTH slots */
	DEPTH = 4,
	ROCE_GID = 1, /* the index of the IPv4 address's GID */
	/*
	 * 4.096 us << TIMEOUT. If a program and both of its devices share a
	 * processor with others, responses may take long. 8 times this has to
	 * be enough, or up to four times more, as devices may wait longer.
	 */
	TIMEOUT = 11,
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint64_t *buf;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void open_side(struct side *s, const char *name)
{
	int n, i;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			s->context = ibv_open_device(list[i]);
	if (!s->context)
		die(name);
	s->pd = ibv_alloc_pd(s->context);
	s->cq = ibv_create_cq(s->context, 4 * DEPTH, NULL, NULL, 0);
	if (!s->pd || !s->cq || ibv_query_port(s->context, 1, &s->port) ||
	    ibv_query_gid(s->context, 1, s->port.link_layer == IBV_LINK_LAYER_ETHERNET ? ROCE_GID : 0, &s->gid))
		die("objects");
	if (posix_memalign((void **)&s->buf, 4096, DEPTH * MESSAGE))
		die("memory");
	s->mr = ibv_reg_mr(s->pd, s->buf, DEPTH * MESSAGE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
	};
	s->qp = ibv_create_qp(s->pd, &init);
	if (!s->mr || !s->qp)
		die("memory region or queue pair");
}

static void connect_side(struct side *s, struct side *to)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = to->qp->qp_num;
	a.rq_psn = to->qp->qp_num;
	a.max_dest_rd_atomic = 4;
	a.min_rnr_timer = 1;
	a.ah_attr.dlid = to->port.lid;
	a.ah_attr.port_num = 1;
	if (s->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.dgid = to->gid;
		a.ah_attr.grh.sgid_index = ROCE_GID;
		a.ah_attr.grh.hop_limit = 64;
	}
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = TIMEOUT;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.sq_psn = s->qp->qp_num;
	a.max_rd_atomic = 4;
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

/* RDMA WRITEs have immediate data, so that they consume a receive as a SEND does. */
static enum ibv_wr_opcode opcode(const char *name)
{
	if (!strcmp(name, "read"))
		return IBV_WR_RDMA_READ;
	return !strcmp(name, "write") ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND;
}

static void post_recv(struct side *s, uint64_t n, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)s->buf + n % DEPTH * MESSAGE, length, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

	if (ibv_post_recv(s->qp, &wr, &bad))
		die("post_recv");
}

static void post_send(struct side *s, struct side *to, uint64_t n, enum ibv_wr_opcode op,
		      uint32_t length)
{
	uint64_t at = n % DEPTH * MESSAGE;
	struct ibv_sge sge = {(uintptr_t)s->buf + at, length, s->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = n, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)to->buf + at, to->mr->rkey},
	}, *bad;

	if (ibv_post_send(s->qp, &wr, &bad))
		die("post_send");
}
