// Sends Ethernet frames back to where they came from, with libibverbs.
//
//	cc -o echo echo.c -libverbs; ./echo mlx5_1 MAC COUNT
//
// It returns COUNT frames to MAC (12 hex digits), which are steered to it by that
// address. It prints "ready" when it can receive.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT = 2048, DEPTH = 16 };

static char memory[DEPTH * SLOT];

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
	struct ibv_qp *qp;
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} flow = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof flow.eth },
	};

	if (argc != 4)
		return 2;
	for (struct ibv_device **list = ibv_get_device_list(NULL); list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), argv[1]))
			ctx = ibv_open_device(*list);
	if (!ctx || !(pd = ibv_alloc_pd(ctx)) || !(cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)) ||
	    !(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)))
		die("open");
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RAW_PACKET, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	if (!(qp = ibv_create_qp(pd, &init)))
		die("create QP");
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		struct ibv_qp_attr a = { .qp_state = s, .port_num = 1 };
		if (ibv_modify_qp(qp, &a, IBV_QP_STATE | (s == IBV_QPS_INIT ? IBV_QP_PORT : 0)))
			die("modify QP");
	}
	for (int i = 0; i < 6; i++)
		sscanf(argv[2] + 2 * i, "%2hhx", &flow.eth.val.dst_mac[i]);
	memset(flow.eth.mask.dst_mac, 0xff, 6);
	if (!ibv_create_flow(qp, &flow.attr))
		die("create flow");
	for (int i = 0; i < DEPTH; i++) {
		struct ibv_sge g = { (uintptr_t)memory + i * SLOT, SLOT, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &g, .num_sge = 1 }, *bad;
		if (ibv_post_recv(qp, &wr, &bad))
			die("post receive");
	}
	setlinebuf(stdout);
	puts("ready");
	for (int left = 2 * atoi(argv[3]); left;) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(cq, 1, &wc);
		if (n < 0 || (n && wc.status))
			die("poll");
		if (!n)
			continue;
		left--;
		char *frame = memory + wc.wr_id * SLOT, address[6];
		if (wc.opcode & IBV_WC_RECV) {
			memcpy(address, frame, 6);
			memcpy(frame, frame + 6, 6);
			memcpy(frame + 6, address, 6);
			struct ibv_sge g = { (uintptr_t)frame, wc.byte_len, mr->lkey };
			struct ibv_send_wr wr = {
				.wr_id = wc.wr_id, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED,
			}, *bad;
			if (ibv_post_send(qp, &wr, &bad))
				die("post send");
		} else {
			struct ibv_sge g = { (uintptr_t)frame, SLOT, mr->lkey };
			struct ibv_recv_wr wr = { .wr_id = wc.wr_id, .sg_list = &g, .num_sge = 1 }, *bad;
			if (ibv_post_recv(qp, &wr, &bad))
				die("post receive");
		}
	}
	return 0;
}
