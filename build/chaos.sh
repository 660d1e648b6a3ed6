#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# chaos.sh [PACKAGE...] runs the long form of the tests that attack: every interleaving, every crash, more seeds;
# ICHOR_CHAOS=1 tells them. Without arguments it runs every package that has such a form.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .local/test
export ICHOR_CHAOS=1
[ $# -gt 0 ] || set -- ./registry/slots/... ./test/crash
go run ./build/gotest -counts .local/test/chaos.counts -each -- \
  -vet=off '-ldflags=-s -w' -p 1 -timeout 4h "$@"
