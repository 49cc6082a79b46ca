// Makes two connected queue pairs on a device, A and B, exchanges two messages, and then hangs or works as its last
// argument says. It prints the numbers of A and B when it is about to do so.
//
//	cc -o victim victim.c -libverbs; ./victim mlx5_0 GID-INDEX unarmed
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 1, SIZE = 8, DEPTH = 15 };

static struct ibv_qp *a, *b;
static struct ibv_cq *sent, *received; // received is of B's receives only
static struct ibv_comp_channel *channel, *other;
static struct ibv_mr *mr;
static char memory[2 * SIZE];
static struct ibv_ah_attr self = { .port_num = PORT };

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void move(struct ibv_qp *qp, enum ibv_qp_state to, int mask, uint32_t dest)
{
	struct ibv_qp_attr attr = {
		.qp_state = to, .port_num = PORT, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .ah_attr = self,
		.timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask))
		die("modify QP");
}

static void initialize(struct ibv_qp *qp)
{
	move(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0);
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer)
{
	initialize(qp);
	move(qp, IBV_QPS_RTR,
	     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		     IBV_QP_MIN_RNR_TIMER,
	     peer->qp_num);
	move(qp, IBV_QPS_RTS,
	     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC, 0);
}

static void receive(void)
{
	struct ibv_sge sge = { (uintptr_t)memory + SIZE, SIZE, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	if (ibv_post_recv(b, &wr, &bad))
		die("post receive");
}

static void post(enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)memory, SIZE, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + SIZE;
	wr.wr.rdma.rkey = mr->rkey;
	if (ibv_post_send(a, &wr, &bad))
		die("post send");
}

static void poll(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	if (n < 0 || wc.status) {
		fprintf(stderr, "completion: %d, status %d\n", n, wc.status);
		exit(1);
	}
}

static void arm(void)
{
	if (ibv_req_notify_cq(received, 0))
		die("arm");
}

static void sleep_on(struct ibv_comp_channel *from)
{
	struct ibv_cq *cq;
	void *context;
	if (ibv_get_cq_event(from, &cq, &context))
		die("get event");
	ibv_ack_cq_events(cq, 1);
}

// exchange sends a message from A to B, and waits for it as a program should.
static void exchange(void)
{
	receive();
	arm();
	post(IBV_WR_SEND);
	sleep_on(channel);
	poll(received);
	poll(sent);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *mode = argv[3];
	int n, is = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	while (is < n && strcmp(ibv_get_device_name(list[is]), argv[1]))
		is++;
	struct ibv_context *context = is < n ? ibv_open_device(list[is]) : NULL;
	if (!context)
		die("open");
	struct ibv_port_attr port;
	if (ibv_query_port(context, PORT, &port))
		die("query port");
	self.dlid = port.lid;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		self.is_global = 1;
		self.grh.hop_limit = 64;
		self.grh.sgid_index = atoi(argv[2]);
		if (ibv_query_gid(context, PORT, atoi(argv[2]), &self.grh.dgid))
			die("query GID");
	}
	struct ibv_pd *pd = ibv_alloc_pd(context);
	mr = pd ? ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) : NULL;
	channel = ibv_create_comp_channel(context);
	other = ibv_create_comp_channel(context);
	sent = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	received = ibv_create_cq(context, DEPTH, NULL, channel, 0);
	if (!mr || !channel || !other || !sent || !received)
		die("create");
	struct ibv_qp_init_attr attr = { .send_cq = sent, .recv_cq = sent, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * DEPTH, .max_recv_wr = 2 * DEPTH, .max_send_sge = 1, .max_recv_sge = 1 } };
	a = ibv_create_qp(pd, &attr);
	attr.recv_cq = received;
	b = ibv_create_qp(pd, &attr);
	if (!a || !b)
		die("create QP");
	if (!strcmp(mode, "unconnected")) {
		initialize(a);
		initialize(b);
		receive();
	} else {
		connect_to(a, b);
		connect_to(b, a);
		// The first time, libmlx5 arms with zeros, as before any arming.
		exchange();
		exchange();
	}
	printf("%u %u\n", a->qp_num, b->qp_num);
	fflush(stdout);

	if (!strcmp(mode, "unarmed")) { // and sleeps
		receive();
		post(IBV_WR_SEND);
		sleep_on(channel);
	} else if (!strcmp(mode, "wrong-channel")) {
		receive();
		arm();
		post(IBV_WR_SEND);
		sleep_on(other);
	} else if (!strcmp(mode, "asleep")) { // once it is told to, it also sends
		receive();
		arm();
		if (getchar() == EOF)
			sleep_on(channel);
		post(IBV_WR_SEND);
		sleep_on(channel);
	} else if (!strcmp(mode, "unpolled")) {
		for (int i = 0; i < DEPTH; i++) {
			receive();
			post(IBV_WR_SEND);
			poll(sent);
		}
	} else if (!strcmp(mode, "overrun")) {
		for (int i = 0; i < 2 * DEPTH; i++)
			receive();
		for (int i = 0; i < 2 * DEPTH; i++)
			post(IBV_WR_SEND);
	} else if (!strcmp(mode, "no-receive")) {
		post(IBV_WR_SEND);
		arm();
		sleep_on(channel);
	} else if (!strcmp(mode, "few")) { // completions that it polls later
		receive();
		post(IBV_WR_SEND);
		poll(sent);
	} else if (!strcmp(mode, "spinning")) {
		struct ibv_wc wc;
		receive();
		while (!ibv_poll_cq(received, 1, &wc))
			;
	} else if (!strcmp(mode, "polling")) {
		for (;;) {
			receive();
			post(IBV_WR_SEND);
			poll(received);
			poll(sent);
		}
	} else if (!strcmp(mode, "events")) {
		for (;;)
			exchange();
	} else if (!strcmp(mode, "writing")) {
		for (;;) {
			post(IBV_WR_RDMA_WRITE);
			poll(sent);
		}
	} else if (!strcmp(mode, "deep")) { // many requests at a time
		for (;;) {
			for (int i = 0; i < DEPTH; i++)
				post(IBV_WR_RDMA_WRITE);
			for (int i = 0; i < DEPTH; i++)
				poll(sent);
		}
	}
	for (;;)
		pause();
}
