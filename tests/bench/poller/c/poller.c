// Measures, with libibverbs and libmlx5, what ../main_linux.go measures: round trips of 64 bytes of a
// thread that polls, while another thread allocates and frees. It prints the row's figures.
//
//	c SECONDS [MB/S MIB]
#include "../../mlx5/c/world.h"

#include <pthread.h>
#include <time.h>

static long rate, heap;

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// allocate replaces the objects of the heap, one after the other, at the rate.
static void *allocate(void *arg)
{
	enum { OBJECT = 1024 };
	char **live = arg;
	for (long at = 0;;) {
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		for (long i = 0; i < rate; i++, at++) {
			char **slot = &live[at % (heap << 10)];
			free(*slot);
			memset(*slot = malloc(OBJECT), 1, OBJECT);
		}
	}
	return NULL;
}

// A histogram counts times by their nanoseconds' five binary digits after the first.
enum { STEPS = 32 };
static long counts[60 * STEPS], n;
static int64_t max;

static void add(int64_t ns)
{
	int e = 64 - __builtin_clzll(ns | 1) - 6;
	if (e < 0)
		e = 0;
	counts[e * STEPS + (ns >> e)]++;
	n++;
	if (ns > max)
		max = ns;
}

static double at(double share)
{
	long left = share * n;
	for (int i = 0; i < 60 * STEPS; i++) {
		int e = i / STEPS - 1;
		if (e < 0)
			e = 0;
		if ((left -= counts[i]) < 0)
			return (double)((int64_t)(i - e * STEPS) << e) / 1000;
	}
	return (double)max / 1000;
}

// message sends a message, completes it as the adapter would, and polls until it is there.
static void message(void)
{
	post(w.rc, &w.send);
	ring_complete_sends(&w.rc_player);
	ring_complete_recvs(&w.rc_player, SIZE);
	for (int there = 0; !there;) {
		int got = ibv_poll_cq(w.cq, 4, w.wc);
		check(got < 0);
		for (int i = 0; i < got; i++) {
			check(w.wc[i].status != IBV_WC_SUCCESS);
			if (w.wc[i].opcode == IBV_WC_RECV)
				there = 1;
		}
	}
	post_recv(&w.recv);
}

int main(int argc, char **argv)
{
	int64_t seconds = argc > 1 ? atoi(argv[1]) : 60;
	make_world();
	post_recv(&w.recv);
	if (argc > 3) {
		rate = atol(argv[2]);
		heap = atol(argv[3]);
		char **live = calloc(heap << 10, sizeof *live);
		for (long i = 0; i < heap << 10; i++)
			memset(live[i] = malloc(1024), 1, 1024);
		pthread_t t;
		if (pthread_create(&t, NULL, allocate, live))
			die("thread");
	}
	for (int64_t end = now() + seconds * 1000000000; ;) {
		int64_t start = now();
		message();
		message();
		int64_t stop = now();
		add(stop - start);
		if (stop > end)
			break;
	}
	printf("%.2f | %.2f | %.2f | %.2f | %ld | -\n", at(0.5), at(0.99), at(0.999), (double)max / 1000, n);
	return 0;
}
