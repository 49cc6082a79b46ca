// idle ADDRESS PORT N: makes N connections by rsockets, and prints how much memory this process has, in KiB.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// As in rdma/rsocket.h, which is in a package that nothing else here needs.
int rsocket(int domain, int type, int protocol);
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen);

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
	inet_pton(AF_INET, argv[1], &addr.sin_addr);
	for (int i = 0; i < atoi(argv[3]); i++) {
		int s = rsocket(AF_INET, SOCK_STREAM, 0);
		if (s < 0 || rconnect(s, (struct sockaddr *)&addr, sizeof addr)) {
			perror("connect");
			return 1;
		}
	}
	long size, resident;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2)
		return 1;
	printf("%ld\n", resident * (sysconf(_SC_PAGESIZE) / 1024));
	return 0;
}
