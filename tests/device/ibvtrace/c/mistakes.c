#define _GNU_SOURCE
// mistakes DEVICE: makes common mistakes with verbs, all of which the kernel refuses.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MUST(what) \
	do { \
		if (!(what)) { \
			perror(#what); \
			exit(1); \
		} \
	} while (0)

// Prints a call that must fail, and its errno.
static void refused(const char *what, int error)
{
	printf("%s %s\n", what, error ? strerrorname_np(error) : "SUCCEEDED");
}

static void no_object(const char *what, void *object)
{
	refused(what, object ? 0 : errno);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(argc == 2 && list);
	while (*list && strcmp(ibv_get_device_name(*list), argv[1]))
		list++;
	MUST(*list);
	struct ibv_context *ctx = ibv_open_device(*list);
	MUST(ctx);
	struct ibv_device_attr attr;
	MUST(!ibv_query_device(ctx, &attr));
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	MUST(pd && cq);

	no_object("create_cq", ibv_create_cq(ctx, attr.max_cqe + 1, NULL, NULL, 0));

	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = attr.max_qp_wr + 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	no_object("create_qp", ibv_create_qp(pd, &init));
	init.cap.max_send_wr = 1;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	MUST(qp);

	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};
	refused("modify_qp", ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	refused("modify_qp", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));

	long page = sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED);
	no_object("reg_mr", ibv_reg_mr(pd, memory, page, IBV_ACCESS_REMOTE_WRITE));
	MUST(!munmap(memory, page));
	no_object("reg_mr", ibv_reg_mr(pd, memory, page, IBV_ACCESS_LOCAL_WRITE));

	refused("destroy_cq", ibv_destroy_cq(cq));
	refused("dealloc_pd", ibv_dealloc_pd(pd));
	return 0;
}
