//go:build linux

package main

import (
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// suites returns all suites in the order in which they run: those that find the most in
// the least time come first. The times were measured on two processors without KVM.
func suites() []suite {
	const s = time.Second
	all := []suite{
		{name: "lint", what: "gofmt, go vet, staticcheck, no C", does: script(lint), quick: 25 * s, whole: 25 * s},
		{name: "unit", what: "tests that need no device", does: unit, quick: 45 * s, whole: 45 * s},
		{name: "race", what: "tests that need no device, with the race detector", does: race, quick: 60 * s, whole: 150 * s},
		{name: "fuzz", what: "each fuzz test for a few seconds", does: fuzz, quick: 60 * s, whole: 150 * s},
		{name: "cross", what: "go vet for other systems, static binaries for arm64", does: script(cross), whole: 60 * s},
		{name: "arm64", what: "the code that writes to devices, on emulated arm64", does: arm64, whole: 15 * s},
	}
	for _, r := range rigSuites {
		all = append(all, suite{
			name: r.name, what: r.what, does: r.run, rig: true, quick: r.quick * s, whole: r.whole * s,
			profiles: strings.HasPrefix(r.setting.Device, "mlx5") && r.setting.Profile == "" && !r.setting.Log,
		})
	}
	for _, r := range []suite{
		{name: "adapter", what: "rdma-core's programs and provoked failures on the software ConnectX", does: script(programs), whole: 130 * s},
		{name: "adapter-roce", what: "rdma-core's programs over its RoCE", does: script(programsOverRoCE), whole: 40 * s},
		{name: "adapter-ethernet", what: "perftest's raw packets and the kernel's network on it", does: script(ethernet), whole: 90 * s},
		{name: "adapter-py", what: "rdma-core's tests on it", does: script(pyverbs)},
		{name: "adapter-roce-py", what: "rdma-core's tests over its RoCE", does: script(pyverbsOverRoCE)},
	} {
		r.rig, r.profiles = true, true
		all = append(all, r)
	}
	return all
}

// A rigSuite runs, in one setting, the tests whose needs that setting meets.
type rigSuite struct {
	name, what   string
	setting      rdmatest.Setting
	quick, whole time.Duration // seconds
}

var rigSuites = []rigSuite{
	{"rxe", "tests on Soft-RoCE", rdmatest.Setting{Device: "rxe", Guests: 1}, 150, 480},
	{"mlx5", "tests on the software ConnectX, InfiniBand ports", rdmatest.Setting{Device: "mlx5", Guests: 1}, 180, 460},
	{"mlx5-eth", "the same with Ethernet ports: RoCE and raw packets", rdmatest.Setting{Device: "mlx5-eth", Guests: 1}, 80, 200},
	{"mlx5-mixed", "adapters of all profiles in one guest, InfiniBand ports", rdmatest.Setting{Device: "mlx5", Guests: 1, Profile: mixed}, 0, 35},
	{"mlx5-eth-mixed", "the same on Ethernet ports", rdmatest.Setting{Device: "mlx5-eth", Guests: 1, Profile: mixedEthernet}, 0, 60},
	{"rxe-2", "two guests joined by a network", rdmatest.Setting{Device: "rxe", Guests: 2}, 0, 90},
	{"rxe-newer", "rdma-core's newest release as the peer", rdmatest.Setting{Device: "rxe", Guests: 1, Peers: true}, 0, 200},
	{"mlx5-bytes", "the bytes that the adapter gets, compared with libmlx5's, InfiniBand ports", rdmatest.Setting{Device: "mlx5", Guests: 1, Log: true}, 0, 45},
	{"mlx5-eth-bytes", "the same on Ethernet ports", rdmatest.Setting{Device: "mlx5-eth", Guests: 1, Log: true}, 0, 45},
}

// The adapters of the suites with several of them: cards, and surroundings that differ.
const (
	mixed         = "connectx6,connectx5,connectx7,vf,nobf,pieces,grh,bigendian,cqe0"
	mixedEthernet = "connectx4lx,connectx5,connectx6,connectx6dx,connectx7,vf,bigendian,cqe0"
)

// What runs stock programs on the adapter. On another profile, these are all that move data.
const (
	acceptance       = "tests/hca/acceptance/"
	programs         = acceptance + `programs/run -k $KERNEL ${PROFILE:+-p $PROFILE pingpong|ib_}`
	programsOverRoCE = acceptance + `programs/run -k $KERNEL -r ${PROFILE:+-p $PROFILE} 'pingpong|rping|ucmatose|udaddy|mckey|UD|DC'`
	ethernet         = acceptance + `ethernet/run -k $KERNEL ${PROFILE:+-p $PROFILE}`
	pyverbs          = acceptance + `pyverbs/run -k $KERNEL ${PROFILE:+-p $PROFILE}`
	pyverbsOverRoCE  = acceptance + `pyverbs/run -k $KERNEL -d mlx5-eth ${PROFILE:+-p $PROFILE}`
)

const lint = `
files=$(gofmt -l .)
[ -z "$files" ] || { echo "not formatted:" $files; exit 1; }
go vet ./...
files=$(CGO_ENABLED=1 go list -deps -test -f '{{if not .Standard}}{{.CgoFiles}}{{end}}' ./... | grep -v '^\[\]$' || true)
[ -z "$files" ] || { echo "files with C:" $files; exit 1; }
! go list -deps ./... | grep -x runtime/cgo
go run ` + staticcheck + ` ./...`

const cross = `
for arch in amd64 arm64; do GOARCH=$arch go build ./...; done
GOARCH=arm64 go vet ./...
for os in darwin windows; do GOOS=$os go vet ./...; done
# Platforms on which the packages must only compile.
for target in linux/{386,arm,mips64le,ppc64le,riscv64,s390x} darwin/arm64 freebsd/amd64 windows/amd64; do
	export GOOS=${target%/*} GOARCH=${target#*/}
	echo "$target"
	go build $(go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./... | grep -v /tests/)
done`
