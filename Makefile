# What a person types here. `make demo` and `make test` need Debian, Go, make
# and, for what they install, root or sudo; nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Where Go's own installation instructions put it.
export PATH := $(PATH):/usr/local/go/bin
# Only the race detector needs C.
export CGO_ENABLED := 0
# The files may belong to another user, whose git repository git does not read.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
KERNELS = $(shell awk '/^[^\#]/ { print $$1 }' tests/vm/kernels)

# Shell: packages whose tests need no RDMA device.
host_packages = packages=$$(go list ./... | grep -vxE "[^/]*/goverbs/goverbs/tests/($$(tests/suite -l | paste -sd '|'))")

# Debian packages, besides those that the rig itself needs.
GETTERS := ca-certificates # for go, to fetch modules
PEERS := ibverbs-utils ibverbs-providers
TESTERS := $(GETTERS) $(PEERS) gcc gcc-aarch64-linux-gnu libc6-dev libibverbs-dev perftest \
	procps qemu-user-static rdma-core rdmacm-utils strace
BENCHERS := $(GETTERS) $(PEERS) gcc libc6-dev libibverbs-dev perftest rdmacm-utils strace

heading = @printf '\n== %s\n'

.PHONY: help
help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: go ## in a minute: Go and C exchange messages over RDMA in a VM; every verb shown
	@tests/vm/setup $(GETTERS)
	@$(MAKE) -j2 build demo-setup
	@tests/vm/run -d rxe -t 180 -- demo/run

.PHONY: test
test: go ## everything, on Linux 6.1: half an hour
	@$(MAKE) -j1 test-setup lint unit race fuzz cross arm64 vm
	$(heading) 'all passed'

.PHONY: test-kernels
test-kernels: go test-setup ## the tests that need a device, on every kernel of the rig
	@for kernel in $(KERNELS); do for device in rxe mlx5 mlx5-eth; do tests/suite -k $$kernel -d $$device; done; done

.PHONY: bench
bench: go ## Go beside C in one boot, and what a post and a poll cost
	@tests/vm/setup $(BENCHERS)
	@tests/bench/run
	$(heading) 'connecting and disconnecting'
	@tests/bench/cm/run
	$(heading) 'what ibvtrace costs the programs that it traces'
	@tests/bench/trace/run
	$(heading) 'post and poll on an mlx5 device that is not there'
	@tests/bench/mlx5/run
	$(heading) 'post and poll on rings in memory'
	@go test -run '^$$' -bench . -benchmem ./provider/... ./verbs

.PHONY: build
build: go ## bin/ibv and bin/ibvtrace, static
	@go build -trimpath -o bin/ ./cmd/...

.PHONY: lint
lint: go ## gofmt, go vet, staticcheck
	$(heading) 'gofmt'
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted:" $$files; exit 1; }
	$(heading) 'go vet'
	@for arch in amd64 arm64; do GOOS=linux GOARCH=$$arch go vet ./...; done
	@for os in darwin windows; do GOOS=$$os go vet ./...; done
	$(heading) 'no C'
	@files=$$(CGO_ENABLED=1 go list -deps -test -f '{{if not .Standard}}{{.CgoFiles}}{{end}}' ./... | grep -v '^\[\]$$' || true); \
		[ -z "$$files" ] || { echo "files with C:" $$files; exit 1; }
	@! go list -deps ./... | grep -x runtime/cgo
	$(heading) 'staticcheck'
	@go run $(STATICCHECK) ./...

.PHONY: unit
unit: go ## tests that need no device
	$(heading) 'tests without a device'
	@$(host_packages); go test $$packages

.PHONY: race
race: go ## the same with the race detector
	$(heading) 'the same with the race detector'
	@$(host_packages); CGO_ENABLED=1 go test -race $$packages

.PHONY: fuzz
fuzz: go ## every fuzz test for a few seconds
	@$(host_packages); for package in $$packages; do \
		targets=$$(go test -list '^Fuzz' $$package); \
		for target in $$(grep '^Fuzz' <<<"$$targets"); do \
			printf '\n== %s\n' "$$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime 5s $$package; \
		done; \
	done

.PHONY: cross
cross: go ## static binaries for amd64 and arm64
	@for arch in amd64 arm64; do \
		printf '\n== go build for linux/%s\n' $$arch; \
		GOOS=linux GOARCH=$$arch go build ./...; \
	done

# What writes for devices, under emulation: qemu-user knows no RDMA ioctls.
.PHONY: arm64
arm64: go ## the tests of providers and posting on arm64, emulated
	@tests/vm/setup qemu-user-static
	$(heading) 'tests on arm64'
	@GOARCH=arm64 go test -short -exec qemu-aarch64-static ./internal/mmio ./provider/... ./verbs

.PHONY: vm
vm: go ## tests that need a device, in a VM on Linux 6.1
	@tests/suite -d rxe
	@tests/suite -d mlx5
	@tests/suite -d mlx5-eth
	@tests/mlx5bytes/hca
	@tests/mlx5bytes/hca -d mlx5-eth
	@tests/hca/suite/run
	@tests/hca/suite/run -r 'pingpong|rping|ucmatose|udaddy|mckey|UD|DC'
	@tests/hca/ethernet/run

.PHONY: go
go:
	@need=$$(awk '$$1 == "go" { print $$2 }' go.mod); \
	have=$$(go env GOVERSION 2>/dev/null || true); have=$${have#go}; have=$${have%% *}; \
	[ -n "$$have" ] && printf '%s\n' "$$need" "$$have" | sort -CV || \
		{ echo "Go $$need or newer is needed ($${have:-none} found): https://go.dev/dl" >&2; exit 1; }

# Apart from `build`, so that both can go on at once.
.PHONY: demo-setup
demo-setup:
	@tests/vm/setup
	@tests/vm/setup $(PEERS)
	@tests/vm/kernel 6.1 >/dev/null

.PHONY: test-setup
test-setup:
	@tests/vm/setup
	@tests/vm/setup $(TESTERS)
