// Measures the cost of posts and polls with libibverbs and libmlx5. It prints a line for
// each operation, with the median of many batches' nanoseconds per operation.
//
//	c [BATCHES | -count]
//
// -count is for ../counted: for each operation its name, and two batches of which the
// second one is marked.
#include "world.h"

#include <immintrin.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void post_inline(void) { post(w.rc, &w.write_inline); }
static void post_write(void) { post(w.rc, &w.write); }
static void post_write_anew(void) { post_anew(w.produced); }
static void post_send(void) { post(w.rc, &w.send); }
static void post_ud(void) { post(w.ud, &w.ud_send); }
static void post_list(void) { post(w.rc, w.list); }
static void wr_one(void) { wr_write(1); }
static void wr_many(void) { wr_write(LIST); }
static void recv_one(void) { post_recv(&w.recv); }
static void recv_list(void) { post_recv(w.recv_list); }
static void poll_one(void) { poll(1); }
static void poll_many(void) { poll(LIST); }
static void empty_poll(void) { check(ibv_poll_cq(w.cq, 1, w.wc) != 0); }

// The floor: the bytes of one WQE, the doorbell record, the fences, and the
// copy to a register, without any library.
static uint64_t ring[64 * 8] __attribute__((aligned(4096))), uar[1024] __attribute__((aligned(4096)));
static uint32_t record[16] __attribute__((aligned(64)));
static uint16_t block;

static inline void floor_wqe(uint64_t *wqe)
{
	wqe[0] = htobe64((uint64_t)(block << 8 | 8) << 32 | 0x100 << 8 | 3);
	wqe[1] = htobe64(8);
	wqe[2] = htobe64((uintptr_t)w.data);
	wqe[3] = htobe64((uint64_t)w.mr->rkey << 32);
	wqe[4] = htobe64((uint64_t)SIZE << 32 | w.mr->lkey);
	wqe[5] = htobe64((uintptr_t)w.data);
	block++;
}

static void floor_post(void)
{
	uint64_t *wqe = &ring[(block & 63) * 8];
	floor_wqe(wqe);
	__asm__ volatile("" ::: "memory");
	*(volatile uint32_t *)&record[1] = htobe32(block);
	_mm_sfence();
	volatile uint64_t *reg = &uar[256 + (block & 1) * 32];
	for (int i = 0; i < 8; i++)
		reg[i] = wqe[i];
	_mm_sfence();
}

static int counting;

// mark marks a point of a batch, for ../counted.
static void mark(void) { syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1); }

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

#include "threads.h"

// drain completes the posted requests and polls the completions.
static void drain(struct ring_player *p)
{
	int n = ring_complete_sends(p) + ring_complete_recvs(p, SIZE);
	for (int m; n > 0; n -= m)
		check((m = ibv_poll_cq(w.cq, LIST, w.wc)) < 1);
}

static void fill(void)
{
	for (int i = 0; i < BATCH / LIST; i++)
		post_list();
	ring_complete_sends(&w.rc_player);
}

// measure runs batches of BATCH operations. Each call of op does `each` of them.
static inline __attribute__((always_inline)) void
measure(const char *name, int batches, int each, struct ring_player *player, int polls, void (*op)(void))
{
	double *ns = malloc(batches * sizeof *ns);
	for (int i = 0; i < batches; i++) {
		if (polls)
			fill();
		int marks = counting && i == batches - 1;
		uint64_t start = now();
		if (marks) {
			mark();
			mark();
		}
		for (int j = 0; j < BATCH; j += each)
			op();
		if (marks)
			mark();
		ns[i] = (double)(now() - start) / BATCH;
		if (player)
			drain(player);
	}
	qsort(ns, batches, sizeof *ns, compare);
	printf("%s\t%.2f\n", name, ns[batches / 2]);
	free(ns);
}

int main(int argc, char **argv)
{
	counting = argc > 1 && !strcmp(argv[1], "-count");
	int batches = counting ? 2 : argc > 1 ? atoi(argv[1]) : 2000;
	make_world();
	measure("RC write, inline 64 B", batches, 1, &w.rc_player, 0, post_inline);
	measure("RC write, 1 SGE", batches, 1, &w.rc_player, 0, post_write);
	measure("RC write, 1 SGE, made anew", batches, 1, &w.rc_player, 0, post_write_anew);
	measure("RC send, 1 SGE", batches, 1, &w.rc_player, 0, post_send);
	measure("UD send, 1 SGE", batches, 1, &w.ud_player, 0, post_ud);
	measure("list of 16 RC writes, each", batches, LIST, &w.rc_player, 0, post_list);
	measure("builder, 1 RC write", batches, 1, &w.wr_player, 0, wr_one);
	measure("builder, 16 RC writes, each", batches, LIST, &w.wr_player, 0, wr_many);
	measure("receive, 1 SGE", batches, 1, &w.rc_player, 0, recv_one);
	measure("list of 16 receives, each", batches, LIST, &w.rc_player, 0, recv_list);
	measure("poll of 1", batches, 1, NULL, 1, poll_one);
	measure("poll of 16, each", batches, LIST, NULL, 1, poll_many);
	measure("empty poll", batches, 1, NULL, 0, empty_poll);
	if (!counting && !getenv("MLX5_SINGLE_THREADED")) {
		int rounds = batches > 1 ? batches / 2 : 1;
		crowd_make();
		crowd_measure("64 QPs, 16 threads: RC write, 1 SGE", rounds, MANY_QPS, &w.write);
		crowd_measure("64 QPs, 16 threads: RC write, inline 64 B", rounds, MANY_QPS, &w.write_inline);
		crowd_measure("1 QP, 16 threads: RC write, 1 SGE", rounds, 1, &w.write);
	}
	if (!counting)
		measure("floor: 1 SGE, no library", batches, 1, NULL, 0, floor_post);
	return 0;
}
