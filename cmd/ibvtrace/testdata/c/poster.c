// poster N: looks in memory like a program that uses libibverbs, but has no device. Its
// ibv_context is of /dev/null, with functions from this file. For each byte that it reads
// from standard input, it posts and polls N times on each of two threads, and prints how
// often its functions were called. The bytes g and r make it install a seccomp filter first:
// g one that kills it for getpid, r one that kills it for reboot.
#include <infiniband/verbs.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int rounds;
static long sends, recvs, srqs, polls, arms;
#define COUNT(x) __atomic_add_fetch(&x, 1, __ATOMIC_RELAXED)

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	COUNT(sends);
	if (wr->wr_id != 13)
		return 0;
	*bad = wr;
	return ENOMEM;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	COUNT(recvs);
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	COUNT(srqs);
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	// Every other poll finds a completion.
	if (COUNT(polls) % 2)
		return 0;
	wc[0] = (struct ibv_wc){.wr_id = 5, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV, .byte_len = 64, .qp_num = 17};
	return 1;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	COUNT(arms);
	return 0;
}

static struct ibv_context *context;

static void *work(void *arg)
{
	struct ibv_qp qp = {.context = context, .handle = 7, .qp_num = 17, .qp_type = IBV_QPT_RC};
	struct ibv_cq cq = {.context = context, .handle = 5};
	struct ibv_srq srq = {.context = context, .handle = 6};
	struct ibv_sge sge = {0x1000, 64, 3};
	struct ibv_send_wr wr = {.wr_id = 12, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {.wr_id = 11, .sg_list = &sge, .num_sge = 1}, *badrecv;
	struct ibv_wc wc[4];

	for (int i = 0; i < rounds; i++) {
		wr.wr_id = i == 0 ? 13 : 12;
		if (ibv_post_send(&qp, &wr, &bad) != (i == 0 ? ENOMEM : 0) || i == 0 && bad != &wr ||
		    ibv_post_recv(&qp, &recv, &badrecv) || ibv_post_srq_recv(&srq, &recv, &badrecv) ||
		    ibv_req_notify_cq(&cq, 1) || ibv_poll_cq(&cq, 4, wc) > 1 || ibv_poll_cq(&cq, 4, wc) > 1)
			abort();
	}
	return NULL;
}

static void forbid(int call)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {4, filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		abort();
}

int main(int argc, char **argv)
{
	rounds = atoi(argv[1]);
	context = calloc(1, sizeof(*context));
	context->device = (struct ibv_device *)&context;
	context->ops._compat_query_device = (void *)context; // not NULL, as in libibverbs
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	context->cmd_fd = open("/dev/null", O_RDWR);
	context->abi_compat = (void *)-1;
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("%d\n", getpid());
	for (char c; read(0, &c, 1) == 1;) {
		pthread_t other;
		if (c == 'g')
			forbid(SYS_getpid);
		if (c == 'r')
			forbid(SYS_reboot);
		if (pthread_create(&other, NULL, work, NULL))
			abort();
		work(NULL);
		pthread_join(other, NULL);
		printf("%ld %ld %ld %ld %ld\n", sends, recvs, srqs, arms, polls);
		sends = recvs = srqs = polls = arms = 0;
	}
	return 0;
}
