//go:build linux

package main

import (
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// suites returns all suites in the order in which they run: those that find the most in
// the least time come first. The times were measured on two processors without KVM,
// from an empty build cache and with a suite of the host beside those of the rig.
func suites() []suite {
	const s = time.Second
	all := []suite{
		{name: "lint", what: "gofmt, go vet, no C; in a full run, staticcheck", does: lint, quick: 55 * s, whole: 295 * s, packages: []string{"shellcheck"}},
		{name: "unit", what: "tests that need no device", does: unit, quick: 105 * s, whole: 395 * s, packages: hostPackages},
		{name: "race", what: "tests of what has goroutines, with the race detector", does: race, quick: 60 * s, whole: 540 * s, packages: hostPackages},
		{name: "rig", what: "the rig's own check: vet, staticcheck, and tests with the race detector", does: apart{script: "rig/check", host: true, folders: []string{"rig"}}.run, quick: 150 * s, whole: 150 * s, packages: hostPackages},
		{name: "fuzz", what: "each fuzz test for a second", does: fuzz, quick: 60 * s, whole: 70 * s},
		{name: "cross", what: "arm64 and another system compile", does: script(cross)},
		{name: "counted-mlx5", what: "Go's instructions beside libmlx5's: none has grown", does: script(`tests/bench/mlx5/counted/run`), whole: 155 * s, packages: hostPackages},
		{name: "newest-libefa", what: "the bytes for an EFA device, compared with those of Debian's newest libefa", does: script(`go test ./tests/efabytes -libefa "$(tests/efabytes/libefa)"`), whole: 15 * s, packages: hostPackages},
		{name: "arm64", what: "the code that writes to devices, on emulated arm64", does: arm64, whole: 70 * s, packages: append([]string{"qemu-user-static"}, hostPackages...)},
	}
	for _, r := range rigSuites {
		all = append(all, suite{
			name: r.name, what: r.what, does: r.run, rig: true, quick: r.quick * s, whole: r.whole * s, packages: rigPackages,
			profiles: strings.HasPrefix(r.setting.Device, "mlx5") && r.setting.Profile == "" && !r.setting.Log,
		})
	}
	onConnectX := func(script, folder string) func(*runner, suite) {
		return apart{script: script, programs: []string{"./connectx", "./acceptance/programs"}, folders: []string{acceptance + folder}}.run
	}
	for _, r := range []suite{
		{name: "adapter", what: "rdma-core's programs and provoked failures on the software ConnectX", does: onConnectX(programs, "programs"), whole: 250 * s},
		{name: "adapter-roce", what: "rdma-core's programs over its RoCE", does: onConnectX(programsOverRoCE, "programs"), whole: 85 * s},
		{name: "adapter-ethernet", what: "perftest's raw packets and the kernel's network on it", does: onConnectX(ethernet, "ethernet"), whole: 130 * s},
		{name: "counted", what: "Go's instructions beside C's on Soft-RoCE: none has grown", does: script(`tests/bench/counted/run -k $KERNEL`), whole: 100 * s},
		{name: "adapter-py", what: "rdma-core's tests on it", does: script(pyverbs)},
		{name: "adapter-roce-py", what: "rdma-core's tests over its RoCE", does: script(pyverbsOverRoCE)},
		{name: "adapter-efa", what: "rdma-core's newest programs and provoked failures on the software EFA, on Linux 6.12", does: apart{script: programsOnEFA, kernel: "6.12", programs: []string{"./efa"}, folders: []string{acceptance + "efa"}}.run, whole: 80 * s},
		{name: "foreign", what: "a test of another project on the rig's devices, by the rig's action and container", does: apart{script: acceptance + `foreign/run -k $KERNEL`, programs: []string{"./connectx"}, folders: []string{acceptance + "foreign", "rig/action.yml"}}.run, whole: 60 * s},
		{name: "adapter-efa-py", what: "rdma-core's tests on it", does: script(pyverbsOnEFA)},
	} {
		// The profiles are those of the software ConnectX.
		r.rig, r.packages, r.profiles = true, rigPackages, strings.HasPrefix(r.name, "adapter") && !strings.Contains(r.name, "efa")
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
	{"rxe", "tests on Soft-RoCE", rdmatest.Setting{Device: "rxe", Guests: 1}, 400, 910},
	{"mlx5", "tests on the software ConnectX, InfiniBand ports", rdmatest.Setting{Device: "mlx5", Guests: 1}, 250, 540},
	{"mlx5-eth", "the same with Ethernet ports: RoCE and raw packets", rdmatest.Setting{Device: "mlx5-eth", Guests: 1}, 150, 110},
	{"mlx5-mixed", "adapters of all profiles in one guest, InfiniBand ports; six of them at two switches", rdmatest.Setting{Device: "mlx5", Guests: 1, Profile: mixed}, 0, 130},
	{"mlx5-eth-mixed", "adapters of all profiles in one guest, Ethernet ports", rdmatest.Setting{Device: "mlx5-eth", Guests: 1, Profile: mixedEthernet}, 0, 0},
	{"mlx5-lacking", "adapters that each lack something", rdmatest.Setting{Device: "mlx5", Guests: 1, Profile: lackingProfiles}, 0, 115},
	{"siw", "tests on soft-iWARP", rdmatest.Setting{Device: "siw", Guests: 1}, 0, 130},
	{"efa", "tests on the software EFA", rdmatest.Setting{Device: "efa", Guests: 1}, 0, 75},
	{"rxe-2", "two guests joined by a network", rdmatest.Setting{Device: "rxe", Guests: 2}, 0, 155},
	{"rxe-newer", "rdma-core's newest release as the peer", rdmatest.Setting{Device: "rxe", Guests: 1, Peers: true}, 0, 0},
	{"mlx5-bytes", "the bytes that the adapter gets, compared with libmlx5's, InfiniBand ports", rdmatest.Setting{Device: "mlx5", Guests: 1, Log: true}, 0, 50},
	{"mlx5-eth-bytes", "the same on Ethernet ports", rdmatest.Setting{Device: "mlx5-eth", Guests: 1, Log: true}, 0, 0},
}

// Profiles of the suites with several adapters: different cards and environments.
const (
	mixed           = "connectx6,connectx5,connectx7,vf,nobf,pieces,grh,bigendian,cqe0"
	lackingProfiles = "noatomics,nomasks,taken,plain,tiny"
	mixedEthernet   = "connectx4lx,connectx5,connectx6,connectx6dx,connectx7,vf,bigendian,cqe0,rocev1"
)

// Commands that run stock programs on the adapter. On another profile, they run all programs that move data.
const (
	acceptance       = "rig/acceptance/"
	programs         = acceptance + `programs/run -k $KERNEL ${PROFILE:+-p $PROFILE pingpong|ib_}`
	programsOverRoCE = acceptance + `programs/run -k $KERNEL -r ${PROFILE:+-p $PROFILE} 'pingpong|rping|ucmatose|udaddy|mckey|UD|DC'`
	ethernet         = acceptance + `ethernet/run -k $KERNEL ${PROFILE:+-p $PROFILE}`
	pyverbs          = acceptance + `pyverbs/run -k $KERNEL ${PROFILE:+-p $PROFILE}`
	pyverbsOverRoCE  = acceptance + `pyverbs/run -k $KERNEL -d mlx5-eth ${PROFILE:+-p $PROFILE}`
	programsOnEFA    = acceptance + `efa/run -k 6.12 -n -p efa2,future` // the first driver and the first perftest with RDMA write
	pyverbsOnEFA     = acceptance + `pyverbs/run -k $KERNEL -d efa`
)

// lint runs the static checks. A quick run leaves out those that compile much.
func lint(r *runner, s suite) {
	text := quickLint
	if !r.short {
		text += wholeLint
	}
	script(text)(r, s)
}

const quickLint = `
files=$(gofmt -l .)
[ -z "$files" ] || { echo "not formatted:" $files; exit 1; }
go vet ./...
go vet -C tests/device/rsocket/nettest .
files=$(CGO_ENABLED=1 go list -deps -test -f '{{if not .Standard}}{{.CgoFiles}}{{end}}' ./... | grep -v '^\[\]$' || true)
[ -z "$files" ] || { echo "files with C:" $files; exit 1; }
! go list -deps ./... | grep -x runtime/cgo
# The scripts, which have no suffix. Word splitting that shellcheck only notes is meant.
grep -rlIE --exclude-dir=.git '^#!.*\b(ba)?sh\b' . | while read -r file; do
	[[ $(head -n1 "$file") != '#!'* ]] || echo "$file"
done | xargs shellcheck -x -P SCRIPTDIR -S warning
`

const wholeLint = `
go vet -C examples/grpc .
go run ` + staticcheck + ` ./...
files=$(go run ` + asmfmt + ` -l .)
[ -z "$files" ] || { echo "not formatted:" $files; exit 1; }`

// cross compiles everything for arm64, and the public packages for unsupported systems.
const cross = `
GOARCH=arm64 go build ./...
# Each compiles Go's library once more. TestElsewhere does less, and is quick.
for target in ${TARGETS:-darwin/amd64}; do
	export GOOS=${target%/*} GOARCH=${target#*/}
	echo "$target"
	go build $(go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./... | grep -v /tests/)
done`
