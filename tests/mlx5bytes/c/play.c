// Plays a script of verbs with libibverbs and libmlx5 on the fake device, and
// prints every byte that this wrote to queues, doorbell records and registers:
//
//	play POISON <SCRIPT
//
// POISON is the byte that memory is filled with beforehand, in hex, so that
// bytes that stay unwritten show: they differ between two runs with different
// poisons. ../play is the same in Go; ../script.go says what a script is.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <sys/mman.h>

#include "../../fakemlx5/rings/rings.h"

enum { MAX_WRS = 64, MAX_SGES = 32, MAX_OBJECTS = 16, DATA = 1 << 16, PAGES = 64, PAGE = 4096 };

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
static struct ibv_sge send_sges[MAX_WRS][MAX_SGES], recv_sges[MAX_WRS][MAX_SGES];
static int n_sends, n_recvs;

static struct ring_player player;
static struct ring_queue recv_ring;
static uint32_t produced;
static uint16_t dumped_sends, dumped_recvs, taken_sends, taken_recvs;
static uint8_t *pages[PAGES];
static int n_pages;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

// The line being read.
static char *at;

static uint64_t number(void) { return strtoull(at, &at, 16); }

static uint8_t *memory(uint64_t addr) { return (uint8_t *)(uintptr_t)addr; }

static uint16_t doorbell(const struct ring_queue *q, int i)
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

// find_pages finds the register pages that the driver has mapped by now.
static void find_pages(void)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	n_pages = 0;
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "memfd:registers") && n_pages < PAGES) {
			pages[n_pages] = memory(strtoull(line, NULL, 16));
			memset(pages[n_pages++], poison, PAGE);
		}
	fclose(maps);
}

static void print_registers(void)
{
	uint64_t clean;
	memset(&clean, poison, sizeof clean);
	for (int i = 0; i < n_pages; i++)
		for (int off = 0; off < PAGE; off += 8)
			if (memcmp(pages[i] + off, &clean, 8)) {
				print_bytes("register", off, pages[i] + off, 8);
				memcpy(pages[i] + off, &clean, 8);
			}
}

static void print_sends(void)
{
	uint16_t posted = doorbell(&player.qp, 1);
	for (; dumped_sends != posted; dumped_sends++) {
		uint32_t i = dumped_sends & (player.qp.len - 1);
		print_bytes("sq", i, memory(player.qp.buf) + i * 64, 64);
	}
	printf("send doorbell %x\n", posted);
	print_registers();
}

static uint32_t recv_index(uint16_t i) { return i & (recv_ring.recv_len - 1); }

static void print_recvs(void)
{
	uint16_t posted = doorbell(&recv_ring, 0);
	for (; dumped_recvs != posted; dumped_recvs++) {
		uint32_t i = recv_index(dumped_recvs);
		print_bytes("rq", i, memory(recv_ring.recv) + i * recv_ring.recv_stride, recv_ring.recv_stride);
	}
	printf("receive doorbell %x\n", posted);
	print_registers();
}

// complete completes all that was posted, and poisons its place anew.
static void complete(void)
{
	uint32_t size = number();
	ring_complete_sends(&player);
	for (; taken_sends != player.sent; taken_sends++)
		memset(memory(player.qp.buf) + (taken_sends & (player.qp.len - 1)) * 64, poison, 64);
	if (srq)
		return;
	ring_complete_recvs(&player, size);
	for (; taken_recvs != player.received; taken_recvs++)
		memset(memory(recv_ring.recv) + recv_index(taken_recvs) * recv_ring.recv_stride, poison,
		       recv_ring.recv_stride);
}

static void print_wc(const struct ibv_wc *wc)
{
	printf("wc %llx status %x qpn %x vendor %x", (unsigned long long)wc->wr_id, wc->status, wc->qp_num, wc->vendor_err);
	if (wc->status == IBV_WC_SUCCESS) {
		int received = wc->opcode & IBV_WC_RECV;
		printf(" opcode %x", wc->opcode);
		if (received || wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP || wc->opcode == IBV_WC_FETCH_ADD)
			printf(" length %x", wc->byte_len);
		// libmlx5 flags the sender's completion too, without an immediate in it.
		if (received) {
			printf(" flags %x", wc->wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM | IBV_WC_WITH_INV));
			if (wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
				printf(" imm %x", wc->imm_data);
			printf(" src %x pkey %x slid %x sl %x bits %x", wc->src_qp, wc->pkey_index, wc->slid, wc->sl, wc->dlid_path_bits);
		}
	}
	putchar('\n');
}

static void poll(void)
{
	struct ibv_wc wc[MAX_WRS];
	memset(wc, 0, sizeof wc);
	int n = ibv_poll_cq(cq, number(), wc);
	printf("polled %s\n", n < 0 ? "error" : "ok");
	for (int i = 0; i < n; i++)
		print_wc(&wc[i]);
	printf("cq doorbell %x\n", be32toh(*(uint32_t *)memory(player.cq.db)) & 0xffffff);
}

// raw writes a CQE as it is, but for its owner bit and, where the script has
// ff…, the QP's number and user index.
static void raw(void)
{
	uint8_t e[64];
	for (int i = 0; i < 64; i++)
		e[i] = number();
	uint32_t *words = (uint32_t *)e;
	if (words[8] == 0xffffffff)
		words[8] = htobe32(player.qp.user_index);
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
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = compare_add;
		wr->wr.atomic.swap = swap;
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

static void post(void)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(qp, sends, &bad);
	int n = err ? bad - sends : n_sends;
	printf("posted %x\n", n);
	// A window's new key is the program's to note.
	for (int i = 0; i < n; i++)
		if (sends[i].opcode == IBV_WR_BIND_MW)
			sends[i].bind_mw.mw->rkey = sends[i].bind_mw.rkey;
	n_sends = 0;
	print_sends();
}

static void post_recv(void)
{
	struct ibv_recv_wr *bad = NULL;
	int err = srq ? ibv_post_srq_recv(srq, recvs, &bad) : ibv_post_recv(qp, recvs, &bad);
	printf("posted %x\n", err ? (int)(bad - recvs) : n_recvs);
	n_recvs = 0;
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

// make_queues makes a CQ and a QP on it.
static void make_queues(void)
{
	struct ibv_qp_init_attr init = { .qp_type = number() };
	init.cap.max_send_wr = number();
	init.cap.max_recv_wr = number();
	init.cap.max_send_sge = number();
	init.cap.max_recv_sge = number();
	init.cap.max_inline_data = number();
	init.sq_sig_all = number();
	int use_srq = number();
	number(); // whether WQEs are signed: MLX5_QP_SIGNATURE says so

	if (qp && (ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || (srq && ibv_destroy_srq(srq))))
		die("destroy");
	qp = NULL;
	srq = NULL;
	if (use_srq) {
		struct ibv_srq_init_attr a = { .attr = { init.cap.max_recv_wr, init.cap.max_recv_sge, 0 } };
		if (!(srq = ibv_create_srq(pd, &a)))
			die("create SRQ");
		printf("srq wr %x sge %x\n", a.attr.max_wr, a.attr.max_sge);
		init.srq = srq;
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
		recv_ring = ring_last(ctx->cmd_fd, RING_SRQ);
	}
	if (!(cq = ibv_create_cq(ctx, 255, NULL, NULL, 0)))
		die("create CQ");
	init.send_cq = cq;
	init.recv_cq = init.qp_type == IBV_QPT_XRC_SEND ? NULL : cq;
	if (!(qp = ibv_create_qp(pd, &init)))
		die("create QP");
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++)
		step(s, init.qp_type);

	produced = 0;
	player = (struct ring_player){
		.qp = ring_last(ctx->cmd_fd, RING_QP), .cq = ring_last(ctx->cmd_fd, RING_CQ), .produced = &produced,
	};
	if (!srq)
		recv_ring = player.qp;
	printf("qp %x cap %x %x %x %x %x\n", qp->qp_num, init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
	       init.cap.max_recv_sge, init.cap.max_inline_data);
	// How many receives an SRQ has room for is the drivers' choice.
	printf("rings send %x receive %x stride %x cq %x stride %x\n", player.qp.len, player.qp.recv_len,
	       recv_ring.recv_stride, player.cq.len, player.cq.stride);
	dumped_sends = dumped_recvs = taken_sends = taken_recvs = 0;
	memset(memory(player.qp.buf), poison, player.qp.len * 64);
	uint32_t keep = srq ? 16 : 0; // an SRQ's entries are linked from the start
	for (uint32_t i = 0; i < recv_ring.recv_len; i++)
		memset(memory(recv_ring.recv) + i * recv_ring.recv_stride + keep, poison, recv_ring.recv_stride - keep);
	find_pages();
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
	if (!(ahs[n_ahs++] = ibv_create_ah(pd, &a)))
		die("create AH");
}

static void make_mw(void)
{
	if (!(mws[n_mws++] = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
		die("alloc MW");
	printf("mw %x\n", mws[n_mws - 1]->rkey);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list || !list[0] || !(ctx = ibv_open_device(list[0])))
		die("open device");
	data = mmap(DATA_ADDR, DATA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (data != DATA_ADDR)
		die("data");
	for (int i = 0; i < DATA; i++)
		data[i] = i * 7 + (i >> 8);
	if (!(pd = ibv_alloc_pd(ctx)) || !(mr = ibv_reg_mr(pd, data, DATA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)))
		die("PD and MR");
	printf("mr %x %x\n", mr->lkey, mr->rkey);
}

static const struct command {
	const char *name;
	void (*run)(void);
} commands[] = {
	{ "qp", make_queues }, { "ah", make_ah },	{ "mw", make_mw },   { "send", add_send },     { "post", post },
	{ "recv", add_recv },  { "postrecv", post_recv }, { "poll", poll }, { "complete", complete }, { "cqe", raw },
};

int main(int argc, char **argv)
{
	static char line[4096];

	poison = argc > 1 ? strtoul(argv[1], NULL, 16) : 0;
	open_device();
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
