// Posts operations on a list of tags with libmlx5, and prints the handles of added tags:
//
//	tags DEVICE <OPERATIONS
//
// Each line is an operation: its number, flags, count of unexpected messages, handle, tag,
// mask, and the length of the buffer.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char memory[4096];

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

int main(int argc, char **argv)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	for (; all && *all && strcmp(ibv_get_device_name(*all), argv[1]); all++)
		;
	struct ibv_context *ctx = all && *all ? ibv_open_device(*all) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE) : NULL;
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 64, .wc_flags = IBV_WC_EX_WITH_TM_INFO};
	struct ibv_cq_ex *cq = mr ? ibv_create_cq_ex(ctx, &cq_attr) : NULL;
	if (!cq)
		die("setup");
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = 4, .max_sge = 1}, .srq_type = IBV_SRQT_TM, .pd = pd, .cq = ibv_cq_ex_to_cq(cq),
		.tm_cap = {.max_num_tags = 4, .max_ops = 16},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &attr);
	if (!srq)
		die("create SRQ");
	unsigned op, flags, count, handle, length;
	unsigned long long tag, mask;
	while (scanf("%u %u %u %u %llu %llu %u", &op, &flags, &count, &handle, &tag, &mask, &length) == 7) {
		struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey};
		struct ibv_ops_wr wr = {.wr_id = 1, .opcode = op, .flags = flags}, *bad;
		wr.tm.unexpected_cnt = count;
		wr.tm.handle = handle;
		wr.tm.add.recv_wr_id = 2;
		wr.tm.add.sg_list = &sge;
		wr.tm.add.num_sge = length > 0;
		wr.tm.add.tag = tag;
		wr.tm.add.mask = mask;
		if (ibv_post_srq_ops(srq, &wr, &bad))
			die("post an operation");
		if (op == IBV_WR_TAG_ADD)
			printf("%u\n", wr.tm.handle);
		if (!(flags & IBV_OPS_SIGNALED))
			continue;
		struct ibv_poll_cq_attr poll = {};
		int err;
		while ((err = ibv_start_poll(cq, &poll)) == ENOENT)
			;
		if (err || cq->status)
			die("poll");
		ibv_end_poll(cq);
	}
	if (ibv_destroy_srq(srq))
		die("destroy SRQ");
	return 0;
}
