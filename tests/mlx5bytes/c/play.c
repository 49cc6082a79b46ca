// Plays a script of verbs with libibverbs and libmlx5 on the fake device, and prints every
// byte that they write to queues, doorbell records and registers:
//
//	play POISON <SCRIPT
//	play DEVICE <SCRIPT
//
// POISON is the byte, in hex, with which memory is filled at first. Bytes that stay
// unwritten differ between two runs with different poisons. On a real or emulated DEVICE,
// the queues aren't printed, because the device logs what it reads. ../play is the same in
// Go. ../script_linux_test.go describes scripts.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <sys/mman.h>

#include "../../fakemlx5/rings/rings.h"
#include "build.h"
#include "pair.h"

enum { MAX_WRS = 64, MAX_SGES = 32, MAX_OBJECTS = 16, DATA = 1 << 16, UARS = 1 << 12, UAR = 4096 };

#define DATA_ADDR ((void *)0x7e0000000000)

static uint8_t poison;
static uint8_t *data;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static struct ibv_ah *ahs[MAX_OBJECTS];
static struct ibv_mw *mws[MAX_OBJECTS];
static int n_ahs, n_mws;

static struct ibv_send_wr sends[MAX_WRS];
static struct ibv_recv_wr recvs[MAX_WRS];
static struct build_extra extras[MAX_WRS];
static struct ibv_sge send_sges[MAX_WRS][MAX_SGES], recv_sges[MAX_WRS][MAX_SGES];
static int n_sends, n_recvs;
static unsigned type; // of the QP; IBV_QPT_DRIVER is a DCI
static struct pair *pair; // on a device; NULL on the fake device

static struct ring_player player;
static struct ring_queue recv_ring;
static uint32_t produced;
static uint16_t dumped_sends, dumped_recvs, taken_sends, taken_recvs;
static uint16_t chain_head; // the SRQ's next entry to receive into
static struct {
	uint32_t number;
	uint8_t *mem;
} uars[UARS];
static int n_uars;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

// The line being read.
static char *at;

static uint64_t number(void) { return strtoull(at, &at, 16); }

static uint8_t *memory(uint64_t addr) { return (uint8_t *)(uintptr_t)addr; }

static uint32_t doorbell(const struct ring_queue *q, int i)
{
	return be32toh(__atomic_load_n((uint32_t *)memory(q->db) + i, __ATOMIC_ACQUIRE));
}

static void print_bytes(const char *what, uint64_t index, const uint8_t *b, int n)
{
	printf("%s %llx ", what, (unsigned long long)index);
	for (int i = 0; i < n; i++)
		printf("%02x", b[i]);
	putchar('\n');
}

// find_uars finds the UARs that the driver has mapped by now.
static void find_uars(void)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	n_uars = 0;
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to, offset;
		if (!strstr(line, "memfd:registers") || sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) != 3)
			continue;
		for (; from < to && n_uars < UARS; from += UAR, offset += UAR) {
			uars[n_uars].number = offset / UAR - RING_FIRST_UAR;
			uars[n_uars].mem = memory(from);
			memset(uars[n_uars++].mem, poison, UAR);
		}
	}
	fclose(maps);
}

// print_registers prints what was written to UARs, and which of them don't belong to the
// queues.
static void print_registers(void)
{
	uint64_t clean;
	int chosen = player.qp.uar == RING_NO_UAR;
	memset(&clean, poison, sizeof clean);
	for (int i = 0; i < n_uars; i++)
		for (int off = 0; off < UAR; off += 8)
			if (memcmp(uars[i].mem + off, &clean, 8)) {
				print_bytes("register", off, uars[i].mem + off, 8);
				memcpy(uars[i].mem + off, &clean, 8);
				if (!chosen && uars[i].number != player.qp.uar && uars[i].number != player.cq.uar)
					printf("stray %x\n", uars[i].number);
			}
}

static void print_sends(void)
{
	uint32_t posted = doorbell(&player.qp, 1);
	for (; dumped_sends != (uint16_t)posted; dumped_sends++) {
		uint32_t i = dumped_sends & (player.qp.len - 1);
		print_bytes("sq", i, memory(player.qp.buf) + i * 64, 64);
	}
	printf("send doorbell %x\n", posted);
	print_registers();
}

static uint32_t recv_index(uint16_t i) { return i & (recv_ring.recv_len - 1); }

static void print_recvs(void)
{
	uint32_t posted = doorbell(&recv_ring, 0);
	for (; dumped_recvs != (uint16_t)posted; dumped_recvs++) {
		uint32_t i = recv_index(dumped_recvs);
		print_bytes("rq", i, memory(recv_ring.recv) + i * recv_ring.recv_stride, recv_ring.recv_stride);
	}
	printf("receive doorbell %x\n", posted);
	print_registers();
}

// complete_shared completes the receives of the SRQ, along its chain.
static void complete_shared(uint32_t size)
{
	for (uint16_t posted = doorbell(&recv_ring, 0); player.received != posted; player.received++) {
		uint16_t *head = (uint16_t *)(memory(recv_ring.recv) + recv_index(chain_head) * recv_ring.recv_stride);
		ring_complete(&player, 2, chain_head, size, 0);
		chain_head = be16toh(head[1]);
	}
}

// complete_all completes all posted requests, and poisons their entries again.
static void complete_all(uint32_t size)
{
	ring_complete_sends(&player);
	for (; taken_sends != player.sent; taken_sends++)
		memset(memory(player.qp.buf) + (taken_sends & (player.qp.len - 1)) * 64, poison, 64);
	if (srq)
		return complete_shared(size);
	ring_complete_recvs(&player, size);
	for (; taken_recvs != player.received; taken_recvs++)
		memset(memory(recv_ring.recv) + recv_index(taken_recvs) * recv_ring.recv_stride, poison,
		       recv_ring.recv_stride);
}

static void complete(void) { complete_all(number()); }

static void print_wc(const struct ibv_wc *wc)
{
	printf("wc %llx status %x qpn %x vendor %x", (unsigned long long)wc->wr_id, wc->status, wc->qp_num, wc->vendor_err);
	if (wc->status == IBV_WC_SUCCESS) {
		int received = wc->opcode & IBV_WC_RECV;
		printf(" opcode %x", wc->opcode);
		if (received || wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP || wc->opcode == IBV_WC_FETCH_ADD)
			printf(" length %x", wc->byte_len);
		// libmlx5 also sets the flags of sends, whose completions have no immediate data.
		if (received) {
			printf(" flags %x", wc->wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM | IBV_WC_WITH_INV));
			if (wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
				printf(" imm %x", wc->imm_data);
			printf(" src %x pkey %x slid %x sl %x bits %x", wc->src_qp, wc->pkey_index, wc->slid, wc->sl, wc->dlid_path_bits);
		}
	}
	putchar('\n');
}

// drain polls, and prints only the number of completions.
static void drain(void)
{
	struct ibv_wc wc[MAX_WRS];
	printf("polled %x\n", ibv_poll_cq(cq, number(), wc));
}

static void poll(void)
{
	if (pair) {
		pair_poll(cq, number());
		return pair_clear(qp);
	}
	struct ibv_wc wc[MAX_WRS];
	memset(wc, 0, sizeof wc);
	int n = ibv_poll_cq(cq, number(), wc);
	printf("polled %s\n", n < 0 ? "error" : "ok");
	for (int i = 0; i < n; i++)
		print_wc(&wc[i]);
	printf("cq doorbell %x\n", doorbell(&player.cq, 0));
}

// watched prints the words of the CQ's doorbell record that something has written, even with what
// they had before, and what it has written to registers.
static void watched(void (*run)(int), int arg)
{
	static const char *names[] = { "cq", "arm" };
	uint32_t *words = (uint32_t *)memory(player.cq.db), was[2], clean;
	memset(&clean, poison, sizeof clean);
	for (int i = 0; i < 2; i++) {
		was[i] = words[i];
		words[i] = clean;
	}
	run(arg);
	for (int i = 0; i < 2; i++)
		if (words[i] == clean)
			words[i] = was[i];
		else
			printf("%s doorbell %x\n", names[i], be32toh(words[i]));
	print_registers();
}

static void poll_nothing(int n)
{
	struct ibv_wc wc[MAX_WRS];
	if (ibv_poll_cq(cq, n, wc))
		die("poll of nothing");
}

static void request_event(int solicited)
{
	if (ibv_req_notify_cq(cq, solicited))
		die("arm");
}

static void go_to_sleep(int n)
{
	poll_nothing(n);
	request_event(0);
	poll_nothing(n);
}

static void idle(void) { watched(poll_nothing, number()); }
static void arm(void) { watched(request_event, number()); }
static void rest(void) { watched(go_to_sleep, number()); }

static void poll_peer(void) { pair_poll(pair->cq, number()); }

// bind_peer makes the peer bind a window, which a send will invalidate.
static void bind_peer(void)
{
	struct ibv_mw *mw = mws[number()];
	pair_bind(pair, mw, mr, ibv_inc_rkey(mw->rkey));
	mw->rkey = ibv_inc_rkey(mw->rkey);
}

// raw writes a CQE. It sets only the owner bit and, where the script has ff…, the QP's
// number and user index.
static void raw(void)
{
	uint8_t e[64];
	for (int i = 0; i < 64; i++)
		e[i] = number();
	uint32_t *words = (uint32_t *)e;
	int op = e[63] >> 4, received = (op >= 1 && op <= 4) || op == 14;
	if (words[8] == 0xffffffff)
		words[8] = htobe32(ring_user_index(&player, received));
	if ((words[14] & htobe32(0xffffff)) == htobe32(0xffffff))
		words[14] = (words[14] & ~htobe32(0xffffff)) | htobe32(player.qp.number);
	uint32_t i = produced++;
	e[63] = (e[63] & ~1) | !!(i & player.cq.len);
	memcpy(memory(player.cq.buf) + (i % player.cq.len + 1) * player.cq.stride - 64, e, 64);
}

static int sges(struct ibv_sge *to, int local)
{
	int n = number();
	for (int i = 0; i < n; i++) {
		to[i].addr = number() + (local ? (uintptr_t)data : 0);
		to[i].length = number();
		to[i].lkey = number();
		if (pair)
			to[i].lkey = mr->lkey;
	}
	return n;
}

static void add_send(void)
{
	struct ibv_send_wr *wr = &sends[n_sends];
	memset(wr, 0, sizeof *wr);
	wr->wr_id = number();
	wr->opcode = number();
	wr->send_flags = number();
	int is_inline = number();
	uint32_t ex = number();
	uint64_t addr = number();
	uint32_t rkey = number();
	uint64_t compare_add = number(), swap = number();
	int ah = number();
	uint32_t qpn = number(), qkey = number();
	int mw = number();
	uint32_t new_key = number();
	uint64_t bind_addr = number(), bind_len = number();
	unsigned bind_access = number();
	struct build_extra *x = &extras[n_sends];
	x->compare_mask = number();
	x->swap_mask = number();
	x->dc_key = number();
	x->dc_stream = number();
	uint16_t header = number(), mss = number();
	if (pair) {
		// The script doesn't know the device's numbers.
		rkey = mr->rkey;
		qpn = pair->number;
		if (wr->opcode == IBV_WR_BIND_MW)
			new_key = ibv_inc_rkey(mws[mw]->rkey);
		else if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_SEND_WITH_INV)
			ex = mws[mw]->rkey;
	}
	x->ah = ahs[ah];
	x->qpn = qpn;
	x->qkey = qkey;

	if (is_inline)
		wr->send_flags |= IBV_SEND_INLINE;
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wr->imm_data = htobe32(ex);
		break;
	default:
		wr->invalidate_rkey = ex;
	}
	if (qp->qp_type == IBV_QPT_XRC_SEND)
		wr->qp_type.xrc.remote_srqn = qpn;
	switch ((int)wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case OP_MASKED_CS:
	case OP_MASKED_FA:
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = compare_add;
		wr->wr.atomic.swap = swap;
		break;
	case IBV_WR_TSO:
		wr->tso.hdr = data;
		wr->tso.hdr_sz = header;
		wr->tso.mss = mss;
		break;
	case IBV_WR_BIND_MW:
		wr->bind_mw.mw = mws[mw];
		wr->bind_mw.rkey = new_key;
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, bind_addr + (uintptr_t)data, bind_len, bind_access };
		break;
	default:
		if (qp->qp_type == IBV_QPT_UD) {
			wr->wr.ud.ah = ahs[ah];
			wr->wr.ud.remote_qpn = qpn;
			wr->wr.ud.remote_qkey = qkey;
		} else {
			wr->wr.rdma.remote_addr = addr;
			wr->wr.rdma.rkey = rkey;
		}
	}
	wr->sg_list = send_sges[n_sends];
	wr->num_sge = sges(wr->sg_list, is_inline);
	if (n_sends)
		sends[n_sends - 1].next = wr;
	n_sends++;
}

static void add_recv(void)
{
	struct ibv_recv_wr *wr = &recvs[n_recvs];
	memset(wr, 0, sizeof *wr);
	wr->wr_id = number();
	wr->sg_list = recv_sges[n_recvs];
	wr->num_sge = sges(wr->sg_list, 0);
	if (n_recvs)
		recvs[n_recvs - 1].next = wr;
	n_recvs++;
}

static void posted(int n)
{
	printf("posted %x\n", n);
	// The program has to record a window's new key itself.
	for (int i = 0; i < n; i++)
		if (sends[i].opcode == IBV_WR_BIND_MW)
			sends[i].bind_mw.mw->rkey = sends[i].bind_mw.rkey;
	n_sends = 0;
	if (!pair)
		print_sends();
}

// around posts the same sends and receives repeatedly, so that all counters wrap, and
// prints only their final values.
static void around(void)
{
	struct ibv_wc wc[2];
	uint64_t times = number();
	for (uint64_t i = 0; i < times; i++) {
		struct ibv_send_wr *bad_send;
		struct ibv_recv_wr *bad_recv;
		if (ibv_post_send(qp, sends, &bad_send) || (srq ? ibv_post_srq_recv(srq, recvs, &bad_recv) : ibv_post_recv(qp, recvs, &bad_recv)))
			die("post");
		complete_all(64);
		if (ibv_poll_cq(cq, 2, wc) != 2)
			die("poll");
	}
	n_sends = n_recvs = 0;
	dumped_sends = taken_sends;
	dumped_recvs = player.received;
	print_sends();
	print_recvs();
	printf("cq doorbell %x\n", doorbell(&player.cq, 0));
}

// wipe poisons an idle send queue, including the bytes that a refused request wrote.
static void wipe(void) { memset(memory(player.qp.buf), poison, player.qp.len * 64); }

// build posts all or nothing.
static void build(void)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	for (int i = 0; i < n_sends; i++)
		build_one(qp, type, &sends[i], &extras[i]);
	posted(ibv_wr_complete(ex) ? 0 : n_sends);
}

static void post(void)
{
	struct ibv_send_wr *bad = NULL;
	// Operations that ibv_post_send doesn't support.
	if (type == IBV_QPT_DRIVER || (n_sends && has_no_verb(sends[0].opcode)))
		return build();
	int err = ibv_post_send(qp, sends, &bad);
	posted(err ? bad - sends : n_sends);
}

static void post_recv(void)
{
	struct ibv_recv_wr *bad = NULL;
	struct ibv_srq *shared = pair ? pair->srq : srq;
	int err = shared ? ibv_post_srq_recv(shared, recvs, &bad) : ibv_post_recv(pair ? pair->qp : qp, recvs, &bad);
	printf("posted %x\n", err ? (int)(bad - recvs) : n_recvs);
	n_recvs = 0;
	if (!pair)
		print_recvs();
}

static void step(enum ibv_qp_state to, enum ibv_qp_type type)
{
	struct ibv_qp_attr attr = { .qp_state = to, .port_num = 1 };
	int mask = IBV_QP_STATE;
	if (type == IBV_QPT_RAW_PACKET)
		mask |= to == IBV_QPS_INIT ? IBV_QP_PORT : 0;
	else if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (ibv_modify_qp(qp, &attr, mask))
		die("modify QP");
}

// A made_qp is a QP that a line of the script describes.
struct made_qp {
	struct ibv_qp_init_attr init;
	struct ibv_qp_cap asked;
	int use_srq, built, tso_header;
};

static struct made_qp read_qp(void)
{
	struct made_qp q = { .init.qp_type = type = number() };
	struct ibv_qp_init_attr *init = &q.init;
	if (type == TYPE_DCI)
		init->qp_type = type = IBV_QPT_DRIVER;
	init->cap.max_send_wr = number();
	init->cap.max_recv_wr = number();
	init->cap.max_send_sge = number();
	init->cap.max_recv_sge = number();
	init->cap.max_inline_data = number();
	init->sq_sig_all = number();
	q.use_srq = number();
	number(); // whether WQEs are signed, which MLX5_QP_SIGNATURE controls
	q.built = number();
	q.tso_header = number();
	q.asked = init->cap;
	if (type == IBV_QPT_XRC_SEND || type == IBV_QPT_DRIVER)
		init->cap.max_recv_wr = init->cap.max_recv_sge = 0; // the peer has the receive queue
	return q;
}

static struct ibv_qp *make_qp(struct made_qp *q)
{
	struct ibv_qp_init_attr *init = &q->init;
	init->send_cq = cq;
	init->recv_cq = init->qp_type == IBV_QPT_XRC_SEND ? NULL : cq;
	if (q->built || type == IBV_QPT_DRIVER)
		return build_qp(ctx, pd, init, q->tso_header);
	if (q->tso_header)
		return segmenting_qp(ctx, pd, init, q->tso_header);
	return ibv_create_qp(pd, init);
}

static void print_cap(const struct ibv_qp_cap *c)
{
	printf("cap %x %x %x %x %x\n", c->max_send_wr, c->max_recv_wr, c->max_send_sge, c->max_recv_sge, c->max_inline_data);
}

// make_cq creates a CQ with or without timestamps, and prints the flags that the kernel
// got.
static void make_cq(void)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 15, .wc_flags = IBV_WC_STANDARD_FLAGS };
	if (number())
		a.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	struct ibv_cq_ex *one = ibv_create_cq_ex(ctx, &a);
	if (!one)
		die("create CQ");
	printf("flags %x\n", ring_last(ctx->cmd_fd, RING_CQ).flags);
	if (ibv_destroy_cq(ibv_cq_ex_to_cq(one)))
		die("destroy CQ");
}

// try_queues prints the capabilities of a QP, if it can be created.
static void try_queues(void)
{
	struct made_qp q = read_qp();
	struct ibv_qp *one = make_qp(&q);
	if (!one) {
		puts("refused");
		return;
	}
	print_cap(&q.init.cap);
	if (ibv_destroy_qp(one))
		die("destroy");
}

// make_queues creates a CQ and a QP on it.
static void make_queues(void)
{
	struct made_qp q = read_qp();

	if (pair)
		pair_destroy(pair);
	if (qp && (ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || (srq && ibv_destroy_srq(srq))))
		die("destroy");
	qp = NULL;
	srq = NULL;
	if (q.use_srq && !pair) {
		struct ibv_srq_init_attr a = { .attr = { q.init.cap.max_recv_wr, q.init.cap.max_recv_sge, 0 } };
		if (!(srq = ibv_create_srq(pd, &a)))
			die("create SRQ");
		printf("srq wr %x sge %x\n", a.attr.max_wr, a.attr.max_sge);
		q.init.srq = srq;
		q.init.cap.max_recv_wr = q.init.cap.max_recv_sge = 0;
		recv_ring = ring_last(ctx->cmd_fd, RING_SRQ);
	}
	if (!(cq = ibv_create_cq(ctx, 255, NULL, NULL, 0)))
		die("create CQ");
	qp = make_qp(&q);
	if (!qp)
		die("create QP");
	if (pair) {
		pair_make(pair, pd, qp, type, q.use_srq, q.asked);
		return;
	}
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++)
		step(s, q.init.qp_type);

	produced = 0;
	player = (struct ring_player){
		.qp = ring_last(ctx->cmd_fd, RING_QP), .cq = ring_last(ctx->cmd_fd, RING_CQ), .produced = &produced,
	};
	if (!srq)
		recv_ring = player.qp;
	else
		player.srqn = recv_ring.number;
	printf("qp %x ", qp->qp_num);
	print_cap(&q.init.cap);
	// The size of an SRQ is the driver's choice.
	printf("rings send %x receive %x stride %x cq %x stride %x\n", player.qp.len, player.qp.recv_len,
	       recv_ring.recv_stride, player.cq.len, player.cq.stride);
	dumped_sends = dumped_recvs = taken_sends = taken_recvs = chain_head = 0;
	memset(memory(player.qp.buf), poison, player.qp.len * 64);
	uint32_t keep = srq ? 16 : 0; // the headers that link an SRQ's entries
	for (uint32_t i = 0; i < recv_ring.recv_len; i++)
		memset(memory(recv_ring.recv) + i * recv_ring.recv_stride + keep, poison, recv_ring.recv_stride - keep);
	find_uars();
}

static void make_ah(void)
{
	struct ibv_ah_attr a = { .port_num = 1 };
	a.dlid = number();
	a.sl = number();
	a.src_path_bits = number();
	a.static_rate = number();
	a.is_global = number();
	a.grh.hop_limit = number();
	a.grh.traffic_class = number();
	a.grh.flow_label = number();
	for (int i = 0; i < 16; i++)
		a.grh.dgid.raw[i] = i + 1;
	if (pair && pair->way.is_global)
		a = pair->way;
	else if (pair)
		a.dlid = pair->way.dlid;
	if (!(ahs[n_ahs++] = ibv_create_ah(pd, &a)))
		puts("refused");
}

static void make_mw(void)
{
	if (!(mws[n_mws++] = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
		die("alloc MW");
	printf("%s %x\n", pair ? "key" : "mw", mws[n_mws - 1]->rkey);
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	while (name && list && *list && strcmp(ibv_get_device_name(*list), name))
		list++;
	if (!list || !list[0] || !(ctx = ibv_open_device(list[0])))
		die("open device");
	if (name)
		pair = pair_on(ctx);
	data = mmap(DATA_ADDR, DATA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (data != DATA_ADDR)
		die("data");
	for (int i = 0; i < DATA; i++)
		data[i] = i * 7 + (i >> 8);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | (pair ? pair_access : 0);
	if (!(pd = ibv_alloc_pd(ctx)) || !(mr = ibv_reg_mr(pd, data, DATA, access)))
		die("PD and MR");
	if (pair)
		printf("key %x\nkey %x\n", mr->lkey, mr->rkey);
	else
		printf("mr %x %x\n", mr->lkey, mr->rkey);
}

static const struct command {
	const char *name;
	void (*run)(void);
} commands[] = {
	{ "qp", make_queues }, { "ah", make_ah },	{ "mw", make_mw },   { "send", add_send },     { "post", post },
	{ "recv", add_recv },  { "postrecv", post_recv }, { "poll", poll }, { "complete", complete }, { "cqe", raw },
	{ "build", build }, { "drain", drain }, { "pollpeer", poll_peer }, { "bindpeer", bind_peer },
	{ "around", around }, { "wipe", wipe }, { "try", try_queues },
	{ "cq", make_cq }, { "idle", idle }, { "arm", arm }, { "sleep", rest },
};

int main(int argc, char **argv)
{
	static char line[4096];

	const char *device = argc > 1 && !strncmp(argv[1], "mlx5_", 5) ? argv[1] : NULL;
	poison = argc > 1 && !device ? strtoul(argv[1], NULL, 16) : 0;
	open_device(device);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		printf("> %s\n", line);
		at = line + strcspn(line, " ");
		size_t i, n = at - line;
		for (i = 0; i < sizeof commands / sizeof *commands; i++)
			if (strlen(commands[i].name) == n && !strncmp(line, commands[i].name, n))
				break;
		if (i == sizeof commands / sizeof *commands) {
			fprintf(stderr, "unknown command: %s\n", line);
			return 1;
		}
		commands[i].run();
	}
	return 0;
}
