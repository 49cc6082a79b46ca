/*
 * faults DEVICE DEVICE send|write|read: sends three messages over an RC connection and
 * prints their completions. It prints the numbers of the queue pairs and waits for a
 * line on stdin. Then it posts, and prints all completions of the requester and of the
 * responder.
 */
#include "pair.h"

enum { MESSAGES = 3, LENGTH = 3000 };

static int failed(struct side *s)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init))
		die("query_qp");
	return attr.qp_state == IBV_QPS_ERR;
}

/*
 * Prints the completions of all posted requests or, for a responder without an error,
 * those that have arrived.
 */
static void report(struct side *s, const char *who, int all)
{
	struct ibv_wc wc;
	int n = 0;

	while (n < MESSAGES) {
		int more = all || failed(s), got = ibv_poll_cq(s->cq, 1, &wc);

		if (got < 0)
			die("poll_cq");
		if (got == 0 && !more)
			return;
		if (got == 0)
			continue;
		n++;
		if (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR)
			printf("%s: %s\n", who, ibv_wc_status_str(wc.status));
		else
			printf("%s: %s %#x\n", who, ibv_wc_status_str(wc.status), wc.vendor_err);
	}
}

int main(int argc, char **argv)
{
	struct side a = {}, b = {};

	if (argc != 4) {
		fprintf(stderr, "usage: faults DEVICE DEVICE send|write|read\n");
		return 2;
	}
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	connect_side(&a, &b);
	connect_side(&b, &a);
	printf("%u %u\n", a.qp->qp_num, b.qp->qp_num);
	fflush(stdout);
	if (getchar() == EOF)
		die("stdin");
	enum ibv_wr_opcode op = opcode(argv[3]);

	for (int i = 0; op != IBV_WR_RDMA_READ && i < MESSAGES; i++)
		post_recv(&b, i, LENGTH);
	for (int i = 0; i < MESSAGES; i++)
		post_send(&a, &b, i, op, LENGTH);
	report(&a, "requester", 1);
	if (op != IBV_WR_RDMA_READ)
		report(&b, "responder", 0);
	return 0;
}
