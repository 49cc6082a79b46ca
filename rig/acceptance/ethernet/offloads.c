/*
 * offloads DEVICE DEVICE: sends raw packets from one device to the other, and checks
 * the ports' offloads: checksums, TCP segmentation, VLAN stripping, tags and counters
 * of flows, and flows that drop packets. Prints what is wrong.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 16, SLOT = 2048, HEADERS = 54, PAYLOAD = 3000, SEGMENT = 1400 };

static const unsigned char to[6] = {2, 0, 0, 0, 0, 5}, from[6] = {2, 0, 0, 0, 0, 9};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	unsigned char *memory;
};

static int failures;

static void die(const char *what)
{
	fprintf(stderr, "offloads: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void expect(const char *what, int good)
{
	if (!good) {
		printf("wrong: %s\n", what);
		failures++;
	}
}

static void open_side(struct side *s, const char *name, uint32_t flags)
{
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG,
	};
	struct ibv_qp_init_attr_ex init = {
		.cap = {64, SLOTS, 4, 1, 0},
		.qp_type = IBV_QPT_RAW_PACKET,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = flags,
		.max_tso_header = HEADERS,
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (; list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), name))
			s->context = ibv_open_device(*list);
	if (!s->context)
		die(name);
	s->pd = ibv_alloc_pd(s->context);
	s->cq = ibv_create_cq_ex(s->context, &cq);
	s->memory = calloc(SLOTS, SLOT);
	if (!s->pd || !s->cq || !s->memory)
		die("create_cq_ex");
	s->mr = ibv_reg_mr(s->pd, s->memory, SLOTS * SLOT, IBV_ACCESS_LOCAL_WRITE);
	init.pd = s->pd;
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(s->cq);
	s->qp = ibv_create_qp_ex(s->context, &init);
	if (!s->mr || !s->qp)
		die("create_qp_ex");
	if (ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PORT))
		die("modify_qp to INIT");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(s->qp, &attr, IBV_QP_STATE))
		die("modify_qp to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(s->qp, &attr, IBV_QP_STATE))
		die("modify_qp to RTS");
}

static void receive(struct side *s, int slot)
{
	struct ibv_sge sge = {(uintptr_t)s->memory + slot * SLOT, SLOT, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	if ((errno = ibv_post_recv(s->qp, &wr, &bad)))
		die("post_recv");
}

/* Waits some seconds for a completion. */
static int complete(struct side *s, int seconds)
{
	struct ibv_poll_cq_attr attr = {};
	time_t end = time(NULL) + seconds;
	int error;

	while ((error = ibv_start_poll(s->cq, &attr)) == ENOENT)
		if (time(NULL) > end)
			return 0;
	if (error)
		die("start_poll");
	expect("a completion's status", s->cq->status == IBV_WC_SUCCESS);
	return 1;
}

static unsigned sum(const unsigned char *b, int n, unsigned s)
{
	for (; n > 1; n -= 2, b += 2)
		s += b[0] << 8 | b[1];
	if (n)
		s += b[0] << 8;
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

/* Writes Ethernet, IPv4 and TCP headers. The port computes their checksums. */
static void headers(unsigned char *b, int payload)
{
	static const unsigned char rest[] = {8, 0, 0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0,
		10, 0, 0, 1, 10, 0, 0, 2, 3, 0xe8, 7, 0xd0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0};

	memcpy(b, to, 6);
	memcpy(b + 6, from, 6);
	memcpy(b + 12, rest, sizeof rest);
	b[16] = (40 + payload) >> 8;
	b[17] = 40 + payload;
}

static void right_checksums(const unsigned char *b)
{
	int n = (b[16] << 8 | b[17]) - 20;

	expect("IP's checksum", sum(b + 14, 20, 0) == 0xffff);
	expect("TCP's checksum", sum(b + 34, n, sum(b + 26, 8, 6 + n)) == 0xffff);
}

static struct ibv_flow *steer(struct side *s, uint16_t priority, uint32_t tag, int drop, struct ibv_counters *counters)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		unsigned char more[64];
	} flow = {
		.attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .priority = priority, .num_of_specs = 1, .port = 1},
		.eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof flow.eth},
	};
	unsigned char *next = flow.more;
	struct ibv_flow *f;

	memcpy(flow.eth.val.dst_mac, to, 6);
	memset(flow.eth.mask.dst_mac, 0xff, 6);
	if (tag) {
		struct ibv_flow_spec_action_tag spec = {IBV_FLOW_SPEC_ACTION_TAG, sizeof spec, tag};

		next = (unsigned char *)memcpy(next, &spec, sizeof spec) + sizeof spec;
		flow.attr.num_of_specs++;
	}
	if (drop) {
		struct ibv_flow_spec_action_drop spec = {IBV_FLOW_SPEC_ACTION_DROP, sizeof spec};

		next = (unsigned char *)memcpy(next, &spec, sizeof spec) + sizeof spec;
		flow.attr.num_of_specs++;
	}
	if (counters) {
		struct ibv_flow_spec_counter_action spec = {IBV_FLOW_SPEC_ACTION_COUNT, sizeof spec, counters};

		memcpy(next, &spec, sizeof spec);
		flow.attr.num_of_specs++;
	}
	f = ibv_create_flow(s->qp, &flow.attr);
	if (!f)
		die("create_flow");
	return f;
}

static void transmit(struct side *s, struct ibv_sge *sge, void *header, int size)
{
	struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_IP_CSUM}, *bad;

	if (header) {
		wr.opcode = IBV_WR_TSO;
		wr.tso.hdr = header;
		wr.tso.hdr_sz = size;
		wr.tso.mss = SEGMENT;
	}
	if ((errno = ibv_post_send(s->qp, &wr, &bad)))
		die("post_send");
	expect("the sender's completion", complete(s, 10));
	ibv_end_poll(s->cq);
}

int main(int argc, char **argv)
{
	struct side a = {}, b = {};
	struct ibv_counters_init_attr counters_init = {};
	struct ibv_counter_attach_attr attach = {.counter_desc = IBV_COUNTER_PACKETS, .index = 0};
	unsigned char header[HEADERS];
	struct ibv_counters *counters;
	struct ibv_flow *flow, *dropping;
	struct ibv_sge sge;
	uint64_t count = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: offloads DEVICE DEVICE\n");
		return 2;
	}
	open_side(&a, argv[1], 0);
	open_side(&b, argv[2], IBV_QP_CREATE_CVLAN_STRIPPING);
	for (int i = 0; i < SLOTS; i++)
		receive(&b, i);
	counters = ibv_create_counters(b.context, &counters_init);
	if (!counters || ibv_attach_counters_point_flow(counters, &attach, NULL))
		die("create_counters");
	flow = steer(&b, 1, 0x1234, 0, counters);
	int slot = 0;

	/* A large send. */
	for (int i = 0; i < PAYLOAD; i++)
		a.memory[i] = i * 7;
	headers(header, PAYLOAD);
	sge = (struct ibv_sge){(uintptr_t)a.memory, PAYLOAD, a.mr->lkey};
	transmit(&a, &sge, header, HEADERS);
	for (int off = 0; off < PAYLOAD; off += SEGMENT, slot++) {
		unsigned char *got = b.memory + slot * SLOT;
		int n = PAYLOAD - off < SEGMENT ? PAYLOAD - off : SEGMENT;
		uint32_t sequence;

		if (!complete(&b, 10)) {
			expect("a part of a large send", 0);
			break;
		}
		expect("a part's size", ibv_wc_read_byte_len(b.cq) == HEADERS + n);
		expect("the checksums' flag", ibv_wc_read_wc_flags(b.cq) & IBV_WC_IP_CSUM_OK);
		expect("the flow's tag", ibv_wc_read_flow_tag(b.cq) == 0x1234);
		ibv_end_poll(b.cq);
		memcpy(&sequence, got + 38, 4);
		expect("a part's sequence number", ntohl(sequence) == 1 + off);
		expect("a part's identification", (got[18] << 8 | got[19]) == 0x1234 + slot);
		expect("PSH only in the last", !!(got[47] & 8) == (off + n == PAYLOAD));
		expect("a part's payload", !memcmp(got + HEADERS, a.memory + off, n));
		right_checksums(got);
	}

	/* A VLAN tag, which the port strips and reports. */
	memmove(a.memory + 16, a.memory, 200);
	headers(header, 200);
	memcpy(a.memory, header, 12);
	memcpy(a.memory + 12, "\x81\x00\xa0\x07", 4);
	memmove(a.memory + 4 + HEADERS, a.memory + 16, 200);
	memcpy(a.memory + 16, header + 12, HEADERS - 12);
	sge.length = 4 + HEADERS + 200;
	transmit(&a, &sge, NULL, 0);
	if (complete(&b, 10)) {
		unsigned char *got = b.memory + slot++ * SLOT;

		expect("the size without the tag", ibv_wc_read_byte_len(b.cq) == HEADERS + 200);
		expect("the tag", ibv_wc_read_cvlan(b.cq) == 0xa007);
		ibv_end_poll(b.cq);
		expect("the frame without the tag", !memcmp(got, header, 24) && !memcmp(got + HEADERS, a.memory + 4 + HEADERS, 200));
		right_checksums(got);
	} else {
		expect("a frame with a tag", 0);
	}

	/* A flow of higher priority drops everything. */
	dropping = steer(&b, 0, 0, 1, NULL);
	transmit(&a, &sge, NULL, 0);
	expect("no dropped packet", !complete(&b, 1));
	if (ibv_destroy_flow(dropping))
		die("destroy_flow");
	transmit(&a, &sge, NULL, 0);
	expect("a packet after the drop flow", complete(&b, 10));
	ibv_end_poll(b.cq);
	if (ibv_read_counters(counters, &count, 1, IBV_READ_COUNTERS_ATTR_PREFER_CACHED) &&
	    ibv_read_counters(counters, &count, 1, 0))
		die("read_counters");
	expect("the counter", count == 5);

	/* Without a flow nothing arrives. */
	if (ibv_destroy_flow(flow))
		die("destroy_flow");
	transmit(&a, &sge, NULL, 0);
	expect("nothing without a flow", !complete(&b, 1));
	if (ibv_destroy_counters(counters))
		die("destroy_counters");
	if (ibv_destroy_qp(a.qp) || ibv_destroy_qp(b.qp))
		die("destroy_qp");
	if (failures == 0)
		printf("all correct\n");
	return failures != 0;
}
