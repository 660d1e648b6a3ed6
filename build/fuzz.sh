#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh [PACKAGE...] runs every fuzz target of the packages, of all without arguments, for FUZZTIME each (2s). What
# makes one fail is left in the package's testdata/fuzz, where every later `go test` tries it again: commit it with the
# fix.
#
# Without FUZZ_GUIDED=1 the binaries are those of every other test, from the same build cache, and inputs are changed at
# random. With it everything that is tested, and what it imports, is built anew with coverage, which takes many minutes
# the first time, and finds more.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
each=${FUZZTIME:-2s}
mkdir -p .local/fuzz/cache .local/test
rm -f .local/test/fuzz.counts

if [ $# -gt 0 ]; then
  mapfile -t dirs < <(go list -f '{{.Dir}}' "$@")
else
  mapfile -t dirs < <(git ls-files '*_test.go' | xargs grep -l '^func Fuzz' | xargs -n1 dirname | sort -u)
fi

passed=0 failed=0
for dir in "${dirs[@]}"; do
  dir=${dir#"$root"/}
  mapfile -t targets < <(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort)
  ((${#targets[@]} > 0)) || continue
  binary=$root/.local/fuzz/$(tr / - <<< "$dir").test
  if [ -z "${FUZZ_GUIDED:-}" ]; then
    go test -c -vet=off -ldflags='-s -w' -o "$binary" "./$dir"
  fi
  for target in "${targets[@]}"; do
    flags=("-test.run=^$" "-test.fuzz=^$target\$" "-test.fuzztime=$each" "-test.fuzzcachedir=$root/.local/fuzz/cache/$dir" -test.timeout=0)
    if [ -n "${FUZZ_GUIDED:-}" ]; then
      run=(go test -vet=off "-run=^$" "-fuzz=^$target\$" "-fuzztime=$each" -timeout=0 .)
    else
      run=("$binary" "${flags[@]}")
    fi
    if said=$(cd "$dir" && "${run[@]}" 2>&1); then
      passed=$((passed + 1))
      echo "ok    $dir $target: $(grep -oE 'execs: [0-9]+' <<< "$said" | tail -1 || true)"
    else
      failed=$((failed + 1))
      printf 'FAIL  %s %s\n%s\n' "$dir" "$target" "$(tail -40 <<< "$said")"
    fi
  done
done
echo "$passed $failed 0" > .local/test/fuzz.counts
[ "$failed" = 0 ]
