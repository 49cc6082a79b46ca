// sandboxed WHEN HOW N: calls N verbs on /dev/null, which rejects all of them, then opens it
// again and calls another verb. The handles count the calls.
//
// It installs a seccomp filter that allows only its own system calls. WHEN is before (it opens
// /dev/null), between (that and its first verb) or after (its first verb). HOW is the filter's
// action for other system calls: kill, errno, trap, notify (ask a supervisor) or none
// (allow them). Meanwhile a thread sleeps, and the filter does not let it restart its sleep.
//
// At the start it prints its PID and waits for a byte on standard input. At the end it prints
// how often it was trapped and how often the supervisor was asked, and exits with status 7.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int fd, calls, trapped, asked;
static volatile int sleeper, listener = -1;

static void verb(void)
{
	struct {
		uint16_t length, object, method, attrs;
		uint64_t reserved1;
		uint32_t driver, reserved2;
		uint16_t id, len, flags, elem;
		uint64_t handle;
	} m = {.length = sizeof(m), .object = 1, .method = 0, .attrs = 1, .driver = 14};
	m.handle = ++calls;
	if (ioctl(fd, 0xc0181b01, &m) != -1 || errno != ENOTTY)
		_exit(1);
}

static void *sleeps(void *arg)
{
	struct timespec long_time = {.tv_sec = 3600};
	sleeper = syscall(SYS_gettid);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL);
	_exit(2); // the sleep was broken
	return NULL;
}

// awaitSleep waits until the other thread sleeps.
static void awaitSleep(void)
{
	char name[64], b[64];
	for (int number = -1; number != SYS_clock_nanosleep;) {
		snprintf(name, sizeof(name), "/proc/self/task/%d/syscall", sleeper);
		int f = open(name, O_RDONLY);
		ssize_t n = f < 0 ? 0 : read(f, b, sizeof(b) - 1);
		b[n > 0 ? n : 0] = 0;
		close(f);
		sscanf(b, "%d", &number);
	}
}

static void *supervise(void *arg)
{
	while (listener < 0)
		;
	while (1) {
		struct seccomp_notif n = {0};
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n))
			continue;
		__atomic_add_fetch(&asked, 1, __ATOMIC_SEQ_CST);
		struct seccomp_notif_resp r = {.id = n.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
	}
	return NULL;
}

static void trap(int n) { trapped++; }

#define ALLOW(call) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void sandbox(const char *how)
{
	unsigned action = !strcmp(how, "kill") ? SECCOMP_RET_KILL_PROCESS :
		!strcmp(how, "errno") ? SECCOMP_RET_ERRNO | EPERM :
		!strcmp(how, "trap") ? SECCOMP_RET_TRAP :
		!strcmp(how, "notify") ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_openat),
		ALLOW(SYS_close),
		ALLOW(SYS_ioctl),
		ALLOW(SYS_clock_nanosleep),
		ALLOW(SYS_rt_sigreturn),
		ALLOW(SYS_exit_group),
		// mmap of files only.
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, action),
	};
	struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), filter};
	int notify = action == SECCOMP_RET_USER_NOTIF;
	int r;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		_exit(3);
	r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		notify ? SECCOMP_FILTER_FLAG_NEW_LISTENER : SECCOMP_FILTER_FLAG_TSYNC, &prog);
	if (r < 0 || !notify && r > 0)
		_exit(4);
	if (notify)
		listener = r;
}

int main(int argc, char **argv)
{
	char c, said[100];
	pthread_t t;

	if (argc != 4)
		return 5;
	const char *when = argv[1], *how = argv[2];
	signal(SIGSYS, trap);
	if (pthread_create(&t, NULL, sleeps, NULL) || !strcmp(how, "notify") && pthread_create(&t, NULL, supervise, NULL))
		return 5;
	awaitSleep();
	snprintf(said, sizeof(said), "%d\n", getpid());
	write(1, said, strlen(said));
	if (read(0, &c, 1) != 1)
		return 5;
	if (!strcmp(when, "before"))
		sandbox(how);
	if ((fd = open("/dev/null", O_RDWR)) < 0)
		return 5;
	if (!strcmp(when, "between"))
		sandbox(how);
	verb();
	if (!strcmp(when, "after"))
		sandbox(how);
	while (calls < atoi(argv[3]))
		verb();
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED || errno != ENODEV)
		return 6;
	if ((fd = open("/dev/null", O_RDWR)) < 0)
		return 5;
	verb();
	snprintf(said, sizeof(said), "trapped %d, asked %d\n", trapped, asked);
	write(1, said, strlen(said));
	_exit(7);
}
