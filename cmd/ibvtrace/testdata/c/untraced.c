// untraced HOW: creates a child with CLONE_UNTRACED. HOW is clone, clone3 (with arguments in
// read-only memory) or thread (which shares its memory). The child opens /dev/null and calls
// a verb on it. The program exits with the child's status.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[65536] __attribute__((aligned(16)));
static volatile int status = -1; // of the child, when it is done

static int child(void *arg)
{
	struct {
		uint16_t length, object, method, attrs;
		uint64_t reserved1;
		uint32_t driver, reserved2;
		uint16_t id, len, flags, elem;
		uint64_t handle;
	} m = {.length = sizeof(m), .object = 1, .attrs = 1, .driver = 14, .handle = 1};
	int fd = open("/dev/null", O_RDWR);
	if (fd < 0)
		return status = errno;
	return status = ioctl(fd, 0xc0181b01, &m) != -1 || errno != ENOTTY ? 102 : 0;
}

static const struct clone_args args = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};

int main(int argc, char **argv)
{
	int ws, pid;

	if (!strcmp(argv[1], "clone")) {
		pid = clone(child, stack + sizeof(stack), CLONE_UNTRACED | SIGCHLD, NULL);
	} else if (!strcmp(argv[1], "clone3")) {
		pid = syscall(SYS_clone3, &args, sizeof(args));
		if (!pid)
			_exit(child(NULL));
	} else {
		clone(child, stack + sizeof(stack), CLONE_UNTRACED | CLONE_VM | CLONE_FS | CLONE_FILES |
			CLONE_SIGHAND | CLONE_THREAD, NULL);
		while (status < 0)
			;
		return status;
	}
	if (pid < 0 || waitpid(pid, &ws, 0) != pid || !WIFEXITED(ws))
		return 100;
	if (*(const volatile __u64 *)&args.flags != CLONE_UNTRACED) // volatile, or the compiler knows
		return 101;
	return WEXITSTATUS(ws);
}
