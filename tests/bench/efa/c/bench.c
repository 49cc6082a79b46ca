// Prints the least times of libefa's posts and polls: see ../run. The program itself plays the
// device, and writes completions.
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

// A queue is a queue pair, and where its sends and receives are.
struct queue {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	unsigned char *sq, *rq;
};

static void connect(struct queue *q, int n)
{
	if (!q->qp)
		fail("create QP");
	q->ex = ibv_qp_to_qp_ex(q->qp);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr a = { .qp_state = state, .port_num = 1, .qkey = 1 };
		int mask = IBV_QP_STATE;
		if (state == IBV_QPS_INIT)
			mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
		if (state == IBV_QPS_RTS)
			mask |= IBV_QP_SQ_PSN;
		if (ibv_modify_qp(q->qp, &a, mask))
			fail("ibv_modify_qp");
	}
	q->sq = map((unsigned long long)n << 24), q->rq = map(((unsigned long long)n << 24) + (1 << 22));
}

static struct ibv_cq *cq;
static struct ibv_ah *ah;
static unsigned char *ring;
static unsigned size, done;
static struct ibv_wc wc[LIST];
static unsigned char data[32];

// complete writes completions of a round of sends, or of receives.
static void complete(struct queue *q, int recv, int round)
{
	for (int i = 0; i < DEPTH; i++, done++) {
		unsigned char *e = ring + done % CQES * size;
		memset(e, 0, size);
		memcpy(e, recv ? q->rq + (i + round * DEPTH) % (2 * DEPTH) * 16 + 8 : q->sq + i * 64, 2);
		memcpy(e + 4, &q->qp->qp_num, 2);
		e[6] = 64;
		e[3] = (recv ? 2 : 1) << 1 | (done / CQES % 2 ? 0 : 1);
	}
}

static void poll(int n)
{
	for (int i = 0; i < DEPTH; i += n)
		if (ibv_poll_cq(cq, n, wc) != n)
			fail("ibv_poll_cq");
}

// post posts a round of sends, in lists.
static void post(struct queue *q, struct ibv_send_wr *wrs, int list)
{
	struct ibv_send_wr *bad;
	for (int i = 0; i < DEPTH; i += list)
		if (ibv_post_send(q->qp, wrs, &bad))
			fail("ibv_post_send");
}

// The posts of SRD, which has the newer interface only.
enum srd { SEND, INLINE, READ };

static void post_srd(struct queue *q, enum srd what)
{
	for (int i = 0; i < DEPTH; i++) {
		ibv_wr_start(q->ex);
		q->ex->wr_id = 1;
		q->ex->wr_flags = IBV_SEND_SIGNALED;
		if (what == READ)
			ibv_wr_rdma_read(q->ex, 5, 4096);
		else
			ibv_wr_send(q->ex);
		if (what == INLINE)
			ibv_wr_set_inline_data(q->ex, data, sizeof data);
		else
			ibv_wr_set_sge(q->ex, 9, 4096, 64);
		ibv_wr_set_ud_addr(q->ex, ah, 300, 77);
		if (ibv_wr_complete(q->ex))
			fail("ibv_wr_complete");
	}
}


int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	ah = ibv_create_ah(pd, &to);
	cq = ibv_create_cq(ctx, CQES, NULL, NULL, 0);
	ioctl(FD, 0xefa, &size);
	ring = map((1ull << 34) + (1 << 24));
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq, .pd = pd, .cap = { DEPTH, DEPTH, 2, 2, 32 }, .comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct queue ud = { .qp = ibv_create_qp_ex(ctx, &init) }, srd;
	connect(&ud, 1);
	init.qp_type = IBV_QPT_DRIVER;
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
	struct efadv_qp_init_attr own = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	srd.qp = efadv_create_qp_ex(ctx, &init, &own, sizeof own);
	connect(&srd, 2);

	struct ibv_sge piece = { 4096, 64, 9 }, bytes = { (uintptr_t)data, sizeof data };
	struct ibv_send_wr send = { .wr_id = 1, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { ah, 300, 77 } };
	struct ibv_send_wr in = send, sends[LIST];
	in.sg_list = &bytes;
	in.send_flags |= IBV_SEND_INLINE;
	for (int i = 0; i < LIST; i++) {
		sends[i] = send;
		sends[i].next = i + 1 < LIST ? &sends[i + 1] : NULL;
	}
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &piece, .num_sge = 1 }, *bad_recv;
	const char *names[] = { "UD send", "UD inline", "UD list of 16", "SRD send", "SRD inline", "SRD read" };
	double posts[6] = { 0 }, recvs = 0, ones = 0, lists = 0, empties = 0;
	for (int round = 0; round < ROUNDS; round++) {
		for (int kind = 0; kind < 6; kind++) {
			struct queue *q = kind < 3 ? &ud : &srd;
			double began = now();
			switch (kind) {
			case 0: post(q, &send, 1); break;
			case 1: post(q, &in, 1); break;
			case 2: post(q, sends, LIST); break;
			default: post_srd(q, kind - 3);
			}
			least(&posts[kind], began);
			complete(q, 0, round);
			began = now();
			poll(kind ? LIST : 1);
			if (kind == 0)
				least(&ones, began);
		}
		double began = now();
		for (int i = 0; i < DEPTH; i++)
			if (ibv_post_recv(ud.qp, &recv, &bad_recv))
				fail("ibv_post_recv");
		least(&recvs, began);
		complete(&ud, 1, round);
		began = now();
		poll(LIST);
		least(&lists, began);
		began = now();
		for (int i = 0; i < DEPTH; i++)
			if (ibv_poll_cq(cq, 1, wc))
				fail("ibv_poll_cq");
		least(&empties, began);
	}
	for (int kind = 0; kind < 6; kind++)
		printf("%s %.1f\n", names[kind], posts[kind]);
	printf("receive %.1f\npoll of 1 %.1f\npoll of 16 %.1f\nempty poll %.1f\n", recvs, ones, lists, empties);
	return 0;
}
