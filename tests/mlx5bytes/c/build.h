// Posts with ibv_wr_* calls, one operation after the other. Operations for which libmlx5
// has no verb (masked atomics, NOP) are posted as raw WQEs.
#pragma once
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <string.h>

// The script's own opcodes, after those of enum ibv_uverbs_wr_opcode.
enum { OP_MASKED_CS = 12, OP_MASKED_FA = 13, OP_NOP = 16 };

struct build_extra {
	struct ibv_ah *ah;
	uint32_t qpn, qkey;
	uint64_t dc_key, compare_mask, swap_mask;
	uint16_t dc_stream;
};

static int has_no_verb(unsigned opcode)
{
	return opcode == OP_MASKED_CS || opcode == OP_MASKED_FA || opcode == OP_NOP;
}

static void build_raw(struct mlx5dv_qp_ex *dv, struct ibv_qp *qp, struct ibv_send_wr *wr, struct build_extra *x)
{
	struct {
		struct mlx5_wqe_ctrl_seg ctrl;
		struct mlx5_wqe_raddr_seg remote;
		struct mlx5_wqe_atomic_seg operands, masks;
		struct mlx5_wqe_data_seg data;
	} wqe = { 0 };
	void *end = &wqe.operands;
	uint8_t opcode = MLX5_OPCODE_NOP, modifier = 0, flags = 0;

	if (wr->send_flags & IBV_SEND_FENCE)
		flags |= MLX5_WQE_CTRL_FENCE;
	if (wr->send_flags & IBV_SEND_SIGNALED)
		flags |= MLX5_WQE_CTRL_CQ_UPDATE;
	if (wr->send_flags & IBV_SEND_SOLICITED)
		flags |= MLX5_WQE_CTRL_SOLICITED;
	wqe.remote.raddr = htobe64(wr->wr.atomic.remote_addr);
	wqe.remote.rkey = htobe32(wr->wr.atomic.rkey);
	switch ((int)wr->opcode) {
	case OP_NOP:
		end = &wqe.remote;
		break;
	case OP_MASKED_CS:
		opcode = MLX5_OPCODE_ATOMIC_MASKED_CS;
		wqe.operands.swap_add = htobe64(wr->wr.atomic.swap);
		wqe.operands.compare = htobe64(wr->wr.atomic.compare_add);
		wqe.masks.swap_add = htobe64(x->swap_mask);
		wqe.masks.compare = htobe64(x->compare_mask);
		end = &wqe.data;
		break;
	case OP_MASKED_FA:
		opcode = MLX5_OPCODE_ATOMIC_MASKED_FA;
		wqe.operands.swap_add = htobe64(wr->wr.atomic.compare_add);
		wqe.operands.compare = htobe64(x->compare_mask); // the boundaries of the fields
		end = &wqe.masks;
		break;
	}
	if (opcode != MLX5_OPCODE_NOP) {
		modifier = 8 | 1; // extended, of 8 bytes
		mlx5dv_set_data_seg(end, 8, wr->sg_list[0].lkey, wr->sg_list[0].addr);
		end += sizeof wqe.data;
	}
	mlx5dv_set_ctrl_seg(&wqe.ctrl, 0, opcode, modifier, qp->qp_num, flags, (end - (void *)&wqe) / 16, 0, 0);
	mlx5dv_wr_raw_wqe(dv, &wqe);
}

static void build_data(struct ibv_qp_ex *ex, struct ibv_send_wr *wr)
{
	struct ibv_data_buf bufs[32];

	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if (wr->num_sge == 1)
			ibv_wr_set_sge(ex, wr->sg_list[0].lkey, wr->sg_list[0].addr, wr->sg_list[0].length);
		else
			ibv_wr_set_sge_list(ex, wr->num_sge, wr->sg_list);
		return;
	}
	if (wr->num_sge == 1) {
		ibv_wr_set_inline_data(ex, (void *)(uintptr_t)wr->sg_list[0].addr, wr->sg_list[0].length);
		return;
	}
	for (int i = 0; i < wr->num_sge; i++)
		bufs[i] = (struct ibv_data_buf){ (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length };
	ibv_wr_set_inline_data_list(ex, wr->num_sge, bufs);
}

static void build_one(struct ibv_qp *qp, unsigned type, struct ibv_send_wr *wr, struct build_extra *x)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	uint64_t addr = wr->wr.rdma.remote_addr;
	uint32_t rkey = wr->wr.rdma.rkey;

	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags & ~IBV_SEND_INLINE;
	switch ((int)wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(ex, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(ex, wr->invalidate_rkey);
		break;
	case IBV_WR_TSO:
		ibv_wr_send_tso(ex, wr->tso.hdr, wr->tso.hdr_sz, wr->tso.mss);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, rkey, addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, rkey, addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, rkey, addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add,
				      wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(ex, wr->invalidate_rkey);
		return;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(ex, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		return;
	default:
		build_raw(dv, qp, wr, x);
		return;
	}
	if (type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(ex, x->ah, x->qpn, x->qkey);
	else if (type == IBV_QPT_XRC_SEND)
		ibv_wr_set_xrc_srqn(ex, x->qpn);
	else if (type == IBV_QPT_DRIVER)
		mlx5dv_wr_set_dc_addr_stream(dv, x->ah, x->qpn, x->dc_key, x->dc_stream);
	build_data(ex, wr);
}

static struct ibv_qp_init_attr_ex extended(struct ibv_pd *pd, struct ibv_qp_init_attr *init, int tso_header)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = init->send_cq, .recv_cq = init->recv_cq, .srq = init->srq, .cap = init->cap,
		.qp_type = init->qp_type, .sq_sig_all = init->sq_sig_all, .pd = pd, .max_tso_header = tso_header,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (tso_header ? IBV_QP_INIT_ATTR_MAX_TSO_HEADER : 0),
	};
}

// segmenting_qp creates a QP with TSO.
static struct ibv_qp *segmenting_qp(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_qp_init_attr *init, int tso_header)
{
	struct ibv_qp_init_attr_ex ex = extended(pd, init, tso_header);
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &ex);
	init->cap = ex.cap;
	return qp;
}

// build_qp creates a QP for ibv_wr_* calls.
static struct ibv_qp *build_qp(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_qp_init_attr *init, int tso_header)
{
	struct ibv_qp_init_attr_ex ex = extended(pd, init, tso_header);
	ex.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = IBV_QP_EX_WITH_SEND;
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS, .send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE,
	};
	// Request all operations, because the maximum WQE length depends on them.
	const uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM, connected = send |
		IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
		memory = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW,
		reliable = connected | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	switch ((int)init->qp_type) {
	case IBV_QPT_UD:
		ex.send_ops_flags = send;
		break;
	case IBV_QPT_UC:
		ex.send_ops_flags = connected | memory;
		break;
	case IBV_QPT_RAW_PACKET:
		ex.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
		break;
	case IBV_QPT_DRIVER:
		ex.send_ops_flags = reliable | memory;
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		break;
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		ex.send_ops_flags = reliable | memory;
	}
	struct ibv_qp *qp = mlx5dv_create_qp(ctx, &ex, &dv);
	init->cap = ex.cap;
	return qp;
}
