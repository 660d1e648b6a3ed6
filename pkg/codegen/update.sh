#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Generates everything that is derived from the API types: deep copies, defaults, conversions, OpenAPI, model names,
# clients, listers, informers and apply configurations. The generators are pinned by the tool lines of go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

module=maesh.dev/ichor
apis=$module/pkg/apis/ichor
client=$module/pkg/client
header=pkg/codegen/boilerplate.go.txt
meta=(
  k8s.io/apimachinery/pkg/apis/meta/v1
  k8s.io/apimachinery/pkg/runtime
  k8s.io/apimachinery/pkg/version
  k8s.io/apimachinery/pkg/api/resource
)
readonly=()
for pkg in "${meta[@]}"; do readonly+=(--readonly-pkg "$pkg"); done
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
say() { printf 'generate: %s\n' "$*" >&2; }
tool() { # tool NAME: builds a pinned generator and prints its path
  local path=k8s.io/code-generator/cmd/$1
  [ "$1" = openapi-gen ] && path=k8s.io/kube-openapi/cmd/openapi-gen
  [ -x "$tools/$1" ] || go build -o "$tools/$1" "$path"
  printf '%s' "$tools/$1"
}

find pkg/apis -name 'zz_generated.*.go' -delete
rm -rf pkg/client pkg/openapi/zz_generated.openapi.go
mkdir -p pkg/openapi

say "schema of Talos' configuration"
go run ./pkg/codegen/talosschema > "$tools/talos.json"
mv "$tools/talos.json" pkg/apis/ichor/talosschema/zz_generated.schema.json

say "deep copies"
"$(tool deepcopy-gen)" --go-header-file "$header" --output-file zz_generated.deepcopy.go "$apis" "$apis/v1alpha1"

say "defaults"
"$(tool defaulter-gen)" --go-header-file "$header" --output-file zz_generated.defaults.go "$apis/v1alpha1"

say "conversions"
"$(tool conversion-gen)" --go-header-file "$header" --output-file zz_generated.conversion.go "$apis/v1alpha1"

say "OpenAPI"
"$(tool openapi-gen)" --go-header-file "$header" \
  --output-dir pkg/openapi --output-pkg "$module/pkg/openapi" --output-file zz_generated.openapi.go \
  --output-model-name-file zz_generated.model_name.go \
  --report-filename pkg/openapi/violations.report \
  "${readonly[@]}" "${meta[@]}" "$apis/v1alpha1"

say "schema for the apply configurations"
go run ./pkg/codegen/schema > "$tools/schema.json"

say "apply configurations"
"$(tool applyconfiguration-gen)" --go-header-file "$header" \
  --openapi-schema "$tools/schema.json" \
  --output-dir pkg/client/applyconfiguration --output-pkg "$client/applyconfiguration" "$apis/v1alpha1"

say "clientset"
"$(tool client-gen)" --go-header-file "$header" --clientset-name versioned --input-base "$module/pkg/apis" --input ichor/v1alpha1 \
  --apply-configuration-package "$client/applyconfiguration" \
  --output-dir pkg/client/clientset --output-pkg "$client/clientset"

say "listers"
"$(tool lister-gen)" --go-header-file "$header" --output-dir pkg/client/listers --output-pkg "$client/listers" "$apis/v1alpha1"

say "informers"
"$(tool informer-gen)" --go-header-file "$header" --versioned-clientset-package "$client/clientset/versioned" \
  --listers-package "$client/listers" --output-dir pkg/client/informers --output-pkg "$client/informers" "$apis/v1alpha1"
say "CLI reference"
go generate ./cmd/ichor

say "done"
