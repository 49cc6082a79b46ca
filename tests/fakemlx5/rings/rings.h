// Emulates the hardware of a fake mlx5 device, in the program that uses the device:
// package rings for C.
#pragma once
#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { RING_CQ = 1, RING_QP, RING_SRQ };
enum { RING_FIRST_UAR = 16 };
#define RING_NO_UAR UINT32_MAX

struct ring_queue {
	uint32_t kind, number, user_index, stride;
	uint64_t buf, db, recv;
	uint32_t len, recv_len, recv_stride, flags, uar, reserved;
};

struct ring_player {
	struct ring_queue qp, cq;
	uint16_t sent, received;
	uint32_t srqn; // the QP's SRQ, or 0
	uint32_t *produced; // the CQ's next entry
};

// ring_last returns the program's last queue of a kind. fd is the context's cmd_fd.
static inline struct ring_queue ring_last(int fd, uint32_t kind)
{
	struct ring_queue q = { .kind = kind };
	if (ioctl(fd, 0x4d358000, &q)) {
		perror("no fake device");
		exit(1);
	}
	return q;
}

// ring_user_index returns the srqn field of a QP's entry: the user index or, in version 0,
// the number of a receive's SRQ. It is undefined for others in version 0.
static inline uint32_t ring_user_index(const struct ring_player *p, int received)
{
	if (p->qp.user_index != 0xffffff)
		return p->qp.user_index;
	return received ? p->srqn : 0x5a5a5a;
}

static inline void ring_complete(struct ring_player *p, uint8_t op, uint16_t counter, uint32_t size,
				 uint8_t wqe_opcode)
{
	uint32_t i = (*p->produced)++;
	uint8_t *e = (uint8_t *)(uintptr_t)p->cq.buf + (uint64_t)(i % p->cq.len + 1) * p->cq.stride - 64;
	uint32_t *words = (uint32_t *)e;

	memset(e, 0, 63);
	words[8] = htobe32(ring_user_index(p, op == 2));
	words[11] = htobe32(size);
	words[14] = htobe32((uint32_t)wqe_opcode << 24 | p->qp.number);
	uint32_t last = htobe32((uint32_t)counter << 16 | op << 4 | !!(i & p->cq.len));
	__atomic_store_n(&words[15], last, __ATOMIC_RELEASE);
}

// ring_complete_sends completes all posted sends.
static inline int ring_complete_sends(struct ring_player *p)
{
	uint32_t *db = (uint32_t *)(uintptr_t)p->qp.db;
	uint16_t posted = be32toh(__atomic_load_n(&db[1], __ATOMIC_ACQUIRE));
	int n = 0;

	while (p->sent != posted) {
		uint8_t *ctrl = (uint8_t *)(uintptr_t)p->qp.buf + (p->sent & (p->qp.len - 1)) * 64;
		uint32_t head = be32toh(((uint32_t *)ctrl)[0]), qpn_ds = be32toh(((uint32_t *)ctrl)[1]);
		uint32_t size = (qpn_ds & 0x3f) * 16;

		if ((uint16_t)(head >> 8) != p->sent || qpn_ds >> 8 != p->qp.number || !size) {
			fprintf(stderr, "block %u: head %#x, QPN and size %#x\n", p->sent, head, qpn_ds);
			abort();
		}
		if ((ctrl[11] & 3 << 2) == 2 << 2) {
			ring_complete(p, 0, p->sent, 0, head);
			n++;
		}
		p->sent += (size + 63) / 64;
	}
	return n;
}

// ring_complete_recvs completes all posted receives with messages of size bytes.
static inline int ring_complete_recvs(struct ring_player *p, uint32_t size)
{
	uint32_t *db = (uint32_t *)(uintptr_t)p->qp.db;
	uint16_t posted = be32toh(__atomic_load_n(&db[0], __ATOMIC_ACQUIRE));
	int n = 0;

	for (; p->received != posted; p->received++, n++)
		ring_complete(p, 2, p->received, size, 0);
	return n;
}
