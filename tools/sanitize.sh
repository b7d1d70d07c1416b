#!/bin/bash
# Builds the LibTorch-free part and its tests under a sanitizer, and runs them:
#
#     tools/sanitize.sh asan|tsan [CTEST_ARGS...]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset="$1"
shift
# gcc 12's thread sanitizer cannot start where the kernel spreads addresses too far.
if [[ "$preset" == "tsan" && -z "${PIPEWRIGHT_FIXED_ADDRESSES:-}" ]] && setarch -R true 2> /dev/null; then
  PIPEWRIGHT_FIXED_ADDRESSES=yes exec setarch -R "$PWD/tools/sanitize.sh" "$preset" "$@"
fi

mkdir -p "build-$preset"
tools/quietly.sh "build-$preset/configure.log" cmake --preset "$preset"
cmake --build "build-$preset" -j "$(nproc)"
ctest --test-dir "build-$preset" --output-on-failure -j "$(nproc)" "$@"
