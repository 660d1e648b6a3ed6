# SPDX-License-Identifier: Apache-2.0
#
# What each target does is in `make help`; the work is in build/ and pkg/codegen/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build

# One setting for every build and test, so that they share the build cache. Only the race detector needs cgo.
export CGO_ENABLED := 0
LDFLAGS := -ldflags='-s -w'
COMMANDS := ./cmd/ichor-apiserver ./cmd/ichor-controller ./cmd/ichor ./test/hollow/cmd/hollow ./test/localstack/cmd/localstack
# How often each end-to-end test runs: make test-e2e COUNT=10
COUNT := 1

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: build
build: setup bin/kube ## every binary, into bin/
	@echo "build: $(notdir $(COMMANDS)) (a few minutes with a cold cache)"
	@go build $(LDFLAGS) -o bin/ $(COMMANDS)
	@ln -sfn ichor bin/kubectl-ichor && ln -sfn ichor bin/kubectl_complete-ichor

# Rebuilt only when its inputs changed: linking it takes a while.
bin/kube: build/kube.sh $(wildcard test/kube/*.go) test/kube/go.mod test/kube/go.sum
	@build/kube.sh

.PHONY: setup setup-test
setup: ## what building and running needs
	@build/setup.sh git

setup-test: ## what the tests and checks need besides
	@build/setup.sh git gcc nix-instantiate

.PHONY: run
run: build ## a control plane and five waiting machines on this machine, until Ctrl-C
	@bin/localstack up

.PHONY: test test-unit test-integration test-e2e
test: ## all set-up, then build, verify, and the unit, integration and end-to-end tests (what CI runs)
	@build/test-all.sh

test-unit: setup-test ## tests of single packages, most with the race detector
	@build/test.sh unit

test-integration: build setup-test ## tests of parts with their real neighbours
	@build/test.sh integration

test-e2e: build ## the whole stack, from discovery to Ready (COUNT=n repeats)
	@build/test.sh e2e $(COUNT)

.PHONY: test-fuzz fuzz
test-fuzz: setup ## every decoder of bytes from outside, for two seconds each
	@build/fuzz.sh

fuzz: setup ## the same guided by coverage and for longer: make fuzz FUZZTIME=10m (a first build takes many minutes)
	@FUZZ_GUIDED=1 FUZZTIME=$${FUZZTIME:-1m} build/fuzz.sh

.PHONY: bench bench-scan bench-fleet bench-operations bench-api bench-config chaos chaos-api chaos-operations chaos-disk chaos-away
bench: build ## every measurement, one after the other, each beside what it is compared with
	@build/bench.sh

bench-scan: setup ## finding machines in a large network, beside nmap and a bare connect loop
	@build/bench.sh scan

bench-fleet: build ## a thousand machines from discovery to Ready, and a changed patch to all of them
	@build/bench.sh fleet

bench-operations: build ## a rolling reboot of a hundred machines, and a thousand operations in history
	@build/bench.sh operations

bench-api: build ## the API beside the same types as custom resources with webhooks
	@build/bench.sh api

bench-config: setup ## rendering machines' configurations
	@build/bench.sh config

chaos: build setup-test ## the long form of the tests that attack: more interleavings, crashes and seeds
	@build/chaos.sh

chaos-api: build ## etcd and every API server killed, paused and cut off under load (CHAOS_FOR=3m, CHAOS_SEED=n)
	@build/chaos.sh api

chaos-operations: build ## operations while the controller dies at every write, and while everything fails (CHAOS_OPERATIONS=100, CHAOS_SEED=n)
	@build/chaos.sh operations

chaos-disk: build ## the disk under etcd really full (needs root: it mounts a small one)
	@build/chaos.sh disk

chaos-away: build ## every ichor-apiserver gone for ten minutes (CHAOS_AWAY=10m)
	@build/chaos.sh away

.PHONY: generate verify
generate: ## rewrites all generated code
	@pkg/codegen/update.sh

verify: setup-test ## generated code is current, formatting, vet, staticcheck, import rules, licences, links
	@pkg/codegen/verify.sh

.PHONY: clean
clean: ## removes what was built, and the local stack's state
	rm -rf bin .local
