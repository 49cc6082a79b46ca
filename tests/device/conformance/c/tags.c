// One side of tag matching with the C stack.
//
//	tags DEVICE receive N
//	tags DEVICE send
//
// It prints the number, LID and PSN of its queue pair, and reads those of the peer's. The
// receiver has tags 1 to 4, and after the connection prints each of N completions, with the
// data that the message brought. The sender sends to tag 1, by rendezvous to tag 2, to tag 9
// and to none.
#include <endian.h>
#include <errno.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, TAGS = 4, RECVS = 4 };

static char memory[ROOM * (TAGS + RECVS + 1)];
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq_ex *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qp;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_sge part(int i)
{
	return (struct ibv_sge){.addr = (uintptr_t)memory + ROOM * i, .length = ROOM, .lkey = mr->lkey};
}

static void next(void)
{
	struct ibv_poll_cq_attr attr = {};
	int err;
	while ((err = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	if (err || cq->status)
		die(err ? "poll" : ibv_wc_status_str(cq->status));
}

static void post_recv(int i)
{
	struct ibv_sge sge = part(i);
	struct ibv_recv_wr wr = {.wr_id = 100 + i, .sg_list = &sge, .num_sge = 1}, *bad;
	if (srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad))
		die("post receive");
}

static void open_device(const char *name)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	for (; all && *all && strcmp(ibv_get_device_name(*all), name); all++)
		;
	if (!all || !*all || !(ctx = ibv_open_device(*all)) || !(pd = ibv_alloc_pd(ctx)))
		die("open");
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};
	cq = ibv_create_cq_ex(ctx, &attr);
	if (!mr || !cq)
		die("setup");
}

static void make_tags(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = RECVS, .max_sge = 1}, .srq_type = IBV_SRQT_TM, .pd = pd, .cq = ibv_cq_ex_to_cq(cq),
		.tm_cap = {.max_num_tags = TAGS, .max_ops = 8},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
	};
	srq = ibv_create_srq_ex(ctx, &attr);
	if (!srq)
		die("create SRQ");
	for (int i = 0; i < TAGS; i++) {
		struct ibv_sge sge = part(i);
		struct ibv_ops_wr wr = {.wr_id = i, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED}, *bad;
		wr.tm.add.recv_wr_id = 10 + i;
		wr.tm.add.sg_list = &sge;
		wr.tm.add.num_sge = 1;
		wr.tm.add.tag = i + 1;
		wr.tm.add.mask = ~0ull;
		if (ibv_post_srq_ops(srq, &wr, &bad))
			die("add a tag");
		next();
		if (ibv_wc_read_opcode(cq) != IBV_WC_TM_ADD)
			die("completion of an added tag");
		ibv_end_poll(cq);
	}
	for (int i = TAGS; i < TAGS + RECVS; i++)
		post_recv(i);
}

static void connect_qp(void)
{
	struct ibv_port_attr port;
	unsigned qpn, lid, psn;
	struct ibv_qp_init_attr init = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 4, .max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
	if (!(qp = ibv_create_qp(pd, &init)) || ibv_query_port(ctx, 1, &port) ||
	    ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("create QP");
	if (!srq)
		post_recv(TAGS);
	printf("%u %u 0\n", qp->qp_num, port.lid);
	fflush(stdout);
	if (scanf("%u %u %u", &qpn, &lid, &psn) != 3)
		die("the peer's address");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .rq_psn = psn, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 12, .ah_attr = {.dlid = lid, .port_num = 1},
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
	printf("connected\n");
	fflush(stdout);
}

static void receive(int n)
{
	while (n-- > 0) {
		next();
		struct ibv_wc_tm_info tm;
		ibv_wc_read_tm_info(cq, &tm);
		int op = ibv_wc_read_opcode(cq), flags = ibv_wc_read_wc_flags(cq), length = ibv_wc_read_byte_len(cq);
		char *data = memory + ROOM * (cq->wr_id >= 100 ? cq->wr_id - 100 : cq->wr_id - 10);
		if (cq->wr_id >= 100) {
			data += sizeof(struct ibv_tmh);
			length -= sizeof(struct ibv_tmh);
		}
		printf("%s %d flags %d tag %d context %d %.*s\n",
		       op == IBV_WC_TM_RECV ? "TM_RECV" : op == IBV_WC_TM_NO_TAG ? "TM_NO_TAG" : "other", (int)cq->wr_id, flags,
		       (int)tm.tag, (int)tm.priv, length, data);
		fflush(stdout);
		ibv_end_poll(cq);
	}
}

static void send_one(int op, int tag, const char *text)
{
	struct ibv_tmh *h = (void *)memory;
	*h = (struct ibv_tmh){.opcode = op, .app_ctx = htobe32(tag + 1000), .tag = htobe64(tag)};
	char *rest = memory + sizeof *h;
	int length = strlen(text);
	if (op == IBV_TMH_RNDV) {
		strcpy(memory + ROOM, text);
		struct ibv_rvh *r = (void *)rest;
		*r = (struct ibv_rvh){.va = htobe64((uintptr_t)memory + ROOM), .rkey = htobe32(mr->rkey), .len = htobe32(length)};
		length = sizeof *r;
	} else {
		memcpy(rest, text, length);
	}
	struct ibv_sge sge = part(0);
	sge.length = sizeof *h + length;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;
	if (ibv_post_send(qp, &wr, &bad))
		die("post send");
	// A rendezvous ends with a message.
	for (int n = op == IBV_TMH_RNDV ? 2 : 1; n > 0; n--) {
		next();
		if (ibv_wc_read_opcode(cq) == IBV_WC_RECV && ((struct ibv_tmh *)(memory + ROOM * TAGS))->opcode != IBV_TMH_FIN)
			die("no FIN");
		ibv_end_poll(cq);
	}
}

int main(int argc, char **argv)
{
	open_device(argv[1]);
	int receives = argc == 4;
	if (receives)
		make_tags();
	connect_qp();
	if (receives) {
		receive(atoi(argv[3]));
	} else {
		send_one(IBV_TMH_EAGER, 1, "eager");
		send_one(IBV_TMH_RNDV, 2, "fetched");
		send_one(IBV_TMH_EAGER, 9, "unexpected");
		send_one(IBV_TMH_NO_TAG, 1, "without");
	}
	if (ibv_destroy_qp(qp) || (srq && ibv_destroy_srq(srq)))
		die("destroy");
	printf("done\n");
	return 0;
}
