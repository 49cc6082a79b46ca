// Posting by many threads at once: on queue pairs of their own, which are more
// than a process has doorbell registers, and on one that all share.
#pragma once
#include <pthread.h>
#include <time.h>

enum { THREADS = 16, MANY_QPS = 64, DEEP = 2048 };

static struct crowd {
	struct ibv_qp *qps[MANY_QPS];
	struct ring_player players[MANY_QPS];
	uint32_t produced[MANY_QPS];
	struct ibv_cq *cqs[MANY_QPS];
	struct ibv_send_wr wr, last; // the last of a batch completes, for all
	int n_qps, each; // posts of each thread to each of its QPs
	int rounds;
	pthread_barrier_t barrier;
} crowd;

// crowd_posts has a thread post to its QPs: every sixteenth, or the only one.
static void crowd_posts(int thread)
{
	for (int q = crowd.n_qps == 1 ? 0 : thread; q < crowd.n_qps; q += THREADS) {
		for (int i = 1; i < crowd.each; i++)
			post(crowd.qps[q], &crowd.wr);
		post(crowd.qps[q], &crowd.last);
		if (crowd.n_qps == 1)
			return;
	}
}

static void *crowd_thread(void *arg)
{
	for (int i = 0; i < crowd.rounds; i++) {
		pthread_barrier_wait(&crowd.barrier);
		crowd_posts((int)(intptr_t)arg);
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
	double *ns = malloc(rounds * sizeof *ns);
	crowd.n_qps = n_qps;
	crowd.each = n_qps == 1 ? DEEP / THREADS : DEEP;
	crowd.rounds = rounds;
	crowd.wr = crowd.last = *wr;
	crowd.wr.send_flags &= ~IBV_SEND_SIGNALED;
	pthread_barrier_init(&crowd.barrier, NULL, THREADS + 1);
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, crowd_thread, (void *)i);
	for (int i = 0; i < rounds; i++) {
		uint64_t start = now();
		pthread_barrier_wait(&crowd.barrier);
		pthread_barrier_wait(&crowd.barrier);
		ns[i] = (double)(now() - start) / (n_qps == 1 ? DEEP : DEEP * n_qps);
		crowd_drain();
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	qsort(ns, rounds, sizeof *ns, compare);
	printf("%s\t%.2f\n", name, ns[rounds / 2]);
	free(ns);
}

static void crowd_make(void)
{
	struct ibv_cq *shared = w.cq;
	for (int i = 0; i < MANY_QPS; i++) {
		if (!(crowd.cqs[i] = w.cq = ibv_create_cq(w.ctx, 2 * THREADS - 1, NULL, NULL, 0)))
			die("CQ");
		crowd.qps[i] = make_qp(IBV_QPT_RC, DEEP, 0, &crowd.players[i]);
		crowd.players[i].produced = &crowd.produced[i];
	}
	w.cq = shared;
}
