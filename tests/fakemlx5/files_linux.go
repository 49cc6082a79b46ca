package main

// files are the files with which programs find the device.
var files = func() map[string]string {
	const (
		verbs = "infiniband_verbs/"
		ib    = "infiniband/mlx5_0/"
		alias = "pci:v000015B3d0000101Bsv000015B3sd00000001bc02sc07i00\n"
	)
	return map[string]string{
		verbs + "abi_version":             "6\n",
		verbs + "uverbs0/abi_version":     "1\n",
		verbs + "uverbs0/dev":             "1:5\n",
		verbs + "uverbs0/ibdev":           "mlx5_0\n",
		verbs + "uverbs0/device/modalias": alias,
		ib + "device/modalias":            alias,
		ib + "fw_ver":                     "20.31.2006\n",
		ib + "node_guid":                  "0002:c903:0000:0001\n",
		ib + "node_type":                  "1: CA\n",
		ib + "ports/1/gids/0":             "fe80:0000:0000:0000:0002:c903:0000:0001\n",
		ib + "ports/1/pkeys/0":            "0xffff\n",
		ib + "sys_image_guid":             "0002:c903:0000:0001\n",
	}
}()
