#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything a change must pass, stage by stage; ends with a table of times and the number of tests. The stages
# after a failed one still run, so that one run tells all, except when nothing can be built.
set -uo pipefail
cd "$(dirname "$0")/.."
rm -rf .local/test
start=$SECONDS
table=() failed=0

finish() {
  local passed=0 failures=0 skipped=0 p f s
  printf '\n%-18s %-8s %s\n' STAGE RESULT TIME
  printf '%s\n' "${table[@]}"
  printf '%-18s %-8s %s\n' total "$([ "$failed" = 0 ] && echo ok || echo FAILED)" "$(clock $((SECONDS - start)))"
  for counts in .local/test/*.counts; do
    [ -e "$counts" ] || continue
    read -r p f s < "$counts"
    passed=$((passed + p)) failures=$((failures + f)) skipped=$((skipped + s))
  done
  # A stage that failed without a failed test (a check, a build) counts as a failure too.
  if [ "$failed" != 0 ] && [ "$failures" = 0 ]; then failures=1; fi
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failures" "$skipped"
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

stage() { # stage TARGET: makes it, and notes how long that took
  local begin=$SECONDS result=ok
  printf '\n=== %s\n' "$1"
  make "$1" || { result=FAILED failed=1; }
  table+=("$(printf '%-18s %-8s %s' "$1" "$result" "$(clock $((SECONDS - begin)))")")
  [ $result = ok ]
}

stopped() {
  failed=1
  table+=("(stopped here)")
  exit 1
}
trap stopped INT TERM
trap finish EXIT

stage setup-test || exit 1
stage bin/kube || exit 1
stage build || exit 1
stage verify
stage test-unit
stage test-fuzz
stage test-integration
stage test-e2e
exit "$failed"
