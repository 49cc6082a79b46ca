// qps DEVICE N [FILE]: creates and destroys a QP N times, prints how long one takes, and waits until
// there is FILE.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	if (argc < 3 || argc > 4 || !list)
		die("usage: qps DEVICE N [FILE]");
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	if (!context)
		die(argv[1]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!pd || !cq)
		die("PD and CQ");
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
	int n = atoi(argv[2]);
	double start = now();
	for (int i = 0; i < n; i++) {
		struct ibv_qp *qp = ibv_create_qp(pd, &attr);
		if (!qp || ibv_destroy_qp(qp))
			die("QP");
	}
	printf("%.3f usec/qp\n", (now() - start) / n);
	while (argc == 4 && access(argv[3], F_OK))
		usleep(10000);
	return 0;
}
