// Reports how the C stack handles faults that are injected into its queue pairs. The test
// requests a round, injects a fault, and requests the result.
//
//	cc -o faults faults.c -libverbs; ./faults mlx5_0 [srq]
//
// At first it prints "A B", the numbers of its two queue pairs. On "round", it brings
// both from RESET to RTS and prints "ready". On "play", it sends a message from A to B
// and prints "STATUS VENDOR, STATUS VENDOR" of the send and the receive.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 1, SIZE = 64 };

static struct ibv_qp *qps[2];
static struct ibv_cq *cqs[2];
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static char memory[2 * SIZE];
static uint16_t lid;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void move(struct ibv_qp *qp, enum ibv_qp_state to, int mask, uint32_t dest)
{
	struct ibv_qp_attr a = {
		.qp_state = to, .port_num = PORT, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
		.ah_attr = { .dlid = lid, .port_num = PORT }, .timeout = 10, .retry_cnt = 7, .rnr_retry = 7,
	};
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | mask))
		die("modify QP");
}

static void begin(void)
{
	for (int i = 0; i < 2; i++)
		move(qps[i], IBV_QPS_RESET, 0, 0);
	for (int i = 0; i < 2; i++) {
		move(qps[i], IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0);
		move(qps[i], IBV_QPS_RTR,
		     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER,
		     qps[!i]->qp_num);
		move(qps[i], IBV_QPS_RTS,
		     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC, 0);
	}
}

static struct ibv_wc wait_for(struct ibv_cq *cq)
{
	struct ibv_wc wc = { 0 }; // a success doesn't set vendor_err
	int n;
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	if (n < 0)
		die("poll");
	return wc;
}

static void play(void)
{
	struct ibv_sge from = { (uintptr_t)memory, SIZE, mr->lkey }, to = { (uintptr_t)memory + SIZE, SIZE, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, *bad_send;
	if (srq ? ibv_post_srq_recv(srq, &recv, &bad_recv) : ibv_post_recv(qps[1], &recv, &bad_recv))
		die("post receive");
	if (ibv_post_send(qps[0], &send, &bad_send))
		die("post send");
	struct ibv_wc sent = wait_for(cqs[0]);
	for (int i = 0; i < 2; i++)
		move(qps[i], IBV_QPS_ERR, 0, 0); // so that the receive completes too
	struct ibv_wc received = wait_for(cqs[1]);
	printf("%d %#x, %d %#x\n", sent.status, sent.vendor_err, received.status, received.vendor_err);
}

int main(int argc, char **argv)
{
	struct ibv_context *ctx = NULL;
	struct ibv_port_attr port;
	struct ibv_pd *pd;
	char line[64];

	for (struct ibv_device **list = ibv_get_device_list(NULL); list && *list; list++)
		if (argc > 1 && !strcmp(ibv_get_device_name(*list), argv[1]))
			ctx = ibv_open_device(*list);
	if (!ctx || ibv_query_port(ctx, PORT, &port) || !(pd = ibv_alloc_pd(ctx)))
		die("open");
	lid = port.lid;
	if (!(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)))
		die("register");
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	if (argc > 2 && !(srq = ibv_create_srq(pd, &shared)))
		die("create SRQ");
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC, .srq = srq,
			.cap = { .max_send_wr = 4, .max_recv_wr = srq ? 0 : 4, .max_send_sge = 1, .max_recv_sge = !srq },
		};
		if (!(cqs[i] = ibv_create_cq(ctx, 16, NULL, NULL, 0)))
			die("create CQ");
		init.send_cq = init.recv_cq = cqs[i];
		if (!(qps[i] = ibv_create_qp(pd, &init)))
			die("create QP");
	}
	setlinebuf(stdout);
	printf("%u %u\n", qps[0]->qp_num, qps[1]->qp_num);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "round\n")) {
			begin();
			puts("ready");
		} else {
			play();
		}
	}
	return 0;
}
