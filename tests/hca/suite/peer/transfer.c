/*
 * transfer DEVICE DEVICE send|write|read MIB: moves data from one device to the
 * other over a connection of type RC, in messages of 1 MiB, and compares every
 * byte with what it has to be.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

enum { MESSAGE = 1 << 20, DEPTH = 4 };

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_port_attr port;
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
	if (!s->pd || !s->cq || ibv_query_port(s->context, 1, &s->port))
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
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 8; /* 1 ms */
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.sq_psn = s->qp->qp_num;
	a.max_rd_atomic = 4;
	if (ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

/* The words of message number n. Each differs from all others. */
static uint64_t word(uint64_t n, int i)
{
	return (n * (MESSAGE / 8) + i) * 0x9e3779b97f4a7c15u;
}

static void fill(uint64_t *b, uint64_t n)
{
	for (int i = 0; i < MESSAGE / 8; i++)
		b[i] = word(n, i);
}

static void check(const uint64_t *b, uint64_t n)
{
	for (int i = 0; i < MESSAGE / 8; i++) {
		if (b[i] != word(n, i)) {
			fprintf(stderr, "message %" PRIu64 ": invalid data at %d: %#" PRIx64 ", not %#" PRIx64 "\n",
				n, 8 * i, b[i], word(n, i));
			exit(1);
		}
	}
}

/* Completions come in order: the next one is that of message n. */
static void wait_for(struct side *s, uint64_t n, const char *who)
{
	struct ibv_wc wc;
	int got;

	while (!(got = ibv_poll_cq(s->cq, 1, &wc)))
		;
	if (got < 0 || wc.status != IBV_WC_SUCCESS || wc.wr_id != n) {
		fprintf(stderr, "%s, message %" PRIu64 ": %s (vendor %#x), completion of %" PRIu64 "\n",
			who, n, ibv_wc_status_str(wc.status), wc.vendor_err, wc.wr_id);
		exit(1);
	}
}

static void post_recv(struct side *s, uint64_t n)
{
	struct ibv_sge sge = {(uintptr_t)s->buf + n % DEPTH * MESSAGE, MESSAGE, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

	if (ibv_post_recv(s->qp, &wr, &bad))
		die("post_recv");
}

static void post_send(struct side *s, struct side *to, uint64_t n, enum ibv_wr_opcode op)
{
	uint64_t at = n % DEPTH * MESSAGE;
	struct ibv_sge sge = {(uintptr_t)s->buf + at, MESSAGE, s->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = n, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)to->buf + at, to->mr->rkey},
	}, *bad;

	if (ibv_post_send(s->qp, &wr, &bad))
		die("post_send");
}

int main(int argc, char **argv)
{
	struct side a = {}, b = {};

	if (argc != 5) {
		fprintf(stderr, "usage: transfer DEVICE DEVICE send|write|read MIB\n");
		return 2;
	}
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	connect_side(&a, &b);
	connect_side(&b, &a);
	int receives = strcmp(argv[3], "read");
	enum ibv_wr_opcode op = !receives ? IBV_WR_RDMA_READ :
				!strcmp(argv[3], "write") ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND;
	uint64_t total = strtoull(argv[4], NULL, 0), posted = 0, done = 0;
	struct timespec start, end;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (done < total) {
		for (; posted < total && posted < done + DEPTH; posted++) {
			uint64_t *from = (receives ? a.buf : b.buf) + posted % DEPTH * (MESSAGE / 8);

			fill(from, posted);
			if (receives)
				post_recv(&b, posted);
			post_send(&a, &b, posted, op);
		}
		wait_for(&a, done, "requester");
		if (receives)
			wait_for(&b, done, "responder");
		check((receives ? b.buf : a.buf) + done % DEPTH * (MESSAGE / 8), done);
		done++;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%s: %" PRIu64 " MiB intact in %.1f s\n", argv[3], total,
	       end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) * 1e-9);
	return 0;
}
