// recorded HOW N: calls verbs and mmap N times on /dev/null, which rejects all of them. The
// handles count the calls. HOW is one of:
//
//	plain
//	thread    on four threads
//	late      the same, without a verb before
//	fork
//	nested    with a child in another PID namespace
//	vfork     and exec
//	signal    with a signal handler that calls verbs too
//	full      after reading a byte
//	scribble  while writing garbage into the recorder's memory
//	seccomp   with a filter that forbids the recorder's system calls
//	tsync     the same, installed in all threads while they call verbs
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
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
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct attr {
	uint16_t id, len, flags, elem;
	uint64_t data;
};

struct message {
	uint16_t length, object, method, attrs;
	uint64_t reserved1;
	uint32_t driver, reserved2;
	struct attr attr[40];
};

static int fd, rounds;

static void verb(struct message *m, uint16_t object, uint16_t method, uint16_t attrs)
{
	m->object = object;
	m->method = method;
	m->attrs = attrs;
	m->length = 24 + 16 * attrs;
	m->driver = 14;
	errno = 0;
	if (ioctl(fd, 0xc0181b01, m) != -1 || errno != ENOTTY)
		abort();
}

static void call(int n)
{
	struct message m = {0};
	uint32_t cap[5] = {n, 32, 1, 2, 64};
	char big[3000] = {n};

	// A QP, with its capabilities behind a pointer.
	m.attr[0] = (struct attr){.id = 0};
	m.attr[1] = (struct attr){.id = 2, .data = n};
	m.attr[2] = (struct attr){.id = 7, .len = sizeof(cap), .data = (uintptr_t)cap};
	verb(&m, 4, 0, 3);
	// Its queue.
	if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096L * n) != MAP_FAILED || errno != ENODEV)
		abort();
	// Its end, with room for an answer.
	m.attr[0] = (struct attr){.id = 0, .data = n};
	m.attr[1] = (struct attr){.id = 1, .len = 4, .data = (uintptr_t)cap};
	verb(&m, 4, 1, 2);
	// A write command, and one that opens a file.
	m.attr[0] = (struct attr){.id = 2, .len = 8, .data = 26};
	m.attr[1] = (struct attr){.id = 0, .len = sizeof(cap), .data = (uintptr_t)cap};
	verb(&m, 0, 0, 2);
	m.attr[0].data = 17;
	verb(&m, 0, 0, 2);
	if (n % 8)
		return;
	// These can't be recorded: too much data, too many attributes, unknown ones, invalid
	// pointers, an inconsistent header, no header.
	m.attr[0] = (struct attr){.id = 7, .len = sizeof(big), .data = (uintptr_t)big};
	verb(&m, 4, 0, 1);
	verb(&m, 4, 0, 40);
	m.attr[0].id = 25;
	verb(&m, 4, 0, 1);
	m.attr[0].id = 0x7007;
	verb(&m, 4, 0, 1);
	m.attr[0] = (struct attr){.id = 7, .len = 20, .data = 16};
	verb(&m, 4, 0, 1);
	m.attr[0].data = ~0ULL - 4;
	verb(&m, 4, 0, 1);
	verb(&m, 31, 15, 0);
	verb(&m, 0x1001, 0x1001, 0);
	m.length = 7;
	m.attrs = 2;
	if (ioctl(fd, 0xc0181b01, &m) != -1 || ioctl(fd, 0xc0181b01, NULL) != -1 || ioctl(fd, 0xc0181b01, -1L) != -1)
		abort();
	// At the end of memory.
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(page + 4096, 4096, PROT_NONE);
	m = (struct message){.length = 24 + 32, .object = 4, .method = 1, .attrs = 2, .driver = 14};
	memcpy(page + 4096 - 56, &m, 56);
	ioctl(fd, 0xc0181b01, page + 4096 - 56);
	memcpy(page + 4096 - 40, &m, 40);
	ioctl(fd, 0xc0181b01, page + 4096 - 40);
	munmap(page, 8192);
}

static void calls(void)
{
	for (int i = 0; i < rounds; i++)
		call(i);
}

static void *thread(void *name)
{
	prctl(PR_SET_NAME, name);
	calls();
	return NULL;
}

static void threads(void *(*f)(void *))
{
	pthread_t t[4];
	static char *names[] = {"one", "two", "three", "four"};
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, f, names[i]))
			abort();
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

static void reap(void)
{
	int status;
	while (wait(&status) > 0)
		if (status)
			abort();
}

static void handler(int n)
{
	static int counts;
	int saved = errno;
	struct message m = {0};
	if (counts < rounds) {
		m.attr[0].data = counts++;
		verb(&m, 1, 1, 1);
	}
	errno = saved;
}

// shared returns the address of the memory that is shared with the tracer.
static char *shared(void)
{
	char line[4096];
	void *start = NULL;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "/memfd:ibvtrace"))
			sscanf(line, "%p", &start);
	fclose(maps);
	return start;
}

// descriptors returns the number of open descriptors.
static int descriptors(void)
{
	int n = 0;
	for (int i = 0; i < 64; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static volatile int over;

// scribble is a thread that writes into the shared memory. It spares the pointers through
// which other threads would write anywhere.
static void *scribble(void *arg)
{
	char *start = shared();
	const size_t slots = 36864, slot = 2048;
	while (start && !over) {
		size_t at = rand() % (slots + 64 * slot);
		if (at >= slots && ((at - slots) % slot < 8 || (at - slots) % slot >= 128 && (at - slots) % slot < 544))
			continue;
		start[at] = rand() % 4 ? rand() : rand() % 4;
	}
	return NULL;
}

// refuse installs a filter that kills the process for a recorder's system calls.
static void refuse(int flags)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog))
		abort();
}

static volatile int refused;

// untilRefused is a thread that calls verbs until the filter is installed, and some after.
static void *untilRefused(void *name)
{
	struct message m = {0};
	while (!refused) {
		m.attr[0].data = 1;
		verb(&m, 1, 0, 1);
	}
	return thread(name);
}

static void *refuseSoon(void *arg)
{
	usleep(rand() % 3000);
	refuse(SECCOMP_FILTER_FLAG_TSYNC);
	refused = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	int had = descriptors();
	if (argc != 3 || (fd = open("/dev/null", O_RDWR)) < 0)
		abort();
	char *how = argv[1];
	rounds = atoi(argv[2]);
	if (strcmp(how, "late"))
		call(1); // from here on it is recorded
	if (!strcmp(how, "plain")) {
		calls();
	} else if (!strcmp(how, "nested")) {
		calls();
		if (unshare(CLONE_NEWPID))
			abort();
		if (!fork()) {
			prctl(PR_SET_NAME, "nested");
			calls();
			return 0;
		}
		calls();
		reap();
	} else if (!strcmp(how, "thread") || !strcmp(how, "late")) {
		threads(thread);
	} else if (!strcmp(how, "fork")) {
		for (int i = 0; i < 3; i++)
			if (!fork()) {
				prctl(PR_SET_NAME, (char *[]){"a", "b", "c"}[i]);
				calls();
				close(fd);
				return 0;
			}
		calls();
		reap();
	} else if (!strcmp(how, "vfork")) {
		for (int i = 0; i < 3; i++) {
			calls();
			if (!vfork()) {
				call(7);
				execl("/proc/self/exe", (char *[]){"a", "b", "c"}[i], "plain", argv[2], NULL);
				_exit(1);
			}
			reap();
		}
	} else if (!strcmp(how, "signal")) {
		struct itimerval often = {{0, 300}, {0, 300}};
		signal(SIGALRM, handler);
		setitimer(ITIMER_REAL, &often, NULL);
		calls();
		memset(&often, 0, sizeof(often));
		setitimer(ITIMER_REAL, &often, NULL);
		for (int i = 0; i < rounds; i++)
			handler(0);
	} else if (!strcmp(how, "full")) {
		char c;
		printf("%d\n", getpid());
		fflush(stdout);
		if (read(0, &c, 1) != 1)
			abort();
		calls();
	} else if (!strcmp(how, "scribble")) {
		pthread_t t;
		pthread_create(&t, NULL, scribble, NULL);
		threads(thread);
		over = 1;
		pthread_join(t, NULL);
	} else if (!strcmp(how, "seccomp")) {
		calls();
		refuse(0);
		calls();
	} else if (!strcmp(how, "tsync")) {
		pthread_t t;
		srand(getpid());
		if (pthread_create(&t, NULL, refuseSoon, NULL))
			abort();
		threads(untilRefused);
		pthread_join(t, NULL);
	}
	puts(descriptors() != had + 1 ? "a descriptor too many" : shared() ? "recorded" : "stopped");
	return 0;
}
