// arrives HOW UVERBS CM N: uses RDMA files in processes to which their descriptors come in some
// way. UVERBS and CM are the paths of a device and of the connection manager. A user calls a verb
// on the device and a command on the connection manager, N times. At the start the program prints
// its PID and waits for a byte on standard input. HOW is
//
//	daemon    N users, each started by a process that ends at once
//	parent    N users, started with CLONE_PARENT
//	killed    up to N users, each started by a thread of a process that ends at that moment
//	recvmsg   a process started before the files are opened; recvmmsg: in two messages
//	getfd     the same, by pidfd_getfd
//	vectors   this process, with pwritev2
//
// At the end it prints the number of users that it started.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int dev = -1, cm = -1, vectors;
static const char *paths[2];

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(1);
	}
}

static void use(void)
{
	struct {
		uint16_t length, object, method, attrs;
		uint64_t reserved1;
		uint32_t driver, reserved2;
		uint16_t id, len, flags, elem;
		uint64_t handle;
	} verb = {.length = sizeof(verb), .object = 1, .attrs = 1, .driver = 14, .handle = 12345};
	uint64_t response = 0;
	struct {
		uint32_t cmd;
		uint16_t in, out;
		uint64_t uid, response;
		uint16_t ps;
		uint8_t type, reserved[5];
	} create = {.in = 24, .out = 4, .response = (uint64_t)(uintptr_t)&response, .ps = 0x106, .type = 2};
	struct iovec v = {&create, sizeof(create)};

	ioctl(dev, 0xc0181b01, &verb); // fails
	// The kernel accepts commands of the opener only.
	if (vectors)
		pwritev2(cm, &v, 1, -1, 0);
	else
		write(cm, &create, sizeof(create));
}

static void openFiles(void)
{
	check((dev = open(paths[0], O_RDWR)) >= 0, paths[0]);
	check((cm = open(paths[1], O_RDWR)) >= 0, paths[1]);
}

static void sendFile(int socket, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	check(sendmsg(socket, &m, 0) == 1, "sendmsg");
}

static void receive(int socket, int mmsg)
{
	char bytes[2], control[2][CMSG_SPACE(sizeof(int))];
	struct iovec v[2] = {{bytes, 1}, {bytes + 1, 1}};
	struct mmsghdr m[2] = {0};
	int i, fds[2];

	for (i = 0; i < 2; i++)
		m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof(control[i])};
	if (mmsg)
		check(recvmmsg(socket, m, 2, MSG_WAITALL, NULL) == 2, "recvmmsg");
	for (i = 0; i < 2; i++) {
		if (!mmsg)
			check(recvmsg(socket, &m[i].msg_hdr, 0) == 1, "recvmsg");
		memcpy(&fds[i], CMSG_DATA(CMSG_FIRSTHDR(&m[i].msg_hdr)), sizeof(int));
	}
	dev = fds[0];
	cm = fds[1];
}

// forks starts a user, which writes a byte to the pipe.
static void *forks(void *alive)
{
	if (!fork()) {
		use();
		write(*(int *)alive, "", 1);
		_exit(0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argv[1];
	int i, n, sockets[2], alive[2], fds[2];
	pid_t pid;
	char byte;

	check(argc == 5, "arguments");
	paths[0] = argv[2];
	paths[1] = argv[3];
	n = atoi(argv[4]);
	printf("%d\n", getpid());
	fflush(stdout);
	check(read(0, &byte, 1) == 1, "read");
	check(!pipe(alive) && !socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), "pipe");
	if (!strcmp(how, "killed")) {
		int users = 0;
		openFiles();
		for (i = 0; i < n; i++) {
			check((pid = fork()) >= 0, "fork");
			if (!pid) {
				pthread_t t;
				check(!pthread_create(&t, NULL, forks, &alive[1]), "pthread_create");
				usleep(rand() % 1000);
				_exit(0);
			}
			rand();
			waitpid(pid, NULL, 0);
		}
		close(alive[1]);
		while (read(alive[0], &byte, 1) == 1)
			users++;
		printf("%d\n", users);
		return 0;
	}
	if (!strcmp(how, "daemon") || !strcmp(how, "parent")) {
		openFiles();
		for (i = 0; i < n; i++) {
			check((pid = fork()) >= 0, "fork");
			if (pid) {
				waitpid(pid, NULL, 0);
				continue;
			}
			if (!strcmp(how, "daemon"))
				pid = fork();
			else
				pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
			check(pid >= 0, "clone");
			if (!pid)
				use();
			_exit(0);
		}
		// Until the last user has ended.
		close(alive[1]);
		read(alive[0], &byte, 1);
		printf("%d\n", n);
		return 0;
	}
	vectors = !strcmp(how, "vectors");
	if (vectors) {
		openFiles();
		for (i = 0; i < n; i++)
			use();
		printf("1\n");
		return 0;
	}
	check((pid = fork()) >= 0, "fork");
	if (!pid) {
		if (!strcmp(how, "getfd")) {
			check(read(sockets[1], fds, sizeof(fds)) == sizeof(fds), "read");
			int parent = syscall(SYS_pidfd_open, getppid(), 0);
			dev = syscall(SYS_pidfd_getfd, parent, fds[0], 0);
			cm = syscall(SYS_pidfd_getfd, parent, fds[1], 0);
		} else {
			receive(sockets[1], !strcmp(how, "recvmmsg"));
		}
		check(dev >= 0 && cm >= 0, "receive");
		for (i = 0; i < n; i++)
			use();
		close(cm);
		_exit(0);
	}
	openFiles();
	if (!strcmp(how, "getfd")) {
		fds[0] = dev;
		fds[1] = cm;
		check(write(sockets[0], fds, sizeof(fds)) == sizeof(fds), "write");
	} else {
		sendFile(sockets[0], dev);
		sendFile(sockets[0], cm);
	}
	check(waitpid(pid, &i, 0) == pid && !i, "the other process");
	printf("1\n");
	return 0;
}
