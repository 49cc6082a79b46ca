// extended DEVICE GID-INDEX: posts with the work request builder on an extended QP that
// is connected to itself, and polls an extended CQ, one operation at a time. It prints
// each operation as the trace should show it, and the number of completions that it got.
// With rxe of rdma-core 44, it gets some repeatedly, because ibv_end_poll skips an entry
// after ibv_next_poll found none.
#include <infiniband/verbs.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *context;
static struct ibv_cq_ex *cq;
static struct ibv_qp_ex *qp;
static struct ibv_mr *mr;
static int polled;
static char buffer[4096] __attribute__((aligned(64)));

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void complete(const char *what, int completions)
{
	check(!ibv_wr_complete(qp), "ibv_wr_complete");
	printf("%s\n", what);
	while (completions > 0) {
		struct ibv_poll_cq_attr none = {};
		if (ibv_start_poll(cq, &none))
			continue;
		do {
			check(cq->status == IBV_WC_SUCCESS, what);
			completions--;
			polled++;
		} while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
}

static void begin(uint64_t id)
{
	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
}

static void sge(int offset, int length)
{
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)buffer + offset, length);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	check(argc == 3 && list, "usage: extended DEVICE GID-INDEX");
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	check(!!context, argv[1]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	check(!!mr, "MR");
	struct ibv_cq_init_attr_ex cqattr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM};
	cq = ibv_create_cq_ex(context, &cqattr);
	check(!!cq, "CQ");
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_RC, .pd = pd,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 16},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
			IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp *base = ibv_create_qp_ex(context, &attr);
	check(!!base, "QP");
	qp = ibv_qp_to_qp_ex(base);

	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	check(!ibv_modify_qp(base, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = base->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};
	a.ah_attr.grh.sgid_index = atoi(argv[2]);
	a.ah_attr.grh.hop_limit = 1;
	check(!ibv_query_gid(context, 1, atoi(argv[2]), &a.ah_attr.grh.dgid), "GID");
	struct ibv_port_attr port;
	check(!ibv_query_port(context, 1, &port), "port");
	if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		a.ah_attr = (struct ibv_ah_attr){.dlid = port.lid, .port_num = 1};
	check(!ibv_modify_qp(base, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	check(!ibv_modify_qp(base, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC), "RTS");

	struct ibv_sge to = {(uintptr_t)buffer + 1024, 256, mr->lkey};
	struct ibv_recv_wr recv = {.wr_id = 100, .sg_list = &to, .num_sge = 1}, *bad;
	check(!ibv_post_recv(base, &recv, &bad), "ibv_post_recv");

	uint64_t remote = (uintptr_t)buffer + 2048;
	begin(1);
	ibv_wr_send_imm(qp, htonl(0x11223344));
	sge(0, 32);
	complete("1 SEND_WITH_IMM 32 imm_data=0x11223344", 2);
	begin(2);
	ibv_wr_rdma_write(qp, mr->rkey, remote);
	struct ibv_sge two[2] = {{(uintptr_t)buffer, 8, mr->lkey}, {(uintptr_t)buffer + 16, 24, mr->lkey}};
	ibv_wr_set_sge_list(qp, 2, two);
	complete("2 RDMA_WRITE 32 remote_addr", 1);
	begin(3);
	ibv_wr_rdma_read(qp, mr->rkey, remote);
	sge(0, 64);
	complete("3 RDMA_READ 64 remote_addr", 1);
	begin(4);
	ibv_wr_atomic_cmp_swp(qp, mr->rkey, remote, 5, 6);
	sge(0, 8);
	complete("4 ATOMIC_CMP_AND_SWP 8 compare=0x5 swap=0x6", 1);
	begin(5);
	ibv_wr_atomic_fetch_add(qp, mr->rkey, remote, 7);
	sge(0, 8);
	complete("5 ATOMIC_FETCH_AND_ADD 8 add=0x7", 1);
	// Two at once, the first inline and without a completion.
	ibv_wr_start(qp);
	qp->wr_id = 6;
	qp->wr_flags = IBV_SEND_INLINE;
	ibv_wr_rdma_write(qp, mr->rkey, remote);
	ibv_wr_set_inline_data(qp, buffer, 12);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, mr->rkey, remote);
	sge(0, 16);
	complete("6 RDMA_WRITE 12 inline\n7 RDMA_WRITE 16 remote_addr", 1);
	printf("polled %d\n", polled);
	return 0;
}
