#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything about the sources that a person forgets. Changes nothing; every check runs, whatever the others say.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CGO_ENABLED=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=()

check() { # check WHAT COMMAND...: COMMAND prints what is wrong, and fails if anything is
  local what=$1 begin=$SECONDS
  shift
  printf 'verify: %s\n' "$what"
  if "$@"; then
    printf 'verify: %s: ok (%ds)\n' "$what" $((SECONDS - begin))
  else
    printf 'verify: %s: FAILED (%ds)\n' "$what" $((SECONDS - begin))
    failed+=("$what")
  fi
}

sources() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do [ -e "$file" ] && printf '%s\n' "$file"; done; }

formatted() {
  local files
  mapfile -t files < <(sources '*.go')
  local bad
  bad=$(gofmt -l "${files[@]}") || return 1
  [ -z "$bad" ] || { printf 'gofmt would change:\n%s\n' "$bad"; return 1; }
}

vetted() { go vet ./... && (cd test/kube && go vet ./...); }

# Of the checks, the ones that find mistakes (SA) and simplifications (S1), and those of style that are on by default.
analysed() { go tool staticcheck ./...; }

# Generates in a copy of the checkout, so that this one stays as it is. The report of OpenAPI violations is one of
# the files: an API that breaks a rule it did not break before shows here.
generated() {
  local copy=$scratch/copy
  mkdir -p "$copy"
  sources | tar -cf - --files-from=- | tar -xf - -C "$copy" || return 1
  (cd "$copy" && pkg/codegen/update.sh) > "$scratch/update.log" 2>&1 || { cat "$scratch/update.log"; return 1; }
  local tree
  for tree in pkg artifacts docs; do
    [ ! -e "$tree" ] || diff -ruN "$tree" "$copy/$tree"
  done > "$scratch/stale"
  [ -s "$scratch/stale" ] || return 0
  head -200 "$scratch/stale"
  echo "generated code is not current: make generate, and commit what it changes"
  return 1
}

tidy() { go mod tidy -diff && (cd test/kube && go mod tidy -diff); }

flake() { nix-instantiate --parse flake.nix > /dev/null; }

scripts() {
  local file bad=0
  for file in $(sources '*.sh' .ci/run); do bash -n "$file" || bad=1; done
  return $bad
}

check "import rules, licences, sizes, names, links" go run ./pkg/codegen/checks
check "gofmt" formatted
check "shell scripts" scripts
check "flake.nix" flake
check "go.mod" tidy
check "go vet" vetted
check "generated code" generated
check "staticcheck" analysed

if ((${#failed[@]} > 0)); then
  printf 'verify: failed:'
  printf ' [%s]' "${failed[@]}"
  printf '\n'
  exit 1
fi
echo "verify: all good"
