// crowd DEVICE CHILDREN THREADS QPS: a server that forks: each of its children uses the server's
// context, and then one of its own, in which threads create QPs. All exist at once. Without
// children, the server does it itself.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(what) \
	do { \
		if (!(what)) { \
			perror(#what); \
			exit(1); \
		} \
	} while (0)

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static int qps;
static pthread_barrier_t all_made;

static void *make(void *unused)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *made[qps];

	for (int i = 0; i < qps; i++)
		MUST(made[i] = ibv_create_qp(pd, &attr));
	pthread_barrier_wait(&all_made);
	for (int i = 0; i < qps; i++)
		MUST(!ibv_destroy_qp(made[i]));
	return unused;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	MUST(context);
	ibv_free_device_list(list);
	return context;
}

static void serve(struct ibv_context *inherited, const char *name, int threads)
{
	struct ibv_port_attr port;
	pthread_t thread[threads];

	MUST(!ibv_query_port(inherited, 1, &port));
	struct ibv_context *context = open_device(name);
	MUST(pd = ibv_alloc_pd(context));
	MUST(cq = ibv_create_cq(context, 16, NULL, NULL, 0));
	MUST(!pthread_barrier_init(&all_made, NULL, threads));
	for (int i = 0; i < threads; i++)
		MUST(!pthread_create(&thread[i], NULL, make, NULL));
	for (int i = 0; i < threads; i++)
		MUST(!pthread_join(thread[i], NULL));
	MUST(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: crowd DEVICE CHILDREN THREADS QPS\n");
		return 2;
	}
	int children = atoi(argv[2]), threads = atoi(argv[3]);
	struct ibv_context *context = open_device(argv[1]);

	qps = atoi(argv[4]);
	if (children == 0)
		serve(context, argv[1], threads);
	for (int i = 0; i < children; i++) {
		pid_t child = fork();

		MUST(child >= 0);
		if (child == 0) {
			serve(context, argv[1], threads);
			return 0;
		}
	}
	for (int i = 0; i < children; i++) {
		int status;

		MUST(wait(&status) > 0 && status == 0);
	}
	MUST(!ibv_close_device(context));
	return 0;
}
