// idle ADDRESS PORT: accepts connections of librdmacm's rsockets, says so, and leaves them as they are. The
// library is loaded by hand, because its headers may not be installed.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static void *librdmacm;

static void *function(const char *name)
{
	void *f = dlsym(librdmacm, name);

	if (!f)
		errx(1, "%s", dlerror());
	return f;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: idle ADDRESS PORT");
	librdmacm = dlopen("librdmacm.so.1", RTLD_NOW);
	if (!librdmacm)
		errx(1, "%s", dlerror());
	int (*rsocket)(int, int, int) = function("rsocket");
	int (*rbind)(int, const struct sockaddr *, socklen_t) = function("rbind");
	int (*rlisten)(int, int) = function("rlisten");
	int (*raccept)(int, struct sockaddr *, socklen_t *) = function("raccept");
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[2])) };

	if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
		errx(2, "%s is no address", argv[1]);
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || rbind(listener, (struct sockaddr *)&address, sizeof address) || rlisten(listener, 1000))
		err(1, "listening");
	for (;;) {
		if (raccept(listener, NULL, NULL) < 0)
			err(1, "raccept");
		puts("accepted");
		fflush(stdout);
	}
}
