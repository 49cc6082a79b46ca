// legacy DEVICE-NODE: issues verbs with write(), as libraries did before verbs had
// ioctls.
#include <rdma/ib_user_verbs.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fd;

static void give(uint32_t command, void *req, size_t size, size_t resp)
{
	char buffer[512];
	struct ib_uverbs_cmd_hdr hdr = {command, (sizeof(hdr) + size) / 4, resp / 4};

	memcpy(buffer, &hdr, sizeof(hdr));
	memcpy(buffer + sizeof(hdr), req, size);
	if (write(fd, buffer, sizeof(hdr) + size) != (ssize_t)(sizeof(hdr) + size)) {
		perror("write");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static char memory[4096] __attribute__((aligned(4096)));
	struct ib_uverbs_get_context_resp context;
	struct ib_uverbs_get_context get = {.response = (uintptr_t)&context};
	struct ib_uverbs_alloc_pd_resp pd;
	struct ib_uverbs_alloc_pd alloc = {.response = (uintptr_t)&pd};
	struct ib_uverbs_reg_mr_resp mr;
	struct ib_uverbs_reg_mr reg = {.response = (uintptr_t)&mr, .start = (uintptr_t)memory, .length = 4096,
		.hca_va = (uintptr_t)memory, .access_flags = 1};

	if (argc != 2 || (fd = open(argv[1], O_RDWR)) < 0) {
		perror("open");
		return 1;
	}
	give(IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get), sizeof(context));
	give(IB_USER_VERBS_CMD_ALLOC_PD, &alloc, sizeof(alloc), sizeof(pd));
	reg.pd_handle = pd.pd_handle;
	give(IB_USER_VERBS_CMD_REG_MR, &reg, sizeof(reg), sizeof(mr));
	struct ib_uverbs_dereg_mr dereg = {mr.mr_handle};
	give(IB_USER_VERBS_CMD_DEREG_MR, &dereg, sizeof(dereg), 0);
	struct ib_uverbs_dealloc_pd dealloc = {pd.pd_handle};
	give(IB_USER_VERBS_CMD_DEALLOC_PD, &dealloc, sizeof(dealloc), 0);
	// A command with the second header.
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_ex_cmd_hdr ex;
		struct ib_uverbs_ex_query_device query;
	} ex = {
		{IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, 1, sizeof(struct ib_uverbs_ex_query_device_resp) / 8},
		{0}, {0},
	};
	static struct ib_uverbs_ex_query_device_resp device;
	ex.ex.response = (uintptr_t)&device;
	if (write(fd, &ex, sizeof(ex)) != sizeof(ex)) {
		perror("query_device_ex");
		return 1;
	}
	printf("%u %u %u %u %llu\n", context.async_fd, pd.pd_handle, mr.mr_handle, mr.lkey, (unsigned long long)device.base.max_mr_size);
	close(context.async_fd);
	close(fd);
	return 0;
}
