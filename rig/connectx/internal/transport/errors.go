package transport

import "errors"

// Errors that the firmware maps to the statuses of its commands.
var (
	ErrBadParam = errors.New("bad parameter")        // MLX5_CMD_STAT_BAD_PARAM_ERR
	ErrBadState = errors.New("bad queue pair state") // MLX5_CMD_STAT_BAD_QP_STATE_ERR
	ErrNoRes    = errors.New("no such resource")     // MLX5_CMD_STAT_BAD_RES_ERR
	ErrBusy     = errors.New("resource in use")      // MLX5_CMD_STAT_RES_BUSY
	ErrLimit    = errors.New("no more resources")    // MLX5_CMD_STAT_LIM_ERR
)
