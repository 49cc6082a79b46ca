// stream DEVICE GID_INDEX SIZE DEPTH COUNT: streams RDMA writes from one RC QP to another
// on the same device, and prints the bandwidth in MiB/s.
// ../stream/main.go does the same, step by step.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BATCH 16

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

static struct ibv_mr *alloc_mr(struct ibv_pd *pd, size_t size, int access)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = p == MAP_FAILED ? NULL : ibv_reg_mr(pd, p, size, access);

	if (!mr)
		fail("ibv_reg_mr");
	return mr;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq, int depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (!qp)
		fail("ibv_create_qp");
	return qp;
}

static void connect_qp(struct ibv_qp *qp, uint32_t dest, union ibv_gid gid, int gid_index)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.min_rnr_timer = 12,
		.max_dest_rd_atomic = 1,
		.ah_attr = {
			.is_global = 1,
			.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
			.port_num = 1,
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	if (ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
	    ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
	    ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("ibv_modify_qp");
}

static void stream(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *from, struct ibv_mr *to, int depth, int count)
{
	struct ibv_wc wc[BATCH];
	int posted = 0, done = 0;

	while (done < count) {
		int n;

		for (; posted < count && posted - done < depth; posted++) {
			struct ibv_sge sge = { .addr = (uintptr_t)from->addr, .length = from->length, .lkey = from->lkey };
			struct ibv_send_wr *bad, wr = {
				.wr_id = posted,
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.wr.rdma = { .remote_addr = (uintptr_t)to->addr, .rkey = to->rkey },
			};

			if (ibv_post_send(qp, &wr, &bad))
				fail("ibv_post_send");
		}
		n = ibv_poll_cq(cq, BATCH, wc);
		if (n < 0)
			fail("ibv_poll_cq");
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
		}
		done += n;
	}
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: stream DEVICE GID_INDEX SIZE DEPTH COUNT\n");
		return 2;
	}
	int gid_index = atoi(argv[2]), depth = atoi(argv[4]), count = atoi(argv[5]);
	size_t size = atol(argv[3]);
	union ibv_gid gid;
	struct ibv_context *context = open_device(argv[1]);

	if (!context || ibv_query_gid(context, 1, gid_index, &gid))
		fail(argv[1]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, depth, NULL, NULL, 0);

	if (!pd || !cq)
		fail("ibv_create_cq");
	struct ibv_mr *from = alloc_mr(pd, size, 0);
	struct ibv_mr *to = alloc_mr(pd, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *a = create_qp(pd, cq, depth);
	struct ibv_qp *b = create_qp(pd, cq, depth);

	connect_qp(a, b->qp_num, gid, gid_index);
	connect_qp(b, a->qp_num, gid, gid_index);
	memset(from->addr, 0xa5, size);
	stream(a, cq, from, to, depth, depth); // warm up
	double start = seconds();
	stream(a, cq, from, to, depth, count);
	double rate = (double)size * count / (seconds() - start);

	if (memcmp(from->addr, to->addr, size)) {
		fprintf(stderr, "the written data differs\n");
		return 1;
	}
	printf("%.2f MiB/s\n", rate / (1 << 20));
	return 0;
}
