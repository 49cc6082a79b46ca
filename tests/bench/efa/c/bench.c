// Prints the least times of libefa's posts and polls: see ../run. The program itself plays the
// device, and writes completions.
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

enum { DEPTH = 64, CQES = 256, ROUNDS = 20000, LIST = 16, FD = 1000, SHOWN = 1 << 20 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static unsigned char *map(unsigned long long at)
{
	return mmap(NULL, SHOWN, PROT_READ | PROT_WRITE, MAP_SHARED, FD, at);
}

static void least(double *best, double began)
{
	double took = (now() - began) / DEPTH;
	if (*best == 0 || took < *best)
		*best = took;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	struct ibv_cq *cq = ibv_create_cq(ctx, CQES, NULL, NULL, 0);
	unsigned size = 0;
	ioctl(FD, 0xefa, &size);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq, .cap = { DEPTH, DEPTH, 2, 2, 32 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr a = { .qp_state = state, .port_num = 1, .qkey = 1 };
		int mask = IBV_QP_STATE;
		if (state == IBV_QPS_INIT)
			mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
		if (state == IBV_QPS_RTS)
			mask |= IBV_QP_SQ_PSN;
		if (ibv_modify_qp(qp, &a, mask))
			return 1;
	}
	unsigned char *sq = map(1 << 24), *rq = map((1 << 24) + (1 << 22)), *ring = map((1ull << 34) + (1 << 24));
	struct ibv_sge piece = { 4096, 64, 9 };
	struct ibv_send_wr send = { .wr_id = 1, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { ah, 300, 77 } }, *bad_send;
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &piece, .num_sge = 1 }, *bad_recv;
	struct ibv_wc wc[LIST];
	double sends = 0, recvs = 0, ones = 0, lists = 0;
	unsigned done = 0;
	for (int round = 0; round < ROUNDS; round++) {
		double began = now();
		for (int i = 0; i < DEPTH; i++)
			if (ibv_post_send(qp, &send, &bad_send))
				return 1;
		least(&sends, began);
		began = now();
		for (int i = 0; i < DEPTH; i++)
			if (ibv_post_recv(qp, &recv, &bad_recv))
				return 1;
		least(&recvs, began);
		for (int i = 0; i < 2 * DEPTH; i++, done++) {
			unsigned char *e = ring + done % CQES * size;
			int at = i % DEPTH;
			memset(e, 0, size);
			memcpy(e, i < DEPTH ? sq + at * 64 : rq + (at + round * DEPTH) % (2 * DEPTH) * 16 + 8, 2);
			memcpy(e + 4, &qp->qp_num, 2);
			e[6] = 64;
			e[3] = (i < DEPTH ? 1 : 2) << 1 | (done / CQES % 2 ? 0 : 1);
		}
		began = now();
		for (int i = 0; i < DEPTH; i++)
			if (ibv_poll_cq(cq, 1, wc) != 1)
				return 1;
		least(&ones, began);
		began = now();
		for (int i = 0; i < DEPTH; i += LIST)
			if (ibv_poll_cq(cq, LIST, wc) != LIST)
				return 1;
		least(&lists, began);
	}
	printf("post send %.1f\npost recv %.1f\npoll 1 %.1f\npoll 16 %.1f\n", sends, recvs, ones, lists);
	return 0;
}
