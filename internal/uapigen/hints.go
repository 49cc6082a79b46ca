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
}
