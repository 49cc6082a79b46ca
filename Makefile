# These targets are for people. `make demo` and `make test` need Debian, Go, make
# and, to install packages, root or sudo.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The folder of Go's own installation instructions.
export PATH := $(PATH):/usr/local/go/bin
# Only the race detector needs C.
export CGO_ENABLED := 0
# The files may belong to another user, whose git repository git does not read.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

KERNELS = $(shell awk '/^[^\#]/ && $$1 != "newest" { print $$1 }' rig/kernels)

# With COUNT=1, test-all also runs tests that have passed with the same files.
COUNT := 0

# Debian packages, besides those that the rig itself needs.
GETTERS := ca-certificates # for go, to fetch modules
PEERS := ibverbs-utils ibverbs-providers
BENCHERS := $(GETTERS) $(PEERS) gcc libc6-dev libibverbs-dev perftest rdmacm-utils strace

heading = @printf '\n== %s\n'

.PHONY: help
help: ## this text
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: go ## Go and C exchange messages over RDMA in a VM, with every verb shown, in a minute
	@rig/setup $(GETTERS)
	@$(MAKE) -j2 build demo-setup
	@rig/run -d rxe -t 180 -- demo/run

.PHONY: test
test: go test-setup ## a quick run, on the host and on Linux 6.1
	@go run ./tests/runner -short

.PHONY: test-all
test-all: go test-setup ## the tests that a change must pass: every test on one device, on Linux 6.1
	@go run ./tests/runner -count $(COUNT)

# The commands of the workflow, one after the other, for hours.
.PHONY: test-nightly
test-nightly: go test-setup ## the nightly tests: all devices, kernels and parameters, for hours
	@status=0; while IFS= read -r line; do \
		printf '\n== %s\n' "$$line"; \
		bash -euo pipefail -c "$$line" </dev/null || { status=1; printf 'failed: %s\n' "$$line"; }; \
	done < <(sed -n 's/^            run: //p' .github/workflows/nightly.yml); exit $$status

.PHONY: test-kernels
test-kernels: go test-setup ## rxe, rxe-2, mlx5 and mlx5-eth on every kernel of the rig
	@status=0; for kernel in $(KERNELS); do \
		go run ./tests/runner -k $$kernel rxe rxe-2 mlx5 mlx5-eth || status=1; \
	done; exit $$status

.PHONY: bench
bench: go ## compare Go with C in one boot, and measure posts and polls
	@rig/setup $(BENCHERS)
	@tests/bench/run
	$(heading) 'instructions'
	@tests/bench/counted/run
	$(heading) 'connecting and disconnecting'
	@tests/bench/cm/run
	$(heading) 'sockets in Go and in C, and TCP'
	@tests/bench/sockets/run
	$(heading) 'the cost of ibvtrace in the programs that it traces'
	@tests/bench/ibvtrace/run
	$(heading) 'post and poll on a fake mlx5 device'
	@tests/bench/mlx5/run
	@tests/bench/mlx5/counted/run
	$(heading) 'post and poll on a fake EFA'
	@tests/bench/efa/run
	$(heading) 'post and poll on rings in memory'
	@go test -run '^$$' -bench . -benchmem ./provider/... ./verbs

.PHONY: build
build: go ## bin/ibv and bin/ibvtrace, static, without symbols
	@go build -trimpath -ldflags='-s -w' -o bin/ ./cmd/...

.PHONY: lint unit race fuzz
lint unit race fuzz: go ## one suite: `go run ./tests/runner -h` lists all
	@go run ./tests/runner $@

.PHONY: go
go:
	@need=$$(awk '$$1 == "go" { print $$2 }' go.mod); \
	have=$$(go env GOVERSION 2>/dev/null || true); have=$${have#go}; have=$${have%% *}; \
	[ -n "$$have" ] && printf '%s\n' "$$need" "$$have" | sort -CV || \
		{ echo "Go $$need or newer is needed ($${have:-none} found): https://go.dev/dl" >&2; exit 1; }

# Separate from `build`, so that both can run at the same time.
.PHONY: demo-setup
demo-setup:
	@rig/setup
	@rig/setup $(PEERS)
	@rig/kernel 6.1 >/dev/null

.PHONY: test-setup
test-setup:
	@rig/setup
	@rig/setup $(GETTERS)
	@rig/setup $$(go run ./tests/runner -packages)
