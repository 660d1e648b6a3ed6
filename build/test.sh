#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh unit|integration|e2e [COUNT] runs the tests of one kind and leaves their numbers in .local/test/KIND*.counts.
#
#   unit         packages of the product and of the build
#   integration  test/, except test/e2e and test/crash: parts with their real neighbours
#   e2e          test/e2e and test/crash: whole stacks, one test after the other
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1 count=${2:-1}
mkdir -p .local/test
rm -f ".local/test/$kind"*.counts

# vet runs once, in `make verify`; stripped test binaries link in half the time. Repeated tests get their time for each.
flags=(-vet=off "-ldflags=-s -w" -timeout "${TEST_TIMEOUT:-$((25 * count))m}")

# The race detector builds everything it tests a second time, so the packages whose tests hold a whole server
# library run without it; the slots are the exception, because concurrency is all they are about.
heavy='k8s.io/apiserver/pkg/server|go.etcd.io/etcd/server/v3|helm.sh/helm|github.com/aws/aws-sdk-go-v2/service'
always_race='maesh.dev/ichor/registry/slots'

# packages PATTERN... prints "race PATH" or "plain PATH" for each package with tests.
packages() {
  go list -test -f '{{.ImportPath}} {{join .Deps " "}}' "$@" |
    awk -v heavy=" ($heavy)[ /]" -v always="$always_race" '
      $1 ~ /\.test$/ {
        path = substr($1, 1, length($1) - 5)
        mode = "race"
        if (path != always && ($0 " ") ~ heavy) mode = "plain"
        print mode, path
      }'
}

run() { # run NAME GOTEST-FLAG... -- TEST-FLAG...
  local name=$1
  shift
  go run ./build/gotest -counts ".local/test/$name.counts" "$@"
}

# split PATTERN... runs the light packages with the race detector and the others without.
split() {
  local list race plain failed=0
  list=$(packages "$@")
  mapfile -t race < <(sed -n 's/^race //p' <<< "$list")
  mapfile -t plain < <(sed -n 's/^plain //p' <<< "$list")
  if ((${#race[@]} > 0)); then
    echo "test: ${#race[@]} packages with the race detector"
    CGO_ENABLED=1 run "$kind-race" -- -race "${flags[@]}" "${race[@]}" || failed=1
  fi
  if ((${#plain[@]} > 0)); then
    echo "test: ${#plain[@]} packages without the race detector"
    run "$kind-plain" -- "${flags[@]}" "${plain[@]}" || failed=1
  fi
  return $failed
}

case $kind in
  unit) split $(go list ./... | grep -v '^maesh.dev/ichor/test/') ;;
  integration) split $(go list ./test/... | grep -v -e '^maesh.dev/ichor/test/e2e' -e '^maesh.dev/ichor/test/crash$') ;;
  e2e) run e2e -each -- "${flags[@]}" -p 1 -count "$count" ./test/e2e/... ./test/crash ;;
  *)
    echo "test.sh: $kind is none of unit, integration, e2e" >&2
    exit 2
    ;;
esac
