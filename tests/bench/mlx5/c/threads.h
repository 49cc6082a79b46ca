// Measures posting by many threads at once: on their own queue pairs, of which there are
// more than a process has doorbell registers, and on one that all share. It measures each
// thread's processor time, because the elapsed time depends on the scheduler.
#pragma once
#include <pthread.h>
#include <time.h>

enum { THREADS = 16, MANY_QPS = 64, SHARE = 32 };

static struct crowd {
	struct ibv_qp *qps[MANY_QPS];
	struct ring_player players[MANY_QPS];
	uint32_t produced[MANY_QPS];
	struct ibv_cq *cqs[MANY_QPS];
	struct ibv_send_wr wr, last; // only the last one of a batch is signaled
	int n_qps, rounds;
	double *ns; // of each thread in each round, for a post
	pthread_barrier_t barrier;
} crowd;

static uint64_t used(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

// crowd_posts posts to a thread's QPs: every sixteenth QP, or the only one.
static int crowd_posts(int thread)
{
	int posts = 0;
	for (int q = thread; q < crowd.n_qps || q == thread; q += THREADS) {
		struct ibv_qp *qp = crowd.qps[crowd.n_qps == 1 ? 0 : q];
		for (int i = 1; i < SHARE; i++)
			post(qp, &crowd.wr);
		post(qp, &crowd.last);
		posts += SHARE;
	}
	return posts;
}

static void *crowd_thread(void *arg)
{
	int thread = (int)(intptr_t)arg;
	for (int i = 0; i < crowd.rounds; i++) {
		pthread_barrier_wait(&crowd.barrier);
		uint64_t start = used();
		int posts = crowd_posts(thread);
		crowd.ns[i * THREADS + thread] = (double)(used() - start) / posts;
		pthread_barrier_wait(&crowd.barrier);
	}
	return NULL;
}

static void crowd_drain(void)
{
	struct ibv_wc wc[LIST];
	for (int q = 0; q < crowd.n_qps; q++) {
		int n = ring_complete_sends(&crowd.players[q]);
		for (int m; n > 0; n -= m)
			check((m = ibv_poll_cq(crowd.cqs[q], LIST, wc)) < 1);
	}
}

static void crowd_measure(const char *name, int rounds, int n_qps, const struct ibv_send_wr *wr)
{
	pthread_t threads[THREADS];
	crowd.ns = malloc(rounds * THREADS * sizeof *crowd.ns);
	crowd.n_qps = n_qps;
	crowd.rounds = rounds;
	crowd.wr = crowd.last = *wr;
	crowd.wr.send_flags &= ~IBV_SEND_SIGNALED;
	pthread_barrier_init(&crowd.barrier, NULL, THREADS + 1);
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, crowd_thread, (void *)i);
	for (int i = 0; i < rounds; i++) {
		pthread_barrier_wait(&crowd.barrier);
		pthread_barrier_wait(&crowd.barrier);
		crowd_drain();
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	qsort(crowd.ns, rounds * THREADS, sizeof *crowd.ns, compare);
	printf("%s\t%.2f\n", name, crowd.ns[rounds * THREADS / 2]);
	free(crowd.ns);
}

static void crowd_make(void)
{
	struct ibv_cq *shared = w.cq;
	for (int i = 0; i < MANY_QPS; i++) {
		// The first QP is also the shared one.
		uint32_t depth = i == 0 ? THREADS * SHARE : 2 * SHARE;
		if (!(crowd.cqs[i] = w.cq = ibv_create_cq(w.ctx, 2 * THREADS - 1, NULL, NULL, 0)))
			die("CQ");
		crowd.qps[i] = make_qp(IBV_QPT_RC, depth, 0, &crowd.players[i]);
		crowd.players[i].produced = &crowd.produced[i];
	}
	w.cq = shared;
}
