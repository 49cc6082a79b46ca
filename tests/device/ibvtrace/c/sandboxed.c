// sandboxed DEVICE WHEN ACTION: creates and destroys objects, and posts and polls once.
// It installs a seccomp filter that allows only the system calls that it makes itself.
// WHEN is before (it opens the device), between (that and its next verb), after (some
// verbs) or never. Other system calls kill it (ACTION: kill) or fail (errno). It exits
// with status 7.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MUST(what) \
	do { \
		if (!(what)) { \
			perror(#what); \
			exit(1); \
		} \
	} while (0)

#define ALLOW(call) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

#ifndef SYS_poll // libc makes the newer calls on arm64
#define SYS_poll SYS_ppoll
#define SYS_readlink SYS_readlinkat
#endif

static const char *when, *action;

static void sandbox(const char *now)
{
	// The system calls of libibverbs and its providers, directly or through libc.
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_openat), ALLOW(SYS_close), ALLOW(SYS_ioctl),
		ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_brk), ALLOW(SYS_madvise), ALLOW(SYS_mremap),
		ALLOW(SYS_newfstatat), ALLOW(SYS_fstat), ALLOW(SYS_readlink), ALLOW(SYS_getdents64),
		ALLOW(SYS_lseek), ALLOW(SYS_fcntl), ALLOW(SYS_futex), ALLOW(SYS_poll),
		ALLOW(SYS_sched_getaffinity), ALLOW(SYS_getrandom), ALLOW(SYS_exit_group),
		ALLOW(SYS_uname),
		BPF_STMT(BPF_RET | BPF_K, strcmp(action, "kill") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), filter};
	if (strcmp(now, when))
		return;
	MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

int main(int argc, char **argv)
{
	static char memory[8192] __attribute__((aligned(4096)));
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(argc == 4 && list);
	when = argv[2];
	action = argv[3];
	while (*list && strcmp(ibv_get_device_name(*list), argv[1]))
		list++;
	MUST(*list);
	sandbox("before");
	struct ibv_context *context = ibv_open_device(*list);
	MUST(context);
	sandbox("between");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	MUST(pd && mr);
	sandbox("after");
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	MUST(channel && cq);
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
			.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		};
		struct ibv_qp *qp = ibv_create_qp(pd, &init);
		MUST(qp);
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
		MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
		struct ibv_sge sge = {(uintptr_t)memory, 4096, mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;
		MUST(!ibv_post_recv(qp, &wr, &bad));
		struct ibv_wc wc;
		MUST(ibv_poll_cq(cq, 1, &wc) == 0);
		MUST(!ibv_destroy_qp(qp));
	}
	MUST(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
	MUST(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("done");
	fflush(stdout);
	_exit(7);
}
