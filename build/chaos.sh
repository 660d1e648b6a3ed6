#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# chaos.sh [CHAPTER|PACKAGE...] runs the long form of the tests that attack; ICHOR_CHAOS=1 tells them. Without arguments
# it runs every chapter. A package runs alone, with the flags of its tests after -args.
#
#   slots  every interleaving of the control-plane gate, with one fault more
#   crash  a stack whose bootstrap and controller are killed at every write, and at random, until the cluster is destroyed
#   operations  Talos upgraded while the controller is killed at every write of the journal, then operations of all kinds while
#          everything fails (CHAOS_OPERATIONS=100 is how many, CHAOS_SEED=n repeats a run)
#   api    etcd, the kube-apiserver and the ichor-apiservers killed, paused and cut off under load; CHAOS_FOR=3m is how
#          long, CHAOS_SEED=n repeats a run; the result is .local/chaos/api.json
#   disk   the disk under etcd full; it mounts a small one, so it needs root
#   away   the ichor-apiservers gone for ten minutes (CHAOS_AWAY=10m)
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .local/test .local/chaos
export ICHOR_CHAOS=1

run() { # run NAME GO-TEST-ARGUMENT...
  local name=$1
  shift
  go run ./build/gotest -counts ".local/test/chaos-$name.counts" -each -- -vet=off '-ldflags=-s -w' -p 1 -timeout 4h "$@"
}

chapter() {
  case $1 in
    slots) run slots ./registry/slots/... ;;
    crash) run crash -run TestKilled ./test/crash ;;
    operations) run operations -count 1 -run TestOperation ./test/crash ;;
    api) run api -count 1 ./test/chaos -args -chaos.for="${CHAOS_FOR:-3m}" -chaos.seed="${CHAOS_SEED:-0}" -chaos.result="$PWD/.local/chaos/api.json" ;;
    disk) run disk -count 1 -tags chaosdisk ./test/chaos/disk ;;
    away) ICHOR_AWAY=${CHAOS_AWAY:-10m} run away -count 1 -run 'TestStack/the_API_is_away' ./test/e2e ;;
    *) run package "$@" ;;
  esac
}

case ${1:-} in
  '') for each in slots crash operations api disk away; do chapter "$each"; done ;;
  *) chapter "$@" ;;
esac
