#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh [CHAPTER...] measures, all chapters without arguments: a table each, and .local/bench/CHAPTER.json. It
# fails if an aim is missed. Chapters run one after the other, because each wants the machine for itself.
set -euo pipefail
cd "$(dirname "$0")/.."
chapters=("$@")
if ((${#chapters[@]} == 0)); then chapters=(scan fleet operations api config); fi

missed=()
for chapter in "${chapters[@]}"; do
  case $chapter in
    scan) build/setup.sh nmap nft unshare ;;
    fleet | operations | api | config) ;;
    *)
      echo "bench.sh: $chapter is none of scan, fleet, operations, api, config" >&2
      exit 2
      ;;
  esac
  echo "bench: $chapter"
  program=$chapter options=()
  if [ "$chapter" = operations ]; then
    program=fleet options=(-operations -machines 100 -parallel 50 -install 5s -reboot 30s)
  fi
  go build -ldflags='-s -w' -o ".local/bench/bin/$program" "./test/bench/$program"
  ".local/bench/bin/$program" -results .local/bench "${options[@]}" || missed+=("$chapter")
done
if ((${#missed[@]} > 0)); then
  echo "bench: missed an aim, or failed: ${missed[*]}" >&2
  exit 1
fi
