// Posts receives to a work queue, with libibverbs.
//
//	cc -o workqueue workqueue.c -libverbs; ./workqueue mlx5_0
//
// It prints each request that was accepted: its number, the length of its scatter list,
// its bytes. The last request, which is refused, has more entries than the queue allows.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 4, SGES = 2 };

static char memory[4096];

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

int main(int argc, char **argv)
{
	struct ibv_context *ctx = NULL;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_wq *wq;
	struct ibv_recv_wr wr[DEPTH] = {}, *bad = NULL;
	struct ibv_sge sge[DEPTH][SGES + 1];

	for (struct ibv_device **list = ibv_get_device_list(NULL); argc == 2 && list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), argv[1]))
			ctx = ibv_open_device(*list);
	if (!ctx || !(pd = ibv_alloc_pd(ctx)) || !(cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0)) ||
	    !(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)))
		die("open");
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = DEPTH, .max_sge = SGES, .pd = pd, .cq = cq };
	if (!(wq = ibv_create_wq(ctx, &init)))
		die("create WQ");
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	if (ibv_modify_wq(wq, &ready))
		die("modify WQ");

	for (int i = 0; i < DEPTH; i++) {
		wr[i] = (struct ibv_recv_wr){ .wr_id = 100 + i, .sg_list = sge[i], .num_sge = 1 + i % 2 };
		wr[i].next = i < DEPTH - 1 ? &wr[i + 1] : NULL;
		for (int j = 0; j <= SGES; j++)
			sge[i][j] = (struct ibv_sge){ .addr = (uintptr_t)memory + 256 * i, .length = 64 + j, .lkey = mr->lkey };
	}
	wr[DEPTH - 1].num_sge = 1 + init.max_sge;
	if (!ibv_post_wq_recv(wq, wr, &bad) || bad != &wr[DEPTH - 1])
		die("the last request was accepted");
	for (int i = 0; &wr[i] != bad; i++)
		printf("%d %d %d\n", (int)wr[i].wr_id, wr[i].num_sge, wr[i].num_sge == 1 ? 64 : 64 + 65);

	if (ibv_destroy_wq(wq) || ibv_destroy_cq(cq) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd))
		die("destroy");
	return 0;
}
