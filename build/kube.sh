#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds bin/kube (kube-apiserver, kube-controller-manager, kube-scheduler, kubectl) from the module in test/kube, and
# the symbolic links by whose names it knows which of them it is.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
mkdir -p "$bin"

version=$(cd test/kube && go list -m -f '{{.Version}}' k8s.io/kubernetes)
major=${version#v}; major=${major%%.*}
minor=${version#v*.}; minor=${minor%%.*}

# Both packages hold a version of their own: the servers' /version, and the user agent of every client.
ldflags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done

echo "build/kube.sh: building Kubernetes $version (about ten minutes with a cold cache on two cores)"
(cd test/kube && CGO_ENABLED=0 go build -ldflags="$ldflags" -o "$bin/kube.new" .)
mv "$bin/kube.new" "$bin/kube"
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  ln -sfn kube "$bin/$name"
done
