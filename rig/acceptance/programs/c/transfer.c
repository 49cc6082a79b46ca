/*
 * transfer DEVICE DEVICE send|write|read MIB: transfers data from one device to the
 * other over an RC connection, in messages of 1 MiB, and checks every byte.
 */
#include <inttypes.h>
#include <time.h>
#include "pair.h"

/* Word i of message n. Each word differs from all others. */
static uint64_t word(uint64_t n, int i)
{
	return (n * (MESSAGE / 8) + i) * 0x9e3779b97f4a7c15u;
}

static void fill(uint64_t *b, uint64_t n)
{
	for (int i = 0; i < MESSAGE / 8; i++)
		b[i] = word(n, i);
}

static void check(const uint64_t *b, uint64_t n)
{
	for (int i = 0; i < MESSAGE / 8; i++) {
		if (b[i] != word(n, i)) {
			fprintf(stderr, "message %" PRIu64 ": invalid data at %d: %#" PRIx64 ", not %#" PRIx64 "\n",
				n, 8 * i, b[i], word(n, i));
			exit(1);
		}
	}
}

/* Completions come in order, so the next one must be that of message n. */
static void wait_for(struct side *s, uint64_t n, const char *who)
{
	struct ibv_wc wc;
	int got;

	while (!(got = ibv_poll_cq(s->cq, 1, &wc)))
		;
	if (got < 0 || wc.status != IBV_WC_SUCCESS || wc.wr_id != n) {
		fprintf(stderr, "%s, message %" PRIu64 ": %s (vendor %#x), completion of %" PRIu64 "\n",
			who, n, ibv_wc_status_str(wc.status), wc.vendor_err, wc.wr_id);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct side a = {}, b = {};

	if (argc != 5) {
		fprintf(stderr, "usage: transfer DEVICE DEVICE send|write|read MIB\n");
		return 2;
	}
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	connect_side(&a, &b);
	connect_side(&b, &a);
	int receives = strcmp(argv[3], "read");
	enum ibv_wr_opcode op = opcode(argv[3]);
	uint64_t total = strtoull(argv[4], NULL, 0), posted = 0, done = 0;
	struct timespec start, end;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (done < total) {
		for (; posted < total && posted < done + DEPTH; posted++) {
			uint64_t *from = (receives ? a.buf : b.buf) + posted % DEPTH * (MESSAGE / 8);

			fill(from, posted);
			if (receives)
				post_recv(&b, posted, MESSAGE);
			post_send(&a, &b, posted, op, MESSAGE);
		}
		wait_for(&a, done, "requester");
		if (receives)
			wait_for(&b, done, "responder");
		check((receives ? b.buf : a.buf) + done % DEPTH * (MESSAGE / 8), done);
		done++;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%s: %" PRIu64 " MiB intact in %.1f s\n", argv[3], total,
	       end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) * 1e-9);
	return 0;
}
