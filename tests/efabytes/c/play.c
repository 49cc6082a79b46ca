// Plays a script on the device of tests/fakeefa with libefa: see ../bytes_linux_test.go.
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum { FD = 1000, ROOM = 1 << 24, RECV_AT = 1 << 22, BELLS_AT = 1 << 23, PAGE = 4096, SHOWN = 1 << 20 };
#define CQ_ROOM (1ull << 34)

// What efadv.h of Debian 12 doesn't have: efadv_qp_init_attr.flags, and the flag
// EFADV_QP_FLAGS_INLINE_WRITE. A script has INLINE_WRITES if it wants that.
enum { FLAGS_AT = 12, INLINE_WRITE = 2, INLINE_WRITES = 2 };

enum { RDMA_WRITE = 2 }; // in a completion

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned char *map(unsigned long long at)
{
	void *p = mmap(NULL, SHOWN, PROT_READ | PROT_WRITE, MAP_SHARED, FD, at);
	if (p == MAP_FAILED)
		fail("mmap");
	return p;
}

static void show(const char *name, unsigned char *at, int size, int n, int number)
{
	for (int i = 0; i < n; i++) {
		unsigned char *b = at + i * size;
		int set = 0;
		for (int j = 0; j < size; j++)
			set |= b[j];
		if (!set)
			continue;
		printf("%s %d ", name, i);
		for (int j = 0; j < size; j++) // the request's number is the driver's own
			printf("%02x", j == number || j == number + 1 ? 0 : b[j]);
		printf("\n");
	}
}

int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list || n != 1)
		fail("ibv_get_device_list");
	struct ibv_context *ctx = ibv_open_device(list[0]);
	if (!ctx)
		fail("ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	if (!pd || !ah)
		fail("objects");
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	char type[8];
	unsigned events, sends, send_sge, recvs, recv_sge, inl, writes;
	if (scanf(" q %7s %u %u %u %u %u %u %u", type, &events, &sends, &send_sge, &recvs, &recv_sge, &inl, &writes) != 8)
		fail("script");
	int srd = !strcmp(type, "SRD");
	struct ibv_cq *cq = ibv_create_cq(ctx, 256, NULL, events ? channel : NULL, 0);
	if (!cq)
		fail("ibv_create_cq");
	unsigned cqe_size = 0;
	if (ioctl(FD, 0xefa, &cqe_size))
		fail("ioctl");
	struct ibv_qp_init_attr_ex init = {
		.qp_type = srd ? IBV_QPT_DRIVER : IBV_QPT_UD, .send_cq = cq, .recv_cq = cq, .pd = pd,
		.cap = { sends, recvs, send_sge, recv_sge, inl }, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | (srd ? IBV_QP_EX_WITH_RDMA_READ : 0) |
			(writes ? IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM : 0),
	};
	struct efadv_qp_init_attr own = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	if (writes == INLINE_WRITES)
		memcpy((char *)&own + FLAGS_AT, &(unsigned short){ INLINE_WRITE }, 2);
	struct ibv_qp *qp = srd ? efadv_create_qp_ex(ctx, &init, &own, sizeof own) : ibv_create_qp_ex(ctx, &init);
	if (!qp)
		fail("create QP");
	printf("cap %u %u %u %u %u\n", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge, init.cap.max_inline_data);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr a = { .qp_state = state, .port_num = 1, .qkey = 1 };
		int mask = IBV_QP_STATE;
		if (state == IBV_QPS_INIT)
			mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
		if (state == IBV_QPS_RTS)
			mask |= IBV_QP_SQ_PSN;
		if (ibv_modify_qp(qp, &a, mask))
			fail("ibv_modify_qp");
	}
	int wqe = inl > 32 || writes == INLINE_WRITES ? 128 : 64;
	unsigned char *sq = map(ROOM), *rq = map(ROOM + RECV_AT), *bells = map(ROOM + BELLS_AT), *ring = map(CQ_ROOM + ROOM), *cq_bell = map(CQ_ROOM + ROOM + BELLS_AT);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	unsigned completions = 0, places = 0;
	// The numbers of requests, in their order: a completion names one.
	static unsigned char send_numbers[1 << 16][2], recv_numbers[1 << 16][2];
	unsigned posted_sends = 0, posted_recvs = 0;
	char command;
	while (scanf(" %c", &command) == 1) {
		printf("> %c\n", command);
		if (command == 's') {
			unsigned count;
			if (scanf("%u", &count) != 1)
				fail("script");
			struct ibv_send_wr wrs[64] = { 0 }, *bad;
			static struct ibv_sge sges[64][2];
			static unsigned char data[64][128];
			for (unsigned i = 0; i < count; i++) {
				unsigned op, imm, qpn, qkey, rkey, isinline, sge;
				unsigned long long id, raddr, addr;
				if (scanf("%llu %u %u %u %u %llu %u %u %u", &id, &op, &imm, &qpn, &qkey, &raddr, &rkey, &isinline, &sge) != 9)
					fail("script");
				wrs[i] = (struct ibv_send_wr){ .wr_id = id, .opcode = op, .sg_list = sges[i], .num_sge = sge, .imm_data = htobe32(imm),
					.send_flags = IBV_SEND_SIGNALED, .next = i + 1 < count ? &wrs[i + 1] : NULL };
				if (op != IBV_WR_SEND && op != IBV_WR_SEND_WITH_IMM) { // of the other interface only
					wrs[i].wr.rdma.remote_addr = raddr;
					wrs[i].wr.rdma.rkey = rkey;
				} else {
					wrs[i].wr.ud.ah = ah;
					wrs[i].wr.ud.remote_qpn = qpn;
					wrs[i].wr.ud.remote_qkey = qkey;
				}
				for (unsigned j = 0; j < sge; j++)
					if (scanf("%llu %u %u", &addr, &sges[i][j].length, &sges[i][j].lkey) != 3)
						fail("script");
					else
						sges[i][j].addr = addr;
				if (isinline) {
					for (unsigned j = 0; j < sizeof data[i]; j++)
						data[i][j] = id + j;
					sges[i][0] = (struct ibv_sge){ (uintptr_t)data[i], isinline - 1, 0 };
					wrs[i].num_sge = 1;
					wrs[i].send_flags |= IBV_SEND_INLINE;
				}
				if (srd && i == 0)
					ibv_wr_start(ex);
				if (srd) {
					ex->wr_id = id;
					ex->wr_flags = IBV_SEND_SIGNALED;
					if (op == IBV_WR_RDMA_READ)
						ibv_wr_rdma_read(ex, rkey, raddr);
					else if (op == IBV_WR_RDMA_WRITE)
						ibv_wr_rdma_write(ex, rkey, raddr);
					else if (op == IBV_WR_RDMA_WRITE_WITH_IMM)
						ibv_wr_rdma_write_imm(ex, rkey, raddr, htobe32(imm));
					else if (op == IBV_WR_SEND_WITH_IMM)
						ibv_wr_send_imm(ex, htobe32(imm));
					else
						ibv_wr_send(ex);
					if (isinline)
						ibv_wr_set_inline_data(ex, data[i], isinline - 1);
					else
						ibv_wr_set_sge_list(ex, sge, sges[i]);
					ibv_wr_set_ud_addr(ex, ah, qpn, qkey);
				}
			}
			int err = srd ? ibv_wr_complete(ex) : ibv_post_send(qp, wrs, &bad);
			printf("posted %s\n", err ? "not" : "all");
			for (unsigned i = 0; i < count; i++, posted_sends++)
				memcpy(send_numbers[posted_sends], sq + posted_sends % init.cap.max_send_wr * wqe, 2);
		} else if (command == 'r') {
			unsigned long long id, addr;
			unsigned sge;
			struct ibv_sge sges[2];
			struct ibv_recv_wr *bad;
			if (scanf("%llu %u", &id, &sge) != 2)
				fail("script");
			for (unsigned j = 0; j < sge; j++)
				if (scanf("%llu %u %u", &addr, &sges[j].length, &sges[j].lkey) != 3)
					fail("script");
				else
					sges[j].addr = addr;
			struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sges, .num_sge = sge };
			printf("posted %s\n", ibv_post_recv(qp, &wr, &bad) ? "not" : "all");
			memcpy(recv_numbers[posted_recvs++], rq + places % (init.cap.max_recv_wr * recv_sge) * 16 + 8, 2);
			places += sge;
		} else if (command == 'c') { // a completion of the n-th request of its queue
			unsigned recv, place, status, op, imm, length, source;
			if (scanf("%u %u %u %u %u %u %u", &recv, &place, &status, &op, &imm, &length, &source) != 7)
				fail("script");
			unsigned char *e = ring + completions % 256 * cqe_size;
			memset(e, 0, cqe_size);
			memcpy(e, recv ? recv_numbers[place] : send_numbers[place], 2);
			e[2] = status;
			memcpy(e + 4, &qp->qp_num, 2);
			memcpy(e + 6, &length, 2);
			e[8] = source;
			e[10] = source + 1;
			memcpy(e + 12, &imm, 4);
			if (recv && op == RDMA_WRITE)
				memcpy(e + 16, (char *)&length + 2, 2);
			e[3] = (recv ? 2 : 1) << 1 | (imm ? 8 : 0) | op << 4 | (completions / 256 % 2 ? 0 : 1);
			completions++;
		} else if (command == 'p') {
			struct ibv_wc wc[8];
			int got = ibv_poll_cq(cq, 8, wc);
			printf("polled %d\n", got);
			for (int i = 0; i < got; i++) {
				printf("wc %llu status %d opcode %d vendor %u qp %u", (unsigned long long)wc[i].wr_id, wc[i].status,
				       wc[i].opcode, wc[i].vendor_err, wc[i].qp_num);
				if ((wc[i].opcode & IBV_WC_RECV) && wc[i].status == IBV_WC_SUCCESS)
					printf(" length %u src %u slid %u flags %u imm %x", wc[i].byte_len, wc[i].src_qp, wc[i].slid, wc[i].wc_flags,
					       wc[i].wc_flags & IBV_WC_WITH_IMM ? be32toh(wc[i].imm_data) : 0);
				printf("\n");
			}
		} else if (command == 'a') {
			if (ibv_req_notify_cq(cq, 0))
				fail("ibv_req_notify_cq");
		} else if (command == 'z') { // the queues' memory as it is
			show("sq", sq, wqe, init.cap.max_send_wr, 0);
			show("rq", rq, 16, PAGE / 16, 8); // all that the driver has mapped
		}
		printf("bells %u %u %x\n", *(unsigned *)(bells + 0x10), *(unsigned *)(bells + PAGE + 0x20), *(unsigned *)(cq_bell + 0x40));
	}
	return 0;
}
