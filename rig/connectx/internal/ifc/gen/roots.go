package main

// commands lists the firmware commands whose inboxes and outboxes go into the table.
const commands = `
query_hca_cap set_hca_cap query_adapter init_hca teardown_hca enable_hca disable_hca
query_pages manage_pages query_issi set_issi set_driver_version nop
create_mkey query_mkey destroy_mkey query_special_contexts page_fault_resume
create_eq destroy_eq query_eq
create_cq destroy_cq query_cq modify_cq
create_qp destroy_qp query_qp rst2init_qp init2init_qp init2rtr_qp rtr2rts_qp rts2rts_qp
sqerr2rts_qp sqd2rts_qp qp_2err qp_2rst
create_srq destroy_srq query_srq arm_rq
create_xrc_srq destroy_xrc_srq query_xrc_srq arm_xrc_srq
create_rmp modify_rmp destroy_rmp query_rmp
create_xrq destroy_xrq query_xrq
create_dct destroy_dct drain_dct query_dct
query_vport_state modify_vport_state
query_hca_vport_context modify_hca_vport_context query_hca_vport_gid query_hca_vport_pkey
query_vport_counter alloc_q_counter dealloc_q_counter query_q_counter
alloc_pd dealloc_pd alloc_uar dealloc_uar alloc_xrcd dealloc_xrcd
alloc_transport_domain dealloc_transport_domain
create_sq modify_sq destroy_sq query_sq create_rq modify_rq destroy_rq query_rq
create_tis modify_tis destroy_tis query_tis create_tir modify_tir destroy_tir query_tir
create_rqt modify_rqt destroy_rqt query_rqt
set_flow_table_root create_flow_table modify_flow_table destroy_flow_table
create_flow_group destroy_flow_group set_fte delete_fte
alloc_flow_counter dealloc_flow_counter query_flow_counter
query_nic_vport_context modify_nic_vport_context
set_roce_address query_roce_address
create_uctx destroy_uctx create_umem destroy_umem
set_pp_rate_limit alloc_memic dealloc_memic modify_memic
access_register attach_to_mcg detach_from_mcg mad_ifc query_lag
`

// others lists capabilities, registers and layouts in memory.
const others = `
cmd_hca_cap cmd_hca_cap_2 atomic_caps odp_cap
per_protocol_networking_offload_caps roce_cap flow_table_nic_cap fte_match_param
qos_cap device_mem_cap
cmd_queue_entry cmd_if_box health_buffer
register_host_endianness ptys_reg pmtu_reg pvlc_reg ppcnt_reg paos_reg pfcc_reg
ib_port_cntrs_grp_data_layout
`

// opaque lists unions of layouts, of which the table has only the size, and fields without
// a layout of their own.
const opaque = `
hca_cap_union ppcnt_reg_counter_set_auto eth_cntrs_grp_data_layout_auto
ipv6_layout_ipv4_layout_auto gre_key
`
