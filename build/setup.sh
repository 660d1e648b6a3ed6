#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh COMMAND... makes sure that the commands are there. What is missing is installed from Debian's packages
# as root or with CI set; otherwise the one line that does it is printed, and the exit status is 1. Go has to be there.
set -euo pipefail

cd "$(dirname "$0")/.."

# Debian's own Go is too old. A newer one fetches the toolchain that go.mod names by itself, unless GOTOOLCHAIN forbids it.
if ! said=$(go list -m 2>&1); then
  echo "setup: $said" >&2
  echo "setup: this needs Go, $(sed -n 's/^go //p' go.mod) or newer: https://go.dev/doc/install" >&2
  exit 1
fi

declare -A packages=(
  [git]=git
  [gcc]="gcc libc6-dev"
  [nix-instantiate]=nix-bin
  [nmap]=nmap
  [nft]=nftables
  [unshare]=util-linux
)

missing=() install=()
for command in "$@"; do
  if ! command -v "$command" > /dev/null; then
    missing+=("$command")
    read -ra names <<< "${packages[$command]}"
    install+=("${names[@]}")
  fi
done

if ((${#missing[@]} > 0)); then
  as_root=()
  if [ "$(id -u)" != 0 ] && [ -n "${CI:-}" ]; then as_root=(sudo); fi
  if ! command -v apt-get > /dev/null; then
    echo "setup: missing: ${missing[*]}. Install them and try again (Nix: nix develop has them all)." >&2
    exit 1
  elif [ "$(id -u)" = 0 ] || ((${#as_root[@]} > 0)); then
    echo "setup: installing ${install[*]} (for ${missing[*]})"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${install[@]}"
  else
    echo "setup: missing: ${missing[*]}. This installs them:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${install[*]}" >&2
    exit 1
  fi
fi
