// Prints what the C stack reports when verbs fail, one scenario per line: the errno of
// posting, the statuses of the completions of the requester (a) and of the responder (b)
// in the order of their arrival, and the asynchronous events. The Go test runs the same
// scenarios and compares. Package internal/scenario describes those of them that
// `ibv selftest` provokes too.
//
//	cc -o failures failures.c -libverbs; ./failures rxe0 1
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BUF = 4096, DEPTH = 8, PORT = 1 };

static const int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			      IBV_ACCESS_MW_BIND;
static const int qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_ATOMIC;

static struct ibv_context *ctx;
static int gid_index;

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
};

// A scenario's differences from the defaults.
struct options {
	enum ibv_qp_type type; // 0: RC (UC is never 0)
	int b_mr, b_qp;	       // the responder's access, -1: none
	int rnr_retry, retry;  // RC
	int wrong_peer;	       // a connects to a queue pair that doesn't exist
	int no_dest_reads;     // b accepts no reads and atomics
	int cqe;
	int leave_reset;
};

static struct ibv_pd *pd;
static struct side a, b;
static struct ibv_mw *window;
static struct options opt;
static int posted;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void make(struct side *s, int access)
{
	s->buf = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->mr = ibv_reg_mr(pd, s->buf, BUF, access);
	s->cq = ibv_create_cq(ctx, opt.cqe ? opt.cqe : 64, NULL, NULL, 0);
	if (s->buf == MAP_FAILED || !s->mr || !s->cq)
		die("setup");
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = opt.type,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2,
			.max_recv_sge = 2, .max_inline_data = 32},
	};
	s->qp = ibv_create_qp(pd, &init);
	if (!s->qp)
		die("create QP");
}

// path returns the path to the device itself: by LID over InfiniBand, and by GID over
// Ethernet and where the port requires it.
static struct ibv_ah_attr path(void)
{
	struct ibv_ah_attr attr = {.port_num = PORT};
	struct ibv_port_attr port;
	if (ibv_query_port(ctx, PORT, &port))
		die("query port");
	if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
		attr.dlid = port.lid;
		if (!(port.flags & IBV_QPF_GRH_REQUIRED))
			return attr;
	}
	attr.is_global = 1;
	attr.grh.sgid_index = gid_index;
	attr.grh.hop_limit = 64;
	if (ibv_query_gid(ctx, PORT, gid_index, &attr.grh.dgid))
		die("query GID");
	return attr;
}

static void connect_qp(struct side *s, uint32_t dest, int access, int dest_reads)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = 0x1234,
				   .qp_access_flags = access};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= opt.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (ibv_modify_qp(s->qp, &attr, mask))
		die("to INIT");

	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = dest;
	attr.rq_psn = 100;
	attr.min_rnr_timer = 1; // 10 us
	attr.max_dest_rd_atomic = dest_reads;
	attr.ah_attr = path();
	mask = IBV_QP_STATE;
	if (opt.type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (opt.type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(s->qp, &attr, mask))
		die("to RTR");

	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 100;
	attr.timeout = opt.retry ? 10 : 18; // 4 ms, 1 s
	attr.retry_cnt = opt.retry ? opt.retry : 7;
	attr.rnr_retry = opt.rnr_retry ? opt.rnr_retry : 7;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (opt.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	if (ibv_modify_qp(s->qp, &attr, mask))
		die("to RTS");
}

static int or_all(int access, int all) { return access < 0 ? 0 : access ? access : all; }

static void begin(struct options o)
{
	opt = o;
	if (!opt.type)
		opt.type = IBV_QPT_RC;
	posted = 0;
	make(&a, all_access);
	make(&b, or_all(opt.b_mr, all_access));
	if (opt.leave_reset)
		return;
	connect_qp(&a, opt.wrong_peer ? 0xfffff0 : b.qp->qp_num, qp_access, 4);
	connect_qp(&b, a.qp->qp_num, or_all(opt.b_qp, qp_access), opt.no_dest_reads ? 0 : 4);
}

static void destroy(struct side *s)
{
	if (ibv_destroy_qp(s->qp) || ibv_destroy_cq(s->cq) || ibv_dereg_mr(s->mr))
		die("destroy");
	munmap(s->buf, BUF);
}

static void add(struct side *s, int n, char *line)
{
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int have = 0;;) {
		struct ibv_wc wc;
		int r = ibv_poll_cq(s->cq, 1, &wc);
		if (r < 0)
			die("poll");
		if (r) {
			sprintf(line + strlen(line), " %llu:%d", (unsigned long long)wc.wr_id, wc.status);
			have++;
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (have >= n || posted || now.tv_sec - start.tv_sec > 3)
			return;
	}
}

static void events(char *line)
{
	for (struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN}; poll(&p, 1, 0) == 1;) {
		struct ibv_async_event e;
		if (ibv_get_async_event(ctx, &e))
			die("async event");
		sprintf(line + strlen(line), " %d", e.event_type);
		ibv_ack_async_event(&e);
	}
}

// end waits for a's and b's completions, prints the line and cleans up.
static void end(const char *name, int na, int nb)
{
	char sa[256] = "", sb[256] = "", ev[64] = "";
	add(&a, na, sa);
	add(&b, nb, sb);
	usleep(20000); // for completions that must not arrive
	add(&a, 0, sa);
	add(&b, 0, sb);
	events(ev);
	printf("%s post %d a%s b%s events%s\n", name, posted, sa, sb, ev);
	fflush(stdout);
	// A bound window keeps its queue pair from being destroyed, so deallocate it first.
	if (window && ibv_dealloc_mw(window))
		die("dealloc MW");
	window = NULL;
	destroy(&a);
	destroy(&b);
}

static struct ibv_sge sge(struct side *s, int length)
{
	return (struct ibv_sge){(uintptr_t)s->buf, length, s->mr->lkey};
}

static void recv_sge(struct side *s, uint64_t id, struct ibv_sge g)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &g, .num_sge = 1}, *bad;
	if (ibv_post_recv(s->qp, &wr, &bad))
		die("post receive");
}

static void post(struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	posted = ibv_post_send(a.qp, &wr, &bad);
}

static struct ibv_send_wr op(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge *g)
{
	struct ibv_send_wr wr = {.wr_id = id, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
				 .sg_list = g, .num_sge = 1};
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
		wr.wr.atomic.rkey = b.mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
		wr.wr.rdma.rkey = b.mr->rkey;
	}
	return wr;
}

static void rdma(const char *name, struct options o, enum ibv_wr_opcode opcode, int length,
		 int shift, int key, int nb)
{
	begin(o);
	struct ibv_sge g = sge(&a, length);
	struct ibv_send_wr wr = op(opcode, 1, &g);
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr += shift;
		wr.wr.atomic.rkey += key;
	} else {
		wr.wr.rdma.remote_addr += shift;
		wr.wr.rdma.rkey += key;
	}
	post(wr);
	end(name, 1, nb);
}

static void send_recv(const char *name, struct ibv_sge *from, struct ibv_sge *to, int na, int nb)
{
	if (to)
		recv_sge(&b, 2, *to);
	struct ibv_send_wr wr = op(IBV_WR_SEND, 1, from);
	post(wr);
	end(name, na, nb);
}

static void sends(void)
{
	struct options o = {0};
	struct ibv_sge from, to;

	begin(o), from = sge(&a, 64), to = sge(&b, 64), from.lkey++;
	send_recv("send-with-a-wrong-local-key", &from, &to, 1, 0);

	begin(o), from = sge(&a, 64), to = sge(&b, 64), from.addr += BUF - 32;
	send_recv("send-beyond-the-memory's-end", &from, &to, 1, 0);

	begin(o), from = sge(&a, 64), to = sge(&b, 32);
	send_recv("receive-that-is-too-short", &from, &to, 1, 1);

	begin(o), from = sge(&a, 64), to = sge(&b, 64), to.lkey++;
	send_recv("receive-with-a-wrong-local-key", &from, &to, 1, 1);

	begin(o), from = sge(&a, 64), to = sge(&b, 64), to.addr += BUF - 32;
	send_recv("receive-beyond-the-memory's-end", &from, &to, 1, 1);

	o = (struct options){.b_mr = -1};
	begin(o), from = sge(&a, 64), to = sge(&b, 64);
	send_recv("receive-into-memory-without-local-write", &from, &to, 1, 1);

	o = (struct options){.rnr_retry = 1};
	begin(o), from = sge(&a, 64);
	send_recv("no-receive-posted", &from, NULL, 1, 0);

	o = (struct options){.retry = 1, .wrong_peer = 1};
	begin(o), from = sge(&a, 64);
	send_recv("no-such-peer", &from, NULL, 1, 0);

	o = (struct options){.type = IBV_QPT_UC};
	begin(o), from = sge(&a, 64), to = sge(&b, 32);
	send_recv("uc-receive-too-short", &from, &to, 1, 0);

	begin(o), from = sge(&a, 64), to = sge(&b, 64), from.lkey++;
	send_recv("uc-send-wrong-lkey", &from, &to, 1, 0);
}

static void rdmas(void)
{
	struct options none = {0}, uc = {.type = IBV_QPT_UC}, no_reads = {.no_dest_reads = 1},
		       mr_read = {.b_mr = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ},
		       mr_write = {.b_mr = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
		       qp_read = {.b_qp = IBV_ACCESS_REMOTE_READ},
		       qp_write = {.b_qp = IBV_ACCESS_REMOTE_WRITE};

	rdma("write-with-a-wrong-key", none, IBV_WR_RDMA_WRITE, 64, 0, 1, 0);
	rdma("write-beyond-the-memory's-end", none, IBV_WR_RDMA_WRITE, 64, BUF - 32, 0, 0);
	rdma("write-before-the-memory", none, IBV_WR_RDMA_WRITE, 64, -8, 0, 0);
	rdma("write-to-memory-without-remote-write", mr_read, IBV_WR_RDMA_WRITE, 64, 0, 0, 0);
	rdma("write-to-a-QP-without-remote-write", qp_read, IBV_WR_RDMA_WRITE, 64, 0, 0, 0);
	rdma("read-with-a-wrong-key", none, IBV_WR_RDMA_READ, 64, 0, 1, 0);
	rdma("read-beyond-the-memory's-end", none, IBV_WR_RDMA_READ, 64, BUF - 32, 0, 0);
	rdma("read-of-memory-without-remote-read", mr_write, IBV_WR_RDMA_READ, 64, 0, 0, 0);
	rdma("read-from-a-QP-without-remote-read", qp_write, IBV_WR_RDMA_READ, 64, 0, 0, 0);
	rdma("read-not-taken", no_reads, IBV_WR_RDMA_READ, 64, 0, 0, 0);
	rdma("atomic-with-a-wrong-key", none, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0, 1, 0);
	rdma("swap-unaligned", none, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1, 0, 0);
	rdma("atomic-on-memory-without-remote-atomics", mr_write, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 0, 0);
	rdma("atomic-on-a-QP-without-remote-atomics", qp_write, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 0, 0);
	rdma("add-unaligned", none, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4, 0, 0);
	rdma("uc-write-wrong-rkey", uc, IBV_WR_RDMA_WRITE, 64, 0, 1, 0);
	rdma("uc-write-qp-access", (struct options){.type = IBV_QPT_UC, .b_qp = -1},
	     IBV_WR_RDMA_WRITE, 64, 0, 0, 0);

	struct ibv_sge g;
	struct ibv_send_wr wr;
	begin(none), g = sge(&a, 64), g.lkey++, wr = op(IBV_WR_RDMA_READ, 1, &g);
	post(wr);
	end("read-with-a-wrong-local-key", 1, 0);
	begin(none), g = sge(&a, 8), g.lkey++, wr = op(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &g);
	post(wr);
	end("atomic-with-a-wrong-local-key", 1, 0);
}

static void flushes(void)
{
	struct options none = {0};
	struct ibv_qp_attr to_err = {.qp_state = IBV_QPS_ERR};

	begin(none);
	for (int i = 1; i <= 3; i++)
		recv_sge(&a, i, sge(&a, 64));
	if (ibv_modify_qp(a.qp, &to_err, IBV_QP_STATE))
		die("to ERR");
	end("error-flushes-receives", 3, 0);

	begin(none);
	if (ibv_modify_qp(a.qp, &to_err, IBV_QP_STATE))
		die("to ERR");
	struct ibv_sge g = sge(&a, 64);
	struct ibv_send_wr wr = op(IBV_WR_SEND, 1, &g);
	post(wr);
	end("send-in-error", 1, 0);

	// A failed request flushes those posted after it, signaled or not.
	begin(none);
	g = sge(&a, 64);
	struct ibv_send_wr list[3] = {op(IBV_WR_RDMA_WRITE, 1, &g), op(IBV_WR_RDMA_WRITE, 2, &g),
				      op(IBV_WR_RDMA_WRITE, 3, &g)};
	list[0].wr.rdma.rkey++;
	list[1].send_flags = 0;
	list[0].next = &list[1];
	list[1].next = &list[2];
	recv_sge(&a, 9, g);
	post(list[0]);
	end("failure-flushes-the-rest", 4, 0);
}

static void windows(void)
{
	struct options none = {0}, no_bind = {.b_mr = all_access & ~IBV_ACCESS_MW_BIND};
	struct ibv_sge g;
	struct ibv_send_wr wr;

	// a binds a window to its own region.
	static const struct {
		const char *name;
		int shift, twice;
	} binds[] = {
		{"bind-past-end", 64, 0},
		{"bind-twice", 0, 1},
	};
	for (unsigned i = 0; i < sizeof(binds) / sizeof(*binds); i++) {
		begin(none);
		if (!(window = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
			die("alloc MW");
		struct ibv_send_wr bind = {.wr_id = 1, .opcode = IBV_WR_BIND_MW,
					   .send_flags = IBV_SEND_SIGNALED};
		bind.bind_mw.mw = window;
		bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
		bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = a.mr, .addr = (uintptr_t)a.buf + binds[i].shift, .length = BUF,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
		post(bind);
		int n = 1;
		if (binds[i].twice) {
			bind.wr_id = 2;
			struct ibv_mw again = *window;
			again.rkey = bind.bind_mw.rkey;
			bind.bind_mw.mw = &again;
			bind.bind_mw.rkey = ibv_inc_rkey(again.rkey);
			post(bind);
			n = 2;
		}
		end(binds[i].name, n, 0);
	}

	// b's region doesn't allow windows. Here, b is the requester of the bind.
	begin(no_bind);
	if (!(window = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
		die("alloc MW");
	struct ibv_send_wr bind = {.wr_id = 1, .opcode = IBV_WR_BIND_MW,
				   .send_flags = IBV_SEND_SIGNALED}, *bad;
	bind.bind_mw.mw = window;
	bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = b.mr, .addr = (uintptr_t)b.buf, .length = BUF,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	posted = ibv_post_send(b.qp, &bind, &bad);
	end("bind-mr-access", 0, 1);

	// A window that allows reads only.
	begin(none);
	if (!(window = ibv_alloc_mw(pd, IBV_MW_TYPE_2)))
		die("alloc MW");
	bind.bind_mw.mw = window;
	bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
	bind.bind_mw.bind_info.mr = b.mr;
	bind.bind_mw.bind_info.addr = (uintptr_t)b.buf;
	bind.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	if (ibv_post_send(b.qp, &bind, &bad))
		die("bind");
	char bound[64] = "";
	add(&b, 1, bound);
	g = sge(&a, 64), wr = op(IBV_WR_RDMA_WRITE, 1, &g);
	wr.wr.rdma.rkey = bind.bind_mw.rkey;
	post(wr);
	end("write-window-access", 1, 0);

	// Invalidating a key that doesn't exist, locally and remotely.
	begin(none);
	wr = (struct ibv_send_wr){.wr_id = 1, .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = 0x7fffff01};
	post(wr);
	end("invalidate-wrong-key", 1, 0);

	begin(none);
	recv_sge(&b, 2, sge(&b, 64));
	g = sge(&a, 64), wr = op(IBV_WR_SEND_WITH_INV, 1, &g);
	wr.invalidate_rkey = 0x7fffff01;
	post(wr);
	end("send-invalidate-wrong-key", 1, 1);
}

static struct ibv_ah *address(void)
{
	struct ibv_ah_attr attr = path();
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	if (!ah)
		die("create AH");
	return ah;
}

static void datagrams(void)
{
	static const struct {
		const char *name;
		int send, receive, key;
		unsigned qkey;
	} cases[] = {
		{"ud-wrong-qkey", 64, 128, 0, 0x4321},
		{"ud-too-long", 4096, 128, 0, 0x1234},
		{"ud-receive-too-short", 64, 64, 0, 0x1234},
		{"ud-wrong-lkey", 64, 128, 1, 0x1234},
	};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin((struct options){.type = IBV_QPT_UD});
		struct ibv_ah *ah = address();
		recv_sge(&b, 2, sge(&b, cases[i].receive));
		struct ibv_sge g = sge(&a, cases[i].send);
		g.lkey += cases[i].key;
		struct ibv_send_wr wr = op(IBV_WR_SEND, 1, &g);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = b.qp->qp_num;
		wr.wr.ud.remote_qkey = cases[i].qkey;
		post(wr);
		end(cases[i].name, 1, 0);
		ibv_destroy_ah(ah);
	}
}

static void refusals(void)
{
	struct options none = {0}, reset = {.leave_reset = 1};
	struct ibv_sge g[40];
	struct ibv_send_wr wr;
	struct ibv_recv_wr rwr = {.wr_id = 1, .sg_list = g, .num_sge = 1}, *bad;

	begin(reset), g[0] = sge(&a, 64), wr = op(IBV_WR_SEND, 1, g);
	post(wr);
	end("send-in-reset", 0, 0);

	begin(reset), g[0] = sge(&a, 64);
	posted = ibv_post_recv(a.qp, &rwr, &bad);
	end("receive-in-reset", 0, 0);

	begin(none);
	for (int i = 0; i < 40; i++)
		g[i] = sge(&a, 1);
	wr = op(IBV_WR_SEND, 1, g), wr.num_sge = 40;
	post(wr);
	end("send-too-many-sges", 0, 0);

	begin(none), rwr.num_sge = 40;
	posted = ibv_post_recv(a.qp, &rwr, &bad);
	end("receive-too-many-sges", 0, 0);

	begin(none), g[0] = sge(&a, 2048), wr = op(IBV_WR_SEND, 1, g);
	wr.send_flags |= IBV_SEND_INLINE;
	post(wr);
	end("inline-too-long", 0, 0);

	begin(none), g[0] = sge(&a, 64), rwr.num_sge = 1;
	for (int i = 0; i < 4096 && !posted; i++)
		posted = ibv_post_recv(a.qp, &rwr, &bad);
	struct ibv_qp_attr to_reset = {.qp_state = IBV_QPS_RESET};
	if (ibv_modify_qp(a.qp, &to_reset, IBV_QP_STATE))
		die("to RESET");
	end("receive-queue-full", 0, 0);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: failures DEVICE GID-INDEX\n");
		return 2;
	}
	gid_index = atoi(argv[2]);
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (; list && *list; list++)
		if (!strcmp(ibv_get_device_name(*list), argv[1]))
			ctx = ibv_open_device(*list);
	if (!ctx || !(pd = ibv_alloc_pd(ctx)))
		die("open");
	sends();
	rdmas();
	flushes();
	windows();
	datagrams();
	refusals();
	return 0;
}
