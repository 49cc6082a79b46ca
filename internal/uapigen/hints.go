package main

// What the headers don't tell.

// anonymousEnums names enums without a tag, by their first constant.
var anonymousEnums = map[string]string{
	"UVERBS_ATTR_F_MANDATORY":    "uverbs_attr_flags",
	"RXE_NETWORK_TYPE_IPV4":      "rxe_network_type",
	"MLX5_QP_FLAG_SIGNATURE":     "mlx5_qp_flags",
	"MLX5_SRQ_FLAG_SIGNATURE":    "mlx5_srq_flags",
	"MLX5_WQ_FLAG_SIGNATURE":     "mlx5_wq_flags",
	"IB_PATH_GMP":                "ib_path_flags",
	"RDMA_USER_CM_CMD_CREATE_ID": "rdma_user_cm_cmd",
	"RDMA_USER_CM_QUERY_ADDR":    "rdma_user_cm_query",

	"MLX5_USER_ALLOC_UCONTEXT_FLOW_ACTION_FLAGS_ESP_AES_GCM": "mlx5_user_alloc_ucontext_flow_action_flags",

	"RDMA_MC_JOIN_FLAG_FULLMEMBER":    "rdma_mc_join",
	"RDMA_OPTION_ID":                  "rdma_option_level",
	"RDMA_USER_CM_IB_SERVICE_FLAG_ID": "rdma_user_cm_ib_service_flags",
}

// describedIdentifiers are the identifiers that also occur as values.
var describedIdentifiers = map[string]bool{
	"uverbs_default_objects": true,
	"mlx5_ib_objects":        true,
	"ib_uverbs_write_cmds":   true,
}

// enumPrefixes gives the prefix of enums whose constants don't show it, because
// there is only one or because one is the other's prefix.
var enumPrefixes = map[string]string{
	"ib_uverbs_wq_type":                                "IB_UVERBS_WQT_",
	"ib_uverbs_query_port_flags":                       "IB_UVERBS_QPF_",
	"ib_uverbs_flow_action_esp_keymat":                 "IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_",
	"ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo": "IB_UVERBS_FLOW_ACTION_IV_ALGO_",
	"ib_uverbs_read_counters_flags":                    "IB_UVERBS_READ_COUNTERS_",
	"ib_uverbs_advise_mr_flag":                         "IB_UVERBS_ADVISE_MR_FLAG_",
	"ib_uverbs_advise_mr_advice":                       "IB_UVERBS_ADVISE_MR_ADVICE_",
	"ib_uverbs_create_qp_mask":                         "IB_UVERBS_CREATE_QP_MASK_",
	"mlx5_srq_flags":                                   "MLX5_SRQ_FLAG_",
	"mlx5_wq_flags":                                    "MLX5_WQ_FLAG_",
	"mlx5_ib_alloc_uctx_v2_flags":                      "MLX5_IB_ALLOC_UCTX_",
	"mlx5_ib_packet_pacing_cap_flags":                  "MLX5_IB_PP_",
	"mlx5_rx_hash_function_flags":                      "MLX5_RX_HASH_FUNC_",
	"mlx5_ib_create_wq_mask":                           "MLX5_IB_CREATE_WQ_",
	"mlx5_ib_modify_qp_mask":                           "MLX5_IB_MODIFY_QP_",
	"mlx5_ib_uapi_flow_action_flags":                   "MLX5_IB_UAPI_FLOW_ACTION_FLAGS_",
	"mlx5_ib_uapi_reg_dmabuf_flags":                    "MLX5_IB_UAPI_REG_DMABUF_ACCESS_",
	"mlx5_ib_uapi_devx_create_event_channel_flags":     "MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_",
	"mlx5_ib_uapi_pp_alloc_flags":                      "MLX5_IB_UAPI_PP_ALLOC_FLAGS_",
	"mlx5_ib_uapi_var_alloc_flags":                     "MLX5_IB_UAPI_VAR_ALLOC_FLAG_",
	"mlx5_ib_sw_parsing_offloads":                      "MLX5_IB_",
	"ib_tm_cap_flags":                                  "IB_TM_CAP_",
}

// enumAliases are enums of the kernel that its userspace headers have under
// another name.
var enumAliases = map[string]string{
	"ib_access_flags": "ib_uverbs_access_flags",
	"ib_wq_type":      "ib_uverbs_wq_type",
}

// verbs are the names of methods and commands in libibverbs without "ibv_". What is
// missing here is the constant's name in lower case.
var verbs = map[string]string{
	"UVERBS_METHOD_QUERY_GID_ENTRY":     "query_gid_ex",
	"UVERBS_METHOD_CQ_CREATE":           "create_cq",
	"UVERBS_METHOD_CQ_DESTROY":          "destroy_cq",
	"UVERBS_METHOD_QP_CREATE":           "create_qp",
	"UVERBS_METHOD_QP_DESTROY":          "destroy_qp",
	"UVERBS_METHOD_SRQ_CREATE":          "create_srq",
	"UVERBS_METHOD_SRQ_DESTROY":         "destroy_srq",
	"UVERBS_METHOD_WQ_CREATE":           "create_wq",
	"UVERBS_METHOD_WQ_DESTROY":          "destroy_wq",
	"UVERBS_METHOD_PD_DESTROY":          "dealloc_pd",
	"UVERBS_METHOD_MW_DESTROY":          "dealloc_mw",
	"UVERBS_METHOD_XRCD_DESTROY":        "close_xrcd",
	"UVERBS_METHOD_AH_DESTROY":          "destroy_ah",
	"UVERBS_METHOD_RWQ_IND_TBL_DESTROY": "destroy_rwq_ind_table",
	"UVERBS_METHOD_FLOW_DESTROY":        "destroy_flow",
	"UVERBS_METHOD_FLOW_ACTION_DESTROY": "destroy_flow_action",
	"UVERBS_METHOD_DM_ALLOC":            "alloc_dm",
	"UVERBS_METHOD_DM_FREE":             "free_dm",
	"UVERBS_METHOD_DMAH_ALLOC":          "alloc_dmah",
	"UVERBS_METHOD_DMAH_FREE":           "dealloc_dmah",
	"UVERBS_METHOD_DMABUF_ALLOC":        "export_dmabuf_fd",
	"UVERBS_METHOD_DM_MR_REG":           "reg_dm_mr",
	"UVERBS_METHOD_MR_DESTROY":          "dereg_mr",
	"UVERBS_METHOD_REG_MR":              "reg_mr_ex",
	"UVERBS_METHOD_COUNTERS_CREATE":     "create_counters",
	"UVERBS_METHOD_COUNTERS_DESTROY":    "destroy_counters",
	"UVERBS_METHOD_COUNTERS_READ":       "read_counters",
	"UVERBS_METHOD_ASYNC_EVENT_ALLOC":   "alloc_async_fd",

	"IB_USER_VERBS_CMD_CREATE_XSRQ":            "create_srq_ex",
	"IB_USER_VERBS_EX_CMD_QUERY_DEVICE":        "query_device_ex",
	"IB_USER_VERBS_EX_CMD_CREATE_CQ":           "create_cq_ex",
	"IB_USER_VERBS_EX_CMD_CREATE_QP":           "create_qp_ex",
	"IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL":  "create_rwq_ind_table",
	"IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL": "destroy_rwq_ind_table",
}

// driverData are the structs in UVERBS_ATTR_UHW_IN and UVERBS_ATTR_UHW_OUT.
var driverData = []struct{ driver, verbs, in, out string }{
	{"RDMA_DRIVER_RXE", "create_ah", "", "rxe_create_ah_resp"},
	{"RDMA_DRIVER_RXE", "create_cq create_cq_ex", "", "rxe_create_cq_resp"},
	{"RDMA_DRIVER_RXE", "resize_cq", "", "rxe_resize_cq_resp"},
	{"RDMA_DRIVER_RXE", "create_qp create_qp_ex", "", "rxe_create_qp_resp"},
	{"RDMA_DRIVER_RXE", "create_srq create_srq_ex", "", "rxe_create_srq_resp"},
	{"RDMA_DRIVER_RXE", "modify_srq", "rxe_modify_srq_cmd", ""},
	{"RDMA_DRIVER_MLX5", "get_context", "mlx5_ib_alloc_ucontext_req_v2", "mlx5_ib_alloc_ucontext_resp"},
	{"RDMA_DRIVER_MLX5", "query_device_ex", "", "mlx5_ib_query_device_resp"},
	{"RDMA_DRIVER_MLX5", "alloc_pd", "", "mlx5_ib_alloc_pd_resp"},
	{"RDMA_DRIVER_MLX5", "create_ah", "", "mlx5_ib_create_ah_resp"},
	{"RDMA_DRIVER_MLX5", "alloc_mw", "mlx5_ib_alloc_mw", ""},
	{"RDMA_DRIVER_MLX5", "create_cq create_cq_ex", "mlx5_ib_create_cq", "mlx5_ib_create_cq_resp"},
	{"RDMA_DRIVER_MLX5", "resize_cq", "mlx5_ib_resize_cq", ""},
	{"RDMA_DRIVER_MLX5", "create_srq create_srq_ex", "mlx5_ib_create_srq", "mlx5_ib_create_srq_resp"},
	{"RDMA_DRIVER_MLX5", "create_qp create_qp_ex", "mlx5_ib_create_qp", "mlx5_ib_create_qp_resp"},
	{"RDMA_DRIVER_MLX5", "modify_qp", "mlx5_ib_modify_qp", "mlx5_ib_modify_qp_resp"},
	{"RDMA_DRIVER_MLX5", "create_wq", "mlx5_ib_create_wq", "mlx5_ib_create_wq_resp"},
	{"RDMA_DRIVER_MLX5", "modify_wq", "mlx5_ib_modify_wq", ""},
	{"RDMA_DRIVER_MLX5", "create_rwq_ind_table", "", "mlx5_ib_create_rwq_ind_tbl_resp"},
	{"RDMA_DRIVER_MLX5", "create_flow", "mlx5_ib_create_flow", ""},
}

// objectOrder is the order in which the generated files have the objects: a reader's,
// who comes from the device, over memory and queues, to what is built on them.
var objectOrder = []string{
	"UVERBS_OBJECT_DEVICE",
	"UVERBS_OBJECT_ASYNC_EVENT",
	"UVERBS_OBJECT_PD",
	"UVERBS_OBJECT_MR",
	"UVERBS_OBJECT_DM",
	"UVERBS_OBJECT_DMAH",
	"UVERBS_OBJECT_DMABUF",
	"UVERBS_OBJECT_MW",
	"UVERBS_OBJECT_COMP_CHANNEL",
	"UVERBS_OBJECT_CQ",
	"UVERBS_OBJECT_SRQ",
	"UVERBS_OBJECT_WQ",
	"UVERBS_OBJECT_RWQ_IND_TBL",
	"UVERBS_OBJECT_QP",
	"UVERBS_OBJECT_XRCD",
	"UVERBS_OBJECT_AH",
	"UVERBS_OBJECT_FLOW",
	"UVERBS_OBJECT_FLOW_ACTION",
	"UVERBS_OBJECT_COUNTERS",

	"MLX5_IB_OBJECT_UAR",
	"MLX5_IB_OBJECT_VAR",
	"MLX5_IB_OBJECT_PP",
	"MLX5_IB_OBJECT_FLOW_MATCHER",
	"MLX5_IB_OBJECT_STEERING_ANCHOR",
	"MLX5_IB_OBJECT_DEVX",
	"MLX5_IB_OBJECT_DEVX_OBJ",
	"MLX5_IB_OBJECT_DEVX_UMEM",
	"MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD",
	"MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD",
}

// attrNames names attributes that don't share a prefix with others of their enum.
var attrNames = map[string]string{
	"MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX":        "RESP_UCTX",
	"MLX5_IB_ATTR_CREATE_QP_DBR_BUF_UMEM":         "DBR_BUF_UMEM",
	"MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS":     "MLX5_ACCESS_FLAGS",
	"MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH":     "SYSFS_PATH",
	"MLX5_IB_ATTR_QUERY_PORT_PORT_NUM":            "PORT_NUM",
	"MLX5_IB_ATTR_QUERY_PORT":                     "RESP",
	"UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE":     "FD_HANDLE",
	"MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE": "HANDLE",
}

// attrAliases are attributes that the kernel declares with another method's constant
// of the same number.
var attrAliases = map[string]string{
	"MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE": "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE",
	"MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN": "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN",
	"MLX5_IB_METHOD_DESTROY_FLOW MLX5_IB_ATTR_CREATE_FLOW_HANDLE":            "MLX5_IB_ATTR_DESTROY_FLOW_HANDLE",
}

// Meanings, in attrTypes and fieldTypes:
//
//	hex bool ptr fd gid mac string    how to read the bytes
//	enum:TAG flags:TAG                a value of an enum, a combination of values
//	handle:ID                         a handle of that object
//	array:MEANING:TYPE                a list to the payload's end; TYPE is u16, s32, struct:TAG...

// attrTypes says what attributes mean where the kernel's declaration doesn't.
var attrTypes = map[string]string{
	"UVERBS_ATTR_CREATE_CQ_USER_HANDLE":        "hex",
	"UVERBS_ATTR_CREATE_QP_USER_HANDLE":        "hex",
	"UVERBS_ATTR_CREATE_SRQ_USER_HANDLE":       "hex",
	"UVERBS_ATTR_CREATE_WQ_USER_HANDLE":        "hex",
	"UVERBS_ATTR_CREATE_QP_SOURCE_QPN":         "hex",
	"UVERBS_ATTR_CREATE_QP_RESP_QP_NUM":        "hex",
	"UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM":      "hex",
	"UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM":        "hex",
	"UVERBS_ATTR_CREATE_CQ_BUFFER_VA":          "ptr",
	"UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT":     "flags:ib_uverbs_core_support",
	"UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT":   "flags:ib_uverbs_core_support",
	"UVERBS_ATTR_GET_CONTEXT_FD_ARR":           "array:fd:s32",
	"UVERBS_ATTR_INFO_HANDLES_LIST":            "array::u32",
	"UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES": "array::struct:ib_uverbs_gid_entry",
	"UVERBS_ATTR_READ_COUNTERS_BUFF":           "array::u64",
	"UVERBS_ATTR_ADVISE_MR_SGE_LIST":           "array::struct:ib_uverbs_sge",
	"UVERBS_ATTR_REG_DM_MR_RESP_LKEY":          "hex",
	"UVERBS_ATTR_REG_DM_MR_RESP_RKEY":          "hex",
	"UVERBS_ATTR_QUERY_MR_RESP_LKEY":           "hex",
	"UVERBS_ATTR_QUERY_MR_RESP_RKEY":           "hex",
	"UVERBS_ATTR_QUERY_MR_RESP_IOVA":           "hex",
	"UVERBS_ATTR_REG_DMABUF_MR_IOVA":           "hex",
	"UVERBS_ATTR_REG_DMABUF_MR_FD":             "fd",
	"UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY":      "hex",
	"UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY":      "hex",
	"UVERBS_ATTR_REG_MR_IOVA":                  "hex",
	"UVERBS_ATTR_REG_MR_ADDR":                  "ptr",
	"UVERBS_ATTR_REG_MR_RESP_LKEY":             "hex",
	"UVERBS_ATTR_REG_MR_RESP_RKEY":             "hex",
	"UVERBS_ATTR_ALLOC_DMABUF_PGOFF":           "hex",
	"MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR":          "ptr",
	"MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP":   "hex",
	"MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE": "hex",
	"MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM": "fd",
	"MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID":  "hex",
	"MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET":  "hex",
	"MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET":  "hex",
	"MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET":   "hex",
	"MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET":   "hex",
	"MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH":  "string",
	"MLX5_IB_ATTR_CREATE_FLOW_TAG":             "hex",

	"MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET":     "hex",
	"MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST":   "array::u16",
	"MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET": "array::u32",
}

// fieldTypes says what fields mean: of one struct ("tag.field"), or of all that
// have a field of this name (".field").
var fieldTypes = map[string]string{
	".pd_handle": "handle:UVERBS_OBJECT_PD", ".cq_handle": "handle:UVERBS_OBJECT_CQ",
	".send_cq_handle": "handle:UVERBS_OBJECT_CQ", ".recv_cq_handle": "handle:UVERBS_OBJECT_CQ",
	".srq_handle": "handle:UVERBS_OBJECT_SRQ", ".qp_handle": "handle:UVERBS_OBJECT_QP",
	".mr_handle": "handle:UVERBS_OBJECT_MR", ".mw_handle": "handle:UVERBS_OBJECT_MW",
	".ah_handle": "handle:UVERBS_OBJECT_AH", ".xrcd_handle": "handle:UVERBS_OBJECT_XRCD",
	".wq_handle": "handle:UVERBS_OBJECT_WQ", ".wq_handles": "handle:UVERBS_OBJECT_WQ",
	".flow_handle": "handle:UVERBS_OBJECT_FLOW", ".ind_tbl_handle": "handle:UVERBS_OBJECT_RWQ_IND_TBL",
	".rwq_ind_tbl_handle": "handle:UVERBS_OBJECT_RWQ_IND_TBL",

	"ib_uverbs_flow_spec_action_handle.handle": "handle:UVERBS_OBJECT_FLOW_ACTION",
	"ib_uverbs_flow_spec_action_count.handle":  "handle:UVERBS_OBJECT_COUNTERS",
	"ib_uverbs_send_wr.wr.ud.ah":               "handle:UVERBS_OBJECT_AH",
	"ib_uverbs_comp_event_desc.cq_handle":      "hex", // the user handle
	"ib_uverbs_async_event_desc.element":       "hex",

	".response": "ptr", ".start": "ptr", ".buf_addr": "ptr", ".db_addr": "ptr", ".sq_buf_addr": "ptr",
	".mmap_info_addr": "ptr", ".counters_data": "ptr", ".val_ptr": "ptr", ".next_ptr": "ptr", ".optval": "ptr",
	"ib_uverbs_sge.addr": "ptr", "rxe_sge.addr": "ptr",

	".user_handle": "hex", ".hca_va": "hex", ".iova": "hex", ".remote_addr": "hex", ".lkey": "hex", ".rkey": "hex",
	".mr_lkey": "hex", ".mw_rkey": "hex", ".invalidate_rkey": "hex", ".wr_id": "hex", ".qkey": "hex", ".remote_qkey": "hex",
	".qpn": "hex", ".qp_num": "hex", ".dest_qp_num": "hex", ".src_qp": "hex", ".srqn": "hex", ".wqn": "hex",
	".source_qpn": "hex", ".remote_qpn": "hex", ".comp_mask": "hex", ".node_guid": "hex", ".sys_image_guid": "hex",
	".fw_ver": "hex", ".vendor_id": "hex", ".vendor_part_id": "hex", ".hw_ver": "hex", ".page_size_cap": "hex",
	".max_mr_size": "hex", ".vendor_err": "hex", ".timestamp_mask": "hex", ".supported_qpts": "hex",
	".flow_label": "hex", ".dlid": "hex", ".slid": "hex", ".lid": "hex", ".sm_lid": "hex", ".mlid": "hex", ".pkey": "hex",
	".imm_data": "hex", ".ece_options": "hex", ".rq_psn": "hex", ".sq_psn": "hex", "mminfo.offset": "hex", ".uid": "hex",
	".hca_core_clock_offset": "hex", ".cqn": "hex", ".pdn": "hex", ".dctn": "hex", ".lib_caps": "flags:mlx5_lib_caps",
	".subnet_prefix": "hex", ".interface_id": "hex", ".cookie": "hex", ".uidx": "hex", ".ind_tbl_num": "hex",

	".comp_channel": "fd", ".async_fd": "fd", ".fd": "fd",
	".sq_sig_all": "bool", ".is_srq": "bool", ".is_global": "bool", ".solicited_only": "bool",
	".sq_draining": "bool", ".en_sqd_async_notify": "bool", ".cqe_comp_en": "bool",

	".dgid": "gid", ".sgid": "gid", ".gid": "gid", "rxe_gid.raw": "gid", "ib_uverbs_flow_ipv6_filter.src_ip": "gid",
	"ib_uverbs_flow_ipv6_filter.dst_ip": "gid",
	".dmac":                             "mac", ".dst_mac": "mac", ".src_mac": "mac",
	".service_name": "string",

	".access_flags": "flags:ib_uverbs_access_flags", ".qp_access_flags": "flags:ib_uverbs_access_flags",
	"rxe_send_wr.wr.mw.access": "flags:ib_uverbs_access_flags",
	".qp_type":                 "enum:ib_uverbs_qp_type", ".qp_state": "enum:ib_qp_state", ".cur_qp_state": "enum:ib_qp_state",
	".path_mtu": "enum:ib_mtu", ".max_mtu": "enum:ib_mtu", ".active_mtu": "enum:ib_mtu",
	".path_mig_state": "enum:ib_mig_state", ".qp_attr_mask": "flags:ib_qp_attr_mask",
	".event_type": "enum:ib_event_type", ".atomic_cap": "enum:ib_atomic_cap", ".mw_type": "enum:ib_mw_type",
	".srq_type": "enum:ib_uverbs_srq_type", ".wq_type": "enum:ib_uverbs_wq_type", ".wq_state": "enum:ib_wq_state",
	".curr_wq_state": "enum:ib_wq_state", ".gid_type": "enum:ib_uverbs_gid_type", ".static_rate": "enum:ib_rate",
	".wc_flags": "flags:ib_wc_flags", ".send_flags": "flags:ib_send_flags", ".network_type": "enum:rxe_network_type",
	".device_cap_flags": "flags:ib_uverbs_device_cap_flags", ".device_cap_flags_ex": "flags:ib_uverbs_device_cap_flags",
	".raw_packet_caps": "flags:ib_uverbs_raw_packet_caps", ".general_caps": "flags:ib_uverbs_odp_general_cap_bits",
	".rc_odp_caps": "flags:ib_uverbs_odp_transport_cap_bits", ".uc_odp_caps": "flags:ib_uverbs_odp_transport_cap_bits",
	".ud_odp_caps": "flags:ib_uverbs_odp_transport_cap_bits", ".xrc_odp_caps": "flags:ib_uverbs_odp_transport_cap_bits",
	".port_cap_flags": "flags:ib_uverbs_query_port_cap_flags", ".link_layer": "enum:rdma_link_layer",
	".phys_state": "enum:ib_port_phys_state", ".active_width": "enum:ib_port_width",
	".active_speed": "enum:ib_port_speed", ".active_speed_ex": "enum:ib_port_speed",

	"ib_uverbs_query_port_resp.state":                  "enum:ib_port_state",
	"ib_uverbs_query_port_resp.flags":                  "flags:ib_uverbs_query_port_flags",
	"ib_uverbs_wc.status":                              "enum:ib_wc_status",
	"ib_uverbs_wc.opcode":                              "enum:ib_wc_opcode",
	"ib_uverbs_send_wr.opcode":                         "enum:ib_uverbs_wr_opcode",
	"rxe_send_wr.opcode":                               "enum:ib_uverbs_wr_opcode",
	"rxe_send_wr.wr.flush.type":                        "flags:ib_placement_type",
	"rxe_send_wr.wr.flush.level":                       "enum:ib_selectivity_level",
	"rxe_send_wqe.status":                              "enum:ib_wc_status",
	"ib_uverbs_query_qp.attr_mask":                     "flags:ib_qp_attr_mask",
	"ib_uverbs_modify_qp.attr_mask":                    "flags:ib_qp_attr_mask",
	"ib_uverbs_modify_srq.attr_mask":                   "flags:ib_srq_attr_mask",
	"ib_uverbs_ex_modify_cq.attr_mask":                 "flags:ib_cq_attr_mask",
	"ib_uverbs_ex_modify_wq.attr_mask":                 "flags:ib_wq_attr_mask",
	"ib_uverbs_ex_modify_wq.flags":                     "flags:ib_uverbs_wq_flags",
	"ib_uverbs_ex_modify_wq.flags_mask":                "flags:ib_uverbs_wq_flags",
	"ib_uverbs_ex_create_wq.create_flags":              "flags:ib_uverbs_wq_flags",
	"ib_uverbs_ex_create_cq.flags":                     "flags:ib_uverbs_ex_create_cq_flags",
	"ib_uverbs_ex_create_qp.create_flags":              "flags:ib_uverbs_qp_create_flags",
	"ib_uverbs_ex_create_qp.comp_mask":                 "flags:ib_uverbs_create_qp_mask",
	"ib_uverbs_rereg_mr.flags":                         "flags:ib_mr_rereg_flags",
	"ib_uverbs_tm_caps.flags":                          "flags:ib_tm_cap_flags",
	"ib_uverbs_open_xrcd.oflags":                       "hex",
	"ib_uverbs_buffer_desc.type":                       "enum:ib_uverbs_buffer_type",
	"ib_uverbs_buffer_desc.addr":                       "hex",
	"ib_uverbs_flow_spec_hdr.type":                     "enum:ib_flow_spec_type",
	"ib_uverbs_flow_attr.type":                         "enum:ib_flow_attr_type",
	"ib_uverbs_flow_attr.flags":                        "flags:ib_flow_flags",
	"ib_uverbs_attr.flags":                             "flags:uverbs_attr_flags",
	"ib_uverbs_attr.data":                              "hex",
	"ib_uverbs_ioctl_hdr.driver_id":                    "enum:rdma_driver_id",
	"ib_uverbs_flow_action_esp.flags":                  "flags:ib_uverbs_flow_action_esp_flags",
	"ib_path_rec_data.flags":                           "flags:ib_path_flags",
	"ib_user_path_rec.mtu":                             "enum:ib_mtu",
	"ib_uverbs_flow_action_esp_keymat_aes_gcm.iv_algo": "enum:ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo",

	"mlx5_ib_alloc_ucontext_req_v2.flags":                           "flags:mlx5_ib_alloc_uctx_v2_flags",
	"mlx5_ib_alloc_ucontext_resp.comp_mask":                         "flags:mlx5_ib_alloc_ucontext_resp_mask",
	"mlx5_ib_alloc_ucontext_resp.cmds_supp_uhw":                     "flags:mlx5_user_cmds_supp_uhw",
	"mlx5_ib_alloc_ucontext_resp.flow_action_flags":                 "flags:mlx5_user_alloc_ucontext_flow_action_flags",
	"mlx5_ib_alloc_ucontext_resp.dump_fill_mkey":                    "hex",
	"mlx5_ib_rss_caps.rx_hash_fields_mask":                          "flags:mlx5_rx_hash_fields",
	"mlx5_ib_rss_caps.rx_hash_function":                             "flags:mlx5_rx_hash_function_flags",
	"mlx5_ib_cqe_comp_caps.supported_format":                        "flags:mlx5_ib_cqe_comp_res_format",
	"mlx5_packet_pacing_caps.cap_flags":                             "flags:mlx5_ib_packet_pacing_cap_flags",
	"mlx5_ib_sw_parsing_caps.sw_parsing_offloads":                   "flags:mlx5_ib_sw_parsing_offloads",
	"mlx5_ib_query_device_resp.flags":                               "flags:mlx5_ib_query_dev_resp_flags",
	"mlx5_ib_query_device_resp.tunnel_offloads_caps":                "flags:mlx5_ib_tunnel_offloads",
	"mlx5_ib_query_device_resp.mlx5_ib_support_multi_pkt_send_wqes": "flags:mlx5_ib_mpw_caps",
	"mlx5_ib_create_cq.flags":                                       "flags:mlx5_ib_create_cq_flags",
	"mlx5_ib_create_cq.cqe_comp_res_format":                         "flags:mlx5_ib_cqe_comp_res_format",
	"mlx5_ib_create_srq.flags":                                      "flags:mlx5_srq_flags",
	"mlx5_ib_create_qp.flags":                                       "flags:mlx5_qp_flags",
	"mlx5_ib_create_qp_rss.flags":                                   "flags:mlx5_qp_flags",
	"mlx5_ib_create_qp_rss.rx_hash_fields_mask":                     "flags:mlx5_rx_hash_fields",
	"mlx5_ib_create_qp_rss.rx_hash_function":                        "flags:mlx5_rx_hash_function_flags",
	"mlx5_ib_create_qp_resp.comp_mask":                              "flags:mlx5_ib_create_qp_resp_mask",
	"mlx5_ib_modify_qp.comp_mask":                                   "flags:mlx5_ib_modify_qp_mask",
	"mlx5_ib_create_wq.flags":                                       "flags:mlx5_wq_flags",
	"mlx5_ib_create_wq.comp_mask":                                   "flags:mlx5_ib_create_wq_mask",
	"mlx5_ib_uapi_query_port.flags":                                 "flags:mlx5_ib_uapi_query_port_flags",

	"rdma_ucm_cmd_hdr.cmd":           "enum:rdma_user_cm_cmd",
	"rdma_ucm_create_id.ps":          "enum:rdma_ucm_port_space",
	"rdma_ucm_query.option":          "enum:rdma_user_cm_query",
	"rdma_ucm_event_resp.event":      "enum:rdma_cm_event_type",
	"rdma_ucm_write_cm_event.event":  "enum:rdma_cm_event_type",
	"rdma_ucm_notify.event":          "enum:ib_event_type",
	"rdma_ucm_join_mcast.join_flags": "enum:rdma_mc_join",
	"rdma_ucm_set_option.level":      "enum:rdma_option_level",
	"rdma_ucm_ib_service.flags":      "flags:rdma_user_cm_ib_service_flags",
}
