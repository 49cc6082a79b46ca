//go:build linux

package main

import (
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

const s = time.Second

// suites are all there are, in the order in which they run: what is quick and finds
// much comes first.
var suites = []suite{
	{"lint", "gofmt, go vet, staticcheck, no C", script(lint), 45 * s, 45 * s},
	{"unit", "tests that need no device", unit, 30 * s, 30 * s},
	{"rxe", "tests on Soft-RoCE", inRig(rdmatest.Setting{Device: "rxe", Guests: 1}), 150 * s, 425 * s},
	{"mlx5", "tests on the software ConnectX, InfiniBand ports", inRig(rdmatest.Setting{Device: "mlx5", Guests: 1}), 150 * s, 600 * s},
	{"mlx5-eth", "the same with Ethernet ports: RoCE and raw packets", inRig(rdmatest.Setting{Device: "mlx5-eth", Guests: 1}), 60 * s, 100 * s},
	{"race", "tests that need no device, with the race detector", race, 60 * s, 130 * s},
	{"fuzz", "each fuzz test for a moment", fuzz, 45 * s, 130 * s},
	{"cross", "go vet for other systems, static binaries for arm64", script(cross), 0, 60 * s},
	{"arm64", "what writes for devices, on arm64, emulated", arm64, 0, 60 * s},
	{"rxe-2", "two guests joined by a network", inRig(rdmatest.Setting{Device: "rxe", Guests: 2}), 0, 60 * s},
	{"rxe-newer", "rdma-core's newest release as the peer", inRig(rdmatest.Setting{Device: "rxe", Guests: 1, Peers: true}), 0, 150 * s},
	{"mlx5-bytes", "what the adapter is given, beside libmlx5, InfiniBand ports", inRig(rdmatest.Setting{Device: "mlx5", Guests: 1, Log: true}), 0, 30 * s},
	{"mlx5-eth-bytes", "the same on Ethernet ports", inRig(rdmatest.Setting{Device: "mlx5-eth", Guests: 1, Log: true}), 0, 30 * s},
	{"adapter", "rdma-core's programs and trouble on the software ConnectX", script("tests/hca/suite/run -k $KERNEL"), 0, 130 * s},
	{"adapter-roce", "rdma-core's programs over its RoCE", script("tests/hca/suite/run -k $KERNEL -r 'pingpong|rping|ucmatose|udaddy|mckey|UD|DC'"), 0, 40 * s},
	{"adapter-ethernet", "perftest's raw packets and the kernel's network on it", script("tests/hca/ethernet/run -k $KERNEL"), 0, 90 * s},
}

const lint = `
files=$(gofmt -l .)
[ -z "$files" ] || { echo "not formatted:" $files; exit 1; }
go vet ./...
files=$(CGO_ENABLED=1 go list -deps -test -f '{{if not .Standard}}{{.CgoFiles}}{{end}}' ./... | grep -v '^\[\]$' || true)
[ -z "$files" ] || { echo "files with C:" $files; exit 1; }
! go list -deps ./... | grep -x runtime/cgo
go run ` + staticcheck + ` ./...`

const cross = `
GOARCH=arm64 go vet ./...
for os in darwin windows; do GOOS=$os go vet ./...; done
for arch in amd64 arm64; do GOARCH=$arch go build ./...; done`
