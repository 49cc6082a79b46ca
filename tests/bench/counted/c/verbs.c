// verbs DEVICE GID_INDEX [idle]: prints how many nanoseconds each of some verbs takes.
// ../verbs/main.go does the same, step by step. With idle, the program has a second thread,
// which does nothing: system calls cost the kernel more then.
#include <infiniband/verbs.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 32
#define SIZE 4096
#define QKEY 0x1234

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define MUST(what) \
	do { \
		if (!(what)) \
			fail(#what); \
	} while (0)

static struct ibv_device *device;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char *memory;
static union ibv_gid gid;
static int gid_index;

static struct ibv_device *find(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return list[i];
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static struct ibv_ah_attr address(void)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 1},
		.port_num = 1,
	};
}

// An end is a queue pair with a CQ.
struct end {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
};

static struct ibv_srq *create_srq(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = 1}};

	return ibv_create_srq(pd, &init);
}

static struct ibv_qp *create_qp(struct ibv_cq *cq, struct ibv_srq *srq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = srq ? 0 : DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
	};

	return ibv_create_qp(pd, &init);
}

static void create(struct end *e, enum ibv_qp_type type, int shared)
{
	MUST(e->cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0));
	e->srq = NULL;
	if (shared)
		MUST(e->srq = create_srq());
	MUST(e->qp = create_qp(e->cq, e->srq, type));
}

static void connect_to(struct ibv_qp *qp, uint32_t dest)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access, .qkey = QKEY};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
		.min_rnr_timer = 12, .max_dest_rd_atomic = 1, .ah_attr = address(),
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	int ud = qp->qp_type == IBV_QPT_UD;

	MUST(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	MUST(!ibv_modify_qp(qp, &rtr, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	MUST(!ibv_modify_qp(qp, &rts, ud ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void destroy(struct end *e)
{
	MUST(!ibv_destroy_qp(e->qp));
	if (e->srq)
		MUST(!ibv_destroy_srq(e->srq));
	MUST(!ibv_destroy_cq(e->cq));
}

static void complete(struct ibv_cq *cq)
{
	struct ibv_wc wc[4];
	int n;

	while ((n = ibv_poll_cq(cq, 4, wc)) == 0)
		;
	if (n != 1 || wc[0].status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%d completions, %s\n", n, ibv_wc_status_str(wc[0].status));
		exit(1);
	}
}

// measure prints what f takes: the mean of the fastest of some batches, which no timer has
// interrupted.
#define BATCHES 60

static void measure(const char *name, int n, void (*f)(void))
{
	double fastest = HUGE_VAL;

	for (int i = 0; i < BATCHES; i++) {
		double began = now();

		for (int j = 0; j < n; j++)
			f();
		double mean = (now() - began) / n;
		if (mean < fastest)
			fastest = mean;
	}
	printf("%s: %.1f ns\n", name, fastest);
}

// What exchange sends: see data.
static struct {
	struct end a, b;
	struct ibv_ah *ah;
	enum ibv_wr_opcode opcode;
	int length;
} now_sent;

static void exchange(void)
{
	struct end *a = &now_sent.a, *b = &now_sent.b;
	struct ibv_sge from = {(uintptr_t)memory, now_sent.length, mr->lkey};
	struct ibv_sge to = {(uintptr_t)memory + SIZE, SIZE, mr->lkey};
	struct ibv_send_wr *bad, send = {.sg_list = &from, .num_sge = 1, .opcode = now_sent.opcode, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &to, .num_sge = 1};

	if (a->qp->qp_type == IBV_QPT_UD) {
		send.wr.ud.ah = now_sent.ah;
		send.wr.ud.remote_qpn = b->qp->qp_num;
		send.wr.ud.remote_qkey = QKEY;
	} else if (send.opcode != IBV_WR_SEND) {
		send.wr.rdma.remote_addr = (uintptr_t)memory + SIZE;
		send.wr.rdma.rkey = mr->rkey;
	}
	if (send.opcode == IBV_WR_SEND)
		MUST(!(b->srq ? ibv_post_srq_recv(b->srq, &recv, &bad_recv) : ibv_post_recv(b->qp, &recv, &bad_recv)));
	MUST(!ibv_post_send(a->qp, &send, &bad));
	complete(a->cq);
	if (send.opcode == IBV_WR_SEND)
		complete(b->cq);
}

// data measures sends of one end to the other: a receive that is posted for each if it
// takes one, the send, and what completes.
static void data(const char *name, int n, enum ibv_qp_type type, int shared, enum ibv_wr_opcode opcode, int length)
{
	struct end *a = &now_sent.a, *b = &now_sent.b;
	struct ibv_ah_attr attr = address();

	create(a, type, 0);
	create(b, type, shared);
	connect_to(a->qp, b->qp->qp_num);
	connect_to(b->qp, a->qp->qp_num);
	MUST(now_sent.ah = ibv_create_ah(pd, &attr));
	now_sent.opcode = opcode;
	now_sent.length = length;
	measure(name, n, exchange);
	MUST(!ibv_destroy_ah(now_sent.ah));
	destroy(a);
	destroy(b);
}

static struct ibv_cq *some_cq;
static struct end ready;

static void open_device(void)
{
	struct ibv_context *c = ibv_open_device(device);
	MUST(c && !ibv_close_device(c));
}

static void alloc_pd(void)
{
	struct ibv_pd *p = ibv_alloc_pd(context);
	MUST(p && !ibv_dealloc_pd(p));
}

static void reg_mr(void)
{
	struct ibv_mr *m = ibv_reg_mr(pd, memory, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE);
	MUST(m && !ibv_dereg_mr(m));
}

static void alloc_mw(void)
{
	struct ibv_mw *w = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	MUST(w && !ibv_dealloc_mw(w));
}

static void channel(void)
{
	struct ibv_comp_channel *c = ibv_create_comp_channel(context);
	MUST(c && !ibv_destroy_comp_channel(c));
}

static void cq(void)
{
	struct ibv_cq *c = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	MUST(c && !ibv_destroy_cq(c));
}

static void srq(void)
{
	struct ibv_srq *s = create_srq();
	MUST(s && !ibv_destroy_srq(s));
}

static void ah(void)
{
	struct ibv_ah_attr attr = address();
	struct ibv_ah *a = ibv_create_ah(pd, &attr);
	MUST(a && !ibv_destroy_ah(a));
}

static void qp(void)
{
	struct ibv_qp *q = create_qp(some_cq, NULL, IBV_QPT_RC);
	MUST(q && !ibv_destroy_qp(q));
}

static void connect_qp(void)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	connect_to(ready.qp, ready.qp->qp_num);
	MUST(!ibv_modify_qp(ready.qp, &reset, IBV_QP_STATE));
}

static void query_port(void)
{
	struct ibv_port_attr attr;
	MUST(!ibv_query_port(context, 1, &attr));
}

static void poll_empty(void)
{
	struct ibv_wc wc[4];
	MUST(ibv_poll_cq(some_cq, 4, wc) == 0);
}

static void *idle(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc != 3 && (argc != 4 || strcmp(argv[3], "idle"))) {
		fprintf(stderr, "usage: verbs DEVICE GID_INDEX [idle]\n");
		return 2;
	}
	if (argc == 4)
		MUST(!pthread_create(&thread, NULL, idle, NULL));
	MUST(device = find(argv[1]));
	gid_index = atoi(argv[2]);
	MUST(context = ibv_open_device(device));
	MUST(!ibv_query_gid(context, 1, gid_index, &gid));
	MUST(pd = ibv_alloc_pd(context));
	memory = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED);
	memset(memory, 1, 2 * SIZE);
	MUST(mr = ibv_reg_mr(pd, memory, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	MUST(some_cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0));
	create(&ready, IBV_QPT_RC, 0);

	measure("poll of an empty CQ", 100, poll_empty);
	data("RC send, 64 bytes", 10, IBV_QPT_RC, 0, IBV_WR_SEND, 64);
	data("RC send to an SRQ, 64 bytes", 10, IBV_QPT_RC, 1, IBV_WR_SEND, 64);
	data("RC write, 64 bytes", 10, IBV_QPT_RC, 0, IBV_WR_RDMA_WRITE, 64);
	data("RC read, 64 bytes", 10, IBV_QPT_RC, 0, IBV_WR_RDMA_READ, 64);
	data("UD send, 64 bytes", 10, IBV_QPT_UD, 0, IBV_WR_SEND, 64);
	measure("open and close a device", 5, open_device);
	measure("allocate and free a PD", 5, alloc_pd);
	measure("register and deregister an MR", 5, reg_mr);
	measure("allocate and free an MW", 5, alloc_mw);
	measure("create and destroy a completion channel", 5, channel);
	measure("create and destroy a CQ", 5, cq);
	measure("create and destroy an SRQ", 5, srq);
	measure("create and destroy an AH", 5, ah);
	measure("create and destroy a QP", 5, qp);
	measure("connect and reset a QP", 5, connect_qp);
	measure("query a port", 5, query_port);
	return 0;
}
